package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const (
	soon = 5 * time.Second
	tick = 2 * time.Millisecond
)

// runStorage runs provisioner and resizer on the given objects until the test
// ends, and returns the directory of the volumes.
func runStorage(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(context.Background())
	s, err := newStorage(ctx, client, dir, logr.Discard())
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	return dir
}

// fakeAPI holds the classes, a node and the given objects.
func fakeAPI(objects ...runtime.Object) *fake.Clientset {
	objects = append(objects, node("a1", "zone-a"))
	for _, class := range Classes() {
		objects = append(objects, &class)
	}
	return fake.NewClientset(objects...)
}

// scheduled is what the volume binder makes of a claim once a pod that uses it
// was given a node.
func scheduled(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c.Annotations = map[string]string{
		"volume.kubernetes.io/storage-provisioner": Provisioner,
		"volume.kubernetes.io/selected-node":       "a1",
	}
	return c
}

func eventsOf(t *testing.T, client *fake.Clientset, reason string) []string {
	t.Helper()
	list, err := client.CoreV1().Events("garden").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	var messages []string
	for _, event := range list.Items {
		if event.Reason == reason {
			messages = append(messages, event.Type+" "+event.Message)
		}
	}
	return messages
}

func TestAScheduledClaimGetsAVolumeInWellBelowASecond(t *testing.T) {
	client := fakeAPI(scheduled(claim("main-etcd-0", "fast", "8Gi")))
	start := time.Now()
	dir := runStorage(t, client)

	var volume *corev1.PersistentVolume
	require.Eventually(t, func() bool {
		var err error
		volume, err = client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-uid-of-claim", metav1.GetOptions{})
		return err == nil
	}, soon, tick)

	assert.Less(t, time.Since(start), time.Second)
	assert.DirExists(t, filepath.Join(dir, volume.Name))
	assert.Equal(t, "main-etcd-0", volume.Spec.ClaimRef.Name)
	assert.Equal(t, Provisioner, volume.Annotations[annotationProvisionedBy])
	assert.Equal(t, []string{"external-provisioner.volume.kubernetes.io/finalizer"}, volume.Finalizers)
}

func TestAClaimThatWaitsForAPodGetsNoVolumeBefore(t *testing.T) {
	waiting, other := claim("waiting", "fast", "8Gi"), scheduled(claim("other", "fast", "8Gi"))
	waiting.UID, other.UID = "waiting", "other"
	client := fakeAPI(waiting, other)
	runStorage(t, client)

	require.Eventually(t, func() bool {
		_, err := client.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-other", metav1.GetOptions{})
		return err == nil
	}, soon, tick)
	volumes, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, volumes.Items, 1)
}

func TestAClassThatIsBrokenSaysSoInEventsAndIsTriedAgain(t *testing.T) {
	client := fakeAPI(scheduled(claim("main-etcd-0", "broken", "8Gi")))
	runStorage(t, client)

	const message = `Warning failed to provision volume with StorageClass "broken": rpc error: code = Internal desc = the storage backend is not reachable`
	require.Eventually(t, func() bool { return len(eventsOf(t, client, "ProvisioningFailed")) > 0 }, soon, tick)
	assert.Contains(t, eventsOf(t, client, "ProvisioningFailed"), message)
	require.Eventually(t, func() bool {
		list, err := client.CoreV1().Events("garden").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, event := range list.Items {
			if event.Reason == "ProvisioningFailed" && event.Count > 1 {
				return true
			}
		}
		return false
	}, soon, tick)
}

// provisioned returns a claim bound to a volume of ours.
func provisioned(class, has, wants string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	c := claim("main-etcd-0", class, wants)
	c.Spec.VolumeName = "pvc-uid-of-claim"
	c.Status = corev1.PersistentVolumeClaimStatus{
		Phase:    corev1.ClaimBound,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)},
	}
	return c, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Spec.VolumeName, UID: "uid-of-volume", Annotations: map[string]string{annotationProvisionedBy: Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(has)},
			StorageClassName:              class,
			ClaimRef:                      &corev1.ObjectReference{Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// story notes each write to a claim's status and to a volume's capacity.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *story) told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.lines...)
}

func listen(client *fake.Clientset) *story {
	s := &story{}
	client.PrependReactor("update", "persistentvolumeclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() == "status" {
			s.add(tell(action.(clienttesting.UpdateAction).GetObject().(*corev1.PersistentVolumeClaim).Status))
		}
		return false, nil, nil
	})
	client.PrependReactor("patch", "persistentvolumes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if patch := string(action.(clienttesting.PatchAction).GetPatch()); strings.Contains(patch, "capacity") {
			s.add("volume " + patch)
		}
		return false, nil, nil
	})
	return s
}

// tell leaves out the condition Unused, which the control plane keeps.
func tell(s corev1.PersistentVolumeClaimStatus) string {
	var conditions []string
	for _, c := range s.Conditions {
		if c.Type != corev1.PersistentVolumeClaimUnused {
			conditions = append(conditions, string(c.Type))
		}
	}
	return fmt.Sprintf("claim %s allocated %s %q %v", s.Capacity.Storage(), s.AllocatedResources.Storage(),
		s.AllocatedResourceStatuses[corev1.ResourceStorage], conditions)
}

