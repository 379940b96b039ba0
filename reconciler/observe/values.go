package observe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// The door: our validating webhook configuration and its entry.
const (
	DoorName  = "etcd-volumes"
	DoorEntry = "validate.volumes.druid.gardener.cloud"
)

const (
	defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"
	etcdContainer          = "etcd"
)

func etcdOf(e *volume.Etcd) *plan.Etcd {
	_, suspended := e.Annotations[volume.SuspendAnnotation]
	_, unprotected := e.Annotations[volume.DisableProtectionAnnotation]
	out := &plan.Etcd{
		UID: string(e.UID), ResourceVersion: e.ResourceVersion, Deleting: !e.DeletionTimestamp.IsZero(), Replicas: int(e.Spec.Replicas),
		Wanted: volume.Of(e), Suspended: suspended, Unprotected: unprotected, HasStore: e.HasStore(), Conditions: slices.Clone(e.Status.Conditions),
	}
	if e.Status.LastOperation != nil {
		out.LastOperation = e.Status.LastOperation.State
	}
	return out
}

func rolloutOf(r *v1alpha1.VolumeRollout) plan.Rollout {
	out := plan.Rollout{
		Name: r.Name, UID: string(r.UID), ResourceVersion: r.ResourceVersion, Created: r.CreationTimestamp.Time, ObjectGeneration: r.Generation,
		Deleting: !r.DeletionTimestamp.IsZero(), Finalizer: slices.Contains(r.Finalizers, v1alpha1.Finalizer),
		EtcdUID: string(r.Spec.Etcd.UID), Generation: r.Spec.VolumeGeneration, Operation: confirm.Operation(r.Spec.Operation),
		Replicas: int(r.Spec.Replicas), From: specOf(r.Spec.From), To: specOf(r.Spec.To), Token: r.Spec.Token,
		Held: confirm.Held(r.Spec.Held), Status: *r.Status.DeepCopy(),
	}
	for _, c := range r.Spec.Claims {
		out.Claims = append(out.Claims, confirm.Claim{Ordinal: int(c.Ordinal), Name: c.Name, UID: string(c.UID)})
	}
	slices.SortFunc(out.Claims, func(a, b confirm.Claim) int { return a.Ordinal - b.Ordinal })
	return out
}

func specOf(s v1alpha1.VolumeSpec) volume.Spec {
	return volume.Spec{Class: s.StorageClassName, Capacity: s.Capacity, Template: s.ClaimTemplate}
}

func statefulSetOf(t *appsv1.StatefulSet) *plan.StatefulSet {
	out := &plan.StatefulSet{
		Name: t.Name, UID: string(t.UID), ResourceVersion: t.ResourceVersion, Deleting: !t.DeletionTimestamp.IsZero(),
		Generation: t.Generation, ObservedGeneration: t.Status.ObservedGeneration, Replicas: 1, StatusReplicas: int(t.Status.Replicas),
		CurrentRevision: t.Status.CurrentRevision, UpdateRevision: t.Status.UpdateRevision,
	}
	if t.Spec.Replicas != nil {
		out.Replicas = int(*t.Spec.Replicas)
	}
	for i := range t.Spec.VolumeClaimTemplates {
		c := &t.Spec.VolumeClaimTemplates[i]
		out.Templates = append(out.Templates, claimSpec(&c.Spec, c.Name))
	}
	return out
}

func claimSpec(c *corev1.PersistentVolumeClaimSpec, template string) volume.Spec {
	s := volume.Spec{Template: template, Capacity: c.Resources.Requests[corev1.ResourceStorage]}
	if c.StorageClassName != nil {
		s.Class = *c.StorageClassName
	}
	return s
}

func claimOf(c *corev1.PersistentVolumeClaim, template string) *plan.Claim {
	out := &plan.Claim{
		Name: c.Name, UID: string(c.UID), ResourceVersion: c.ResourceVersion, Created: c.CreationTimestamp.Time,
		Deleting: !c.DeletionTimestamp.IsZero(), Bound: c.Status.Phase == corev1.ClaimBound, VolumeName: c.Spec.VolumeName,
		Spec: claimSpec(&c.Spec, template),
	}
	if out.Deleting {
		out.DeletedAt = c.DeletionTimestamp.Time
	}
	return out
}

