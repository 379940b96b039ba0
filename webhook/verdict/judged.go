package verdict

import (
	"slices"

	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// judged is a request with all that follows from it and the facts. Rules read it and write nothing.
type judged struct {
	Request
	Facts
	changes change.Set
	// stamp is the one on the stored Etcd; stampErr says why it can not be read.
	stamp    *confirm.Stamp
	stampErr error
	// operation is "" where the request has no effect on a volume.
	operation confirm.Operation
	reason    Reason
	// doomed are the claims that the operation destroys.
	doomed []Claim
	// ask is nil where the operation is none that we carry out.
	ask *confirm.Ask
	// given is the confirmation that counts; by is who gave it.
	given, by string
	// allowed: no rule about the change spoke. Set before the rules about the marks are heard.
	allowed bool
}

func newCase(r Request, f Facts) *judged {
	c := &judged{Request: r, Facts: f}
	if r.Before == nil {
		return c // a create makes new volumes and destroys none
	}
	c.changes = change.Between(volume.Of(r.Before), volume.Of(r.After))
	c.stamp, c.stampErr = confirm.Read(r.Before.Annotations)
	c.given, c.by = givenBy(r)
	c.operation, c.reason = c.translate()
	c.doomed = c.destroyed()
	c.ask = c.question()
	return c
}

// MostMembers is the largest Etcd that is judged member by member: a rollout holds no more claims.
const MostMembers = 64

// replicas is the number of members that the change is about. A request that changes it is refused, so the old one counts.
func (c *judged) replicas() int { return min(int(c.Before.Spec.Replicas), MostMembers) }

// members is the number of members that have, or had, a volume: those of a hibernated Etcd are counted by their claims.
func (c *judged) members() int {
	if c.replicas() > 0 {
		return c.replicas()
	}
	return len(c.Claims.Value)
}

// liveClaims are the claims of the Etcd's members; those left over from a larger Etcd are not touched and do not count.
func (c *judged) liveClaims() []Claim {
	if c.replicas() == 0 {
		return c.Claims.Value
	}
	var live []Claim
	for _, claim := range c.Claims.Value {
		if claim.Ordinal < c.replicas() {
			live = append(live, claim)
		}
	}
	return live
}

// nothingLive is proven only by look-ups that succeeded.
func (c *judged) nothingLive() bool {
	return c.StatefulSet.OK() && c.StatefulSet.Value == nil && c.Claims.OK() && len(c.Claims.Value) == 0
}

// liveEverywhere reports whether the wanted spec is what the StatefulSet's template and every claim have already.
func (c *judged) liveEverywhere() bool {
	if !c.StatefulSet.OK() || !c.Claims.OK() {
		return false
	}
	if set := c.StatefulSet.Value; set != nil && !set.Template.Equal(c.changes.After) {
		return false
	}
	if c.liveTemplate() != c.changes.After.Template {
		return false
	}
	return !slices.ContainsFunc(c.liveClaims(), func(claim Claim) bool { return !c.asWanted(claim) })
}

func (c *judged) asWanted(claim Claim) bool {
	return c.ofWantedClass(claim) && claim.Capacity.Cmp(c.changes.After.Capacity) == 0
}

// ofWantedClass knows that an empty class means the cluster's default, which is written on the claim when it is made.
func (c *judged) ofWantedClass(claim Claim) bool {
	want := c.changes.After.Class
	if want == "" && c.Class.OK() && c.Class.Value != nil && claim.Class == c.Class.Value.Name {
		return true
	}
	return claim.Class == want
}

func (c *judged) liveTemplate() string {
	if c.StatefulSet.OK() && c.StatefulSet.Value != nil {
		return c.StatefulSet.Value.Template.Template
	}
	return c.changes.Before.Template
}

func (c *judged) rolloutRuns() bool {
	return c.Rollout.OK() && c.Rollout.Value != nil && !c.Rollout.Value.Final
}

// generation is the next volume generation. It follows the stamp, and no number is used twice where a stamp was lost.
func (c *judged) generation() int64 {
	next := confirm.NextGeneration(c.stamp)
	if r := c.Rollout.Value; r != nil && r.Generation >= next {
		next = r.Generation + 1
	}
	return next
}

// Concerns reports whether the request asks for something on a volume, so that facts are needed to judge it. All else is judged by the
// request alone.
func Concerns(r Request) bool {
	if r.Before == nil {
		return false
	}
	return !volume.Of(r.Before).Equal(volume.Of(r.After)) || slices.ContainsFunc(askingAnnotations, r.asked)
}

// Confirmed reports whether some confirmation comes with the request or stands on the Etcd, so that it may be allowed.
func Confirmed(r Request) bool {
	return r.Before != nil && (confirm.Given(r.Before.Annotations) != "" || confirm.Given(r.After.Annotations) != "")
}

func (c *judged) question() *confirm.Ask {
	if c.operation == "" || !c.supported() {
		return nil
	}
	claims := make([]confirm.Claim, 0, len(c.doomed))
	for _, claim := range c.doomed {
		claims = append(claims, confirm.Claim{Ordinal: claim.Ordinal, Name: claim.Name, UID: claim.UID})
	}
	return &confirm.Ask{
		EtcdUID: string(c.Before.UID), Generation: c.generation(), Operation: c.operation,
		From: c.changes.Before, To: c.changes.After, Claims: claims,
	}
}

func (c *judged) token() string {
	if c.ask == nil {
		return ""
	}
	return confirm.Token(*c.ask)
}

func (c *judged) confirmation() Confirmation {
	if c.ask == nil {
		return Confirmation{}
	}
	return Confirmation{
		Annotation: volume.ConfirmAnnotation, Token: c.token(), Given: c.given, By: c.by, Generation: c.ask.Generation,
	}
}

// givenBy returns the confirmation that counts and who gave it. One that the request itself sets is its sender's; one that stood before
// is its note's, and nobody's where no note fits it.
func givenBy(r Request) (token, user string) {
	before, after := confirm.Given(r.Before.Annotations), confirm.Given(r.After.Annotations)
	if after != "" && after != before {
		return after, r.User
	}
	note := confirm.NoteOf(r.Before.Annotations)
	if before == "" || note.Token != before {
		return before, ""
	}
	return before, note.User
}
