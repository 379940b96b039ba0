package health

import (
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// The reasons of a member's state.
const (
	ReasonLeaseSucceeded     = "LeaseSucceeded"
	ReasonLeaseExpired       = "LeaseExpired"
	ReasonContainersNotReady = "ContainersNotReady"
	ReasonGraceExceeded      = "UnknownGracePeriodExceeded"
)

// Members are the members that have renewed their lease at least once, sorted by name.
func Members(etcd *api.Etcd, w World, limits Thresholds) []api.MemberStatus {
	var members []api.MemberStatus
	for _, name := range etcd.MemberNames() {
		lease := w.Leases[name].Value
		if lease == nil {
			continue
		}
		holder, ok := parseHolder(lease)
		if !ok || lease.Spec.RenewTime == nil {
			continue
		}
		state, reason := memberState(etcd, lease, w, limits)
		members = append(members, api.MemberStatus{
			Name:               name,
			ID:                 &holder.member,
			Role:               holder.role,
			Status:             state,
			Reason:             reason,
			LastTransitionTime: since(etcd, name, state, w),
		})
	}
	slices.SortFunc(members, func(a, b api.MemberStatus) int { return strings.Compare(a.Name, b.Name) })
	return members
}

func memberState(etcd *api.Etcd, lease *coordinationv1.Lease, w World, limits Thresholds) (api.MemberState, string) {
	doubted := lease.Spec.RenewTime.Add(limits.Unknown)
	if doubted.Add(limits.NotReady).Before(w.Now) {
		return api.MemberNotReady, ReasonGraceExceeded
	}
	if !doubted.Before(w.Now) {
		return api.MemberReady, ReasonLeaseSucceeded
	}
	pod := w.ContainersReady[etcd.PodOfMember(lease.Name)]
	if pod.Err == nil && !ptr.Deref(pod.Value, false) {
		return api.MemberNotReady, ReasonContainersNotReady
	}
	return api.MemberUnknown, ReasonLeaseExpired
}

// since is the time of the last change of the member's state.
func since(etcd *api.Etcd, name string, state api.MemberState, w World) metav1.Time {
	for _, old := range etcd.Status.Members {
		if old.Name == name && old.Status == state {
			return old.LastTransitionTime
		}
	}
	return metav1.NewTime(w.Now)
}

// holder is what a member writes into its lease.
type holder struct {
	member  string
	cluster *string
	role    *api.Role
}

// parseHolder reads "member:cluster:role", and "member:role" as older sidecars wrote it.
func parseHolder(lease *coordinationv1.Lease) (holder, bool) {
	parts := strings.Split(ptr.Deref(lease.Spec.HolderIdentity, ""), ":")
	switch len(parts) {
	case 2:
		return holder{member: parts[0], role: parseRole(parts[1])}, true
	case 3:
		return holder{member: parts[0], cluster: &parts[1], role: parseRole(parts[2])}, true
	}
	return holder{}, false
}

func parseRole(s string) *api.Role {
	switch role := api.Role(s); role {
	case api.RoleLeader, api.RoleMember:
		return &role
	}
	return nil
}