func volumeOf(v *corev1.PersistentVolume) *plan.Volume {
	out := &plan.Volume{
		Name: v.Name, UID: string(v.UID), ResourceVersion: v.ResourceVersion, Policy: string(v.Spec.PersistentVolumeReclaimPolicy),
		Deleting: !v.DeletionTimestamp.IsZero(), Mark: markOf(v),
	}
	if ref := v.Spec.ClaimRef; ref != nil {
		out.ClaimNamespace, out.ClaimName, out.BoundClaimUID = ref.Namespace, ref.Name, string(ref.UID)
	}
	return out
}

func markOf(v *corev1.PersistentVolume) plan.Mark {
	m := plan.Mark{
		Namespace: v.Labels[volume.EtcdNamespaceLabel], Etcd: v.Labels[volume.EtcdLabel], Member: v.Labels[volume.MemberLabel],
		Rollout: v.Labels[volume.RolloutLabel], OriginalPolicy: v.Labels[volume.OriginalPolicyLabel],
		ClaimUID: v.Annotations[volume.ClaimUIDAnnotation], PodUID: v.Annotations[volume.PodUIDAnnotation],
		MemberID: v.Annotations[volume.MemberIDAnnotation], ClusterID: v.Annotations[volume.ClusterIDAnnotation],
	}
	// A time that can not be read counts as not decided: it is decided anew, later rather than sooner.
	if until, err := time.Parse(time.RFC3339, v.Annotations[volume.RetainedUntilAnnotation]); err == nil {
		m.RetainedUntil = until
	}
	return m
}

func podOf(p *corev1.Pod) *plan.Pod {
	out := &plan.Pod{
		Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion, Deleting: !p.DeletionTimestamp.IsZero(),
		StartedAt: p.CreationTimestamp.Time,
	}
	if ref := metav1.GetControllerOf(p); ref != nil {
		out.ControllerUID = string(ref.UID)
	}
	if p.Status.StartTime != nil {
		out.StartedAt = p.Status.StartTime.Time
	}
	conditionsOf(p, out)
	containersOf(p, out)
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			out.ClaimName = v.PersistentVolumeClaim.ClaimName
		}
	}
	return out
}

func conditionsOf(p *corev1.Pod, out *plan.Pod) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready, out.ReadySince = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
		// The condition may outlive its cause: seen on 1.37 after the scheduler had lost a race against a pod of the same name.
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && p.Spec.NodeName == "" {
			out.Message = c.Message
		}
	}
}

func containersOf(p *corev1.Pod, out *plan.Pod) {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.Name == etcdContainer {
			out.Running = c.State.Running != nil
		}
		if w := c.State.Waiting; w != nil && out.Message == "" {
			out.Message = strings.TrimSuffix(fmt.Sprintf("container %s: %s %s", c.Name, w.Reason, w.Message), " ")
		}
	}
}

// leaseOf reads "<member ID>:<cluster ID>:<role>"; what is not of this form names no member.
func leaseOf(l *coordinationv1.Lease) *plan.Lease {
	out := &plan.Lease{}
	if l.Spec.RenewTime != nil {
		out.Renewed = l.Spec.RenewTime.Time
	}
	if l.Spec.HolderIdentity == nil {
		return out
	}
	parts := strings.Split(*l.Spec.HolderIdentity, ":")
	if len(parts) < 2 {
		return out
	}
	member, err := strconv.ParseUint(parts[0], 16, 64)
	cluster, err2 := strconv.ParseUint(parts[1], 16, 64)
	if err == nil && err2 == nil {
		out.MemberID, out.ClusterID = strconv.FormatUint(member, 16), strconv.FormatUint(cluster, 16)
	}
	return out
}

func backupOf(l *coordinationv1.Lease) plan.Backup {
	var out plan.Backup
	if l.Spec.HolderIdentity == nil || l.Spec.RenewTime == nil {
		return out
	}
	revision, err := strconv.ParseInt(*l.Spec.HolderIdentity, 10, 64)
	if err != nil {
		return out
	}
	return plan.Backup{FullAt: l.Spec.RenewTime.Time, Revision: revision}
}

