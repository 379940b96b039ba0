package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// ErrChanged says that the object is no longer the one that the step was made for; the next pass looks again.
var ErrChanged = errors.New("it was changed meanwhile")

// recordStatefulSet keeps the manifest of the live StatefulSet in a ControllerRevision: an object that is there for such data,
// immutable, and collected with the rollout. It bears none of the selector's labels, so that no StatefulSet adopts it.
// The manifest is kept as it is, unknown fields included.
func (a Actor) recordStatefulSet(ctx context.Context, key types.NamespacedName, step plan.Step) error {
	live := newStatefulSet()
	if err := a.Reader.Get(ctx, key, live); err != nil {
		return fmt.Errorf("get statefulset %s: %w", key, err)
	}
	if string(live.GetUID()) != step.Target.UID || live.GetGeneration() != step.Generation {
		return fmt.Errorf("keep statefulset %s: %w", key, ErrChanged)
	}
	manifest, err := live.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode statefulset %s: %w", key, err)
	}
	data, err := json.Marshal(plan.Kept{StatefulSet: manifest, PodUIDs: step.PodUIDs})
	if err != nil {
		return fmt.Errorf("encode statefulset %s: %w", key, err)
	}
	var r v1alpha1.VolumeRollout
	if err := a.Reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: step.Rollout}, &r); err != nil {
		return fmt.Errorf("get rollout %s/%s: %w", key.Namespace, step.Rollout, err)
	}
	rev := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: plan.RecordName(step.Rollout),
			Labels:          map[string]string{volume.EtcdLabel: key.Name, volume.RolloutLabel: step.Rollout},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VolumeRollout", Name: r.Name, UID: r.UID}},
		},
		Revision: step.Generation, Data: runtime.RawExtension{Raw: data},
	}
	if err := a.Client.Create(ctx, rev); err != nil {
		return fmt.Errorf("create controllerrevision %s/%s: %w", rev.Namespace, rev.Name, err)
	}
	return nil
}

// createStatefulSet makes the StatefulSet again from the kept manifest, with another claim template and nothing else changed.
func (a Actor) createStatefulSet(ctx context.Context, key types.NamespacedName, step plan.Step) error {
	var rev appsv1.ControllerRevision
	if err := a.Reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: step.Target.Name}, &rev); err != nil {
		return fmt.Errorf("get controllerrevision %s/%s: %w", key.Namespace, step.Target.Name, err)
	}
	if string(rev.UID) != step.Target.UID {
		return fmt.Errorf("make statefulset %s: %w", key, ErrChanged)
	}
	again, err := Manifest(rev.Data.Raw, step)
	if err != nil {
		return fmt.Errorf("make statefulset %s: %w", key, err)
	}
	if err := a.Client.Create(ctx, again); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create statefulset %s: %w", key, err)
	}
	return nil
}

// Manifest is the StatefulSet to be created from what was kept: without what the API server gives, and with the claim template that
// etcd-druid would render for the step's spec.
func Manifest(data []byte, step plan.Step) (*unstructured.Unstructured, error) {
	var kept plan.Kept
	if err := json.Unmarshal(data, &kept); err != nil {
		return nil, fmt.Errorf("read kept manifest: %w", err)
	}
	set := newStatefulSet()
	if err := set.UnmarshalJSON(kept.StatefulSet); err != nil {
		return nil, fmt.Errorf("read kept manifest: %w", err)
	}
	for _, field := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink",
	} {
		unstructured.RemoveNestedField(set.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(set.Object, "status")
	templates, _, err := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates")
	if err != nil {
		return nil, fmt.Errorf("read kept manifest: %w", err)
	}
	if len(templates) != 1 {
		return nil, fmt.Errorf("the kept manifest has %d claim templates; this is a bug", len(templates))
	}
	if err := unstructured.SetNestedSlice(set.Object, []any{template(step.Spec)}, "spec", "volumeClaimTemplates"); err != nil {
		return nil, fmt.Errorf("set claim template: %w", err)
	}
	return set, nil
}

// template is a claim template as etcd-druid renders it: nothing of ours, or its next patch of the StatefulSet would fail.
func template(s volume.Spec) map[string]any {
	spec := map[string]any{
		"accessModes": []any{string(corev1.ReadWriteOnce)},
		"resources":   map[string]any{"requests": map[string]any{string(corev1.ResourceStorage): s.Capacity.String()}},
	}
	if s.Class != "" {
		spec["storageClassName"] = s.Class
	}
	return map[string]any{"metadata": map[string]any{"name": s.Template}, "spec": spec}
}

func newStatefulSet() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	return u
}
