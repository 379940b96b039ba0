package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/etcd-volumes/etcd-volumes/reconciler/act"
	"github.com/etcd-volumes/etcd-volumes/reconciler/observe"
	"github.com/etcd-volumes/etcd-volumes/reconciler/report"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// house is the reconciler in the simulated cluster. It can be struck: the nth write fails, or is the last one before a crash.
type house struct {
	*fixture.Simulation
	t    *testing.T
	r    *Reconciler
	seen *events.FakeRecorder

	writes int // so far
	verbs  []string
	strike int    // which write is struck; 0: none
	before bool   // struck before it is done, else after
	dead   bool   // all further writes of this life fail
	struck string // what was struck
}

var errStruck = errors.New("struck")

// build is three members of class slow, a door that stands, and a confirmed change to class fast and 20Gi.
func build(t *testing.T, mods ...fixture.EtcdMod) *house {
	t.Helper()
	etcd := fixture.Etcd(mods...)
	objects := append(fixture.World(etcd), door())
	confirmed(etcd, "fast", "20Gi")
	h := &house{t: t, Simulation: fixture.NewSimulation(t, etcd, objects...)}
	h.live()
	t.Cleanup(func() {
		if !t.Failed() {
			h.invariants()
		}
	})
	return h
}

func door() *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: observe.DoorName},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: observe.DoorEntry, FailurePolicy: ptr.To(admissionv1.Fail), ClientConfig: admissionv1.WebhookClientConfig{CABundle: []byte("ca")},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{"druid.gardener.cloud"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"etcds"}},
			}},
		}},
	}
}

// confirmed is what the door leaves on the Etcd.
func confirmed(etcd *volume.Etcd, class, capacity string) {
	from := volume.Of(etcd)
	fixture.Class(class)(etcd)
	fixture.Capacity(capacity)(etcd)
	old, _ := confirm.Read(etcd.Annotations)
	ask := confirm.Ask{
		EtcdUID: string(etcd.UID), Generation: confirm.NextGeneration(old), Operation: confirm.Replace, From: from, To: volume.Of(etcd),
	}
	for i := range int(etcd.Spec.Replicas) {
		ask.Claims = append(ask.Claims, confirm.Claim{Ordinal: i, Name: volume.ClaimName(from.Template, etcd.Name, i), UID: string(fixture.ClaimUID(i))})
	}
	stamp := confirm.StampOf(ask, "admin", "colleague", confirm.Held{Suspend: true, Protection: true})
	for key, value := range map[string]string{
		volume.StampAnnotation: stamp.String(), volume.SuspendAnnotation: "", volume.DisableProtectionAnnotation: "",
	} {
		fixture.Annotation(key, value)(etcd)
	}
}

// live starts the reconciler anew: nothing of an earlier life is known.
func (h *house) live() {
	h.dead = false
	c := interceptor.NewClient(h.Client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			var o client.CreateOptions
			if o.ApplyOptions(opts); len(o.DryRun) > 0 {
				return c.Create(ctx, obj, opts...)
			}
			return h.write("create", obj, func() error { return c.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return h.write("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return h.write("patch", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return h.write("patch "+sub, obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, body client.Object, opts ...client.SubResourceCreateOption) error {
			var o client.SubResourceCreateOptions
			if o.ApplyOptions(opts); len(o.DryRun) > 0 {
				return c.SubResource(sub).Create(ctx, obj, body, opts...)
			}
			return h.write("create "+sub, obj, func() error { return c.SubResource(sub).Create(ctx, obj, body, opts...) })
		},
	})
	o := DefaultOptions()
	h.seen = events.NewFakeRecorder(1000)
	h.r = &Reconciler{
		Observer: observe.New(h.Client, c, h, o.plan()), Actor: act.Actor{Client: c, Reader: h.Client, Leaders: h, Backups: h},
		Client: c, Recorder: h.seen, Now: h.Now, measures: newMeasures(),
	}
}

// MoveLeader can be struck like any write.
func (h *house) MoveLeader(ctx context.Context, etcd *volume.Etcd, from int, to uint64) error {
	return h.write("move leader", etcd, func() error { return h.Simulation.MoveLeader(ctx, etcd, from, to) })
}

// Full can be struck like any write.
func (h *house) Full(ctx context.Context, etcd *volume.Etcd) (int64, error) {
	return 0, h.write("snapshot", etcd, func() error {
		_, err := h.Simulation.Full(ctx, etcd)
		return err
	})
}

func (h *house) write(verb string, obj client.Object, do func() error) error {
	if h.dead {
		return errStruck
	}
	h.writes++
	h.verbs = append(h.verbs, verb)
	if h.writes != h.strike {
		return do()
	}
	h.struck = fmt.Sprintf("%s %T", verb, obj)
	if h.before {
		return apierrors.NewInternalError(errStruck)
	}
	h.dead = true
	if err := do(); err != nil {
		return err
	}
	return errStruck
}

// pass is one pass; an error that was not dealt out is the test's.
func (h *house) pass() ctrl.Result {
	h.t.Helper()
	result, err := h.r.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: h.Key})
	if h.strike == 0 {
		require.NoError(h.t, err)
	}
	if h.dead {
		h.live()
	}
	h.invariants()
	return result
}

