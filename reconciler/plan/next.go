package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// guard looks at the snapshot and either speaks (a step) or passes (nil).
type guard func(s Snapshot, now time.Time) *Step

// guards, in their order: the first that speaks wins.
var guards = []guard{
	leave,     // what is deleted is put back first
	reject,    // a stamp that may not be acted on
	translate, // a stamp without rollout becomes one
	handOver,  // an older rollout ends before the newer one begins
	run,       // the rollout itself
	retain,    // volumes whose time is over, or not yet decided
}

// Next says which step comes next.
func Next(s Snapshot, now time.Time) Step {
	for _, g := range guards {
		if step := g(s, now); step != nil {
			return overdue(s, *step, now)
		}
	}
	return Step{Action: Idle, Member: -1, Again: untilRetentionEnds(s, now)}
}

// leave puts back what was set on foreign objects when the rollout or the Etcd goes.
func leave(s Snapshot, now time.Time) *Step {
	for _, r := range s.Rollouts {
		if s.needed(r) {
			continue
		}
		if r.Deleting && r.Finalizer || s.leaving() && (r.Finalizer || !r.Final()) {
			if step := putBack(s, r, now); step != nil {
				return step
			}
		}
	}
	return nil
}

// leaving reports whether the Etcd is gone or going.
func (s Snapshot) leaving() bool { return s.Etcd == nil || s.Etcd.Deleting }

// needed reports whether a superseded rollout still has to tell a running one what was set on the Etcd.
func (s Snapshot) needed(r Rollout) bool {
	if r.Status.Phase != v1alpha1.Superseded || s.leaving() {
		return false
	}
	next := s.active()
	return next != nil && next.Generation > r.Generation
}

// putBack is one step of taking back what a rollout has set: volumes of claims that live get their policy back, volumes
// of claims that are gone keep Retain until their time is over.
func putBack(s Snapshot, r Rollout, now time.Time) *Step {
	if step := readopt(s, r); step != nil {
		return step
	}
	if step := settleVolumes(s, r, now); step != nil {
		return step
	}
	if step := release(s, r); step != nil && s.newest(r) {
		return step
	}
	if !r.Final() {
		return &Step{
			Action: Abort, Reason: Reason("Deleted"), Rollout: r.Name, Phase: v1alpha1.Aborted, Member: -1,
			Message: "the Etcd or this rollout is being deleted; what was set was put back", Again: lookAgain,
		}
	}
	if r.Finalizer {
		return &Step{
			Action: RemoveFinalizer, Reason: "PutBack", Rollout: r.Name, Phase: r.Status.Phase, Member: -1,
			Message: "everything that was set is put back", Target: Target{r.Name, r.UID, r.ResourceVersion}, Again: lookAgain,
		}
	}
	return nil
}

// readopt makes the StatefulSet again that the rollout has deleted: the kept manifest goes with the rollout. Where the Etcd goes too, a
// StatefulSet is made only for pods that were orphaned, so that whoever deletes the Etcd finds one to delete. A rollout that has
// ended has given it back long ago, and its manifest is an old one.
func readopt(s Snapshot, r Rollout) *Step {
	rec := s.record(r)
	if rec == nil || r.Final() {
		return nil
	}
	if t := s.StatefulSet; t != nil {
		if t.Deleting && t.UID == rec.StatefulSetUID {
			return wait(r, v1alpha1.Finishing, StatefulSetLeaving, "waiting until the old StatefulSet is gone, to make it again")
		}
		return nil
	}
	if !s.leaving() || slices.ContainsFunc(s.Members, orphaned) {
		return createStatefulSet(s, r, &r.To)
	}
	return nil
}

func orphaned(m Member) bool { return m.Pod != nil && !m.Pod.Deleting && m.Pod.ControllerUID == "" }

// settleVolumes decides about each volume of a rollout that ends.
func settleVolumes(s Snapshot, r Rollout, now time.Time) *Step {
	for _, v := range s.Volumes {
		if v.Mark.Rollout != r.Name {
			continue
		}
		if v.ClaimLives {
			return restore(v, r.Name, r.Status.Phase, "the claim of volume %s was not deleted: its reclaim policy %s is given back", v.Name, v.Mark.OriginalPolicy)
		}
		if v.Mark.RetainedUntil.IsZero() {
			return keep(s, v, r.Name, now)
		}
	}
	return nil
}

