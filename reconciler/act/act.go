package act

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Leaders moves leadership between members.
type Leaders interface {
	MoveLeader(ctx context.Context, etcd *volume.Etcd, from int, to uint64) error
}

// Backups takes full snapshots.
type Backups interface {
	Full(ctx context.Context, etcd *volume.Etcd) (int64, error)
}

// Actor performs steps.
type Actor struct {
	Client  client.Client
	Reader  client.Reader // uncached; for the manifest of the StatefulSet and the address of members, never for a decision
	Leaders Leaders
	Backups Backups
}

// Outcome is what a step brought beyond its write.
type Outcome struct {
	// Revision is what a snapshot contains; 0 if it was not said.
	Revision int64
}

// Do performs the step on the Etcd of the given key.
//
//nolint:gocyclo // one line an action
func (a Actor) Do(ctx context.Context, key types.NamespacedName, step plan.Step) (Outcome, error) {
	var out Outcome
	var err error
	switch step.Action {
	case plan.Idle, plan.Wait, plan.Reject, plan.Finish, plan.Supersede, plan.Abort:
	case plan.CreateRollout:
		err = a.createRollout(ctx, key, step)
	case plan.HoldDruid:
		err = a.annotate(ctx, key, step, "true")
	case plan.ReleaseDruid:
		err = a.annotate(ctx, key, step, nil)
	case plan.TakeSnapshot:
		out.Revision, err = a.snapshot(ctx, key)
	case plan.RecordStatefulSet:
		err = a.recordStatefulSet(ctx, key, step)
	case plan.DropRecord:
		err = a.remove(ctx, key, &appsv1.ControllerRevision{}, step.Target)
	case plan.DeleteStatefulSet:
		err = a.remove(ctx, key, &appsv1.StatefulSet{}, step.Target, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	case plan.CreateStatefulSet:
		err = a.createStatefulSet(ctx, key, step)
	case plan.ProtectVolume:
		err = a.patchVolume(ctx, step.Target, protection(step.Mark))
	case plan.KeepVolume:
		err = a.patchVolume(ctx, step.Target, retention(step.Mark))
	case plan.RestorePolicy:
		err = a.patchVolume(ctx, step.Target, restoration(step.Policy))
	case plan.MoveLeader:
		err = a.moveLeader(ctx, key, step)
	case plan.DeleteClaim:
		err = a.remove(ctx, key, &corev1.PersistentVolumeClaim{}, step.Target)
	case plan.EvictPod:
		err = a.evict(ctx, key, step.Target)
	case plan.RemoveFinalizer:
		err = a.removeFinalizer(ctx, key, step.Target)
	default:
		err = fmt.Errorf("action %q is not known; this is a bug", step.Action)
	}
	if err != nil {
		return out, fmt.Errorf("%s for %s: %w", step.Action, key, err)
	}
	return out, nil
}

// remove deletes what was seen and nothing else.
func (a Actor) remove(ctx context.Context, key types.NamespacedName, obj client.Object, target plan.Target, opts ...client.DeleteOption) error {
	obj.SetNamespace(key.Namespace)
	obj.SetName(target.Name)
	uid := types.UID(target.UID)
	opts = append(opts, client.Preconditions{UID: &uid, ResourceVersion: &target.ResourceVersion})
	if err := client.IgnoreNotFound(a.Client.Delete(ctx, obj, opts...)); err != nil {
		return fmt.Errorf("delete %T %s/%s: %w", obj, key.Namespace, target.Name, err)
	}
	return nil
}

func (a Actor) evict(ctx context.Context, key types.NamespacedName, target plan.Target) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: target.Name}}
	uid := types.UID(target.UID)
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: target.Name},
		// No resourceVersion: kubelet and scheduler write the pod's status all the time, and its UID says all.
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	}
	if err := client.IgnoreNotFound(a.Client.SubResource("eviction").Create(ctx, pod, eviction)); err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", key.Namespace, target.Name, err)
	}
	return nil
}

func (a Actor) createRollout(ctx context.Context, key types.NamespacedName, step plan.Step) error {
	r := rolloutOf(key, step)
	if err := a.Client.Create(ctx, r); err != nil {
		return fmt.Errorf("create rollout %s: %w", r.Name, err)
	}
	return nil
}

func rolloutOf(key types.NamespacedName, step plan.Step) *v1alpha1.VolumeRollout {
	stamp, yes, no := step.Stamp, true, false
	r := &v1alpha1.VolumeRollout{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: step.Target.Name, Finalizers: []string{v1alpha1.Finalizer},
			Labels: map[string]string{volume.EtcdLabel: key.Name},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: volume.GroupVersion.String(), Kind: "Etcd", Name: key.Name, UID: types.UID(stamp.EtcdUID), Controller: &yes, BlockOwnerDeletion: &no,
			}},
		},
		Spec: v1alpha1.VolumeRolloutSpec{
			Etcd: v1alpha1.ObjectReference{Name: key.Name, UID: types.UID(stamp.EtcdUID)}, VolumeGeneration: stamp.Generation,
			Operation: v1alpha1.Operation(stamp.Operation), Replicas: int32(step.Replicas), From: specOf(stamp.From), To: specOf(stamp.To), //nolint:gosec // a number of members
			ConfirmedBy: stamp.ConfirmedBy, RequestedBy: stamp.RequestedBy, Token: stamp.Token, Held: v1alpha1.Held(stamp.Held),
		},
	}
	for _, c := range stamp.Claims {
		r.Spec.Claims = append(r.Spec.Claims, claimOf(c))
	}
	return r
}

