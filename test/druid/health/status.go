package health

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// Apply sets what the world says in the status of an Etcd. lastOperation, lastErrors and observedGeneration are not
// its business.
func Apply(etcd *api.Etcd, w World, limits Thresholds) {
	etcd.Status.Members = Members(etcd, w, limits)
	etcd.Status.Conditions = Conditions(etcd, w)
	applyReplicas(etcd, w.StatefulSet.Value)
	etcd.Status.Selector = ptr.To(labels.SelectorFromSet(etcd.DefaultLabels()).String())
}

// applyReplicas leaves status.replicas and status.etcd as they were when there is no StatefulSet.
func applyReplicas(etcd *api.Etcd, sts *appsv1.StatefulSet) {
	status := &etcd.Status
	if sts == nil {
		status.CurrentReplicas, status.ReadyReplicas, status.Ready = 0, 0, ptr.To(false)
		return
	}
	status.Etcd = &api.CrossVersionObjectReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet", Name: sts.Name}
	wanted := etcd.Spec.Replicas
	if ptr.Deref(status.ObservedGeneration, -1) != etcd.Generation {
		wanted = *sts.Spec.Replicas
	}
	status.CurrentReplicas = sts.Status.CurrentReplicas
	status.Replicas = sts.Status.CurrentReplicas
	status.ReadyReplicas = sts.Status.ReadyReplicas
	status.Ready = ptr.To(statefulSetReady(sts, wanted))
}

func statefulSetReady(sts *appsv1.StatefulSet, wanted int32) bool {
	return sts.Status.ObservedGeneration >= sts.Generation &&
		sts.Status.ReadyReplicas >= wanted &&
		sts.Status.CurrentRevision == sts.Status.UpdateRevision &&
		sts.Status.CurrentReplicas == sts.Status.UpdatedReplicas
}
