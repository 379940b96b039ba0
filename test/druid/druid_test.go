package druid_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/controller"
)

func cacheOf(namespace string) cache.Options {
	return cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
}

func TestNewEtcdGetsItsComponentsAndFinalizer(t *testing.T) {
	w := newWorld(t)
	w.etcd("main", func(e *api.Etcd) {
		e.Spec.Backup.Store = &api.StoreSpec{Provider: ptr.To("Local"), Container: ptr.To("bucket"), Prefix: "main"}
	})
	etcd := w.until("main", "status is kept", func(e *api.Etcd) bool { return e.Status.Ready != nil })
	assert.Equal(t, []string{api.Finalizer}, etcd.Finalizers)
	leases := &coordinationv1.LeaseList{}
	require.NoError(t, w.List(t.Context(), leases, client.InNamespace(w.namespace)))
	names := []string{}
	for _, l := range leases.Items {
		names = append(names, l.Name)
		assert.True(t, metav1.IsControlledBy(&l, etcd))
	}
	assert.ElementsMatch(t, []string{"main-0", "main-1", "main-2", "main-full-snap", "main-delta-snap"}, names)
	for _, obj := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "main"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "main-config"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "main-client"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "main-peer"}},
	} {
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: obj.GetName()}, obj))
		assert.True(t, metav1.IsControlledBy(obj, etcd), obj.GetName())
	}
	assert.Equal(t, "slow", *w.statefulSet("main").Spec.VolumeClaimTemplates[0].Spec.StorageClassName)
}

func TestReconcilingAgainChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.etcd("main")
	before := w.statefulSet("main")
	require.NoError(t, w.change("main", annotate(api.AnnotationOperation, "reconcile")))
	w.until("main", "the request is done", func(e *api.Etcd) bool { return !e.ReconcileRequested() })
	assert.Equal(t, before.Generation, w.statefulSet("main").Generation)
	assert.Equal(t, before.UID, w.statefulSet("main").UID)
}

func TestChangedClaimTemplateBlocksEverythingUntilItIsTakenBack(t *testing.T) {
	for name, change := range map[string]func(*api.Etcd){
		"class":    func(e *api.Etcd) { e.Spec.StorageClass = ptr.To("fast") },
		"capacity": func(e *api.Etcd) { e.Spec.StorageCapacity = ptr.To(resource.MustParse("20Gi")) },
		"template": func(e *api.Etcd) { e.Spec.VolumeClaimTemplate = ptr.To("data") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, automatic)
			w.etcd("main")
			old := w.statefulSet("main")
			require.NoError(t, w.change("main", change))
			failing := w.until("main", "the patch fails", func(e *api.Etcd) bool { return operation(e) == "Reconcile/Error" && len(e.Status.LastErrors) > 0 })
			assert.Equal(t, controller.CodeSyncStatefulSet, failing.Status.LastErrors[0].Code)
			assert.Contains(t, failing.Status.LastErrors[0].Description, `StatefulSet.apps "main" is invalid`)
			assert.Less(t, *failing.Status.ObservedGeneration, failing.Generation)
			assert.True(t, failing.ReconciliationInProgress())

			require.NoError(t, w.change("main", func(e *api.Etcd) { e.Spec.Annotations = map[string]string{"other": "change"} }))
			first := failing.Status.LastOperation.RunID
			w.until("main", "it is tried again with the other change", func(e *api.Etcd) bool {
				return e.Status.LastOperation.RunID != first && operation(e) == "Reconcile/Error"
			})
			assert.Equal(t, old.Generation, w.statefulSet("main").Generation, "nothing of the other change is applied")

			require.NoError(t, w.change("main", func(e *api.Etcd) {
				e.Spec.StorageClass, e.Spec.StorageCapacity, e.Spec.VolumeClaimTemplate = ptr.To("slow"), nil, nil
			}))
			healed := w.until("main", "it succeeds", func(e *api.Etcd) bool {
				return operation(e) == "Reconcile/Succeeded" && *e.Status.ObservedGeneration == e.Generation
			})
			assert.Empty(t, healed.Status.LastErrors)
			assert.Equal(t, "change", w.statefulSet("main").Spec.Template.Annotations["other"])
		})
	}
}

