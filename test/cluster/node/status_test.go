package node

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func waiting() corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reasonCreating}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func ended(code int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
}

// with makes a container: i... is an init container, s... a sidecar. One that runs has started and is ready.
func with(name string, state corev1.ContainerState) *containerState {
	kind := map[byte]containerKind{'i': initContainer, 's': sidecarContainer}
	c := &containerState{name: name, state: state, kind: mainContainer}
	if k, ok := kind[name[0]]; ok {
		c.kind = k
	}
	c.started = state.Running != nil
	c.ready = c.started
	return c
}

func unready(c *containerState) *containerState { c.ready = false; return c }

func crashing(c *containerState) *containerState {
	c.last = ended(1)
	return c
}

func TestPodStatusFollowsItsContainers(t *testing.T) {
	const (
		always    = corev1.RestartPolicyAlways
		onFailure = corev1.RestartPolicyOnFailure
		never     = corev1.RestartPolicyNever
	)
	for name, c := range map[string]struct {
		policy      corev1.RestartPolicy
		stopping    bool
		containers  []*containerState
		phase       corev1.PodPhase
		initialized bool
		ready       bool // containers
		podReady    bool
	}{
		"nothing has started":           {always, false, []*containerState{with("a", waiting())}, corev1.PodPending, true, false, false},
		"an init container runs":        {always, false, []*containerState{with("i", running()), with("a", waiting())}, corev1.PodPending, false, false, false},
		"an init container has failed":  {always, false, []*containerState{with("i", ended(1)), with("a", waiting())}, corev1.PodPending, false, false, false},
		"a sidecar has started":         {always, false, []*containerState{with("s", running()), with("a", waiting())}, corev1.PodPending, true, false, false},
		"all run":                       {always, false, []*containerState{with("i", ended(0)), with("a", running()), with("b", running())}, corev1.PodRunning, true, true, true},
		"one is not ready":              {always, false, []*containerState{with("a", running()), unready(with("b", running()))}, corev1.PodRunning, true, false, false},
		"a sidecar is not ready":        {always, false, []*containerState{unready(with("s", running())), with("a", running())}, corev1.PodRunning, true, false, false},
		"one is crashing":               {always, false, []*containerState{with("a", running()), crashing(with("b", waiting()))}, corev1.PodRunning, true, false, false},
		"the only one is crashing":      {always, false, []*containerState{crashing(with("a", waiting()))}, corev1.PodRunning, true, false, false},
		"it is asked to end":            {always, true, []*containerState{with("a", running())}, corev1.PodRunning, true, true, false},
		"it has ended as asked":         {always, true, []*containerState{with("a", ended(0)), with("b", ended(0))}, corev1.PodSucceeded, true, false, false},
		"it was killed":                 {always, true, []*containerState{with("a", ended(137)), with("b", ended(0))}, corev1.PodFailed, true, false, false},
		"a job is done":                 {never, false, []*containerState{with("a", ended(0))}, corev1.PodSucceeded, true, false, false},
		"a job has failed":              {never, false, []*containerState{with("a", ended(1)), with("b", ended(0))}, corev1.PodFailed, true, false, false},
		"a sidecar outlives the job":    {never, true, []*containerState{with("s", running()), with("a", ended(0))}, corev1.PodRunning, true, false, false},
		"half of a job is done":         {never, false, []*containerState{with("a", ended(0)), with("b", running())}, corev1.PodRunning, true, false, false},
		"a job will be tried again":     {onFailure, false, []*containerState{with("a", ended(1))}, corev1.PodRunning, true, false, false},
		"a container will be restarted": {always, false, []*containerState{with("a", ended(0))}, corev1.PodRunning, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: c.policy}}
			got := podStatus(podState{pod: pod, containers: c.containers, stopping: c.stopping, sandbox: true}, corev1.PodStatus{}, time.Now())
			assert.Equal(t, c.phase, got.Phase)
			assert.Equal(t, truth(c.initialized), conditionOf(got.Conditions, corev1.PodInitialized).Status, "initialized")
			assert.Equal(t, truth(c.ready), conditionOf(got.Conditions, corev1.ContainersReady).Status, "containers ready")
			assert.Equal(t, truth(c.podReady), conditionOf(got.Conditions, corev1.PodReady).Status, "ready")
		})
	}
}

