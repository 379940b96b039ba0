package api

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The labels of everything that druid makes.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelPartOf    = "app.kubernetes.io/part-of"
	LabelName      = "app.kubernetes.io/name"
	LabelComponent = "app.kubernetes.io/component"

	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "etcd-druid"
)

// The annotations that people and controllers set on an Etcd.
const (
	// AnnotationSuspend leaves the spec alone as long as it is there, whatever its value.
	AnnotationSuspend = "druid.gardener.cloud/suspend-etcd-spec-reconcile"
	// AnnotationUnprotect switches the protection webhook off for this Etcd, whatever its value.
	AnnotationUnprotect = "druid.gardener.cloud/disable-etcd-component-protection"
	// AnnotationOperation with the value OperationValueReconcile asks for one spec reconciliation.
	AnnotationOperation = "druid.gardener.cloud/operation"
	// AnnotationGardenerOperation is the older name of AnnotationOperation.
	AnnotationGardenerOperation = "gardener.cloud/operation"
	// AnnotationEvictUnhealthy lets the disruption budget allow the eviction of unhealthy pods.
	AnnotationEvictUnhealthy = "resources.druid.gardener.cloud/allow-unhealthy-pod-eviction"

	// OperationValueReconcile is the one value of the operation annotations that means something.
	OperationValueReconcile = "reconcile"
)

// AnnotationPeerTLS is set on a member's lease by its sidecar: "true" once peer TLS is on.
const AnnotationPeerTLS = "member.etcd.gardener.cloud/tls-enabled"

// Finalizer holds an Etcd until its components are gone.
const Finalizer = "druid.gardener.cloud/etcd-druid"

// DefaultLabels are the two labels that everything of one Etcd carries; also the StatefulSet's selector.
func (e *Etcd) DefaultLabels() map[string]string {
	return map[string]string{LabelManagedBy: ManagedBy, LabelPartOf: e.Name}
}

// OwnerReference names the Etcd as controller.
func (e *Etcd) OwnerReference() metav1.OwnerReference {
	return *metav1.NewControllerRef(e, GroupVersion.WithKind(Kind))
}

// PeerServiceName is the name of the headless service that members find each other by.
func (e *Etcd) PeerServiceName() string { return e.Name + "-peer" }

// ClientServiceName is the name of the service for clients.
func (e *Etcd) ClientServiceName() string { return e.Name + "-client" }

// ConfigMapName is the name of the ConfigMap with the etcd configuration.
func (e *Etcd) ConfigMapName() string { return e.Name + "-config" }

// RoleName is the name of the members' Role and RoleBinding.
func (e *Etcd) RoleName() string { return GroupVersion.Group + ":etcd:" + e.Name }

// FullSnapshotLeaseName is the name of the lease that records full snapshots.
func (e *Etcd) FullSnapshotLeaseName() string { return e.Name + "-full-snap" }

// DeltaSnapshotLeaseName is the name of the lease that records delta snapshots.
func (e *Etcd) DeltaSnapshotLeaseName() string { return e.Name + "-delta-snap" }

// PodName is the name of the member's pod.
func (e *Etcd) PodName(ordinal int32) string { return fmt.Sprintf("%s-%d", e.Name, ordinal) }

// MemberName is the member's name in etcd and the name of its lease.
func (e *Etcd) MemberName(ordinal int32) string {
	if prefix := e.memberPrefix(); prefix != "" {
		return prefix + "-" + e.PodName(ordinal)
	}
	return e.PodName(ordinal)
}

// MemberNames are the names of all members that the spec asks for.
func (e *Etcd) MemberNames() []string {
	names := make([]string, 0, e.Spec.Replicas)
	for i := range e.Spec.Replicas {
		names = append(names, e.MemberName(i))
	}
	return names
}

// PodOfMember is the name of the pod of a member.
func (e *Etcd) PodOfMember(member string) string {
	if prefix := e.memberPrefix(); prefix != "" {
		return strings.TrimPrefix(member, prefix+"-")
	}
	return member
}

func (e *Etcd) memberPrefix() string {
	if e.Spec.MemberNamePrefix == nil {
		return ""
	}
	return *e.Spec.MemberNamePrefix
}

// ClaimTemplateName is the name of the claim template.
func (e *Etcd) ClaimTemplateName() string {
	if e.Spec.VolumeClaimTemplate == nil {
		return e.Name
	}
	return *e.Spec.VolumeClaimTemplate
}

// Suspended says whether the spec is to be left alone.
func (e *Etcd) Suspended() bool { return metav1.HasAnnotation(e.ObjectMeta, AnnotationSuspend) }

// Protected says whether the protection webhook guards the components.
func (e *Etcd) Protected() bool { return !metav1.HasAnnotation(e.ObjectMeta, AnnotationUnprotect) }

// ReconcileRequested says whether an operation annotation asks for a spec reconciliation.
func (e *Etcd) ReconcileRequested() bool {
	return e.Annotations[AnnotationOperation] == OperationValueReconcile ||
		e.Annotations[AnnotationGardenerOperation] == OperationValueReconcile
}

// HasStore says whether snapshots are taken.
func (e *Etcd) HasStore() bool { return e.Spec.Backup.Store != nil }

// ReconciliationInProgress says whether the newest operation is a reconciliation that has not succeeded. A reconciliation
// that fails for ever is in progress for ever.
func (e *Etcd) ReconciliationInProgress() bool { return e.unfinished(OperationReconcile) }

// DeletionInProgress says whether the newest operation is a deletion that has not succeeded.
func (e *Etcd) DeletionInProgress() bool { return e.unfinished(OperationDelete) }

func (e *Etcd) unfinished(t OperationType) bool {
	op := e.Status.LastOperation
	if op == nil || op.Type != t {
		return false
	}
	return op.State == OperationProcessing || op.State == OperationError || op.State == OperationRequeue
}
