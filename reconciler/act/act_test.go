package act_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/act"
	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func TestTheManifestKeepsWhatIsNotKnownAndChangesOnlyTheClaimTemplate(t *testing.T) {
	kept := []byte(`{"statefulSet":{"apiVersion":"apps/v1","kind":"StatefulSet",
		"metadata":{"name":"main","namespace":"shop","uid":"u","resourceVersion":"7","generation":3,"creationTimestamp":"2026-12-01T00:00:00Z",
			"managedFields":[{}],"labels":{"a":"b"},"annotations":{"c":"d"},"ownerReferences":[{"uid":"e"}]},
		"spec":{"replicas":3,"ofTheFuture":{"x":1},"volumeClaimTemplates":[{"apiVersion":"v1","kind":"PersistentVolumeClaim",
			"metadata":{"name":"main","labels":{"x":"y"}},"spec":{"storageClassName":"slow","volumeMode":"Filesystem"},"status":{"phase":"Pending"}}]},
		"status":{"replicas":3}},"podUIDs":["p"]}`)
	for name, tc := range map[string]struct{ class, want string }{
		"a class":  {"fast", `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"20Gi"}},"storageClassName":"fast"}`},
		"no class": {"", `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"20Gi"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := act.Manifest(kept, plan.Step{Spec: volume.Spec{Class: tc.class, Capacity: resource.MustParse("20Gi"), Template: "main"}})
			require.NoError(t, err)
			text, err := json.Marshal(got)
			require.NoError(t, err)
			assert.JSONEq(t, `{"apiVersion":"apps/v1","kind":"StatefulSet",
				"metadata":{"name":"main","namespace":"shop","labels":{"a":"b"},"annotations":{"c":"d"},"ownerReferences":[{"uid":"e"}]},
				"spec":{"replicas":3,"ofTheFuture":{"x":1},"volumeClaimTemplates":[{"metadata":{"name":"main"},"spec":`+tc.want+`}]}}`, string(text))
		})
	}
	_, err := act.Manifest([]byte(`{"statefulSet":{"apiVersion":"apps/v1","kind":"StatefulSet","spec":{}}}`), plan.Step{})
	require.ErrorContains(t, err, "0 claim templates")
}

func TestOnlyTheClaimThatWasSeenIsDeleted(t *testing.T) {
	etcd := fixture.Etcd()
	sim := fixture.NewSimulation(t, etcd, fixture.World(etcd)...)
	a := act.Actor{Client: sim.Client, Reader: sim.Client}
	live := sim.Claims()[0]
	for name, target := range map[string]plan.Target{
		"other UID":     {Name: live.Name, UID: "other", ResourceVersion: live.ResourceVersion},
		"older version": {Name: live.Name, UID: string(live.UID), ResourceVersion: "1"},
	} {
		_, err := a.Do(t.Context(), sim.Key, plan.Step{Action: plan.DeleteClaim, Target: target})
		assert.True(t, apierrors.IsConflict(err), "%s: %v", name, err)
	}
	assert.Empty(t, sim.Deleted)
	_, err := a.Do(t.Context(), sim.Key, plan.Step{
		Action: plan.DeleteClaim, Target: plan.Target{Name: live.Name, UID: string(live.UID), ResourceVersion: live.ResourceVersion},
	})
	require.NoError(t, err)
	assert.Len(t, sim.Deleted, 1)
}

func TestAVolumeIsPutBackExactlyAsItWas(t *testing.T) {
	etcd := fixture.Etcd()
	sim := fixture.NewSimulation(t, etcd, fixture.World(etcd)...)
	a := act.Actor{Client: sim.Client, Reader: sim.Client}
	pv := func() *corev1.PersistentVolume {
		var v corev1.PersistentVolume
		require.NoError(t, sim.Client.Get(t.Context(), client.ObjectKey{Name: fixture.VolumeName(0)}, &v))
		return &v
	}
	do := func(step plan.Step) {
		v := pv()
		step.Target = plan.Target{Name: v.Name, UID: string(v.UID), ResourceVersion: v.ResourceVersion}
		_, err := a.Do(t.Context(), sim.Key, step)
		require.NoError(t, err)
	}
	was := pv()
	mark := plan.Mark{Namespace: "shop", Etcd: "main", Member: "main-0", Rollout: "main-v1", OriginalPolicy: "Delete", ClaimUID: "c", RetainedUntil: fixture.Now}
	do(plan.Step{Action: plan.ProtectVolume, Mark: mark})
	assert.Equal(t, corev1.PersistentVolumeReclaimRetain, pv().Spec.PersistentVolumeReclaimPolicy)
	assert.Equal(t, "main-v1", pv().Labels[volume.RolloutLabel])
	assert.NotContains(t, pv().Annotations, volume.RetainedUntilAnnotation)
	do(plan.Step{Action: plan.KeepVolume, Mark: mark})
	assert.Equal(t, "2026-12-01T09:00:00Z", pv().Annotations[volume.RetainedUntilAnnotation])
	do(plan.Step{Action: plan.RestorePolicy, Policy: "Delete"})
	got := pv()
	assert.Equal(t, was.Spec, got.Spec)
	assert.Empty(t, got.Labels)
	assert.Empty(t, got.Annotations)
}

func TestEveryActionIsKnown(t *testing.T) {
	_, err := act.Actor{}.Do(t.Context(), fixture.NewSimulation(t, fixture.Etcd()).Key, plan.Step{Action: "Dance"})
	require.ErrorContains(t, err, "this is a bug")
}