func TestPodIsNotOverBeforeItsLastContainer(t *testing.T) {
	container := with("a", running())
	state := podState{pod: &corev1.Pod{}, containers: []*containerState{container}, stopping: true, verdict: corev1.PodFailed, reason: "DeadlineExceeded"}
	assert.Equal(t, corev1.PodRunning, state.phase())
	container.state = ended(0)
	assert.Equal(t, corev1.PodFailed, state.phase())
}

func TestPodIsReadyOnlyWithItsGates(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "gate"}}}}
	state := podState{pod: pod, containers: []*containerState{with("a", running())}}
	ready := func() corev1.PodCondition {
		return *conditionOf(podStatus(state, corev1.PodStatus{}, time.Now()).Conditions, corev1.PodReady)
	}
	assert.Equal(t, corev1.ConditionFalse, ready().Status)
	assert.Equal(t, `corresponding condition of pod readiness gate "gate" is not true.`, ready().Message)
	pod.Status.Conditions = []corev1.PodCondition{{Type: "gate", Status: corev1.ConditionTrue}}
	assert.Equal(t, corev1.ConditionTrue, ready().Status)
}

func TestConditionKeepsItsTimeUntilItsStatusChanges(t *testing.T) {
	pod := &corev1.Pod{}
	container := with("a", running())
	state := podState{pod: pod, containers: []*containerState{container}}
	first, later := time.Unix(100, 0), time.Unix(200, 0)
	before := podStatus(state, corev1.PodStatus{}, first)
	assert.Equal(t, before, podStatus(state, before, later), "nothing has changed")
	container.ready = false
	after := podStatus(state, before, later)
	assert.Equal(t, metav1.NewTime(later), conditionOf(after.Conditions, corev1.PodReady).LastTransitionTime)
	assert.Equal(t, metav1.NewTime(first), conditionOf(after.Conditions, corev1.PodInitialized).LastTransitionTime)
}

func TestAPodThatRunsHereWasScheduled(t *testing.T) {
	failed := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "SchedulerError"}}}
	got := podStatus(podState{pod: &corev1.Pod{}}, failed, time.Unix(100, 0))
	assert.Equal(t, corev1.ConditionTrue, conditionOf(mergedStatus(failed, got).Conditions, corev1.PodScheduled).Status)
}

func TestStatusPatchLeavesWhatOthersWrote(t *testing.T) {
	current := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u")}, Status: corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 3,
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, ObservedGeneration: 2},
		},
	}}
	ours := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	merged := mergedStatus(current.Status, ours)
	assert.Len(t, merged.Conditions, 3)
	assert.Equal(t, corev1.PodQOSBurstable, merged.QOSClass)
	assert.Equal(t, int64(2), conditionOf(merged.Conditions, corev1.PodReady).ObservedGeneration)

	raw, err := statusPatch(current, merged)
	require.NoError(t, err)
	var patch map[string]any
	require.NoError(t, json.Unmarshal(raw, &patch))
	assert.Equal(t, map[string]any{"uid": "u"}, patch["metadata"])
	status := patch["status"].(map[string]any)
	assert.Equal(t, "Running", status["phase"])
	assert.NotContains(t, status, "observedGeneration")

	raw, err = statusPatch(current, current.Status)
	require.NoError(t, err)
	assert.Nil(t, raw, "no change, no request")
}

func TestContainersOfARestartedNodeGoOnCounting(t *testing.T) {
	pod := member()
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", ContainerID: "x", State: ended(0)}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "etcd", ContainerID: "y", RestartCount: 4, State: running()},
		{Name: "sidecar", State: waiting()},
	}
	all := newContainers(pod, time.Second, time.Minute)
	assert.True(t, all[0].initialized(), "an init container that has succeeded is not run again")
	assert.Equal(t, int32(5), all[1].launched)
	assert.Equal(t, "ContainerStatusUnknown", all[1].last.Terminated.Reason)
	assert.Zero(t, all[2].launched)
}