func TestEqualQuantityIsNoChangeOfTheTemplate(t *testing.T) {
	w := newWorld(t, automatic)
	w.etcd("main")
	require.NoError(t, w.change("main", func(e *api.Etcd) { e.Spec.StorageCapacity = ptr.To(resource.MustParse("16384Mi")) }))
	w.until("main", "it is reconciled", func(e *api.Etcd) bool { return *e.Status.ObservedGeneration == e.Generation })
}

func TestSpecWaitsForARequestUnlessReconciliationIsAutomatic(t *testing.T) {
	for _, key := range []string{api.AnnotationOperation, api.AnnotationGardenerOperation} {
		t.Run(key, func(t *testing.T) {
			w := newWorld(t)
			w.etcd("main")
			require.NoError(t, w.change("main", func(e *api.Etcd) { e.Spec.Annotations = map[string]string{"a": "b"} }))
			w.heartbeat("main-0", "1:c:Leader")
			w.until("main", "a pass has seen the member", func(e *api.Etcd) bool { return len(e.Status.Members) == 1 })
			assert.NotContains(t, w.statefulSet("main").Spec.Template.Annotations, "a")

			require.NoError(t, w.change("main", annotate(key, "reconcile")))
			w.until("main", "the request is done", func(e *api.Etcd) bool {
				return !e.ReconcileRequested() && *e.Status.ObservedGeneration == e.Generation
			})
			assert.Equal(t, "b", w.statefulSet("main").Spec.Template.Annotations["a"])
		})
	}
}

func TestSuspensionHoldsTheSpecButNotTheStatus(t *testing.T) {
	w := newWorld(t, automatic)
	w.etcd("main")
	old := w.statefulSet("main")
	require.NoError(t, w.change("main", func(e *api.Etcd) {
		annotate(api.AnnotationSuspend, "true")(e)
		annotate(api.AnnotationOperation, "reconcile")(e)
		e.Spec.StorageClass = ptr.To("fast")
	}))
	w.heartbeat("main-1", "2:c:Member")
	held := w.until("main", "a pass has seen the member", func(e *api.Etcd) bool { return len(e.Status.Members) == 1 })
	assert.Equal(t, "Reconcile/Succeeded", operation(held))
	assert.True(t, held.ReconcileRequested(), "the request stays pending")
	assert.Equal(t, int64(1), *held.Status.ObservedGeneration)
	assert.Equal(t, old.ResourceVersion, w.statefulSet("main").ResourceVersion)
	require.Eventually(t, func() bool { return w.eventSaid("SpecReconciliationSkipped") }, patience, pulse)

	require.NoError(t, w.change("main", func(e *api.Etcd) {
		delete(e.Annotations, api.AnnotationSuspend)
		e.Spec.StorageClass = ptr.To("slow")
	}))
	w.until("main", "the pending request is honoured", func(e *api.Etcd) bool {
		return !e.ReconcileRequested() && *e.Status.ObservedGeneration == e.Generation
	})
}

func (w *world) eventSaid(reason string) bool {
	events := &corev1.EventList{}
	require.NoError(w.t, w.List(w.t.Context(), events, client.InNamespace(w.namespace)))
	for _, e := range events.Items {
		if e.Reason == reason && e.Type == corev1.EventTypeWarning && e.InvolvedObject.Kind == api.Kind {
			return true
		}
	}
	return false
}

