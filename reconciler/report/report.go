package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
)

// StepFailed is the reason in the status while a step fails.
const StepFailed plan.Reason = "StepFailed"

// Result is what became of a step.
type Result struct {
	Err      error
	Conflict bool  // Err only says that something was changed meanwhile: the next pass looks again
	Revision int64 // of a snapshot
}

// Report is what is to be written down. What is unchanged is not in it.
type Report struct {
	Statuses  []Status  // by rollout
	Condition *EtcdPart // nil: as it is
	Events    []Event
}

// Status is the new status of one rollout.
type Status struct {
	Rollout     string
	Before, Now v1alpha1.VolumeRolloutStatus
}

// Event is told on the Etcd, and on the rollout where one is named.
type Event struct {
	Rollout, Reason, Message string
	Warning                  bool
}

// Of reports one pass.
func Of(s plan.Snapshot, step plan.Step, result Result, now time.Time) Report {
	var rep Report
	for _, r := range s.Rollouts {
		status := statusOf(s, r, step, result, now)
		if !equality.Semantic.DeepEqual(status, r.Status) {
			rep.Statuses = append(rep.Statuses, Status{Rollout: r.Name, Before: r.Status, Now: status})
		}
		if r.Name == step.Rollout {
			rep.Events = append(rep.Events, transition(r, status, step, result)...)
		}
	}
	rep.Condition = conditionOf(s, step, now)
	if step.Action == plan.CreateRollout && result.Err == nil {
		rep.Events = append(rep.Events, Event{Reason: string(step.Reason), Message: step.Message})
	}
	if step.Action == plan.Reject && rep.Condition != nil {
		rep.Events = append(rep.Events, Event{Reason: string(step.Reason), Message: step.Message, Warning: true})
	}
	return rep
}

// transition is the event of a step that brought the rollout somewhere else; waiting for the same thing tells nothing.
func transition(r plan.Rollout, now v1alpha1.VolumeRolloutStatus, step plan.Step, result Result) []Event {
	if result.Conflict {
		return nil
	}
	if r.Final() {
		if step.Action == plan.RestorePolicy && result.Err == nil {
			return []Event{{Rollout: r.Name, Reason: string(step.Reason), Message: step.Message}}
		}
		return nil
	}
	if now.Reason == r.Status.Reason && now.Phase == r.Status.Phase && (!step.Action.Writes() || now.Message == r.Status.Message) {
		return nil
	}
	warning := now.Phase == v1alpha1.Stalled || now.Reason == string(StepFailed) || now.Reason == string(plan.PromiseAtRisk)
	return []Event{{Rollout: r.Name, Reason: now.Reason, Message: now.Message, Warning: warning}}
}

