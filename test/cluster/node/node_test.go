package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// hostNet lends pods the network of the test.
type hostNet struct{}

func (hostNet) AddPod(context.Context, string) (PodNet, error) {
	return PodNet{IP: "127.0.0.1", NetNS: "/proc/self/ns/net"}, nil
}
func (hostNet) DelPod(string) error { return nil }

// lab is a running node with an API that only remembers.
type lab struct {
	t      *testing.T
	api    kubernetes.Interface
	node   *Node
	stop   func() // ends the node and waits for it
	volume string // directory of the claim "data"
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, api: rememberingAPI(), volume: t.TempDir()}
	l.boot(t.TempDir())
	return l
}

// rememberingAPI keeps a pod from a patch or a deletion that names the one before it by UID, as the real API does and the fake
// does not.
func rememberingAPI() *fake.Clientset {
	api := fake.NewClientset()
	api.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name, uid := addressee(action)
		if uid == "" {
			return false, nil, nil
		}
		object, err := api.Tracker().Get(action.GetResource(), action.GetNamespace(), name)
		if err != nil {
			return true, nil, err
		}
		if pod, ok := object.(*corev1.Pod); ok && pod.UID != uid {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), name, errors.New("the UID differs"))
		}
		return false, nil, nil
	})
	return api
}

// addressee is the object that a request is meant for; without a UID, it is whatever has the name.
func addressee(action clienttesting.Action) (name string, uid types.UID) {
	switch a := action.(type) {
	case clienttesting.DeleteAction:
		if conditions := a.GetDeleteOptions().Preconditions; conditions != nil && conditions.UID != nil {
			uid = *conditions.UID
		}
		return a.GetName(), uid
	case clienttesting.PatchAction:
		var patch metav1.PartialObjectMetadata
		if json.Unmarshal(a.GetPatch(), &patch) == nil {
			uid = patch.UID
		}
		return a.GetName(), uid
	}
	return "", ""
}

func (l *lab) boot(dir string) {
	n, err := New(Config{
		Name: "node-1", Zone: "a", REST: &rest.Config{Host: "https://192.0.2.1"}, Dir: dir, LogDir: filepath.Join(dir, "logs"),
		Images: func(ref string) (Image, error) {
			if ref != "sh" {
				return Image{}, fmt.Errorf("image %q is not known", ref)
			}
			return Image{Path: "/bin/sh"}, nil
		},
		Network: hostNet{}, DNS: "10.96.0.10", APIServer: "10.96.0.1:443", Address: "127.0.0.1", Self: self(),
		BackOff: 50 * time.Millisecond, MaxBackOff: time.Second,
	})
	require.NoError(l.t, err)
	n.client, l.node = l.api, n
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	stopped := false
	l.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			assert.NoError(l.t, <-done)
		}
	}
	l.t.Cleanup(l.stop)
}

// script makes a container that runs a shell script, with the claim at /data.
func script(name, text string) corev1.Container {
	return corev1.Container{Name: name, Image: "sh", Args: []string{"-c", text}, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}
}

func (l *lab) create(uid string, change func(*corev1.PodSpec)) {
	l.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "member-0", Namespace: "shop", UID: types.UID(uid)},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(20)),
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	change(&pod.Spec)
	_, err := l.api.CoreV1().Pods("shop").Create(l.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(l.t, err)
}

// bind makes the claim "data", bound to the volume of the lab.
func (l *lab) bind() *lab {
	l.t.Helper()
	_, err := l.api.CoreV1().PersistentVolumeClaims("shop").Create(l.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop", UID: "claim"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}, metav1.CreateOptions{})
	require.NoError(l.t, err)
	_, err = l.api.CoreV1().PersistentVolumes().Create(l.t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:               &corev1.ObjectReference{UID: "claim"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: l.volume}},
		},
	}, metav1.CreateOptions{})
	require.NoError(l.t, err)
	return l
}

