package live_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/etcd-volumes/etcd-volumes/test/cluster"
	"github.com/etcd-volumes/etcd-volumes/test/cluster/storage"
)

// plane is a client of the control plane with its configuration.
type plane struct {
	kubernetes.Interface
	config *rest.Config
}

func startControlPlane(t *testing.T) plane {
	t.Helper()
	paths, err := cluster.BuildBinaries(t.Context(), os.Stderr)
	require.NoError(t, err, "the control plane is built from test/cluster/build, by the Go toolchain alone")
	env := &envtest.Environment{}
	env.ControlPlane.GetAPIServer().Path = paths["kube-apiserver"]
	env.ControlPlane.Etcd = &envtest.Etcd{Path: paths["etcd"]}
	env.ControlPlane.KubectlPath = paths["kubectl"]
	config, err := env.Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, env.Stop()) })
	config.QPS = -1
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, env.KubeConfig, 0o600))
	startComponent(t, paths["kube-controller-manager"],
		"--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400",
		// How soon a claim without a class is given a class that has become the default.
		"--pvclaimbinder-sync-period=1s",
		"--controllers=persistentvolume-binder-controller,persistentvolume-protection-controller,persistentvolumeclaim-protection-controller,statefulset-controller,serviceaccount-controller")
	startComponent(t, paths["kube-scheduler"], "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0")
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return plane{client, config}
}

// startComponent runs a program until the test ends, and shows what it wrote
// if the test failed.
func startComponent(t *testing.T, path string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(path)+".log"))
	require.NoError(t, err)
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(path), text)
		}
	})
}

func startStorage(t *testing.T, config *rest.Config, dir string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- storage.Run(ctx, config, dir, logr.Discard()) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
}

func createNode(t *testing.T, client kubernetes.Interface, name, zone string) {
	t.Helper()
	n, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelHostname: name},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	// Nobody removes the taint that a new node is given.
	n.Spec.Taints = nil
	n, err = client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("1000"),
	}
	n.Status.Capacity = n.Status.Allocatable
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
}

// class is an ordinary class of another name.
func class(t *testing.T, name string) storagev1.StorageClass {
	t.Helper()
	classes := storage.Classes()
	i := slices.IndexFunc(classes, func(c storagev1.StorageClass) bool { return c.Name == "fast" })
	require.NotEqual(t, -1, i)
	ordinary := classes[i]
	ordinary.Name = name
	return ordinary
}

// claim asks for 1Gi.
func claim(name string, class *string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			VolumeMode:       new(corev1.PersistentVolumeFilesystem),
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// zoneOf is the one zone that the volume can be used in.
func zoneOf(t *testing.T, volume *corev1.PersistentVolume) string {
	t.Helper()
	terms := volume.Spec.NodeAffinity.Required.NodeSelectorTerms
	require.Len(t, terms, 1)
	require.Len(t, terms[0].MatchExpressions, 1)
	require.Equal(t, corev1.LabelTopologyZone, terms[0].MatchExpressions[0].Key)
	require.Len(t, terms[0].MatchExpressions[0].Values, 1)
	return terms[0].MatchExpressions[0].Values[0]
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

// createStatefulSet makes one named main with claims named data of 1Gi.
func (l live) createStatefulSet(t *testing.T, class *string, replicas int) {
	t.Helper()
	labels := map[string]string{"app": "main"}
	template := claim("data", class)
	_, err := l.client.AppsV1().StatefulSets(l.ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "main"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			PodManagementPolicy:  appsv1.ParallelPodManagement,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*template},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{
					Name: "main", Image: "none", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (l live) scale(t *testing.T, replicas int) {
	t.Helper()
	patch := []byte(`{"spec":{"replicas":` + strconv.Itoa(replicas) + `}}`)
	_, err := l.client.AppsV1().StatefulSets(l.ns).Patch(t.Context(), "main", types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

// createClaim makes a claim together with a pod that uses it, and returns its
// name once it is bound.
func (l live) createClaim(t *testing.T, name, class string) string {
	t.Helper()
	l.create(t, name, class)
	_, err := l.client.CoreV1().Pods(l.ns).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "none"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return l.eventuallyBound(t, name).Name
}

// createImmediate makes a claim of class immediate that no pod uses.
func (l live) createImmediate(t *testing.T) *corev1.PersistentVolumeClaim {
	t.Helper()
	l.create(t, "alone", "immediate")
	return l.eventuallyBound(t, "alone")
}

func (l live) create(t *testing.T, name, class string) {
	t.Helper()
	_, err := l.client.CoreV1().PersistentVolumeClaims(l.ns).Create(t.Context(), claim(name, &class), metav1.CreateOptions{})
	require.NoError(t, err)
}

func (l live) deleteClaim(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, l.client.CoreV1().PersistentVolumeClaims(l.ns).Delete(t.Context(), name, metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := l.client.CoreV1().PersistentVolumeClaims(l.ns).Get(t.Context(), name, metav1.GetOptions{})
		return err != nil
	}, patience, look)
}

func (l live) resize(t *testing.T, name, size string) error {
	t.Helper()
	patch := []byte(`{"spec":{"resources":{"requests":{"storage":"` + size + `"}}}}`)
	_, err := l.client.CoreV1().PersistentVolumeClaims(l.ns).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (l live) setDefault(t *testing.T, class string, is bool) {
	t.Helper()
	patch := []byte(`{"metadata":{"annotations":{"` + defaultClass + `":"` + strconv.FormatBool(is) + `"}}}`)
	_, err := l.client.StorageV1().StorageClasses().Patch(context.WithoutCancel(t.Context()), class, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

func (l live) setPolicy(t *testing.T, volume string, policy corev1.PersistentVolumeReclaimPolicy) {
	t.Helper()
	patch := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"` + string(policy) + `"}}`)
	_, err := l.client.CoreV1().PersistentVolumes().Patch(t.Context(), volume, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
}

func (l live) volumeOf(t *testing.T, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	volume, err := l.client.CoreV1().PersistentVolumes().Get(t.Context(), c.Spec.VolumeName, metav1.GetOptions{})
	require.NoError(t, err)
	return volume
}

func (l live) eventuallyBound(t *testing.T, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return l.eventuallyClaim(t, name, func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

func (l live) eventuallyClaim(t *testing.T, name string, is func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	t.Helper()
	var c *corev1.PersistentVolumeClaim
	require.Eventually(t, func() bool {
		var err error
		c, err = l.client.CoreV1().PersistentVolumeClaims(l.ns).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && is(c)
	}, patience, look)
	return c
}

func (l live) eventuallyVolume(t *testing.T, name string, is func(*corev1.PersistentVolume) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		volume, err := l.client.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && is(volume)
	}, patience, look)
}

func (l live) eventuallyNoVolume(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, err := l.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		return err == nil && len(list.Items) == 0
	}, patience, look)
}

func (l live) eventuallyEvent(t *testing.T, claim, reason, message string) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, err := l.client.CoreV1().Events(l.ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + claim})
		if err != nil {
			return false
		}
		for _, event := range list.Items {
			if event.Reason == reason && strings.Contains(event.Message, message) {
				return true
			}
		}
		return false
	}, patience, look)
}
