package verdict

import (
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// longestToken bounds what is taken for a token and noted; tokens are far shorter.
const longestToken = 64

// Marks are our annotations as they must be stored, computed by both webhooks in the same way.
type Marks struct {
	// Stamp and Note are nil where the annotation must be absent.
	Stamp, Note *string
	// Hold: etcd-druid must be held, by both of its annotations.
	Hold bool
}

// markState is how an annotation of ours on the object compares with what it must be.
type markState int

const (
	markRight markState = iota
	markMissing
	markForged
	markMoved // right by its own facts, which are not ours any more
)

func (c *judged) marks() Marks {
	m := Marks{Note: c.note(), Stamp: c.keptStamp()}
	if stamp := c.newStamp(); stamp != nil && c.allowed {
		m.Stamp, m.Hold = stamp, true
	}
	return m
}

// note is the note that must be stored: gone with its confirmation, new with a new one, else as it was.
func (c *judged) note() *string {
	if c.Before == nil {
		return nil
	}
	before, after := confirm.Given(c.Before.Annotations), confirm.Given(c.After.Annotations)
	switch {
	case after == "" || len(after) > longestToken:
		return nil
	case after == before:
		return value(c.Before, volume.ConfirmedByAnnotation)
	default:
		note := confirm.Note{Token: after, User: c.User}.String()
		return &note
	}
}

// keptStamp is the stamp that stays where nothing new is stamped. One that can not be read may be taken away.
func (c *judged) keptStamp() *string {
	if c.Before == nil || (c.stampErr != nil && value(c.After, volume.StampAnnotation) == nil) {
		return nil
	}
	return value(c.Before, volume.StampAnnotation)
}

// newStamp is the stamp of the change, if its confirmation fits: nil otherwise. Whether the change is allowed is another matter.
func (c *judged) newStamp() *string {
	if c.ask == nil || c.given != c.token() || c.by == "" {
		return nil
	}
	stamp := confirm.StampOf(*c.ask, c.by, c.User, c.held()).String()
	return &stamp
}

// held says which of etcd-druid's annotations are ours to take away in the end. One that stood before is ours only if a stamp says so
// whose rollout is not finished. One that did not stand before is ours if we add it: the mutating webhook sees that on the object as sent;
// the validating one, to whom all look added, believes the stamp, since both answers are harmless.
func (c *judged) held() confirm.Held {
	said := c.saidHeld()
	inherited := confirm.Held{}
	if c.stamp != nil && !c.finished(c.stamp.Generation) {
		inherited = c.stamp.Held
	}
	return confirm.Held{
		Suspend:    c.heldOne(volume.SuspendAnnotation, said.Suspend, inherited.Suspend),
		Protection: c.heldOne(volume.DisableProtectionAnnotation, said.Protection, inherited.Protection),
	}
}

func (c *judged) heldOne(annotation string, said, inherited bool) bool {
	if has(c.Before, annotation) {
		return inherited
	}
	return said
}

func (c *judged) saidHeld() confirm.Held {
	if c.Side == Validating {
		if stamp, err := confirm.Read(c.After.Annotations); err == nil && stamp != nil {
			return stamp.Held
		}
	}
	return confirm.Held{
		Suspend:    !has(c.After, volume.SuspendAnnotation),
		Protection: !has(c.After, volume.DisableProtectionAnnotation),
	}
}

func (c *judged) finished(generation int64) bool {
	r := c.Rollout.Value
	return r != nil && r.Generation >= generation && r.Final
}

func (c *judged) noteState() markState {
	want, got := c.note(), value(c.After, volume.ConfirmedByAnnotation)
	switch {
	case same(got, want):
		return markRight
	case c.Before == nil || confirm.Given(c.Before.Annotations) == confirm.Given(c.After.Annotations):
		return markForged // nothing was confirmed, so nothing was to be noted
	case got == nil || same(got, value(c.Before, volume.ConfirmedByAnnotation)):
		return markMissing
	default:
		return markForged
	}
}

func (c *judged) stampState() markState {
	got := value(c.After, volume.StampAnnotation)
	kept, fresh := c.keptStamp(), c.newStamp()
	switch {
	case fresh != nil && same(got, fresh):
		return markRight
	case same(got, kept) && c.allowed:
		return markMissing
	case same(got, kept):
		return markRight
	case c.moved():
		return markMoved
	default:
		return markForged
	}
}

// moved reports whether the stamp is of this very change, confirmed with the given token, and only what is live is another.
func (c *judged) moved() bool {
	stamp, err := confirm.Read(c.After.Annotations)
	if err != nil || stamp == nil || c.ask == nil {
		return false
	}
	return stamp.Token == c.given && stamp.EtcdUID == c.ask.EtcdUID && stamp.From.Equal(c.ask.From) && stamp.To.Equal(c.ask.To) &&
		stamp.RequestedBy == c.User
}

// unheld returns those of etcd-druid's annotations that an allowed change lacks.
func (c *judged) unheld() []string {
	if !c.allowed {
		return nil
	}
	var missing []string
	for _, annotation := range []string{volume.SuspendAnnotation, volume.DisableProtectionAnnotation} {
		if !has(c.After, annotation) {
			missing = append(missing, annotation)
		}
	}
	return missing
}

func has(e *volume.Etcd, annotation string) bool { return value(e, annotation) != nil }

func value(e *volume.Etcd, annotation string) *string {
	if e == nil {
		return nil
	}
	if v, ok := e.Annotations[annotation]; ok {
		return &v
	}
	return nil
}

func same(a, b *string) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