// remove asks for the deletion of the pod as the API server does for a pod that may take its time.
func (l *lab) remove(grace int64) {
	l.t.Helper()
	pod, err := l.api.CoreV1().Pods("shop").Get(l.t.Context(), "member-0", metav1.GetOptions{})
	require.NoError(l.t, err)
	now := metav1.Now()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
	_, err = l.api.CoreV1().Pods("shop").Update(l.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(l.t, err)
}

// until waits for a condition; on failure it shows the pod.
func (l *lab) until(what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	l.t.Helper()
	var last *corev1.Pod
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) && l.t.Context().Err() == nil {
		pod, err := l.api.CoreV1().Pods("shop").Get(l.t.Context(), "member-0", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			pod, err = nil, nil
		}
		require.NoError(l.t, err)
		last = pod
		if ok(pod) {
			return pod
		}
		<-time.After(5 * time.Millisecond)
	}
	require.Failf(l.t, "waited in vain for: "+what, "%+v", last)
	return nil
}

func gone(pod *corev1.Pod) bool { return pod == nil }

func ready(pod *corev1.Pod) bool {
	c := conditionOf(pod.Status.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// lines are those that the containers have written to the volume.
func (l *lab) lines() []string {
	l.t.Helper()
	raw, err := os.ReadFile(filepath.Join(l.volume, "log"))
	require.NoError(l.t, err)
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

func TestPodWaitsForItsClaimAndThenRunsInOrder(t *testing.T) {
	l := newLab(t)
	l.create("first", func(s *corev1.PodSpec) {
		s.InitContainers = []corev1.Container{script("init", "echo init >> /data/log")}
		main := script("main", "echo main >> /data/log; sleep 1000")
		main.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-s", "/data/log"}}}}
		s.Containers = []corev1.Container{main}
	})
	require.Eventually(t, func() bool {
		events, err := l.api.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, event := range events.Items {
			if event.Reason == "FailedMount" && strings.Contains(event.Message, "error processing PVC shop/data: failed to fetch PVC") {
				return true
			}
		}
		return false
	}, 10*time.Second, 10*time.Millisecond)
	pod := l.until("creating", func(p *corev1.Pod) bool { return len(p.Status.ContainerStatuses) == 1 })
	assert.Equal(t, corev1.PodPending, pod.Status.Phase)
	assert.Equal(t, reasonInitializing, pod.Status.ContainerStatuses[0].State.Waiting.Reason)

	l.bind()
	pod = l.until("ready", ready)
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase)
	assert.Equal(t, "127.0.0.1", pod.Status.PodIP)
	assert.Equal(t, []string{"init", "main"}, l.lines())
	pid, err := l.node.ContainerPID("shop", "member-0", "main")
	require.NoError(t, err)
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	pod = l.until("restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p) })
	assert.Equal(t, int32(137), pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode)
	assert.Equal(t, []string{"init", "main", "main"}, l.lines())
}

func TestPodLeavesTheAPIOnlyWhenItsProcessesAreGone(t *testing.T) {
	l := newLab(t).bind()
	l.create("first", func(s *corev1.PodSpec) {
		main := script("main", "trap 'echo main stops >> /data/log; sleep 0.5; echo main ends >> /data/log; exit 0' TERM; touch /data/up; while :; do sleep 0.1; done")
		main.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo hook >> /data/log"}}}}
		main.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/data/up"}}}}
		sidecar := script("sidecar", "trap 'echo sidecar ends >> /data/log; exit 0' TERM; while :; do sleep 0.1; done")
		sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		s.InitContainers, s.Containers = []corev1.Container{sidecar}, []corev1.Container{main}
	})
	l.until("ready", ready)
	l.remove(20)
	pod := l.until("not ready", func(p *corev1.Pod) bool { return p == nil || !ready(p) })
	require.NotNil(t, pod, "it is unready before it is gone")
	l.until("gone", gone)
	assert.Equal(t, []string{"hook", "main stops", "main ends", "sidecar ends"}, l.lines())
	assert.NoDirExists(t, filepath.Join(l.node.config.Dir, "pods", "first"))
}

func TestPodThatDoesNotListenIsKilledAfterItsGrace(t *testing.T) {
	l := newLab(t).bind()
	l.create("first", func(s *corev1.PodSpec) { s.Containers = []corev1.Container{script("main", "trap '' TERM; sleep 1000")} })
	l.until("ready", ready)
	began := time.Now()
	l.remove(1)
	l.until("gone", gone)
	assert.Greater(t, time.Since(began), 900*time.Millisecond)
}

func TestPodOfTheSameNameWaitsForTheOneBefore(t *testing.T) {
	l := newLab(t).bind()
	// The lock fails if two hold the volume at a time.
	holder := func(s *corev1.PodSpec) {
		s.Containers = []corev1.Container{script("main", "trap 'rmdir /data/lock; exit 0' TERM; mkdir /data/lock || { echo shared >> /data/log; exit 1; }; echo held >> /data/log; while :; do sleep 0.1; done")}
	}
	l.create("first", holder)
	held := func(times int) {
		l.until("held", func(*corev1.Pod) bool {
			raw, err := os.ReadFile(filepath.Join(l.volume, "log"))
			return err == nil && strings.Count(string(raw), "\n") == times
		})
		assert.NotContains(t, l.lines(), "shared")
	}
	held(1)
	l.remove(20)
	l.until("gone", gone)
	l.create("second", holder)
	held(2)

	// Now the first is taken away by force, without a word to the node.
	require.NoError(t, l.api.CoreV1().Pods("shop").Delete(t.Context(), "member-0", metav1.DeleteOptions{}))
	l.create("third", func(s *corev1.PodSpec) { s.Containers = []corev1.Container{script("main", "sleep 1000")} })
	pod := l.until("ready", func(p *corev1.Pod) bool { return p != nil && ready(p) })
	assert.Equal(t, types.UID("third"), pod.UID)
}

func TestPodTellsWhatItsContainersWaitFor(t *testing.T) {
	l := newLab(t).bind()
	l.create("first", func(s *corev1.PodSpec) {
		noImage := script("image", "")
		noImage.Image = "nothing"
		noConfig := script("config", "")
		noConfig.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "x",
		}}}}
		noProgram := script("program", "")
		noProgram.Command = []string{"/image/none"}
		crash := script("crash", "echo last words; exit 3")
		crash.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		s.Containers = []corev1.Container{noImage, noConfig, noProgram, crash}
	})
	reason := func(p *corev1.Pod, i int) string {
		if waiting := p.Status.ContainerStatuses[i].State.Waiting; waiting != nil {
			return waiting.Reason
		}
		return ""
	}
	pod := l.until("all wait", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 4 && reason(p, 0) == reasonPullBackOff && reason(p, 1) == reasonConfig &&
			reason(p, 2) == reasonCrashLoop && reason(p, 3) == reasonCrashLoop
	})
	statuses := pod.Status.ContainerStatuses
	assert.Equal(t, reasonStart, statuses[2].LastTerminationState.Terminated.Reason)
	assert.Equal(t, int32(3), statuses[3].LastTerminationState.Terminated.ExitCode)
	assert.Equal(t, "last words\n", statuses[3].LastTerminationState.Terminated.Message)
}