func TestForeignConditionSurvivesStatusPasses(t *testing.T) {
	w := newWorld(t)
	w.etcd("main")
	// Both sides write the whole list, so the condition may be lost once; it is set until a pass has kept it.
	foreign := api.Condition{Type: "VolumesChanging", Status: api.ConditionTrue, Reason: "R", Message: "m", LastTransitionTime: metav1.Now(), LastUpdateTime: metav1.Now()}
	seen := ""
	w.until("main", "two passes have kept the condition", func(e *api.Etcd) bool {
		for _, c := range e.Status.Conditions {
			if c.Type != foreign.Type {
				continue
			}
			updated := ownUpdateTime(e)
			if seen == "" {
				seen = updated
			}
			return updated != seen
		}
		before := e.DeepCopy()
		e.Status.Conditions = append(e.Status.Conditions, foreign)
		_ = w.Status().Patch(t.Context(), e, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		seen = ""
		return false
	})
}

func ownUpdateTime(e *api.Etcd) string {
	for _, c := range e.Status.Conditions {
		if c.Type == api.ConditionReady {
			return c.LastUpdateTime.String()
		}
	}
	return ""
}

func TestStatefulSetsAreNotWatched(t *testing.T) {
	w := newWorld(t)
	w.etcd("main")
	require.NoError(t, w.Delete(t.Context(), w.statefulSet("main")))
	w.until("main", "the status has noticed", func(e *api.Etcd) bool {
		for _, c := range e.Status.Conditions {
			if c.Type == api.ConditionAllMembersUpdated {
				return c.Reason == "StatefulSetNotFound"
			}
		}
		return false
	})
	err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "main"}, w.emptyStatefulSet())
	assert.True(t, apierrors.IsNotFound(err), "nobody asked for it to be made again")
}

func TestOrphanedPodsAreAdoptedByAsManyReplicasAsThereAreMembers(t *testing.T) {
	w := newWorld(t)
	etcd := w.etcd("main")
	for i, holder := range []string{"1:c:Leader", "2:c:Member"} {
		w.pod(etcd, int32(i))
		w.heartbeat(etcd.MemberName(int32(i)), holder)
	}
	w.until("main", "two members are known", func(e *api.Etcd) bool { return len(e.Status.Members) == 2 })
	require.NoError(t, w.Delete(t.Context(), w.statefulSet("main")))
	require.NoError(t, w.change("main", func(e *api.Etcd) {
		annotate(api.AnnotationOperation, "reconcile")(e)
		e.Spec.StorageClass = ptr.To("fast")
	}))
	w.until("main", "it was made again and waits", func(e *api.Etcd) bool { return operation(e) == "Reconcile/Requeue" })
	made := w.statefulSet("main")
	assert.Equal(t, int32(2), *made.Spec.Replicas, "not the three that the spec asks for")
	assert.Equal(t, "fast", *made.Spec.VolumeClaimTemplates[0].Spec.StorageClassName, "with everything else that was pending")
}

func TestHibernationKeepsLeasesAndWakingMakesTheMembersAgain(t *testing.T) {
	w := newWorld(t, automatic)
	w.etcd("main")
	for _, replicas := range []int32{0, 3} {
		require.NoError(t, w.change("main", func(e *api.Etcd) { e.Spec.Replicas = replicas }))
		w.until("main", "it is scaled", func(e *api.Etcd) bool { return *e.Status.ObservedGeneration == e.Generation })
		assert.Equal(t, replicas, *w.statefulSet("main").Spec.Replicas)
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "main-2"}, &coordinationv1.Lease{}))
	}
	err := w.change("main", func(e *api.Etcd) { e.Spec.Replicas = 1 })
	assert.True(t, apierrors.IsInvalid(err), "replicas may only grow or become 0: %v", err)
}

