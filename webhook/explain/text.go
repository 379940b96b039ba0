package explain

import (
	"fmt"
	"strings"

	"github.com/gomarkdown/markdown/ast"
)

// textWidth is where paragraphs are wrapped; code never is.
const textWidth = 96

// text renders the tree for a terminal: headings flush left with an empty line before, what follows them indented by two.
func text(doc ast.Node) string {
	var b strings.Builder
	indent := ""
	for _, block := range doc.GetChildren() {
		switch n := block.(type) {
		case *ast.Heading:
			fmt.Fprintf(&b, "\n%s\n", inline(n))
			indent = "  "
		case *ast.List:
			b.WriteString(list(n, indent))
		case *ast.CodeBlock:
			b.WriteString(indentLines(string(n.Literal), indent))
		default:
			b.WriteString(wrap(inline(n), indent, indent))
		}
	}
	return b.String()
}

func list(n *ast.List, indent string) string {
	var b strings.Builder
	for i, item := range n.GetChildren() {
		bullet := "- "
		if n.ListFlags&ast.ListTypeOrdered != 0 {
			bullet = fmt.Sprintf("%d. ", i+1)
		}
		b.WriteString(wrap(inline(item), indent+bullet, indent+strings.Repeat(" ", len(bullet))))
	}
	return b.String()
}

// inline is the text of the node and all below it.
func inline(n ast.Node) string {
	if leaf := n.AsLeaf(); leaf != nil {
		return string(leaf.Literal)
	}
	var b strings.Builder
	for _, child := range n.GetChildren() {
		b.WriteString(inline(child))
	}
	return b.String()
}

func oneLine(doc ast.Node) string { return strings.Join(strings.Fields(inline(doc)), " ") }

func wrap(text, first, others string) string {
	var b strings.Builder
	line, started := first, false
	for _, word := range strings.Fields(text) {
		if started && len(line)+1+len(word) > textWidth {
			b.WriteString(line + "\n")
			line, started = others, false
		}
		if started {
			line += " "
		}
		line, started = line+word, true
	}
	b.WriteString(line + "\n")
	return b.String()
}

func indentLines(text, indent string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString(indent + line + "\n")
	}
	return b.String()
}