func TestPodIsRestartedWhenItIsNotAlive(t *testing.T) {
	l := newLab(t).bind()
	l.create("first", func(s *corev1.PodSpec) {
		main := script("main", "touch /tmp/alive; trap 'exit 0' TERM; while :; do sleep 0.1; done")
		main.LivenessProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "!", "-e", "/data/sick"}}}}
		s.Containers = []corev1.Container{main}
	})
	l.until("ready", ready)
	require.NoError(t, os.WriteFile(filepath.Join(l.volume, "sick"), nil, 0o600))
	l.until("restarted", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount > 0 })
}

func TestNodeEndsItsProcessesAndLeavesTheAPIAlone(t *testing.T) {
	l := newLab(t).bind()
	main := func(s *corev1.PodSpec) { s.Containers = []corev1.Container{script("main", "sleep 1000")} }
	l.create("first", main)
	l.until("ready", ready)
	pid, err := l.node.ContainerPID("shop", "member-0", "main")
	require.NoError(t, err)
	l.stop()
	require.ErrorIs(t, unix.Kill(pid, 0), unix.ESRCH)
	pod, err := l.api.CoreV1().Pods("shop").Get(t.Context(), "member-0", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, corev1.PodRunning, pod.Status.Phase)

	l.boot(l.node.config.Dir)
	pod = l.until("running again", func(p *corev1.Pod) bool { return p.Status.ContainerStatuses[0].RestartCount == 1 && ready(p) })
	assert.Equal(t, "ContainerStatusUnknown", pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason)
	node, err := l.api.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "a", node.Labels[corev1.LabelTopologyZone])
	_, err = l.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "node-1", metav1.GetOptions{})
	assert.NoError(t, err)
}
