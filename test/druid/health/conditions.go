package health

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// verdict is what one check says. Without a type it says nothing, and the condition is left out.
type verdict struct {
	kind    api.ConditionType
	status  api.ConditionStatus
	reason  string
	message string
}

// checks are druid's conditions in their order in the list, which is sorted by type.
var checks = []struct {
	kind  api.ConditionType
	check func(*api.Etcd, World) verdict
}{
	{api.ConditionAllMembersReady, allMembersReady},
	{api.ConditionAllMembersUpdated, allMembersUpdated},
	{api.ConditionBackupReady, backupReady},
	{api.ConditionClusterIDMismatch, clusterIDMismatch},
	{api.ConditionDataVolumesReady, dataVolumesReady},
	{api.ConditionReady, ready},
}

// Conditions are druid's conditions as they are now, and everybody else's as they were, sorted by type. The Etcd's
// status must already have the members as they are now.
func Conditions(etcd *api.Etcd, w World) []api.Condition {
	var all []api.Condition
	own := map[api.ConditionType]bool{}
	for _, c := range checks {
		own[c.kind] = true
		if v := c.check(etcd, w); v.kind != "" {
			all = append(all, merge(etcd, v, metav1.NewTime(w.Now)))
		}
	}
	for _, old := range etcd.Status.Conditions {
		if !own[old.Type] {
			all = append(all, old)
		}
	}
	slices.SortFunc(all, func(a, b api.Condition) int { return strings.Compare(string(a.Type), string(b.Type)) })
	return all
}

// merge puts a verdict over the condition that there was. A hibernated cluster is not judged: its conditions keep their
// status.
func merge(etcd *api.Etcd, v verdict, now metav1.Time) api.Condition {
	c, existed := find(etcd.Status.Conditions, v.kind)
	if !existed {
		c = api.Condition{Type: v.kind, LastTransitionTime: now}
	}
	if c.Status != v.status {
		c.LastTransitionTime = now
	}
	c.LastUpdateTime = now
	if etcd.Spec.Replicas > 0 {
		c.Status, c.Reason, c.Message = v.status, v.reason, v.message
		return c
	}
	if c.Status == "" {
		c.Status = api.ConditionUnknown
	}
	c.Reason, c.Message = "NotChecked", "the cluster is scaled to zero"
	return c
}

func find(conditions []api.Condition, kind api.ConditionType) (api.Condition, bool) {
	for _, c := range conditions {
		if c.Type == kind {
			return c, true
		}
	}
	return api.Condition{}, false
}

func ready(etcd *api.Etcd, _ World) verdict {
	members := etcd.Status.Members
	if len(members) == 0 {
		return verdict{api.ConditionReady, api.ConditionUnknown, "NoMembersInStatus", "no member has reported yet"}
	}
	up := 0
	for _, m := range members {
		if m.Status != api.MemberNotReady {
			up++
		}
	}
	if up < len(members)/2+1 {
		return verdict{api.ConditionReady, api.ConditionFalse, "QuorumLost", "fewer than a majority of the members are ready"}
	}
	return verdict{api.ConditionReady, api.ConditionTrue, "Quorate", "a majority of the members is ready"}
}

func allMembersReady(etcd *api.Etcd, _ World) verdict {
	members := etcd.Status.Members
	if len(members) == 0 {
		return verdict{api.ConditionAllMembersReady, api.ConditionUnknown, "NoMembersInStatus", "no member has reported yet"}
	}
	up := 0
	for _, m := range members {
		if m.Status == api.MemberReady {
			up++
		}
	}
	if up < len(members) || len(members) < int(etcd.Spec.Replicas) {
		return verdict{api.ConditionAllMembersReady, api.ConditionFalse, "NotAllMembersReady", "not every member is ready"}
	}
	return verdict{api.ConditionAllMembersReady, api.ConditionTrue, "AllMembersReady", "every member is ready"}
}

func allMembersUpdated(etcd *api.Etcd, w World) verdict {
	if v, bad := withoutStatefulSet(api.ConditionAllMembersUpdated, etcd, w); bad {
		return v
	}
	sts := w.StatefulSet.Value
	if sts.Status.ObservedGeneration == sts.Generation &&
		sts.Status.UpdatedReplicas == *sts.Spec.Replicas &&
		sts.Status.UpdateRevision == sts.Status.CurrentRevision {
		return verdict{api.ConditionAllMembersUpdated, api.ConditionTrue, "AllMembersUpdated", "every member runs the wanted revision"}
	}
	return verdict{api.ConditionAllMembersUpdated, api.ConditionFalse, "NotAllMembersUpdated", "not every member runs the wanted revision"}
}

func dataVolumesReady(etcd *api.Etcd, w World) verdict {
	if v, bad := withoutStatefulSet(api.ConditionDataVolumesReady, etcd, w); bad {
		return v
	}
	if err := w.VolumeWarnings.Err; err != nil {
		return verdict{api.ConditionDataVolumesReady, api.ConditionUnknown, "UnableToFetchWarningEventsForDataVolumes", fmt.Sprintf("cannot read the events of the claims: %v", err)}
	}
	if warnings := w.VolumeWarnings.Value; warnings != nil && *warnings != "" {
		return verdict{api.ConditionDataVolumesReady, api.ConditionFalse, "FoundWarningsForDataVolumes", *warnings}
	}
	return verdict{api.ConditionDataVolumesReady, api.ConditionTrue, "NoWarningsFoundForDataVolumes", "the claims have no warnings"}
}

func withoutStatefulSet(kind api.ConditionType, etcd *api.Etcd, w World) (verdict, bool) {
	if err := w.StatefulSet.Err; err != nil {
		return verdict{kind, api.ConditionUnknown, "UnableToFetchStatefulSet", fmt.Sprintf("cannot read StatefulSet %s: %v", etcd.Name, err)}, true
	}
	if w.StatefulSet.Value == nil {
		return verdict{kind, api.ConditionUnknown, "StatefulSetNotFound", fmt.Sprintf("there is no StatefulSet %s", etcd.Name)}, true
	}
	return verdict{}, false
}

func clusterIDMismatch(etcd *api.Etcd, w World) verdict {
	const kind = api.ConditionClusterIDMismatch
	clusters := map[string]string{}
	for _, name := range etcd.MemberNames() {
		lease := w.Leases[name]
		if lease.Err != nil {
			return verdict{kind, api.ConditionUnknown, "UnableToFetchLease", fmt.Sprintf("cannot read lease %s: %v", name, lease.Err)}
		}
		if lease.Value == nil {
			continue
		}
		h, ok := parseHolder(lease.Value)
		if !ok {
			return verdict{kind, api.ConditionUnknown, "UnableToParseLeaseHolderIdentity", fmt.Sprintf("cannot make sense of the holder of lease %s", name)}
		}
		if h.cluster != nil {
			clusters[name] = *h.cluster
		}
	}
	distinct := map[string]bool{}
	for _, m := range etcd.Status.Members {
		if id, known := clusters[m.Name]; known && m.Status != api.MemberUnknown {
			distinct[id] = true
		}
	}
	switch len(distinct) {
	case 0:
		return verdict{kind, api.ConditionUnknown, "NoClusterIDDetected", "no member has told its cluster"}
	case 1:
		return verdict{kind, api.ConditionFalse, "NoClusterIDMismatchDetected", "all members are of the same cluster"}
	}
	return verdict{kind, api.ConditionTrue, "MultipleClusterIDsDetected", "the members are of different clusters"}
}
