package live_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/etcd-volumes/etcd-volumes/test/cluster/storage"
)

// live is one namespace of the control plane.
type live struct {
	t      *testing.T
	client kubernetes.Interface
	dir    string // of the volumes
	ns     string
}

const (
	// patience is for what controllers of the real control plane do.
	patience = 20 * time.Second
	look     = 20 * time.Millisecond

	defaultClass = "storageclass.kubernetes.io/is-default-class"
)

func TestVolumesOnARealControlPlane(t *testing.T) {
	client := startControlPlane(t)
	dir := t.TempDir()
	startStorage(t, client.config, dir)
	for _, zone := range []string{"zone-a", "zone-b", "zone-c"} {
		createNode(t, client.Interface, "node-"+zone, zone)
	}
	for _, class := range storage.Classes() {
		_, err := client.StorageV1().StorageClasses().Create(t.Context(), &class, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for name, test := range map[string]func(live){
		"the claims of a StatefulSet get volumes where their pods are":             live.claimsGetVolumesWherePodsAre,
		"a claim without a class gets the default class once there is one":         live.defaultClassIsUsedOnceThereIsOne,
		"a claim is expanded as its class allows":                                  live.claimsAreExpanded,
		"a volume and its directory go with the claim":                             live.volumesGoWithTheirClaims,
		"a retained volume is kept and can be bound again":                         live.retainedVolumesAreKept,
		"a volume deleted by hand stays until its claim is gone":                   live.deletedVolumesWaitForTheirClaims,
		"a broken class leaves the claim pending and says why":                     live.brokenClassesSayWhy,
		"an immediate class needs no pod":                                          live.immediateClassesNeedNoPod,
		"a zone out of capacity is given up and the pod scheduled again with care": live.outOfCapacityIsToldAndRetried,
	} {
		t.Run(name, func(t *testing.T) {
			ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "volumes-"}}, metav1.CreateOptions{})
			require.NoError(t, err)
			test(live{t: t, client: client.Interface, dir: dir, ns: ns.Name})
		})
	}
}

func (l live) claimsGetVolumesWherePodsAre() {
	t := l.t
	start := time.Now()
	l.createStatefulSet(t, new("fast"), 3)
	for i := range 3 {
		name := fmt.Sprintf("data-main-%d", i)
		c := l.eventuallyBound(t, name)
		volume := l.volumeOf(t, c)
		pod, err := l.client.CoreV1().Pods(l.ns).Get(t.Context(), fmt.Sprintf("main-%d", i), metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, "node-"+zoneOf(t, volume), c.Annotations["volume.kubernetes.io/selected-node"])
		if pod.Spec.NodeName != "" { // the scheduler may not have come to it yet
			assert.Equal(t, "node-"+zoneOf(t, volume), pod.Spec.NodeName)
		}
		assert.DirExists(t, filepath.Join(l.dir, volume.Name))
		assert.Equal(t, "1Gi", c.Status.Capacity.Storage().String())
	}
	t.Logf("three claims bound after %s", time.Since(start).Round(time.Millisecond))
}

func (l live) defaultClassIsUsedOnceThereIsOne() {
	t := l.t
	l.createStatefulSet(t, nil, 1)
	c := l.eventuallyClaim(t, "data-main-0", func(*corev1.PersistentVolumeClaim) bool { return true })
	assert.Nil(t, c.Spec.StorageClassName, "no class is the default")

	l.setDefault(t, "slow", true)
	t.Cleanup(func() { l.setDefault(t, "slow", false) })
	c = l.eventuallyBound(t, "data-main-0")
	require.NotNil(t, c.Spec.StorageClassName)
	assert.Equal(t, "slow", *c.Spec.StorageClassName)

	l.scale(t, 2)
	c = l.eventuallyClaim(t, "data-main-1", func(*corev1.PersistentVolumeClaim) bool { return true })
	require.NotNil(t, c.Spec.StorageClassName)
	assert.Equal(t, "slow", *c.Spec.StorageClassName, "a new claim has it from the beginning")
}

func (l live) claimsAreExpanded() {
	t := l.t
	l.createStatefulSet(t, new("fast"), 1)
	l.eventuallyBound(t, "data-main-0")
	require.NoError(t, l.resize(t, "data-main-0", "2Gi"))

	pending := l.eventuallyClaim(t, "data-main-0", func(c *corev1.PersistentVolumeClaim) bool {
		return slices.ContainsFunc(c.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		})
	})
	assert.Equal(t, `claim 1Gi allocated 2Gi "NodeResizePending" [FileSystemResizePending]`, tell(pending.Status))
	done := l.eventuallyClaim(t, "data-main-0", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().Cmp(resource.MustParse("2Gi")) == 0
	})
	assert.Equal(t, `claim 2Gi allocated 2Gi "" []`, tell(done.Status))
	assert.Equal(t, "2Gi", l.volumeOf(t, done).Spec.Capacity.Storage().String())

	fixed := l.createClaim(t, "fixed", "fixed")
	assert.True(t, apierrors.IsForbidden(l.resize(t, fixed, "2Gi")), "the class does not allow it")
}