func classOf(c *storagev1.StorageClass) plan.Class {
	return plan.Class{Name: c.Name, Exists: true, Deleting: !c.DeletionTimestamp.IsZero(), Provisioner: c.Provisioner}
}

// doorOf judges our configuration: it must fail closed, be reachable with trust, and see every update of an Etcd in the
// namespace. What its one match condition says is not judged.
func doorOf(c *admissionv1.ValidatingWebhookConfiguration, namespace string) plan.Door {
	for i := range c.Webhooks {
		if w := &c.Webhooks[i]; w.Name == DoorEntry {
			fault := doorFault(w, namespace)
			return plan.Door{Stands: fault == "", Fault: fault}
		}
	}
	return plan.Door{Fault: fmt.Sprintf("the validating webhook configuration %s has no entry %s", DoorName, DoorEntry)}
}

func doorFault(w *admissionv1.ValidatingWebhook, namespace string) string {
	switch {
	case w.FailurePolicy == nil || *w.FailurePolicy != admissionv1.Fail:
		return "the webhook " + DoorEntry + " does not fail closed"
	case len(w.ClientConfig.CABundle) == 0:
		return "the webhook " + DoorEntry + " has no CA bundle yet"
	case !slices.ContainsFunc(w.Rules, covers):
		return "the webhook " + DoorEntry + " does not see updates of etcds"
	case !sees(w, namespace):
		return "the webhook " + DoorEntry + " does not see every etcd of namespace " + namespace
	}
	return ""
}

// sees reports whether no selector keeps Etcds of the namespace from the webhook. Only the namespace's name, which nobody can change, may be
// selected by; and one condition, which is the one that lets through what is no volume change.
func sees(w *admissionv1.ValidatingWebhook, namespace string) bool {
	if o := w.ObjectSelector; o != nil && len(o.MatchLabels)+len(o.MatchExpressions) > 0 || len(w.MatchConditions) > 1 {
		return false
	}
	if w.NamespaceSelector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
	if err != nil {
		return false
	}
	requirements, _ := selector.Requirements()
	byName := !slices.ContainsFunc(requirements, func(q labels.Requirement) bool { return q.Key() != corev1.LabelMetadataName })
	return byName && selector.Matches(labels.Set{corev1.LabelMetadataName: namespace})
}

func covers(r admissionv1.RuleWithOperations) bool {
	update := slices.ContainsFunc(r.Operations, func(o admissionv1.OperationType) bool {
		return o == admissionv1.Update || o == admissionv1.OperationAll
	})
	return update && either(r.APIGroups, volume.GroupVersion.Group) && either(r.APIVersions, volume.GroupVersion.Version) && either(r.Resources, "etcds")
}

func either(list []string, want string) bool {
	return slices.Contains(list, want) || slices.Contains(list, "*")
}

func recordOf(rev *appsv1.ControllerRevision) (plan.Record, error) {
	var kept plan.Kept
	if err := json.Unmarshal(rev.Data.Raw, &kept); err != nil {
		return plan.Record{}, fmt.Errorf("read kept manifest %s/%s: %w", rev.Namespace, rev.Name, err)
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(kept.StatefulSet, &meta); err != nil {
		return plan.Record{}, fmt.Errorf("read kept manifest %s/%s: %w", rev.Namespace, rev.Name, err)
	}
	return plan.Record{
		Name: rev.Name, UID: string(rev.UID), ResourceVersion: rev.ResourceVersion, StatefulSetUID: string(meta.UID),
		Generation: meta.Generation, PodUIDs: kept.PodUIDs,
	}, nil
}

// newestWarning is the message of the newest warning; "" if there is none.
func newestWarning(events []corev1.Event) string {
	var newest *corev1.Event
	for i := range events {
		e := &events[i]
		if e.Type == corev1.EventTypeWarning && (newest == nil || at(newest).Before(at(e))) {
			newest = e
		}
	}
	if newest == nil {
		return ""
	}
	return newest.Message
}

func at(e *corev1.Event) time.Time {
	if !e.LastTimestamp.IsZero() {
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}
