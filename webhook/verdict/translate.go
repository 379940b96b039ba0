package verdict

import (
	"slices"

	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// leastMembers is the fewest members of an Etcd whose volumes can be replaced from each other: with one of them out, the rest still
// has a majority.
const leastMembers = 3

// translate picks the least destructive operation that makes the request true, and says why nothing less will do. What is live
// decides, not what the Etcd said before.
func (c *judged) translate() (confirm.Operation, Reason) {
	switch {
	case c.asked(volume.RecoverAnnotation):
		return confirm.Recover, Requested
	case c.asked(volume.ReleaseAnnotation):
		return confirm.Release, Requested
	case c.asked(volume.RecreateAnnotation):
		return confirm.Recreate, Requested
	case c.changes.Empty(), c.nothingLive(), c.liveEverywhere():
		return "", ""
	case c.liveTemplate() != c.changes.After.Template:
		return confirm.Replace, Renamed
	default:
		return c.translateSpec()
	}
}

// askingAnnotations ask for an operation when they are set.
var askingAnnotations = []string{volume.RecoverAnnotation, volume.ReleaseAnnotation, volume.RecreateAnnotation}

// asked reports whether the request sets the annotation anew; taking it away asks for nothing.
func (r Request) asked(annotation string) bool {
	value := r.After.Annotations[annotation]
	return value != "" && value != r.Before.Annotations[annotation]
}

func (c *judged) translateSpec() (confirm.Operation, Reason) {
	live := c.liveClaims()
	if len(live) == 0 { // unknown, or on their way: the old spec is the best guess, and other rules refuse
		live = []Claim{{Class: c.changes.Before.Class, Capacity: c.changes.Before.Capacity}}
	}
	want := c.changes.After.Capacity
	switch {
	case slices.ContainsFunc(live, func(l Claim) bool { return !c.ofWantedClass(l) }):
		return confirm.Replace, ClassChanged
	case slices.ContainsFunc(live, func(l Claim) bool { return l.Capacity.Cmp(want) > 0 }):
		return confirm.Replace, Smaller
	case !slices.ContainsFunc(live, func(l Claim) bool { return l.Capacity.Cmp(want) < 0 }):
		return confirm.Replace, TemplateOnly
	case c.Class.OK() && c.Class.Value != nil && c.Class.Value.Expandable:
		return confirm.Expand, Expandable
	default:
		return confirm.Replace, NotExpandable
	}
}

// destroyed are the claims that the operation destroys: of a Replace those that are not as wanted, all of them on a rename.
func (c *judged) destroyed() []Claim {
	if c.operation != confirm.Replace {
		return nil
	}
	var doomed []Claim
	for _, claim := range c.liveClaims() {
		if c.reason == Renamed || !c.asWanted(claim) {
			doomed = append(doomed, claim)
		}
	}
	return doomed
}

// supported reports whether this version carries the operation out.
func (c *judged) supported() bool {
	return c.operation == confirm.Replace && c.reason != Renamed && c.members() >= leastMembers && c.Before.Spec.Replicas <= MostMembers
}