func statusOf(s plan.Snapshot, r plan.Rollout, step plan.Step, result Result, now time.Time) v1alpha1.VolumeRolloutStatus {
	st := *r.Status.DeepCopy()
	st.RetainedVolumes = retained(s, r, step, result)
	if r.Final() || r.Name != step.Rollout || result.Conflict {
		return st
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	st.ObservedGeneration = r.ObjectGeneration
	if st.StartTime == nil {
		st.StartTime = &at
	}
	say(&st, step, result, at)
	st.Members = membersOf(s, r, at, now)
	st.Progress = progress(st.Members, r.Replicas)
	st.ClusterID = cmp.Or(st.ClusterID, clusterOf(st.Members))
	st.StatefulSet = statefulSetOf(s, r)
	st.Snapshot = snapshotOf(s, r, step, result, at)
	if final(st.Phase) && st.CompletionTime == nil {
		st.CompletionTime = &at
	}
	conditions(&st, step, r.ObjectGeneration, at)
	return st
}

// say sets phase, reason and sentence; since is kept while the reason stays.
func say(st *v1alpha1.VolumeRolloutStatus, step plan.Step, result Result, at metav1.Time) {
	reason, message := step.Reason, step.Message
	if step.Phase != "" {
		st.Phase = step.Phase
	}
	if result.Err != nil {
		reason, message = StepFailed, fmt.Sprintf("%s failed, it is tried again: %v", step.Action, result.Err)
	}
	if st.Reason != string(reason) || st.Since == nil {
		st.Since = &at
	}
	st.Reason, st.Message = string(reason), message
}

func final(p v1alpha1.Phase) bool {
	return p == v1alpha1.Complete || p == v1alpha1.Superseded || p == v1alpha1.Aborted
}

// retained are the rollout's old volumes as they are after the step.
func retained(s plan.Snapshot, r plan.Rollout, step plan.Step, result Result) []v1alpha1.RetainedVolume {
	var kept []v1alpha1.RetainedVolume
	for _, v := range s.Volumes {
		if v.Mark.Rollout != r.Name || v.ClaimLives {
			continue
		}
		until := v.Mark.RetainedUntil
		if v.Name == step.Target.Name && result.Err == nil {
			if step.Action == plan.RestorePolicy {
				continue
			}
			if step.Action == plan.KeepVolume {
				until = step.Mark.RetainedUntil
			}
		}
		rv := v1alpha1.RetainedVolume{Name: v.Name, Member: v.Mark.Member, OriginalPolicy: v.Mark.OriginalPolicy}
		if !until.IsZero() {
			t := metav1.NewTime(until)
			rv.Until = &t
		}
		kept = append(kept, rv)
	}
	return kept
}

func progress(list []v1alpha1.MemberStatus, replicas int) string {
	done := 0
	for _, m := range list {
		if m.Phase == v1alpha1.MemberReplaced {
			done++
		}
	}
	return fmt.Sprintf("%d/%d", done, replicas)
}

func membersOf(s plan.Snapshot, r plan.Rollout, at metav1.Time, now time.Time) []v1alpha1.MemberStatus {
	if len(s.Members) == 0 {
		return r.Status.Members
	}
	list := make([]v1alpha1.MemberStatus, 0, len(s.Members))
	for _, m := range s.Members {
		list = append(list, memberOf(s, r, m, at, now))
	}
	return list
}

func memberOf(s plan.Snapshot, r plan.Rollout, m plan.Member, at metav1.Time, now time.Time) v1alpha1.MemberStatus {
	st := v1alpha1.MemberStatus{Ordinal: int32(m.Ordinal), Name: m.PodName} //nolint:gosec // below the number of members
	for _, old := range r.Status.Members {
		if old.Name == m.PodName {
			st = *old.DeepCopy()
		}
	}
	a := plan.Assess(s, r, m, now)
	st.Phase = a.Phase
	if old := oldSide(s, r, m); old != nil {
		st.Old = old
	}
	if a.Phase == v1alpha1.MemberWaiting {
		st.New, st.Evidence, st.StartTime, st.ReplacedTime = nil, "", nil, nil
		return st
	}
	if st.StartTime == nil {
		st.StartTime = &at
	}
	if a.Phase != v1alpha1.MemberLeaving {
		st.New = liveSide(m)
	}
	if a.Phase == v1alpha1.MemberReplaced && st.ReplacedTime == nil {
		st.ReplacedTime, st.Evidence = &at, a.Message
	}
	return st
}

// oldSide is who the member was: as its marked volume says, or as it still is.
func oldSide(s plan.Snapshot, r plan.Rollout, m plan.Member) *v1alpha1.MemberSide {
	for _, v := range s.Volumes {
		if r.Destroys(v.Mark.ClaimUID) && v.Mark.Member == m.PodName {
			return &v1alpha1.MemberSide{
				ClaimUID: types.UID(v.Mark.ClaimUID), VolumeName: v.Name, PodUID: types.UID(v.Mark.PodUID), MemberID: v.Mark.MemberID, ClusterID: v.Mark.ClusterID,
			}
		}
	}
	if plan.Assess(s, r, m, time.Time{}).Phase == v1alpha1.MemberWaiting {
		return liveSide(m)
	}
	return nil
}

func liveSide(m plan.Member) *v1alpha1.MemberSide {
	side := &v1alpha1.MemberSide{}
	if m.Claim != nil {
		side.ClaimUID, side.VolumeName = types.UID(m.Claim.UID), m.Claim.VolumeName
	}
	if m.Pod != nil {
		side.PodUID = types.UID(m.Pod.UID)
	}
	if m.View.Reached {
		side.MemberID, side.ClusterID = strconv.FormatUint(m.View.MemberID, 16), strconv.FormatUint(m.View.ClusterID, 16)
	}
	return side
}

func clusterOf(list []v1alpha1.MemberStatus) string {
	for _, m := range list {
		if m.Old != nil && m.Old.ClusterID != "" {
			return m.Old.ClusterID
		}
	}
	return ""
}

func statefulSetOf(s plan.Snapshot, r plan.Rollout) *v1alpha1.StatefulSetStatus {
	i := slices.IndexFunc(s.Records, func(rec plan.Record) bool { return rec.Name == plan.RecordName(r.Name) })
	if i < 0 {
		return r.Status.StatefulSet
	}
	st := &v1alpha1.StatefulSetStatus{OldUID: types.UID(s.Records[i].StatefulSetUID)}
	for _, uid := range s.Records[i].PodUIDs {
		st.PodUIDs = append(st.PodUIDs, types.UID(uid))
	}
	if s.StatefulSet != nil && s.StatefulSet.UID != s.Records[i].StatefulSetUID {
		st.NewUID = types.UID(s.StatefulSet.UID)
	}
	return st
}

// snapshotOf notes attempts; the time stands only once the lease proves it.
func snapshotOf(s plan.Snapshot, r plan.Rollout, step plan.Step, result Result, at metav1.Time) *v1alpha1.SnapshotStatus {
	st := r.Status.Snapshot.DeepCopy()
	if step.Action == plan.TakeSnapshot {
		st = &v1alpha1.SnapshotStatus{AttemptTime: &at, Revision: result.Revision}
		if result.Err != nil {
			st.Error = result.Err.Error()
		}
	}
	if s.Etcd == nil || !s.Etcd.HasStore || s.Backup.FullAt.IsZero() || s.Backup.FullAt.Before(r.Created) || st != nil && st.Time != nil {
		return st
	}
	if st == nil {
		st = &v1alpha1.SnapshotStatus{}
	}
	proven := metav1.NewTime(s.Backup.FullAt.Truncate(time.Second))
	st.Time, st.Revision, st.Error = &proven, s.Backup.Revision, ""
	return st
}

func conditions(st *v1alpha1.VolumeRolloutStatus, step plan.Step, generation int64, at metav1.Time) {
	set := func(kind string, is bool) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: st.Reason, Message: st.Message, ObservedGeneration: generation, LastTransitionTime: at,
		})
	}
	moving := st.Phase == v1alpha1.Preparing || st.Phase == v1alpha1.Replacing || st.Phase == v1alpha1.Finishing
	set(v1alpha1.ConditionProgressing, moving)
	set(v1alpha1.ConditionStalled, step.Stalled)
	set(v1alpha1.ConditionComplete, st.Phase == v1alpha1.Complete)
}