func TestHibernationWithStoreGoesOnAfterThreeFailedSnapshots(t *testing.T) {
	w := newWorld(t, automatic, func(c *controller.Config) { c.RetryInterval = pulse })
	w.etcd("main", func(e *api.Etcd) {
		e.Spec.Backup.Store = &api.StoreSpec{Provider: ptr.To("Local"), Container: ptr.To("bucket"), Prefix: "main"}
	})
	require.NoError(t, w.change("main", func(e *api.Etcd) { e.Spec.Replicas = 0 }))
	w.until("main", "it is scaled", func(e *api.Etcd) bool { return *e.Status.ObservedGeneration == e.Generation })
	assert.Zero(t, *w.statefulSet("main").Spec.Replicas)
}

func TestDeletionTakesTheComponentsAndLeavesTheClaims(t *testing.T) {
	w := newWorld(t)
	etcd := w.etcd("main", annotate(api.AnnotationOperation, "reconcile"))
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "main-main-0", Labels: etcd.DefaultLabels()},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	require.NoError(t, w.Create(t.Context(), claim))
	require.NoError(t, w.Delete(t.Context(), etcd))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(etcd), &api.Etcd{}))
	}, patience, pulse)

	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &coordinationv1.LeaseList{}} {
		require.NoError(t, w.List(t.Context(), list, client.InNamespace(w.namespace)))
		assert.Zero(t, lenOf(list), "%T", list)
	}
	err := w.Get(t.Context(), client.ObjectKeyFromObject(etcd), w.emptyStatefulSet())
	assert.True(t, apierrors.IsNotFound(err))
	assert.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
}

func TestPinnedVariantOfTheCRDRefusesVolumeChangesAndTheRelaxedOneAllowsThem(t *testing.T) {
	w := newWorld(t, automatic)
	w.etcd("main")
	w.etcd("plain", func(e *api.Etcd) { e.Spec.StorageClass = nil })
	attempts := map[string]struct {
		etcd   string
		change func(*api.Etcd)
	}{
		"class changed":  {"main", func(e *api.Etcd) { e.Spec.StorageClass = ptr.To("fast") }},
		"class removed":  {"main", func(e *api.Etcd) { e.Spec.StorageClass = nil }},
		"class added":    {"plain", func(e *api.Etcd) { e.Spec.StorageClass = ptr.To("fast") }},
		"template added": {"plain", func(e *api.Etcd) { e.Spec.VolumeClaimTemplate = ptr.To("data") }},
	}
	installCRD(t, w, true)
	for name, try := range attempts {
		require.Eventually(t, func() bool { return apierrors.IsInvalid(w.dryRun(try.etcd, try.change)) }, patience, pulse, name)
	}
	require.NoError(t, w.dryRun("main", func(e *api.Etcd) { e.Spec.StorageCapacity = ptr.To(resource.MustParse("20Gi")) }), "capacity has no rule")

	installCRD(t, w, false)
	for name, try := range attempts {
		require.Eventually(t, func() bool { return w.dryRun(try.etcd, try.change) == nil }, patience, pulse, name)
	}
	assert.True(t, apierrors.IsInvalid(w.dryRun("main", func(e *api.Etcd) { e.Spec.MemberNamePrefix = ptr.To("x") })))
}

func (w *world) dryRun(name string, change func(*api.Etcd)) error {
	w.t.Helper()
	etcd := &api.Etcd{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, etcd))
	before := etcd.DeepCopy()
	change(etcd)
	return w.Patch(w.t.Context(), etcd, client.MergeFrom(before), client.DryRunAll)
}

func TestUnknownFieldsSurviveDruidsOwnWrites(t *testing.T) {
	w := newWorld(t)
	w.etcd("main")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"future":{"field":1},"etcd":{"other":true}},"metadata":{"annotations":{"`+api.AnnotationOperation+`":"reconcile"}}}`))
	require.NoError(t, w.Patch(t.Context(), &api.Etcd{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "main"}}, patch))
	w.until("main", "the request is done", func(e *api.Etcd) bool { return !e.ReconcileRequested() })
	raw := w.raw("main")
	assert.Equal(t, map[string]any{"field": int64(1)}, raw["future"])
}
