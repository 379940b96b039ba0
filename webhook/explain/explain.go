package explain

import (
	"bytes"
	_ "embed" // for refusal.md
	"fmt"
	"text/template"

	"github.com/gomarkdown/markdown"
	"github.com/gomarkdown/markdown/ast"
	"github.com/gomarkdown/markdown/html"
	"github.com/gomarkdown/markdown/parser"

	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
)

//go:embed refusal.md
var source string

var blocks = template.Must(template.New("refusal.md").Funcs(words).Parse(source))

const (
	// headlineWidth is the number of columns of the first line at most.
	headlineWidth = 80
	// most is the number of entries of a list that are told; of the others, how many there are.
	most = 8
)

// view is what the template sees.
type view struct {
	verdict.Verdict
	// Problem is the headline's constant part, Subject the Etcd it is about.
	Problem, Subject string
	Changes          []change.Change
	// Why holds one Markdown sentence a refusal; empty where only the confirmation is missing.
	Why      []string
	ShowPlan bool
	Commands []string
}

// Text is the refusal as plain text, for kubectl. It begins with a newline.
func Text(v verdict.Verdict) string {
	return "\n" + text(document(v))
}

// HTML is the refusal as an HTML fragment: no raw HTML passes, and no link but a safe one.
func HTML(v verdict.Verdict) string {
	renderer := html.NewRenderer(html.RendererOptions{Flags: html.SkipHTML | html.Safelink})
	return string(markdown.Render(document(v), renderer))
}

// Sentence says in one line of plain text what the rule objects to.
func Sentence(r verdict.Refusal) string {
	return oneLine(parse(sentence(r)))
}

func document(v verdict.Verdict) ast.Node {
	return parse(execute("refusal", viewOf(v)))
}

func viewOf(v verdict.Verdict) view {
	problem := problemOf(v)
	w := view{
		Verdict: v, Problem: problem, Subject: subject(v, headlineWidth-len("Refused: ")-len(problem)-len(" ")),
		Changes: v.Changes.Changes, ShowPlan: v.Confirmation.Token != "",
	}
	for _, r := range v.Refusals {
		if r.Rule != verdict.ConfirmationMissing || !v.Confirmable() {
			w.Why = append(w.Why, sentence(r))
		}
	}
	if v.Confirmable() {
		w.Commands = commands(v)
	}
	return w
}

// problemOf is the same for the same kind of problem, whatever the Etcd.
func problemOf(v verdict.Verdict) string {
	switch {
	case v.Confirmable():
		return "volume change not confirmed for Etcd"
	case v.Only(verdict.RequestUnknown):
		return "request not understood for Etcd"
	case v.Only(verdict.StampForged):
		return "reserved annotation changed on Etcd"
	case v.Only(verdict.StampMissing, verdict.VolumesMoved, verdict.LookUpFailed):
		return "volume change not judged for Etcd"
	default:
		return "volume change not possible for Etcd"
	}
}

// commands are those by which a person confirms: one, or two where the confirmation must be taken away first to be noted.
func commands(v verdict.Verdict) []string {
	annotate := fmt.Sprintf("kubectl -n %s annotate etcd.druid.gardener.cloud %s ", word(v.Namespace), word(v.Name))
	give := fmt.Sprintf("%s%s=%s --overwrite", annotate, v.Confirmation.Annotation, v.Confirmation.Token)
	if v.Only(verdict.ConfirmationUnnoted) {
		return []string{annotate + v.Confirmation.Annotation + "-", give}
	}
	return []string{give}
}

func sentence(r verdict.Refusal) string { return execute(string(r.Rule), r) }

func execute(block string, data any) string {
	var b bytes.Buffer
	if err := blocks.ExecuteTemplate(&b, block, data); err != nil {
		return fmt.Sprintf("No words for `%s`: this is a bug.", block)
	}
	return b.String()
}

func parse(source string) ast.Node {
	return markdown.Parse([]byte(source), parser.NewWithExtensions(parser.FencedCode|parser.SpaceHeadings|parser.NoIntraEmphasis))
}
