package storage

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
}

func newProvisioner(t *testing.T) *provisioner {
	t.Helper()
	client := fake.NewClientset(node("a1", "zone-a"), node("a2", "zone-a"), node("b1", "zone-b"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "nowhere"}})
	return &provisioner{client: client, dir: t.TempDir()}
}

func claim(name, class, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: name, UID: "uid-of-claim"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			VolumeMode:       new(corev1.PersistentVolumeFilesystem),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		},
	}
}

// inZones allows the zones, one term each.
func inZones(zones ...string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) {
		for _, zone := range zones {
			c.AllowedTopologies = append(c.AllowedTopologies, corev1.TopologySelectorTerm{
				MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: []string{zone}}},
			})
		}
	}
}

func withParameters(params map[string]string) func(*storagev1.StorageClass) {
	return func(c *storagev1.StorageClass) { c.Parameters = params }
}

func zoneOf(t *testing.T, volume *corev1.PersistentVolume) string {
	t.Helper()
	terms := volume.Spec.NodeAffinity.Required.NodeSelectorTerms
	require.Len(t, terms, 1)
	require.Len(t, terms[0].MatchExpressions, 1)
	require.Equal(t, corev1.LabelTopologyZone, terms[0].MatchExpressions[0].Key)
	require.Len(t, terms[0].MatchExpressions[0].Values, 1)
	return terms[0].MatchExpressions[0].Values[0]
}

func TestAVolumeIsADirectoryInTheZoneOfTheSelectedNode(t *testing.T) {
	p := newProvisioner(t)
	keeping := class("fast", func(c *storagev1.StorageClass) { c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimRetain) })
	before := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(before) })

	got, state, err := p.Provision(t.Context(), controller.ProvisionOptions{
		StorageClass: &keeping, PVName: "pvc-1", PVC: claim("main-etcd-0", "fast", "8Gi"), SelectedNodeName: "b1",
	})

	require.NoError(t, err)
	assert.Equal(t, controller.ProvisioningFinished, state)
	path := filepath.Join(p.dir, "pvc-1")
	assert.Equal(t, "zone-b", zoneOf(t, got))
	got.Spec.NodeAffinity = nil
	assert.Equal(t, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			StorageClassName:              "fast",
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectory)},
			},
		},
	}, got)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.ModeDir|0o777, info.Mode(), "any user may write, whatever the umask")
}

func TestImmediateVolumesGoToAnyZoneThatTheClassAllows(t *testing.T) {
	p := newProvisioner(t)
	zones := func(c storagev1.StorageClass) map[string]bool {
		found := map[string]bool{}
		for range 100 {
			volume, _, err := p.Provision(t.Context(), controller.ProvisionOptions{
				StorageClass: &c, PVName: "pvc-1", PVC: claim("c", c.Name, "1Gi"),
			})
			require.NoError(t, err)
			found[zoneOf(t, volume)] = true
		}
		return found
	}
	assert.Equal(t, map[string]bool{"zone-a": true, "zone-b": true}, zones(class("immediate")))
	assert.Equal(t, map[string]bool{"zone-b": true}, zones(class("immediate", inZones("zone-b", "zone-c"))))
}

func TestProvisioningFailsInTheWordsOfTheRealOnes(t *testing.T) {
	const prefix = `failed to provision volume with StorageClass "fast": `
	for name, c := range map[string]struct {
		class func(*storagev1.StorageClass)
		claim func(*corev1.PersistentVolumeClaim)
		node  string
		want  string
		state controller.ProvisioningState
	}{
		"a class that fails": {
			class: withParameters(map[string]string{ParameterFailure: "no disks today"}),
			want:  "rpc error: code = Internal desc = no disks today", state: controller.ProvisioningFinished,
		},
		"a class with a parameter that nobody knows": {
			class: withParameters(map[string]string{"typ": "ssd"}),
			want:  "rpc error: code = InvalidArgument desc = storage class parameter typ: unknown parameter", state: controller.ProvisioningFinished,
		},
		"too large": {
			class: withParameters(map[string]string{ParameterMax: "7Gi"}),
			want:  "rpc error: code = ResourceExhausted desc = out of capacity", state: controller.ProvisioningReschedule,
		},
		"a node in a zone that is not allowed": {
			class: inZones("zone-b"), node: "a1",
			want:  "selected node 'a1' topology 'map[topology.kubernetes.io/zone:zone-a]' is not in allowed topologies",
			state: controller.ProvisioningFinished,
		},
		"a node without a zone": {
			node: "nowhere", want: "node nowhere has no label topology.kubernetes.io/zone", state: controller.ProvisioningFinished,
		},
		"a node that is gone": {
			node: "gone", want: `error getting topology of node gone: nodes "gone" not found`, state: controller.ProvisioningFinished,
		},
		"no zone that is allowed": {
			class: inZones("zone-c"), want: "no available topology found", state: controller.ProvisioningFinished,
		},
		"a topology other than the zone": {
			class: func(c *storagev1.StorageClass) {
				inZones("zone-a")(c)
				c.AllowedTopologies[0].MatchLabelExpressions[0].Key = "rack"
			},
			want: "no available topology found", state: controller.ProvisioningFinished,
		},
		"a claim with a selector": {
			claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} },
			want:  "claim Selector is not supported", state: controller.ProvisioningFinished,
		},
		"a claim with a data source": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
			},
			want: "claim data source is not supported", state: controller.ProvisioningFinished,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvisioner(t)
			wanted, from := claim("main-etcd-0", "fast", "8Gi"), class("fast")
			if c.class != nil {
				c.class(&from)
			}
			if c.claim != nil {
				c.claim(wanted)
			}
			_, state, err := p.Provision(t.Context(), controller.ProvisionOptions{
				StorageClass: &from, PVName: "pvc-1", PVC: wanted, SelectedNodeName: c.node,
			})
			require.EqualError(t, err, prefix+c.want)
			assert.Equal(t, c.state, state)
			assert.NoDirExists(t, filepath.Join(p.dir, "pvc-1"))
		})
	}
}

func TestProvisioningTakesAsLongAsTheClassSays(t *testing.T) {
	p := newProvisioner(t)
	slow := class("slow", withParameters(map[string]string{ParameterDelay: "50ms"}))
	start := time.Now()
	_, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: &slow, PVName: "pvc-1", PVC: claim("c", "slow", "1Gi")})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
}

func TestDeletingAVolumeRemovesItsDirectoryAndNoOther(t *testing.T) {
	p := newProvisioner(t)
	fast := class("fast")
	volume, _, err := p.Provision(t.Context(), controller.ProvisionOptions{StorageClass: &fast, PVName: "pvc-1", PVC: claim("c", "fast", "1Gi")})
	require.NoError(t, err)
	own := volume.Spec.HostPath.Path
	require.NoError(t, os.WriteFile(filepath.Join(own, "db"), nil, 0o600))

	elsewhere := t.TempDir()
	volume.Spec.HostPath.Path = elsewhere
	require.EqualError(t, p.Delete(t.Context(), volume), "delete volume pvc-1: it does not lead to its directory")
	assert.DirExists(t, elsewhere)
	assert.DirExists(t, own)

	volume.Spec.HostPath.Path = own
	require.NoError(t, p.Delete(t.Context(), volume))
	assert.NoDirExists(t, own)
	require.NoError(t, p.Delete(t.Context(), volume), "a second time is no error")
}
