package verdict

import (
	"strings"
	"unicode"

	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Side is the webhook that asks.
type Side string

// The two webhooks.
const (
	Mutating   Side = "mutating"
	Validating Side = "validating"
)

// Request is one request on an Etcd.
type Request struct {
	Side Side
	// Before is nil for a create.
	Before *volume.Etcd
	After  *volume.Etcd
	// User is who sends the request.
	User string
}

// Outcome is the decision.
type Outcome string

// Outcomes. They are API: they stand in metrics and audit annotations.
const (
	// Pass: nothing is destroyed or moved; no confirmation needed.
	Pass Outcome = "pass"
	// Refuse: not now, not so, or not without a confirmation.
	Refuse Outcome = "refuse"
	// Allow: a confirmed change.
	Allow Outcome = "allow"
)

// Reason says why nothing less than the operation will do.
type Reason string

// Reasons.
const (
	ClassChanged  Reason = "ClassChanged"
	Smaller       Reason = "Smaller"
	Expandable    Reason = "Expandable"
	NotExpandable Reason = "NotExpandable"
	Renamed       Reason = "Renamed"
	TemplateOnly  Reason = "TemplateOnly" // all volumes are as wanted already
	Requested     Reason = "Requested"    // by annotation
)

// Verdict is the decision about one request, and all that is needed to explain it.
type Verdict struct {
	Side    Side
	Outcome Outcome
	// Namespace, Name and UID are those of the Etcd.
	Namespace, Name, UID string
	Changes              change.Set
	// Operation is "" where nothing is to be done.
	Operation confirm.Operation
	Reason    Reason
	Plan      Plan
	// Confirmation is empty where the operation can not be confirmed.
	Confirmation Confirmation
	// Refusals are in the order of the rules; never empty with Refuse, always empty otherwise.
	Refusals []Refusal
	Warnings []Warning
	// Marks are our annotations as they must be stored.
	Marks Marks
}

// Confirmation is what was, or what would have to be, confirmed.
type Confirmation struct {
	// Annotation is the key by which a person confirms.
	Annotation string
	// Token fits exactly this change; Given is what stands on the Etcd.
	Token, Given string
	// By is who gave it; "" = nobody, or not known.
	By         string
	Generation int64
}

// Refusal is what one rule objects to. The words are found by package explain.
type Refusal struct {
	Rule Rule
	// Field is the path of the field or annotation that is objected to.
	Field string
	// Subjects are what the refusal is about: members, annotations, fields. Sorted.
	Subjects []string
	// Detail is one more value that the sentence needs.
	Detail string
}

// Only reports whether nothing but a confirmation is missing.
func (v *Verdict) Only(rules ...Rule) bool {
	for _, r := range v.Refusals {
		found := false
		for _, rule := range rules {
			found = found || r.Rule == rule
		}
		if !found {
			return false
		}
	}
	return len(v.Refusals) > 0
}

// Confirmable reports whether the change would be allowed if it were confirmed with the token.
func (v *Verdict) Confirmable() bool {
	return v.Confirmation.Token != "" && v.Only(ConfirmationMissing, ConfirmationStale, ConfirmationUnnoted)
}

// WarningKind names a notable thing about a request that may pass. Stable.
type WarningKind string

// Warnings, in their order.
const (
	BindsImmediately WarningKind = "binds-immediately"
	DruidKept        WarningKind = "druid-kept" // an annotation of etcd-druid was set by the admin and is kept
	Supersedes       WarningKind = "supersedes"
	CRDForbids       WarningKind = "crd-forbids"
	CRDUnknown       WarningKind = "crd-unknown"
	MarksRestored    WarningKind = "marks-restored"
	ConfirmationIdle WarningKind = "confirmation-idle" // stands on the Etcd and fits nothing
)

// Warning is a notable thing. The words are found by package explain.
type Warning struct {
	Kind    WarningKind
	Subject string
	Detail  string
}

// Of decides.
func Of(r Request, f Facts) Verdict {
	c := newCase(r, f)
	v := Verdict{
		Side: r.Side, Namespace: r.After.Namespace, Name: r.After.Name, UID: string(r.After.UID),
		Changes: c.changes, Operation: c.operation, Reason: c.reason, Confirmation: c.confirmation(),
	}
	if c.operation != "" {
		v.Plan = c.plan()
	}
	v.Refusals = hear(changeRules, c)
	c.allowed = c.operation != "" && len(v.Refusals) == 0
	v.Marks = c.marks()
	if r.Side == Validating {
		v.Refusals = append(v.Refusals, hear(markRules, c)...)
	}
	v.Warnings = c.warnings()
	v.Outcome = outcome(c, v.Refusals)
	return v
}

// Unjudged refuses a request that is not understood.
func Unjudged(side Side, namespace, name, detail string) Verdict {
	return Verdict{
		Side: side, Outcome: Refuse, Namespace: namespace, Name: name,
		Refusals: []Refusal{{Rule: RequestUnknown, Detail: detail}},
	}
}

func outcome(c *judged, refusals []Refusal) Outcome {
	switch {
	case len(refusals) > 0:
		return Refuse
	case c.operation != "":
		return Allow
	default:
		return Pass
	}
}

func hear(rules []rule, c *judged) []Refusal {
	var refusals []Refusal
	for _, r := range rules {
		if refusal := r.speak(c); refusal != nil {
			refusal.Rule = r.name
			refusals = append(refusals, *refusal)
		}
	}
	return refusals
}

// Rule names a rule. The names are API: they stand in causes, metrics and audit annotations.
type Rule string

// Cause is the rule's name as a cause's type: CamelCase.
func (r Rule) Cause() string {
	var b strings.Builder
	up := true
	for _, c := range string(r) {
		if c == '-' {
			up = true
			continue
		}
		if up {
			c = unicode.ToUpper(c)
		}
		up = false
		b.WriteRune(c)
	}
	return b.String()
}
