package render

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// MemberLease sets who owns a member's lease. Its spec belongs to the member.
func MemberLease(lease *coordinationv1.Lease, etcd *api.Etcd) {
	lease.Labels = labels(etcd, ComponentMemberLease, lease.Name)
	lease.OwnerReferences = owners(etcd)
}

// SnapshotLease sets who owns a lease that records snapshots. Its spec belongs to the leading sidecar.
func SnapshotLease(lease *coordinationv1.Lease, etcd *api.Etcd) {
	lease.Labels = labels(etcd, ComponentSnapshotLease, lease.Name)
	lease.OwnerReferences = owners(etcd)
}

// LeaseSelector selects all leases of one component of an Etcd.
func LeaseSelector(etcd *api.Etcd, component string) map[string]string {
	all := etcd.DefaultLabels()
	all[api.LabelComponent] = component
	return all
}

// Budget sets how many members have to stay: a majority of several, none of a single one.
func Budget(pdb *policyv1.PodDisruptionBudget, etcd *api.Etcd) {
	pdb.Labels = labels(etcd, ComponentBudget, etcd.Name)
	pdb.OwnerReferences = owners(etcd)
	pdb.Spec.MinAvailable = ptr.To(intstr.FromInt32(minAvailable(etcd.Spec.Replicas)))
	pdb.Spec.Selector = &metav1.LabelSelector{MatchLabels: etcd.DefaultLabels()}
	pdb.Spec.UnhealthyPodEvictionPolicy = nil
	if metav1.HasAnnotation(etcd.ObjectMeta, api.AnnotationEvictUnhealthy) {
		pdb.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
	}
}

func minAvailable(replicas int32) int32 {
	if replicas <= 1 {
		return 0
	}
	return replicas/2 + 1
}
