package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/stage"
)

func TestAClassThatNeverProvisionsStallsAndANewChangeHeals(t *testing.T) {
	t.Parallel()
	a := begin(t, "never-provisions")
	a.changeClass("broken")
	r, err := a.WaitRollout(a.within(3*time.Minute), a.namespace, a.name, 1, stage.InPhase(v1alpha1.Stalled))
	require.NoError(t, err)
	assert.NotEmpty(t, r.Status.Message)
	assert.Contains(t, r.Status.Message, "claim", "the reason is said: %s", r.Status.Message)
	replacing := 0
	for _, m := range r.Status.Members {
		if m.Phase != v1alpha1.MemberWaiting {
			replacing++
		}
	}
	assert.Equal(t, 1, replacing, "past the deadline no further member is touched")
	written := len(a.writer.Acks())

	a.changeClass("fast")
	a.ends(1, v1alpha1.Superseded, 3*time.Minute)
	a.ends(2, v1alpha1.Complete, 4*time.Minute)
	a.onClass("fast")
	a.druidFree()
	assert.Greater(t, len(a.writer.Acks()), written, "two members of three went on serving")
}

func TestASecondChangeDuringTheRolloutSupersedes(t *testing.T) {
	t.Parallel()
	a := begin(t, "second-change")
	a.changeClass("fast")
	_, err := a.WaitRollout(a.within(2*time.Minute), a.namespace, a.name, 1, stage.InPhase(v1alpha1.Replacing))
	require.NoError(t, err)
	a.changeClass("fixed")
	a.ends(1, v1alpha1.Superseded, 3*time.Minute)
	a.ends(2, v1alpha1.Complete, 4*time.Minute)
	a.onClass("fixed")
	a.druidFree()
}

func TestAnEtcdDeletedInTheMiddleLeavesNothingHeld(t *testing.T) {
	t.Parallel()
	a := begin(t, "deleted")
	a.changeClass("fast")
	_, err := a.WaitRollout(a.within(2*time.Minute), a.namespace, a.name, 1, func(r *v1alpha1.VolumeRollout) bool {
		return len(r.Status.RetainedVolumes) > 0
	})
	require.NoError(t, err)
	out, err := a.kubectl("-n", a.namespace, "delete", "etcd", a.name, "--timeout=50s")
	require.NoError(t, err, out)

	_, err = a.until(func() (string, bool) {
		_, err := a.Rollout(a.within(time.Minute), a.namespace, a.name, 1)
		return "", apierrors.IsNotFound(err)
	})
	require.NoError(t, err, "the rollout goes with its Etcd")
	claims, err := a.Claims(t.Context(), a.namespace, a.name)
	require.NoError(t, err)
	for _, c := range claims {
		if c.Spec.VolumeName == "" {
			continue
		}
		var pv corev1.PersistentVolume
		require.NoError(t, a.Client.Get(t.Context(), types.NamespacedName{Name: c.Spec.VolumeName}, &pv))
		assert.Equal(t, "Delete", string(pv.Spec.PersistentVolumeReclaimPolicy), "volume %s of the living claim %s has its policy back", pv.Name, c.Name)
	}
}