func TestAClaimThatAsksForMoreIsExpandedStepByStep(t *testing.T) {
	c, volume := provisioned("fast", "8Gi", "20Gi")
	client := fakeAPI(c, volume)
	story := listen(client)
	runStorage(t, client)

	want := []string{
		`claim 8Gi allocated 20Gi "ControllerResizeInProgress" [Resizing]`,
		`volume {"metadata":{"uid":"uid-of-volume"},"spec":{"capacity":{"storage":"20Gi"}}}`,
		`claim 8Gi allocated 20Gi "NodeResizePending" [FileSystemResizePending]`,
		`claim 20Gi allocated 20Gi "" []`,
	}
	require.Eventually(t, func() bool { return len(story.told()) >= len(want) }, soon, tick)
	assert.Equal(t, want, story.told())
	require.Eventually(t, func() bool { return len(eventsOf(t, client, "FileSystemResizeSuccessful")) == 1 }, soon, tick)
	assert.Equal(t, []string{"Normal External resizer is resizing volume pvc-uid-of-claim"}, eventsOf(t, client, "Resizing"))
}

func TestAnExpansionThatFailsIsToldAndTriedAgain(t *testing.T) {
	for name, broken := range map[string]struct{ parameter, value, want string }{
		"by its class":         {ParameterExpandFailure, "disk is busy", "rpc error: code = Internal desc = disk is busy"},
		"beyond the class max": {ParameterMax, "10Gi", "rpc error: code = OutOfRange desc = out of capacity"},
	} {
		t.Run(name, func(t *testing.T) {
			c, volume := provisioned("stuck", "8Gi", "20Gi")
			stuck := class("stuck", withParameters(map[string]string{broken.parameter: broken.value}))
			client := fakeAPI(c, volume, &stuck)
			runStorage(t, client)

			want := `Warning resize volume "pvc-uid-of-claim" by resizer "local.etcd-volumes.test" failed: ` + broken.want
			require.Eventually(t, func() bool { return len(eventsOf(t, client, "VolumeResizeFailed")) > 0 }, soon, tick)
			assert.Equal(t, []string{want}, eventsOf(t, client, "VolumeResizeFailed"))
			live, err := client.CoreV1().PersistentVolumes().Get(t.Context(), volume.Name, metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, "8Gi", live.Spec.Capacity.Storage().String())

			delete(stuck.Parameters, broken.parameter)
			_, err = client.StorageV1().StorageClasses().Update(t.Context(), &stuck, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				live, err := client.CoreV1().PersistentVolumeClaims("garden").Get(t.Context(), c.Name, metav1.GetOptions{})
				return err == nil && tell(live.Status) == `claim 20Gi allocated 20Gi "" []`
			}, 2*soon, tick)
		})
	}
}

// resizerThatHasSeen returns a resizer whose cache holds the given objects.
func resizerThatHasSeen(t *testing.T, client *fake.Clientset, c *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) *resizer {
	t.Helper()
	s, err := newStorage(t.Context(), client, t.TempDir(), logr.Discard())
	require.NoError(t, err)
	core := s.factory.Core().V1()
	require.NoError(t, core.PersistentVolumeClaims().Informer().GetStore().Add(c))
	require.NoError(t, core.PersistentVolumes().Informer().GetStore().Add(volume))
	return s.resizer
}

func TestOnlyBoundClaimsOnOurOwnVolumesAreExpanded(t *testing.T) {
	for name, c := range map[string]struct {
		tweak func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)
		want  bool
	}{
		"a claim that asks for more": {
			tweak: func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {},
			want:  true,
		},
		"a volume of somebody else": {tweak: func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Annotations[annotationProvisionedBy] = "other"
		}},
		"a volume of another claim": {tweak: func(_ *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.UID = "other"
		}},
		"a claim that lost its volume": {tweak: func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Status.Phase = corev1.ClaimLost
		}},
		"a claim that has what it wants": {tweak: func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			c.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("20480Mi")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			wanting, volume := provisioned("fast", "8Gi", "20Gi")
			c.tweak(wanting, volume)
			r := resizerThatHasSeen(t, fakeAPI(wanting, volume), wanting, volume)

			found, _, err := r.find(t.Context(), keyOf(wanting))
			require.NoError(t, err)
			assert.Equal(t, c.want, found != nil)
		})
	}
}

func TestAClaimThatWasJustExpandedIsNotExpandedAgain(t *testing.T) {
	before, volume := provisioned("fast", "8Gi", "20Gi")
	after, _ := provisioned("fast", "20Gi", "20Gi")
	r := resizerThatHasSeen(t, fakeAPI(after, volume), before, volume)

	found, _, err := r.find(t.Context(), keyOf(before))
	require.NoError(t, err)
	assert.Nil(t, found)
}

func TestAReleasedVolumeIsDeletedOrKeptAsItsPolicySays(t *testing.T) {
	client := fakeAPI(scheduled(claim("main-etcd-0", "fast", "8Gi")))
	dir := runStorage(t, client)
	volumes := client.CoreV1().PersistentVolumes()
	var volume *corev1.PersistentVolume
	require.Eventually(t, func() bool {
		var err error
		volume, err = volumes.Get(t.Context(), "pvc-uid-of-claim", metav1.GetOptions{})
		return err == nil
	}, soon, tick)
	path := filepath.Join(dir, volume.Name)

	volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	volume.Status.Phase = corev1.VolumeReleased
	_, err := volumes.Update(t.Context(), volume, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		volume, err = volumes.Get(t.Context(), volume.Name, metav1.GetOptions{})
		return err == nil && len(volume.Finalizers) == 0 // the provisioner has seen the policy
	}, soon, tick)
	assert.DirExists(t, path)

	volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	_, err = volumes.Update(t.Context(), volume, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		list, err := volumes.List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	}, soon, tick)
	assert.NoDirExists(t, path)
}
