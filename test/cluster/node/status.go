package node

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// containerKind says which part a container plays in the life of its pod.
type containerKind int

const (
	initContainer    containerKind = iota // runs to its end before the next one starts
	sidecarContainer                      // an init container that keeps running
	mainContainer
)

// containerState is all of a container that its status tells.
type containerState struct {
	name, image string
	kind        containerKind
	id          string // of the present or newest process
	state       corev1.ContainerState
	last        corev1.ContainerState
	restarts    int32
	started     bool
	ready       bool
}

func (c *containerState) running() bool { return c.state.Running != nil }

// ended is the state the container ended with, also while it waits for a restart; nil if it never ended.
func (c *containerState) ended() *corev1.ContainerStateTerminated {
	if c.state.Terminated != nil {
		return c.state.Terminated
	}
	return c.last.Terminated
}

// waiting tells whether it has never run.
func (c *containerState) waiting() bool { return !c.running() && c.ended() == nil }

// failed tells whether its newest run has ended badly.
func (c *containerState) failed() bool {
	return !c.running() && c.ended() != nil && c.ended().ExitCode != 0
}

// initialized tells whether an init container holds back the next one no longer.
func (c *containerState) initialized() bool {
	if c.kind == sidecarContainer {
		return c.started
	}
	return c.state.Terminated != nil && c.state.Terminated.ExitCode == 0
}

// podState is all of a pod that its status tells.
type podState struct {
	pod        *corev1.Pod // with the conditions the API last had
	containers []*containerState
	sandbox    bool // network and volumes are there
	ip, hostIP string
	start      time.Time
	stopping   bool            // asked to end
	verdict    corev1.PodPhase // Failed or Succeeded once decided, whatever the containers say
	reason     string
	message    string
}

// podStatus computes the status of a pod. The previous status gives the times of conditions that have not changed.
func podStatus(s podState, previous corev1.PodStatus, now time.Time) corev1.PodStatus {
	start := metav1.NewTime(s.start)
	status := corev1.PodStatus{
		Phase:     s.phase(),
		Reason:    s.reason,
		Message:   s.message,
		HostIP:    s.hostIP,
		HostIPs:   []corev1.HostIP{{IP: s.hostIP}},
		StartTime: &start,
		QOSClass:  s.pod.Status.QOSClass,
	}
	if s.ip != "" {
		status.PodIP, status.PodIPs = s.ip, []corev1.PodIP{{IP: s.ip}}
	}
	for _, c := range s.containers {
		if c.kind == mainContainer {
			status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(c))
		} else {
			status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(c))
		}
	}
	for _, condition := range s.conditions(status.Phase) {
		status.Conditions = append(status.Conditions, withTime(condition, previous.Conditions, now))
	}
	return status
}

func containerStatus(c *containerState) corev1.ContainerStatus {
	started := c.started
	status := corev1.ContainerStatus{
		Name:                 c.name,
		Image:                c.image,
		ImageID:              c.image,
		State:                *c.state.DeepCopy(),
		LastTerminationState: *c.last.DeepCopy(),
		RestartCount:         c.restarts,
		Ready:                c.ready,
		Started:              &started,
		ContainerID:          c.id,
	}
	if c.kind == initContainer {
		status.Ready = c.initialized()
	}
	return status
}

// phase is the kubelet's reading of the containers' states.
func (s podState) phase() corev1.PodPhase {
	if s.verdict != "" && !s.running() {
		return s.verdict
	}
	switch {
	case s.heldBack() || slices.ContainsFunc(s.mains(), (*containerState).waiting):
		return corev1.PodPending
	case s.running() || !s.final():
		return corev1.PodRunning
	case slices.ContainsFunc(s.mains(), (*containerState).failed):
		return corev1.PodFailed
	default:
		return corev1.PodSucceeded
	}
}

// heldBack tells whether an init container keeps the pod from its beginning.
func (s podState) heldBack() bool {
	if s.stopping || s.mainStarted() {
		return false
	}
	return slices.ContainsFunc(s.containers, func(c *containerState) bool { return c.kind != mainContainer && !c.initialized() })
}

// running tells whether any container runs; a pod is not over as long as one does.
func (s podState) running() bool {
	for _, c := range s.containers {
		if c.running() {
			return true
		}
	}
	return false
}

// mainStarted tells whether the pod was past its init containers once; it never goes back to Pending then.
func (s podState) mainStarted() bool {
	for _, c := range s.mains() {
		if c.running() || c.ended() != nil {
			return true
		}
	}
	return false
}

// final tells whether containers that have ended stay ended.
func (s podState) final() bool {
	if s.stopping {
		return true
	}
	for _, c := range s.mains() {
		if c.state.Terminated == nil || restarts(s.pod, c) {
			return false
		}
	}
	return true
}

