package explain

import (
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
)

// longestValue is how much of a value is told; names of Kubernetes objects rarely come near it.
const longestValue = 80

// words are the functions of the template.
var words = template.FuncMap{
	"backup":   backup,
	"class":    class,
	"code":     told,
	"codes":    codes,
	"duration": duration,
	"first":    func(s []verdict.Step) []verdict.Step { return s[:min(len(s), most)] },
	"minusOne": func(n int) int { return n - 1 },
	"plural":   plural,
	"policies": policies,
	"rest":     func(s []verdict.Step) int { return max(0, len(s)-most) },
	"role":     role,
	"size":     func(q resource.Quantity) string { return told(q.String()) },
	"value":    value,
	"volume":   volume,
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func class(name string) string {
	if name == "" {
		return "the cluster's default"
	}
	return told(name)
}

func value(v string) string {
	if v == "" {
		return "not set"
	}
	return told(v)
}

func volume(s verdict.Step) string {
	if s.Claim.Volume == "" {
		return "of claim " + told(s.Claim.Name) + " (not bound yet)"
	}
	return told(s.Claim.Volume)
}

func role(s verdict.Step) string {
	switch {
	case !s.Ready:
		return " (not ready)"
	case s.Role == verdict.RoleOpen:
		return ""
	default:
		return " (" + string(s.Role) + ")"
	}
}

func policies(steps []verdict.Step) string {
	var all []string
	for _, s := range steps {
		policy := "unknown"
		if s.Claim.Policy != "" {
			policy = told(s.Claim.Policy)
		}
		if !slices.Contains(all, policy) {
			all = append(all, policy)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// backup tells the age of the newest backups in one sentence; nothing where it is not known, which is told elsewhere.
func backup(p verdict.Plan) string {
	b := p.Backup.Value
	switch {
	case !p.Backup.OK():
		return ""
	case !b.Store:
		return "No backup store is configured: the other members are the only other copies."
	case b.Full == nil:
		return "A full backup is taken first; none has been seen yet."
	case b.Delta == nil || b.Delta.Before(*b.Full):
		return "A full backup is taken first. Newest until then: full, " + age(p.Now, *b.Full) + "."
	default:
		return fmt.Sprintf("A full backup is taken first. Newest until then: full, %s; delta, %s.", age(p.Now, *b.Full), age(p.Now, *b.Delta))
	}
}

func age(now, then time.Time) string {
	return fmt.Sprintf("%s old (%s)", duration(now.Sub(then)), then.UTC().Format("2006-01-02T15:04Z"))
}

// duration is coarse: nobody decides by seconds.
func duration(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", max(0, int(d.Seconds())))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 4*24*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

// told is a value as a code span: clean, not too long, and not read as Markdown.
func told(v string) string { return code(clip(clean(v), longestValue)) }

func codes(values []string) string {
	spans := make([]string, 0, most)
	for _, v := range values[:min(len(values), most)] {
		spans = append(spans, told(v))
	}
	if more := len(values) - most; more > 0 {
		spans = append(spans, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(spans, ", ")
}

// code fences the value with more backticks than it holds in a row.
func code(v string) string {
	longest, run := 0, 0
	for _, c := range v {
		if c != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if longest == 0 {
		return fence + v + fence
	}
	return fence + " " + v + " " + fence
}

// clean leaves printable ASCII: control characters become spaces, other characters are spelled out.
func clean(v string) string {
	var b strings.Builder
	for _, c := range v {
		switch {
		case c < unicode.MaxASCII && c >= ' ':
			b.WriteRune(c)
		case unicode.IsControl(c) || c == unicode.MaxASCII:
			b.WriteByte(' ')
		case c > 0xffff:
			fmt.Fprintf(&b, "\\U%08x", c)
		default:
			fmt.Fprintf(&b, "\\u%04x", c)
		}
	}
	cleaned := strings.Join(strings.Fields(b.String()), " ")
	if cleaned == "" {
		return "(empty)"
	}
	return cleaned
}

// clip shortens in the middle: the ends tell names apart.
func clip(v string, width int) string {
	const gap = "..."
	if len(v) <= width || width <= len(gap) {
		return v
	}
	head := (width - len(gap) + 1) / 2
	return v[:head] + gap + v[len(v)-(width-len(gap)-head):]
}

// word is a value in a command: as it is where the shell takes it as one word, as of any name of a Kubernetes object, else quoted.
func word(v string) string {
	v = clean(v)
	plain := func(c rune) bool {
		return c == '-' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')
	}
	if !strings.HasPrefix(v, "-") && strings.IndexFunc(v, func(c rune) bool { return !plain(c) }) < 0 {
		return v
	}
	return "'" + strings.ReplaceAll(clip(v, longestValue), "'", `'\''`) + "'"
}

func subject(v verdict.Verdict, width int) string {
	return clip(clean(v.Namespace+"/"+v.Name), width)
}
