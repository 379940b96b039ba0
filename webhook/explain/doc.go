// Package explain turns a verdict into words. It is the only package that writes prose for users.
//
// There is one source, refusal.md: a Markdown template with the whole refusal and one block a rule. It is parsed once a refusal
// with gomarkdown and rendered twice from the same tree: as plain text for kubectl, as HTML for documents.
//
//	message := explain.Text(v)     // begins with a newline: kubectl prints other things before it
//	page := explain.HTML(v)        // a fragment, safe to embed
//	lines := explain.Warnings(v)   // at most 120 characters each
//
// What it promises of any verdict, whatever the names and values in it: ASCII, no control characters, at most 4 KB, a headline of at most
// 80 columns in constant words, sorted and deterministic, no value that is read as Markdown or HTML, and a command that works as printed.
//
// # Decisions
//
// 2026-12-01: values are fenced as code spans before the text becomes Markdown, so that the parser, not an escaping table, keeps them
// apart from ours; characters beyond ASCII are spelled \u00e9, since terminals differ and lookalikes deceive.
//
// 2026-12-01: the token is told only where nothing but the confirmation is missing. A person should not agree to a plan that can not be
// carried out yet.
package explain
