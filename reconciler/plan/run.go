package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
)

// rolloutGuard is a guard of the active rollout.
type rolloutGuard func(s Snapshot, r Rollout, now time.Time) *Step

// replaceGuards carry a Replace, in their order.
var replaceGuards = []rolloutGuard{
	supported,   // what can not be carried out waits and says so
	statefulSet, // a StatefulSet that is gone comes back before anything else
	flight,      // the member that is out is brought home
	turnBack,    // the spec was changed back, or away from what was confirmed
	finish,      // every member is proven
	hold,        // druid must leave the spec alone
	standing,    // what must hold at any time: door, druid idle, members as confirmed
	preflight,   // class, quota, health, size, backup
	recreate,    // the StatefulSet with the new template
	adoption,    // every pod belongs to it, none restarts
	take,        // the next member
}

// run is the next step of the active rollout.
func run(s Snapshot, now time.Time) *Step {
	r := s.active()
	if r == nil || s.leaving() {
		return nil
	}
	for _, g := range replaceGuards {
		if step := g(s, *r, now); step != nil {
			return step
		}
	}
	return nil
}

func wait(r Rollout, phase v1alpha1.Phase, reason Reason, format string, args ...any) *Step {
	return &Step{
		Action: Wait, Reason: reason, Message: fmt.Sprintf(format, args...), Rollout: r.Name, Phase: phase, Member: -1, Again: lookAgain,
	}
}

// smallestCluster is the least number of members of which one can be replaced while the others go on.
const smallestCluster = 3

func supported(_ Snapshot, r Rollout, _ time.Time) *Step {
	switch {
	case r.Operation != confirm.Replace:
		return wait(r, v1alpha1.Pending, OperationNotSupported, "operation %s can not be carried out by this version; nothing was done", r.Operation)
	case r.From.Template != r.To.Template:
		return wait(r, v1alpha1.Pending, OperationNotSupported, "a renamed volume claim template can not be carried out by this version; nothing was done")
	case r.Replicas < smallestCluster:
		return wait(r, v1alpha1.Pending, OperationNotSupported,
			"a cluster of %d can not be replaced member by member by this version; nothing was done", r.Replicas)
	}
	return nil
}

// statefulSet makes the StatefulSet again as soon as it is gone.
func statefulSet(s Snapshot, r Rollout, _ time.Time) *Step {
	if s.StatefulSet != nil {
		return nil
	}
	if s.record(r) == nil {
		return wait(r, v1alpha1.Pending, StatefulSetMissing, "the StatefulSet %s does not exist, and this rollout keeps no manifest to make it from", s.Name)
	}
	return createStatefulSet(s, r, s.goal(r))
}

// goal is the spec that the StatefulSet's template shall have: the confirmed one, unless the rollout turns back.
func (s Snapshot) goal(r Rollout) *volumeSpec {
	if s.turnsBack(r) {
		return &s.Etcd.Wanted
	}
	return &r.To
}

func createStatefulSet(s Snapshot, r Rollout, goal *volumeSpec) *Step {
	rec := s.record(r)
	return &Step{
		Action: CreateStatefulSet, Reason: "StatefulSetCreated", Rollout: r.Name, Phase: v1alpha1.Preparing, Member: -1, Again: lookAgain,
		Message: "the StatefulSet is made again with the new claim template; its pods go on running",
		Target:  Target{rec.Name, rec.UID, rec.ResourceVersion}, Spec: *goal, From: r.From,
	}
}

// flight brings the member that is out back home.
func flight(s Snapshot, r Rollout, now time.Time) *Step {
	if m := s.inFlight(r, now); m != nil {
		return bring(s, r, *m, now)
	}
	return nil
}