func restore(v Volume, rollout string, phase v1alpha1.Phase, format string, args ...any) *Step {
	return &Step{
		Action: RestorePolicy, Reason: "PolicyGivenBack", Rollout: rollout, Phase: phase, Member: -1, Message: fmt.Sprintf(format, args...),
		Target: Target{v.Name, v.UID, v.ResourceVersion}, Policy: v.Mark.OriginalPolicy, Again: lookAgain,
	}
}

func keep(s Snapshot, v Volume, rollout string, now time.Time) *Step {
	mark := v.Mark
	mark.RetainedUntil = now.Add(s.Options.RetainVolumes).UTC().Truncate(time.Second)
	return &Step{
		Action: KeepVolume, Reason: "VolumeRetained", Rollout: rollout, Phase: v1alpha1.Finishing, Member: -1, Mark: mark,
		Message: fmt.Sprintf("old volume %s of %s is kept until %s", v.Name, v.Mark.Member, mark.RetainedUntil.Format(time.RFC3339)),
		Target:  Target{v.Name, v.UID, v.ResourceVersion}, Again: lookAgain,
	}
}

// reject refuses to act on a stamp that can not be read or is not this Etcd's. A StatefulSet that was deleted comes back all the same:
// that destroys nothing.
func reject(s Snapshot, _ time.Time) *Step {
	fault := s.stampFault()
	if fault == "" {
		return nil
	}
	step := &Step{Action: Reject, Reason: StampInvalid, Message: fault, Member: -1, Again: time.Minute}
	if r := s.active(); r != nil {
		if again := restoreStatefulSet(s, *r); again != nil {
			return again
		}
		step.Rollout, step.Phase = r.Name, r.Status.Phase
	}
	return step
}

// stampFault says why the stamp may not be acted on; "" if it may, or if there is none.
func (s Snapshot) stampFault() string {
	switch {
	case s.leaving():
		return ""
	case s.StampError != "":
		return s.StampError + ": nothing is done in its name"
	case s.Stamp == nil:
		return ""
	case s.Stamp.EtcdUID != s.Etcd.UID:
		return "the stamp was made for another Etcd (UID " + s.Stamp.EtcdUID + "): nothing is done in its name"
	}
	for _, c := range s.Stamp.Claims {
		if c.Ordinal < 0 || c.Name != volume.ClaimName(s.Stamp.From.Template, s.Name, c.Ordinal) {
			return fmt.Sprintf("the stamp names claim %q, which is not one of this Etcd's: nothing is done in its name", c.Name)
		}
	}
	return ""
}

// RolloutName is the name of the rollout of one volume generation.
func RolloutName(etcd string, generation int64) string {
	return fmt.Sprintf("%s-v%d", etcd, generation)
}

// RecordName is the name of the kept manifest of the StatefulSet.
func RecordName(rollout string) string { return rollout + "-statefulset" }

// translate makes one rollout of a stamp that has none, unless there is nothing left to do for it.
func translate(s Snapshot, _ time.Time) *Step {
	if s.leaving() || s.Stamp == nil {
		return nil
	}
	name := RolloutName(s.Name, s.Stamp.Generation)
	for _, r := range s.Rollouts {
		if r.Name != name {
			continue
		}
		if r.EtcdUID == s.Etcd.UID && r.Token == s.Stamp.Token {
			return nil
		}
		return &Step{
			Action: Wait, Reason: PreviousRolloutGoing, Member: -1, Again: lookAgain,
			Message: "rollout " + name + " of an earlier Etcd or change of this name must go first",
		}
	}
	if s.moot() {
		return nil
	}
	return &Step{
		Action: CreateRollout, Reason: "Confirmed", Member: -1, Target: Target{Name: name}, Stamp: s.Stamp, Replicas: s.Etcd.Replicas,
		Message: fmt.Sprintf("volume change %d of %s/%s was confirmed by %s", s.Stamp.Generation, s.Namespace, s.Name, s.Stamp.ConfirmedBy),
		Again:   lookAgain,
	}
}

// moot reports whether a stamp without rollout asks for nothing: druid is not held, and all that was confirmed is live, or the Etcd asks
// for what is live instead (it was called off), or there are no members.
func (s Snapshot) moot() bool {
	st := *s.Stamp
	if s.druidMarked(st.Held) {
		return false
	}
	calledOff := !s.Etcd.Wanted.Equal(st.To) && s.fulfilled(confirm.Stamp{To: s.Etcd.Wanted})
	return s.Etcd.Replicas == 0 || calledOff || s.fulfilled(st)
}

