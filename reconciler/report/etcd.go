package report

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// VolumesUpToDate is the type of our condition on the Etcd.
const VolumesUpToDate = "VolumesUpToDate"

// Reasons of the condition.
const (
	AsWanted          = "AsWanted"
	RolloutInProgress = "RolloutInProgress"
	RolloutStalled    = "RolloutStalled"
	VolumesDiffer     = "VolumesDiffer"
	NothingLive       = "NothingLive"
)

// EtcdPart is the new list of conditions of the Etcd; druid's own are kept as they were read.
type EtcdPart struct {
	UID, ResourceVersion string
	Before, Now          []volume.Condition
}

// conditionOf is nil where the condition stands already as it should.
func conditionOf(s plan.Snapshot, step plan.Step, now time.Time) *EtcdPart {
	if s.Etcd == nil || s.Etcd.Deleting {
		return nil
	}
	want := judge(s, step)
	at := metav1.NewTime(now.Truncate(time.Second))
	want.LastUpdateTime, want.LastTransitionTime = at, at
	list := slices.Clone(s.Etcd.Conditions)
	i := slices.IndexFunc(list, func(c volume.Condition) bool { return c.Type == VolumesUpToDate })
	switch {
	case i < 0:
		list = append(list, want)
	case list[i].Status == want.Status && list[i].Reason == want.Reason && list[i].Message == want.Message:
		return nil
	default:
		if list[i].Status == want.Status {
			want.LastTransitionTime = list[i].LastTransitionTime
		}
		list[i] = want
	}
	return &EtcdPart{UID: s.Etcd.UID, ResourceVersion: s.Etcd.ResourceVersion, Before: s.Etcd.Conditions, Now: list}
}

func judge(s plan.Snapshot, step plan.Step) volume.Condition {
	say := func(status metav1.ConditionStatus, reason, format string, args ...any) volume.Condition {
		return volume.Condition{Type: VolumesUpToDate, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case step.Action == plan.Reject:
		return say(metav1.ConditionFalse, string(step.Reason), "%s", step.Message)
	case step.Stalled:
		return say(metav1.ConditionFalse, RolloutStalled, "VolumeRollout %s waits: %s", step.Rollout, step.Message)
	case s.Active() && step.Rollout != "":
		return say(metav1.ConditionFalse, RolloutInProgress, "VolumeRollout %s is under way", step.Rollout)
	case s.Active():
		return say(metav1.ConditionFalse, RolloutInProgress, "a confirmed volume change is about to be carried out")
	case s.StatefulSet == nil && !slices.ContainsFunc(s.Members, func(m plan.Member) bool { return m.Claim != nil }):
		return say(metav1.ConditionUnknown, NothingLive, "the Etcd has no volumes yet")
	}
	if text := difference(s); text != "" {
		return say(metav1.ConditionFalse, VolumesDiffer, "%s", text)
	}
	return say(metav1.ConditionTrue, AsWanted, "every volume is as the Etcd asks for")
}

// difference is the first thing live that is not as wanted; "" if all is.
func difference(s plan.Snapshot) string {
	if s.StatefulSet != nil && !s.StatefulSet.Has(s.Etcd.Wanted) {
		return "the StatefulSet would make new volumes of another kind than the Etcd asks for"
	}
	for _, m := range s.Members {
		switch {
		case m.Claim == nil:
			return m.PodName + " has no claim yet"
		case !m.Claim.Is(s.Etcd.Wanted):
			return fmt.Sprintf("claim %s has class %q and asks for %s", m.Claim.Name, m.Claim.Spec.Class, m.Claim.Spec.Capacity.String())
		}
	}
	return ""
}