// invariants are the promises, in view of the world.
func (h *house) invariants() {
	h.t.Helper()
	ctx := h.t.Context()
	var etcd volume.Etcd
	if err := h.Client.Get(ctx, h.Key, &etcd); apierrors.IsNotFound(err) {
		return
	}
	var volumes corev1.PersistentVolumeList
	require.NoError(h.t, h.Client.List(ctx, &volumes))
	kept := map[string]bool{}
	for _, v := range volumes.Items {
		kept[string(v.Spec.ClaimRef.UID)] = v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain && v.Labels[volume.RolloutLabel] != ""
	}
	stamp, err := confirm.Read(etcd.Annotations)
	require.NoError(h.t, err)
	for _, uid := range h.Deleted {
		named := stamp != nil && fmt.Sprint(stamp.Claims) != "" && containsUID(stamp.Claims, string(uid))
		require.True(h.t, named, "claim %s was not named", uid)
		require.True(h.t, kept[string(uid)], "the volume of claim %s is not kept", uid)
	}
	out := 0
	for _, c := range h.Claims() {
		if c.DeletionTimestamp != nil {
			out++
		}
	}
	require.LessOrEqual(h.t, out, 1)
}

func containsUID(claims []confirm.Claim, uid string) bool {
	for _, c := range claims {
		if c.UID == uid {
			return true
		}
	}
	return false
}

func (h *house) rollout() *v1alpha1.VolumeRollout {
	h.t.Helper()
	var r v1alpha1.VolumeRollout
	err := h.Client.Get(h.t.Context(), client.ObjectKey{Namespace: h.Key.Namespace, Name: h.Key.Name + "-v1"}, &r)
	require.NoError(h.t, client.IgnoreNotFound(err))
	return &r
}

func (h *house) until(want v1alpha1.Phase) {
	h.t.Helper()
	for range 400 {
		h.pass()
		if h.rollout().Status.Phase == want {
			return
		}
		for range 3 {
			h.Turn()
		}
	}
	require.Failf(h.t, "never "+string(want), "struck %s: %+v", h.struck, h.rollout().Status)
}

func (h *house) complete() {
	h.t.Helper()
	for _, c := range h.Claims() {
		assert.Equal(h.t, "fast", *c.Spec.StorageClassName)
		assert.Equal(h.t, resource.MustParse("20Gi"), c.Spec.Resources.Requests[corev1.ResourceStorage])
	}
	var etcd volume.Etcd
	require.NoError(h.t, h.Client.Get(h.t.Context(), h.Key, &etcd))
	assert.NotContains(h.t, etcd.Annotations, volume.SuspendAnnotation)
	assert.NotContains(h.t, etcd.Annotations, volume.DisableProtectionAnnotation)
	require.Len(h.t, h.Deleted, int(etcd.Spec.Replicas))
	require.Len(h.t, h.Evicted, int(etcd.Spec.Replicas), "no pod is evicted twice")
}

func TestAConfirmedChangeIsCarriedOutMemberByMember(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.until(v1alpha1.Complete)
	h.complete()
	h.pass()

	r := h.rollout()
	assert.Equal(t, "3/3", r.Status.Progress)
	assert.Equal(t, fixture.ClusterID, r.Status.ClusterID)
	assert.Len(t, r.Status.RetainedVolumes, 3)
	assert.Equal(t, int64(4711), r.Status.Snapshot.Revision)
	assert.NotEqual(t, r.Status.StatefulSet.OldUID, r.Status.StatefulSet.NewUID)
	for i, m := range r.Status.Members {
		assert.Equal(t, v1alpha1.MemberReplaced, m.Phase)
		assert.Equal(t, fixture.MemberID(i), m.Old.MemberID)
		assert.Equal(t, fixture.ClaimUID(i), m.Old.ClaimUID)
		assert.NotEqual(t, m.Old.MemberID, m.New.MemberID)
		assert.Contains(t, m.Evidence, "answers as voter")
	}
	assert.Equal(t, fixture.ClaimUID(0), h.Deleted[2], "the leader is last")
	var etcd volume.Etcd
	require.NoError(t, h.Client.Get(t.Context(), h.Key, &etcd))
	require.Len(t, etcd.Status.Conditions, 1)
	assert.Equal(t, report.VolumesUpToDate, etcd.Status.Conditions[0].Type)
	assert.Equal(t, metav1.ConditionTrue, etcd.Status.Conditions[0].Status)
	assert.NotEmpty(t, h.seen.Events)
}