// fulfilled reports whether everything is live as the stamp wants it.
func (s Snapshot) fulfilled(stamp confirm.Stamp) bool {
	if s.StatefulSet == nil || !s.StatefulSet.Has(stamp.To) || len(s.Members) == 0 {
		return false
	}
	for _, m := range s.Members {
		if m.Claim == nil || !m.Claim.Is(stamp.To) || named(stamp.Claims, m.Ordinal, m.Claim.UID) {
			return false
		}
	}
	return true
}

// druidMarked reports whether any of the held annotations stands.
func (s Snapshot) druidMarked(h confirm.Held) bool {
	return h.Suspend && s.Etcd.Suspended || h.Protection && s.Etcd.Unprotected
}

func named(claims []confirm.Claim, ordinal int, uid string) bool {
	for _, c := range claims {
		if c.Ordinal == ordinal && c.UID == uid {
			return true
		}
	}
	return false
}

// active is the newest rollout of this Etcd that has not ended, nil if none.
func (s Snapshot) active() *Rollout {
	for i := len(s.Rollouts) - 1; i >= 0; i-- {
		if r := s.Rollouts[i]; !r.Final() && s.mine(r) {
			return &r
		}
	}
	return nil
}

// Active reports whether any rollout of the Etcd still has work to do, or a stamp waits to become one.
func (s Snapshot) Active() bool {
	if s.Stamp != nil && !s.leaving() && !s.translated() && !s.moot() {
		return true
	}
	for _, r := range s.Rollouts {
		if !r.Final() || r.Deleting {
			return true
		}
	}
	return s.leaving() && len(s.Rollouts) > 0
}

func (s Snapshot) translated() bool {
	for _, r := range s.Rollouts {
		if r.Generation == s.Stamp.Generation && r.Token == s.Stamp.Token {
			return true
		}
	}
	return false
}

func (s Snapshot) mine(r Rollout) bool { return s.Etcd != nil && r.EtcdUID == s.Etcd.UID }

// newest reports whether no rollout of this Etcd is younger.
func (s Snapshot) newest(r Rollout) bool {
	for _, o := range s.Rollouts {
		if o.Generation > r.Generation && s.mine(o) && !o.Deleting {
			return false
		}
	}
	return true
}

// handOver ends a rollout that a newer one follows: the member in flight is finished first, unless the newer one may take it over.
func handOver(s Snapshot, now time.Time) *Step {
	newer := s.active()
	if newer == nil {
		return nil
	}
	for _, r := range s.Rollouts {
		if r.Final() || !s.mine(r) || r.Generation >= newer.Generation {
			continue
		}
		if step := finishFlight(s, r, *newer, now); step != nil {
			return step
		}
		if step := settleVolumes(s, r, now); step != nil {
			return step
		}
		return &Step{
			Action: Supersede, Reason: "Superseded", Rollout: r.Name, Phase: v1alpha1.Superseded, Member: -1, Again: lookAgain,
			Message: fmt.Sprintf("%s takes over; druid stays held for it", newer.Name),
		}
	}
	return nil
}

// finishFlight is the next step for the member that the older rollout has out; nil when there is none, or when the newer
// rollout may replace what is stuck.
func finishFlight(s Snapshot, r, newer Rollout, now time.Time) *Step {
	if step := restoreStatefulSet(s, r); step != nil {
		return step
	}
	m := s.inFlight(r, now)
	if m == nil || s.takenOver(*m, newer, now) {
		return nil
	}
	return bring(s, r, *m, now)
}

// takenOver reports whether the newer rollout may replace the claim of a member that does not come up.
func (s Snapshot) takenOver(m Member, newer Rollout, now time.Time) bool {
	c := m.Claim
	if c == nil || c.Deleting || !named(newer.Claims, m.Ordinal, c.UID) {
		return false
	}
	return !c.Bound || now.Sub(c.Created) >= s.Options.MemberDeadline
}

// restoreStatefulSet makes the StatefulSet again where it was deleted and its manifest is kept.
func restoreStatefulSet(s Snapshot, r Rollout) *Step {
	if s.StatefulSet == nil && s.record(r) != nil {
		return createStatefulSet(s, r, &r.To)
	}
	return nil
}

// record is the manifest that the rollout kept, nil if none.
func (s Snapshot) record(r Rollout) *Record {
	for _, rec := range s.Records {
		if rec.Name == RecordName(r.Name) {
			return &rec
		}
	}
	return nil
}