func claimOf(c confirm.Claim) v1alpha1.ClaimReference {
	return v1alpha1.ClaimReference{Ordinal: int32(c.Ordinal), Name: c.Name, UID: types.UID(c.UID)} //nolint:gosec // below the number of members
}

func specOf(s volume.Spec) v1alpha1.VolumeSpec {
	return v1alpha1.VolumeSpec{StorageClassName: s.Class, Capacity: s.Capacity, ClaimTemplate: s.Template}
}

// annotate sets (value) or removes (nil) those of druid's annotations that the step names.
func (a Actor) annotate(ctx context.Context, key types.NamespacedName, step plan.Step, value any) error {
	annotations := map[string]any{}
	if step.Held.Suspend {
		annotations[volume.SuspendAnnotation] = value
	}
	if step.Held.Protection {
		annotations[volume.DisableProtectionAnnotation] = value
	}
	etcd := &volume.Etcd{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	return a.patch(ctx, etcd, step.Target, map[string]any{"annotations": annotations}, nil)
}

// patch merges metadata and spec into the object that was seen.
func (a Actor) patch(ctx context.Context, obj client.Object, target plan.Target, metadata, spec map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = target.UID, target.ResourceVersion
	body := map[string]any{"metadata": metadata}
	if spec != nil {
		body["spec"] = spec
	}
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if err := a.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data)); err != nil {
		return fmt.Errorf("patch %T %s: %w", obj, target.Name, err)
	}
	return nil
}

// change is what becomes of a volume.
type change struct{ metadata, spec map[string]any }

func (a Actor) patchVolume(ctx context.Context, target plan.Target, c change) error {
	return a.patch(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: target.Name}}, target, c.metadata, c.spec)
}

func protection(m plan.Mark) change {
	return change{
		metadata: map[string]any{
			"labels": map[string]any{
				volume.EtcdNamespaceLabel: m.Namespace, volume.EtcdLabel: m.Etcd, volume.MemberLabel: m.Member, volume.RolloutLabel: m.Rollout,
				volume.OriginalPolicyLabel: m.OriginalPolicy,
			},
			"annotations": map[string]any{
				volume.ClaimUIDAnnotation: m.ClaimUID, volume.PodUIDAnnotation: m.PodUID, volume.MemberIDAnnotation: m.MemberID,
				volume.ClusterIDAnnotation: m.ClusterID, volume.RetainedUntilAnnotation: nil,
			},
		},
		spec: map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain},
	}
}

func retention(m plan.Mark) change {
	return change{metadata: map[string]any{"annotations": map[string]any{volume.RetainedUntilAnnotation: m.RetainedUntil.Format(time.RFC3339)}}}
}

func restoration(policy string) change {
	return change{
		metadata: map[string]any{
			"labels": map[string]any{
				volume.EtcdNamespaceLabel: nil, volume.EtcdLabel: nil, volume.MemberLabel: nil, volume.RolloutLabel: nil, volume.OriginalPolicyLabel: nil,
			},
			"annotations": map[string]any{
				volume.ClaimUIDAnnotation: nil, volume.PodUIDAnnotation: nil, volume.MemberIDAnnotation: nil, volume.ClusterIDAnnotation: nil,
				volume.RetainedUntilAnnotation: nil,
			},
		},
		spec: map[string]any{"persistentVolumeReclaimPolicy": policy},
	}
}

// etcd reads the Etcd for the sake of its addresses and Secrets.
func (a Actor) etcd(ctx context.Context, key types.NamespacedName) (*volume.Etcd, error) {
	var etcd volume.Etcd
	if err := a.Reader.Get(ctx, key, &etcd); err != nil {
		return nil, fmt.Errorf("get etcd %s: %w", key, err)
	}
	return &etcd, nil
}

func (a Actor) snapshot(ctx context.Context, key types.NamespacedName) (int64, error) {
	etcd, err := a.etcd(ctx, key)
	if err != nil {
		return 0, err
	}
	return a.Backups.Full(ctx, etcd)
}

func (a Actor) moveLeader(ctx context.Context, key types.NamespacedName, step plan.Step) error {
	etcd, err := a.etcd(ctx, key)
	if err != nil {
		return err
	}
	return a.Leaders.MoveLeader(ctx, etcd, step.Member, step.Transferee)
}

func (a Actor) removeFinalizer(ctx context.Context, key types.NamespacedName, target plan.Target) error {
	var r v1alpha1.VolumeRollout
	if err := a.Reader.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: target.Name}, &r); err != nil {
		return client.IgnoreNotFound(err)
	}
	kept := make([]string, 0, len(r.Finalizers))
	for _, f := range r.Finalizers {
		if f != v1alpha1.Finalizer {
			kept = append(kept, f)
		}
	}
	return client.IgnoreNotFound(a.patch(ctx, &r, target, map[string]any{"finalizers": kept}, nil))
}