// turnBack ends a rollout whose spec was changed back while nothing was replaced, and waits where the spec was changed otherwise.
func turnBack(s Snapshot, r Rollout, now time.Time) *Step {
	if s.Stamp == nil {
		return wait(r, v1alpha1.Pending, StampMissing, "the stamp is gone from the Etcd; nothing is destroyed without it; "+
			"delete this VolumeRollout to call it off")
	}
	if s.Etcd.Wanted.Equal(r.To) {
		return nil
	}
	if !s.turnsBack(r) {
		return wait(r, v1alpha1.Pending, SpecDiffersFromStamp,
			"the Etcd asks for other volumes than were confirmed; confirm the new change, or change the spec back to what was confirmed")
	}
	if step := templateBack(s, r, now); step != nil {
		return step
	}
	if step := settleVolumes(s, r, now); step != nil {
		return step
	}
	if step := release(s, r); step != nil {
		return step
	}
	return &Step{
		Action: Abort, Reason: "SpecChangedBack", Rollout: r.Name, Phase: v1alpha1.Aborted, Member: -1, Again: lookAgain,
		Message: "the spec was changed back to what is live; nothing was replaced, and everything is as it was",
	}
}

// templateBack gives the StatefulSet its old template again, under a druid that is held.
func templateBack(s Snapshot, r Rollout, now time.Time) *Step {
	step := recreate(s, r, now)
	if step == nil {
		return adoption(s, r, now)
	}
	if again := hold(s, r, now); again != nil {
		return again
	}
	return step
}

// turnsBack reports whether the Etcd asks again for what all members still have.
func (s Snapshot) turnsBack(r Rollout) bool {
	if s.Etcd == nil || s.Etcd.Wanted.Equal(r.To) || len(s.Members) == 0 || len(s.Members) != r.Replicas {
		return false
	}
	for _, m := range s.Members {
		if m.Claim == nil || m.Claim.Deleting || !m.Claim.Is(s.Etcd.Wanted) {
			return false
		}
	}
	return true
}

// finish ends a rollout whose every member is proven: of those that were confirmed, not of those that the Etcd asks for by now.
func finish(s Snapshot, r Rollout, now time.Time) *Step {
	if s.StatefulSet.Deleting || !s.StatefulSet.Has(r.To) || len(s.Members) != r.Replicas || s.Etcd.Replicas != r.Replicas {
		return nil
	}
	for _, m := range s.Members {
		if a := Assess(s, r, m, now); a.Phase != v1alpha1.MemberReplaced {
			return nil
		}
	}
	if step := settleVolumes(s, r, now); step != nil {
		return step
	}
	if step := release(s, r); step != nil {
		return step
	}
	return &Step{
		Action: Finish, Reason: "Complete", Rollout: r.Name, Phase: v1alpha1.Complete, Member: -1, Again: lookAgain,
		Message: fmt.Sprintf("every member runs on a volume as confirmed (%s)", plain(r.To)),
	}
}

// hold sets druid's annotations again where someone took off what was set for the rollout.
func hold(s Snapshot, r Rollout, _ time.Time) *Step {
	h := s.held(r)
	h.Suspend = h.Suspend && !s.Etcd.Suspended
	h.Protection = h.Protection && !s.Etcd.Unprotected
	if h == (confirm.Held{}) {
		return nil
	}
	return &Step{
		Action: HoldDruid, Reason: "DruidHeld", Rollout: r.Name, Phase: v1alpha1.Preparing, Member: -1, Held: h, Again: lookAgain,
		Message: "etcd-druid is held again: its annotations were taken off while the rollout runs",
		Target:  Target{s.Name, s.Etcd.UID, s.Etcd.ResourceVersion},
	}
}

// standing are the gates that must be open before anything more is changed.
func standing(s Snapshot, r Rollout, _ time.Time) *Step {
	phase := s.phase(r)
	switch {
	case s.Stamp.Generation != r.Generation || s.Stamp.Token != r.Token:
		return wait(r, phase, StampMissing, "the stamp on the Etcd is not the one that this rollout was made of")
	case !s.Door.Stands:
		return wait(r, phase, DoorNotStanding, "volume changes are not guarded: %s", s.Door.Fault)
	case !s.Etcd.Suspended || !s.Etcd.Unprotected:
		return wait(r, phase, DruidNotHeld, "etcd-druid is not held: its annotations to suspend the spec and to disable the protection must both stand")
	case s.Etcd.LastOperation == "Processing":
		return wait(r, phase, DruidBusy, "etcd-druid is still at work on this Etcd")
	case s.Etcd.Replicas != r.Replicas || s.StatefulSet.Replicas != r.Replicas || len(s.Members) != r.Replicas:
		return wait(r, phase, ReplicasChanged, "the change was confirmed for %d members; the Etcd asks for %d and the StatefulSet for %d; "+
			"set spec.replicas back until the rollout has ended",
			r.Replicas, s.Etcd.Replicas, s.StatefulSet.Replicas)
	}
	return nil
}