// held is what has to be taken away at the end: the rollout's own, and what earlier ones that it superseded left to it.
func (s Snapshot) held(r Rollout) confirm.Held {
	h := r.Held
	for i := len(s.Rollouts) - 1; i >= 0; i-- {
		o := s.Rollouts[i]
		if o.Generation >= r.Generation || o.EtcdUID != r.EtcdUID {
			continue
		}
		if o.Final() && o.Status.Phase != v1alpha1.Superseded {
			break
		}
		h.Suspend = h.Suspend || o.Held.Suspend
		h.Protection = h.Protection || o.Held.Protection
	}
	return h
}

// release takes our annotations off the Etcd.
func release(s Snapshot, r Rollout) *Step {
	if s.Etcd == nil || !s.mine(r) {
		return nil
	}
	h := s.held(r)
	h.Suspend = h.Suspend && s.Etcd.Suspended
	h.Protection = h.Protection && s.Etcd.Unprotected
	if h == (confirm.Held{}) || r.Final() {
		return nil
	}
	return &Step{
		Action: ReleaseDruid, Reason: "DruidReleased", Rollout: r.Name, Phase: v1alpha1.Finishing, Member: -1, Held: h,
		Message: "etcd-druid is let go: only the annotations that were set for the rollout are taken away",
		Target:  Target{s.Name, s.Etcd.UID, s.Etcd.ResourceVersion}, Again: lookAgain,
	}
}

// retain gives volumes their policy back when their time is over, and decides about those that a rollout left undecided.
func retain(s Snapshot, now time.Time) *Step {
	for _, v := range s.Volumes {
		if !v.Mark.Marked() || s.running(v.Mark.Rollout) {
			continue
		}
		phase := s.phaseOf(v.Mark.Rollout)
		switch {
		case v.ClaimLives:
			return restore(v, v.Mark.Rollout, phase, "the claim of volume %s was not deleted: its reclaim policy %s is given back", v.Name, v.Mark.OriginalPolicy)
		case v.Mark.RetainedUntil.IsZero():
			step := keep(s, v, v.Mark.Rollout, now)
			step.Phase = phase
			return step
		case !now.Before(v.Mark.RetainedUntil):
			return restore(v, v.Mark.Rollout, phase, "the time of old volume %s is over: its reclaim policy %s is given back", v.Name, v.Mark.OriginalPolicy)
		}
	}
	return nil
}

func (s Snapshot) running(rollout string) bool {
	for _, r := range s.Rollouts {
		if r.Name == rollout {
			return !r.Final()
		}
	}
	return false
}

func (s Snapshot) phaseOf(rollout string) v1alpha1.Phase {
	for _, r := range s.Rollouts {
		if r.Name == rollout {
			return r.Status.Phase
		}
	}
	return ""
}

// untilRetentionEnds is how long until the next volume's time is over; 0 if none is kept.
func untilRetentionEnds(s Snapshot, now time.Time) time.Duration {
	var next time.Duration
	for _, v := range s.Volumes {
		if left := v.Mark.RetainedUntil.Sub(now); !v.Mark.RetainedUntil.IsZero() && (next == 0 || left < next) {
			next = max(left, lookAgain)
		}
	}
	return next
}

// overdue marks a step that waits beyond its deadline.
func overdue(s Snapshot, step Step, now time.Time) Step {
	if step.Action != Wait || step.Rollout == "" || step.Reason == Soaking {
		return step
	}
	limit, since := s.Options.StepDeadline, s.waitingSince(step, now)
	if step.Member >= 0 {
		limit = s.Options.MemberDeadline
	}
	if step.Phase != v1alpha1.Stalled && now.Sub(since) >= limit {
		step.Stalled, step.Phase = true, v1alpha1.Stalled
	}
	return step
}

// waitingSince is when the present wait began: for a member that is out, when it was taken out.
func (s Snapshot) waitingSince(step Step, now time.Time) time.Time {
	r := s.rollout(step.Rollout)
	if r == nil {
		return now
	}
	since := now
	if r.Status.Reason == string(step.Reason) && r.Status.Since != nil {
		since = r.Status.Since.Time
	}
	for _, m := range s.Members {
		if m.Ordinal == step.Member && touched(*r, m) && m.Claim != nil {
			return earlier(since, outSince(*m.Claim))
		}
	}
	return since
}

// outSince is when the member was taken out: when its old claim was deleted, or soon after, when the new one was made.
func outSince(c Claim) time.Time {
	if c.Deleting {
		return c.DeletedAt
	}
	return c.Created
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (s Snapshot) rollout(name string) *Rollout {
	for _, r := range s.Rollouts {
		if r.Name == name {
			return &r
		}
	}
	return nil
}