func TestTheStatefulSetComesBackWithNothingButItsClaimTemplateChanged(t *testing.T) {
	t.Parallel()
	h := build(t)
	var before, after appsv1.StatefulSet
	require.NoError(t, h.Client.Get(t.Context(), h.Key, &before))
	h.until(v1alpha1.Complete)
	require.NoError(t, h.Client.Get(t.Context(), h.Key, &after))
	want, got := before.Spec.DeepCopy(), after.Spec.DeepCopy()
	require.Len(t, got.VolumeClaimTemplates, 1)
	template := got.VolumeClaimTemplates[0]
	want.VolumeClaimTemplates, got.VolumeClaimTemplates = nil, nil
	assert.Equal(t, want, got)
	assert.Equal(t, before.Labels, after.Labels)
	assert.Equal(t, before.Annotations, after.Annotations)
	assert.Equal(t, before.OwnerReferences, after.OwnerReferences)
	assert.Equal(t, metav1.ObjectMeta{Name: "main"}, template.ObjectMeta)
	assert.Equal(t, corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}},
	}, template.Spec)
}

// worthStriking are the writes of an undisturbed rollout: all but the many of status, of which every fourth does.
func worthStriking(t *testing.T) []int {
	t.Helper()
	h := build(t)
	h.until(v1alpha1.Complete)
	var worth []int
	for i, verb := range h.verbs {
		if verb != "patch status" || i%4 == 0 {
			worth = append(worth, i+1)
		}
	}
	require.GreaterOrEqual(t, len(worth), 25)
	return worth
}

func TestAnyWriteMayFail(t *testing.T) {
	t.Parallel()
	for _, n := range worthStriking(t) {
		h := build(t)
		h.strike, h.before = n, true
		h.until(v1alpha1.Complete)
		h.complete()
		require.NotEmpty(t, h.struck)
		require.Falsef(t, t.Failed(), "after write %d, %s", n, h.struck)
	}
}

func TestTheOperatorMayCrashAfterAnyWrite(t *testing.T) {
	t.Parallel()
	for _, n := range worthStriking(t) {
		h := build(t)
		h.strike = n
		h.until(v1alpha1.Complete)
		h.complete()
		require.NotEmpty(t, h.struck)
		require.Falsef(t, t.Failed(), "after write %d, %s", n, h.struck)
	}
}

func TestAnEvictionThatWouldBeRefusedKeepsTheClaim(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.Refuse = "the disruption budget needs 3 healthy pods"
	for range 40 {
		h.pass()
		h.Turn()
	}
	assert.Empty(t, h.Deleted)
	assert.Equal(t, "EvictionRefused", h.rollout().Status.Reason)
	assert.Contains(t, h.rollout().Status.Message, "the disruption budget needs 3 healthy pods")
	h.Refuse = ""
	h.until(v1alpha1.Complete)
	h.complete()
}

func TestAStampThatWasTamperedWithDoesNothingAndIsSaid(t *testing.T) {
	t.Parallel()
	h := build(t)
	var etcd volume.Etcd
	require.NoError(t, h.Client.Get(t.Context(), h.Key, &etcd))
	var stamp map[string]any
	require.NoError(t, json.Unmarshal([]byte(etcd.Annotations[volume.StampAnnotation]), &stamp))
	stamp["generation"] = 7
	torn, err := json.Marshal(stamp)
	require.NoError(t, err)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{volume.StampAnnotation: string(torn)}}})
	require.NoError(t, err)
	require.NoError(t, h.Client.Patch(t.Context(), &etcd, client.RawPatch(types.MergePatchType, patch)))
	for range 5 {
		_, err := h.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: h.Key})
		require.NoError(t, err)
	}
	require.NoError(t, h.Client.Get(t.Context(), h.Key, &etcd))
	require.Len(t, etcd.Status.Conditions, 1)
	assert.Equal(t, "StampInvalid", etcd.Status.Conditions[0].Reason)
	assert.Len(t, h.seen.Events, 1, "it is said once")
	assert.Equal(t, 1, h.writes, "only the condition is written")
	delete(etcd.Annotations, volume.StampAnnotation)
	require.NoError(t, h.Client.Patch(t.Context(), &etcd, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+volume.StampAnnotation+`":null}}}`))))
}

func TestOldVolumesAreGivenBackWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	h := build(t)
	h.until(v1alpha1.Complete)
	result := h.pass()
	assert.Greater(t, result.RequeueAfter, 23*time.Hour)
	h.Deleted = nil // from here on they need not be kept
	h.Pass(25 * time.Hour)
	for range 5 {
		h.pass()
	}
	var volumes corev1.PersistentVolumeList
	require.NoError(t, h.Client.List(t.Context(), &volumes))
	for _, v := range volumes.Items {
		assert.Equal(t, corev1.PersistentVolumeReclaimDelete, v.Spec.PersistentVolumeReclaimPolicy)
		assert.Empty(t, v.Labels)
		assert.Empty(t, v.Annotations)
	}
	assert.Empty(t, h.rollout().Status.RetainedVolumes)
}

func TestAnEtcdWithoutAnythingToDoIsLookedAtAndLeftAlone(t *testing.T) {
	t.Parallel()
	etcd := fixture.Etcd()
	h := &house{t: t, Simulation: fixture.NewSimulation(t, etcd, fixture.World(etcd)...)}
	h.live()
	h.pass()
	require.Equal(t, 1, h.writes, "the condition")
	assert.Zero(t, h.pass())
	assert.Equal(t, 1, h.writes)
}