func (s podState) mains() []*containerState {
	var mains []*containerState
	for _, c := range s.containers {
		if c.kind == mainContainer {
			mains = append(mains, c)
		}
	}
	return mains
}

// restarts tells whether a container that has ended is started again.
func restarts(pod *corev1.Pod, c *containerState) bool {
	ended := c.ended()
	if ended == nil || c.kind == sidecarContainer {
		return true
	}
	failed := ended.ExitCode != 0
	if c.kind == initContainer {
		return failed && pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	}
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return failed
	case corev1.RestartPolicyAlways:
	}
	return true
}

func (s podState) conditions(phase corev1.PodPhase) []corev1.PodCondition {
	sandbox := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: truth(s.sandbox)}
	containers := s.containersReady(phase)
	// As the kubelet does: a pod that runs here was scheduled, whatever a lost race of the scheduler left behind.
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	return []corev1.PodCondition{scheduled, sandbox, s.initialized(phase), containers, s.ready(containers)}
}

func (s podState) initialized(phase corev1.PodPhase) corev1.PodCondition {
	condition := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	var incomplete []string
	for _, c := range s.containers {
		if c.kind != mainContainer && !c.initialized() {
			incomplete = append(incomplete, c.name)
		}
	}
	switch {
	case phase == corev1.PodSucceeded:
		condition.Reason = "PodCompleted"
	case len(incomplete) > 0 && !s.mainStarted():
		condition.Status = corev1.ConditionFalse
		condition.Reason = "ContainersNotInitialized"
		condition.Message = fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(incomplete, " "))
	}
	return condition
}

func (s podState) containersReady(phase corev1.PodPhase) corev1.PodCondition {
	condition := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	var unready []string
	for _, c := range s.containers {
		if c.kind != initContainer && !c.ready {
			unready = append(unready, c.name)
		}
	}
	switch {
	case phase == corev1.PodSucceeded:
		condition.Reason = "PodCompleted"
	case phase == corev1.PodFailed:
		condition.Reason = "PodFailed"
	case len(unready) > 0:
		condition.Reason = "ContainersNotReady"
		condition.Message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " "))
	default:
		condition.Status = corev1.ConditionTrue
	}
	return condition
}

// ready is the condition that Services and controllers look at. A pod that is asked to end is ready no more.
func (s podState) ready(containers corev1.PodCondition) corev1.PodCondition {
	condition := containers
	condition.Type = corev1.PodReady
	if condition.Status != corev1.ConditionTrue {
		return condition
	}
	if s.stopping {
		condition.Status, condition.Reason = corev1.ConditionFalse, "PodTerminating"
		return condition
	}
	var missing []string
	for _, gate := range s.pod.Spec.ReadinessGates {
		if current := conditionOf(s.pod.Status.Conditions, gate.ConditionType); current == nil || current.Status != corev1.ConditionTrue {
			missing = append(missing, fmt.Sprintf("corresponding condition of pod readiness gate %q is not true.", gate.ConditionType))
		}
	}
	if len(missing) > 0 {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(missing, ", ")
	}
	return condition
}

func truth(b bool) corev1.ConditionStatus {
	if b {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// withTime sets the time of a condition's last transition: now, unless the status is the same as before.
func withTime(condition corev1.PodCondition, previous []corev1.PodCondition, now time.Time) corev1.PodCondition {
	condition.LastTransitionTime = metav1.NewTime(now)
	if before := conditionOf(previous, condition.Type); before != nil && before.Status == condition.Status {
		condition.LastTransitionTime = before.LastTransitionTime
	}
	return condition
}

func conditionOf(conditions []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// mergedStatus is what the API is to hold: our own part from ours, and all that others wrote from current.
func mergedStatus(current, ours corev1.PodStatus) corev1.PodStatus {
	merged := *current.DeepCopy()
	merged.Phase, merged.Reason, merged.Message = ours.Phase, ours.Reason, ours.Message
	merged.HostIP, merged.HostIPs, merged.PodIP, merged.PodIPs = ours.HostIP, ours.HostIPs, ours.PodIP, ours.PodIPs
	merged.ContainerStatuses, merged.InitContainerStatuses = ours.ContainerStatuses, ours.InitContainerStatuses
	if merged.StartTime == nil {
		merged.StartTime = ours.StartTime
	}
	for _, condition := range ours.Conditions {
		if before := conditionOf(merged.Conditions, condition.Type); before != nil {
			condition.ObservedGeneration = before.ObservedGeneration
			*before = condition
		} else {
			merged.Conditions = append(merged.Conditions, condition)
		}
	}
	return merged
}