func (l live) volumesGoWithTheirClaims() {
	t := l.t
	c := l.createImmediate(t)
	volume := l.volumeOf(t, c)
	assert.ElementsMatch(t, []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"}, volume.Finalizers)

	start := time.Now()
	l.deleteClaim(t, c.Name)
	l.eventuallyNoVolume(t, volume.Name)
	assert.NoDirExists(t, filepath.Join(l.dir, volume.Name))
	t.Logf("volume gone after %s", time.Since(start).Round(time.Millisecond))
}

func (l live) retainedVolumesAreKept() {
	t := l.t
	c := l.createImmediate(t)
	volume := l.volumeOf(t, c)
	marker := filepath.Join(l.dir, volume.Name, "db")
	require.NoError(t, os.WriteFile(marker, []byte("kept"), 0o600))
	l.setPolicy(t, volume.Name, corev1.PersistentVolumeReclaimRetain)

	l.deleteClaim(t, c.Name)
	l.eventuallyVolume(t, volume.Name, func(v *corev1.PersistentVolume) bool { return v.Status.Phase == corev1.VolumeReleased })
	assert.FileExists(t, marker)

	patch := []byte(`{"spec":{"claimRef":{"uid":null,"resourceVersion":null}}}`)
	_, err := l.client.CoreV1().PersistentVolumes().Patch(t.Context(), volume.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	again := claim(c.Name, new("immediate"))
	again.Spec.VolumeName = volume.Name
	_, err = l.client.CoreV1().PersistentVolumeClaims(l.ns).Create(t.Context(), again, metav1.CreateOptions{})
	require.NoError(t, err)
	rebound := l.eventuallyBound(t, c.Name)
	assert.Equal(t, volume.Name, rebound.Spec.VolumeName)
	assert.FileExists(t, marker)

	l.deleteClaim(t, c.Name)
	l.eventuallyVolume(t, volume.Name, func(v *corev1.PersistentVolume) bool { return v.Status.Phase == corev1.VolumeReleased })
	l.setPolicy(t, volume.Name, corev1.PersistentVolumeReclaimDelete)
	l.eventuallyNoVolume(t, volume.Name)
	assert.NoDirExists(t, filepath.Dir(marker))
}

func (l live) deletedVolumesWaitForTheirClaims() {
	t := l.t
	c := l.createImmediate(t)
	volume := l.volumeOf(t, c)
	require.NoError(t, l.client.CoreV1().PersistentVolumes().Delete(t.Context(), volume.Name, metav1.DeleteOptions{}))
	l.eventuallyVolume(t, volume.Name, func(v *corev1.PersistentVolume) bool { return v.DeletionTimestamp != nil })
	assert.DirExists(t, filepath.Join(l.dir, volume.Name))

	l.deleteClaim(t, c.Name)
	l.eventuallyNoVolume(t, volume.Name)
	assert.NoDirExists(t, filepath.Join(l.dir, volume.Name))
}

func (l live) brokenClassesSayWhy() {
	t := l.t
	l.createStatefulSet(t, new("broken"), 1)
	l.eventuallyEvent(t, "data-main-0", "ProvisioningFailed",
		`failed to provision volume with StorageClass "broken": rpc error: code = Internal desc = the storage backend is not reachable`)
	c, err := l.client.CoreV1().PersistentVolumeClaims(l.ns).Get(t.Context(), "data-main-0", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, corev1.ClaimPending, c.Status.Phase)
}

func (l live) immediateClassesNeedNoPod() {
	t := l.t
	start := time.Now()
	c := l.createImmediate(t)
	assert.Contains(t, []string{"zone-a", "zone-b", "zone-c"}, zoneOf(t, l.volumeOf(t, c)))
	t.Logf("bound after %s", time.Since(start).Round(time.Millisecond))
}

func (l live) outOfCapacityIsToldAndRetried() {
	t := l.t
	small := class(t, "small-"+l.ns)
	small.Parameters = map[string]string{storage.ParameterMax: "512Mi"}
	_, err := l.client.StorageV1().StorageClasses().Create(t.Context(), &small, metav1.CreateOptions{})
	require.NoError(t, err)
	l.createStatefulSet(t, &small.Name, 1)
	l.eventuallyEvent(t, "data-main-0", "ProvisioningFailed",
		fmt.Sprintf("failed to provision volume with StorageClass %q: rpc error: code = ResourceExhausted desc = out of capacity", small.Name))

	// A class cannot be changed, but one of the same name can take its place.
	require.NoError(t, l.client.StorageV1().StorageClasses().Delete(t.Context(), small.Name, metav1.DeleteOptions{}))
	large := class(t, small.Name)
	_, err = l.client.StorageV1().StorageClasses().Create(t.Context(), &large, metav1.CreateOptions{})
	require.NoError(t, err)
	l.eventuallyBound(t, "data-main-0")
}