// phase is Replacing once a member was touched, else Preparing once anything was, else Pending.
func (s Snapshot) phase(r Rollout) v1alpha1.Phase {
	for _, v := range s.Volumes {
		if v.Mark.Rollout == r.Name {
			return v1alpha1.Replacing
		}
	}
	if s.record(r) != nil {
		return v1alpha1.Preparing
	}
	return v1alpha1.Pending
}

// recreate replaces the StatefulSet by one with the wanted template: kept first, then deleted without its pods, then made again.
func recreate(s Snapshot, r Rollout, _ time.Time) *Step {
	t, goal := s.StatefulSet, s.goal(r)
	step := &Step{Rollout: r.Name, Phase: v1alpha1.Preparing, Member: -1, Spec: *goal, From: r.From, Again: lookAgain}
	switch rec := s.record(r); {
	case t.Deleting:
		return wait(r, v1alpha1.Preparing, StatefulSetLeaving, "waiting until the old StatefulSet is gone; its pods go on running")
	case t.Has(*goal):
		return nil
	case len(t.Templates) != 1 || t.Templates[0].Template != goal.Template:
		return wait(r, v1alpha1.Preparing, StatefulSetForeign, "the StatefulSet does not have exactly one claim template named %s", goal.Template)
	case !t.Settled():
		return wait(r, v1alpha1.Preparing, StatefulSetNotSettled, "waiting until the StatefulSet has finished its own work")
	case rec == nil:
		step.Action, step.Reason, step.Message = RecordStatefulSet, "StatefulSetRecorded", "the manifest of the StatefulSet is kept before it is replaced"
		step.PodUIDs, step.Generation = s.podUIDs(), t.Generation
		step.Target = Target{t.Name, t.UID, t.ResourceVersion}
	case rec.StatefulSetUID != t.UID || rec.Generation != t.Generation:
		step.Action, step.Reason, step.Message = DropRecord, "RecordOutdated", "the kept manifest is not of the live StatefulSet; it is kept anew"
		step.Target = Target{rec.Name, rec.UID, rec.ResourceVersion}
	default:
		step.Action, step.Reason, step.Message = DeleteStatefulSet, "StatefulSetDeleted", "the StatefulSet is deleted without its pods, to be made again at once"
		step.Target = Target{t.Name, t.UID, t.ResourceVersion}
	}
	return step
}

func (s Snapshot) podUIDs() []string {
	uids := make([]string, len(s.Members))
	for i, m := range s.Members {
		if m.Pod != nil {
			uids[i] = m.Pod.UID
		}
	}
	return uids
}

// adoption waits until every pod belongs to the live StatefulSet and none is about to be restarted by it.
func adoption(s Snapshot, r Rollout, _ time.Time) *Step {
	for _, m := range s.Members {
		if m.Pod != nil && !m.Pod.Deleting && m.Pod.ControllerUID != s.StatefulSet.UID {
			return wait(r, v1alpha1.Preparing, PodsNotAdopted, "waiting until the StatefulSet has taken over pod %s", m.PodName)
		}
	}
	if !s.StatefulSet.Settled() {
		return wait(r, s.phase(r), StatefulSetNotSettled, "waiting until the StatefulSet has finished its own work")
	}
	return nil
}

func plain(v volumeSpec) string {
	class := v.Class
	if class == "" {
		class = "the cluster's default"
	}
	return strings.Join([]string{"class " + class, "capacity " + v.Capacity.String()}, ", ")
}
