package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// Reasons of containers that wait or have ended.
const (
	reasonCreating     = "ContainerCreating"
	reasonInitializing = "PodInitializing"
	reasonCrashLoop    = "CrashLoopBackOff"
	reasonPull         = "ErrImagePull"
	reasonPullBackOff  = "ImagePullBackOff"
	reasonConfig       = "CreateContainerConfigError"
	reasonCreate       = "CreateContainerError"
	reasonStart        = "StartError"
)

// configRetry is how long a container waits that lacks something which may come at any time.
const configRetry = time.Second

// container is a container of a pod: its state, and what keeps it going. Only the worker of the pod touches it.
type container struct {
	containerState
	spec      corev1.Container
	back      backOff
	retryAt   time.Time // no start before
	starting  bool
	launched  int32 // how often a start was made that counts as a run
	process   *process
	stopProbe context.CancelFunc
	killing   bool
	killAt    time.Time // SIGKILL is due then
}

func newContainers(pod *corev1.Pod, initial, maximum time.Duration) []*container {
	var all []*container
	add := func(spec corev1.Container, kind containerKind, reason string) {
		all = append(all, &container{
			spec: spec,
			back: backOff{initial: initial, maximum: maximum},
			containerState: containerState{
				name:  spec.Name,
				image: spec.Image,
				kind:  kind,
				state: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
			},
		})
	}
	for _, spec := range pod.Spec.InitContainers {
		kind := initContainer
		if spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = sidecarContainer
		}
		add(spec, kind, reasonInitializing)
	}
	reason := reasonCreating
	if len(pod.Spec.InitContainers) > 0 {
		reason = reasonInitializing
	}
	for _, spec := range pod.Spec.Containers {
		add(spec, mainContainer, reason)
	}
	for _, c := range all {
		c.inherit(pod)
	}
	return all
}

// inherit goes on counting where the status in the API ends: the node was restarted, and its containers are gone.
func (c *container) inherit(pod *corev1.Pod) {
	statuses := pod.Status.ContainerStatuses
	if c.kind != mainContainer {
		statuses = pod.Status.InitContainerStatuses
	}
	for _, status := range statuses {
		if status.Name != c.name || status.ContainerID == "" {
			continue
		}
		c.launched = status.RestartCount + 1
		c.restarts = status.RestartCount
		if status.State.Terminated != nil {
			waiting := c.state
			c.state = status.State
			if restarts(pod, &c.containerState) {
				c.last, c.state = status.State, waiting
			}
			c.id = status.ContainerID
		}
		if status.State.Running != nil {
			c.last.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: launchFailed + int32(unix.SIGKILL), Reason: "ContainerStatusUnknown", StartedAt: status.State.Running.StartedAt,
				Message:     "The container could not be located when the node was restarted",
				ContainerID: status.ContainerID,
			}
		}
	}
}

func (c *container) alive() bool { return c.process != nil }

func (c *container) busy() bool { return c.starting || c.alive() }

// wait notes why a container is not running yet.
func (c *container) wait(reason, message string, until time.Time) {
	c.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	c.retryAt = until
}

// hold is the reason why a container cannot be started for now.
type hold struct {
	reason string
	err    error
}

func (h *hold) Error() string { return h.err.Error() }
func (h *hold) Unwrap() error { return h.err }

// startRequest is what it takes to start a container, gathered by the worker for the goroutine that does it.
type startRequest struct {
	pod     *corev1.Pod // status has the addresses
	spec    corev1.Container
	run     int32
	sandbox *sandbox
	volumes map[string]volume
	etc     []mount
}

// startContainer starts a container. The error is a *hold where it can be tried again without having run.
func (n *Node) startContainer(ctx context.Context, r startRequest) (*process, error) {
	image, err := n.config.Images(r.spec.Image)
	if err != nil {
		return nil, &hold{reason: reasonPull, err: err}
	}
	variables, err := n.environment(ctx, r.pod, &r.spec)
	if err != nil {
		return nil, &hold{reason: reasonConfig, err: err}
	}
	for name, value := range image.Env {
		if _, given := variables[name]; !given {
			variables[name] = value
		}
	}
	user, err := n.user(r.pod, &r.spec, image)
	if err != nil {
		return nil, &hold{reason: reasonConfig, err: err}
	}
	spec, err := n.launchSpec(r, image, variables, user)
	if err != nil {
		return nil, &hold{reason: reasonCreate, err: err}
	}
	log, err := n.openLog(r.pod, r.spec.Name, r.run)
	if err != nil {
		return nil, &hold{reason: reasonCreate, err: err}
	}
	defer log.Close()
	spec.Join = sandboxNamespaces
	return n.launcher.start(spec, r.sandbox.namespaces, stdio{out: log, err: log})
}

// launchSpec translates a container into orders for the launcher.
func (n *Node) launchSpec(r startRequest, image Image, variables map[string]string, user identity) (*launchSpec, error) {
	root := filepath.Join(n.containerDir(r.pod, r.spec.Name), "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("create root: %w", err)
	}
	termination, err := n.terminationFile(r.pod, &r.spec, r.run)
	if err != nil {
		return nil, err
	}
	volumes, err := volumeMounts(&r.spec, r.volumes, variables)
	if err != nil {
		return nil, err
	}
	entry := path.Join("/image", filepath.Base(image.Path))
	mounts := append(systemMounts(), r.etc...)
	mounts = append(mounts, mount{Kind: mountBind, Source: image.Path, Target: entry, ReadOnly: true})
	mounts = append(mounts, sorted(append(volumes, termination))...)

	security := r.spec.SecurityContext
	dir := r.spec.WorkingDir
	if dir == "" {
		dir = "/"
	}
	return &launchSpec{
		Root: root, Mounts: mounts, Dir: dir, Args: arguments(&r.spec, entry, image.Args, variables), User: user,
		Env:      processEnv(r.pod, user.UID, variables),
		OneUser:  n.uids.single(),
		Nice:     niceness(r.spec.Resources.Requests.Cpu().MilliValue()),
		ReadOnly: security != nil && security.ReadOnlyRootFilesystem != nil && *security.ReadOnlyRootFilesystem,
		NoNew:    security != nil && security.AllowPrivilegeEscalation != nil && !*security.AllowPrivilegeEscalation,
	}, nil
}

// arguments is the command line: what the container says goes before what its image says.
func arguments(spec *corev1.Container, entry string, defaults []string, variables map[string]string) []string {
	args := expandAll(spec.Command, variables)
	if len(args) == 0 {
		args = []string{entry}
	}
	switch {
	case len(spec.Args) > 0:
		args = append(args, expandAll(spec.Args, variables)...)
	case len(spec.Command) == 0:
		args = append(args, defaults...)
	}
	return args
}

// sorted puts mounts below others after these.
func sorted(mounts []mount) []mount {
	depth := func(m mount) int { return strings.Count(m.Target, "/") }
	for i := 1; i < len(mounts); i++ {
		for j := i; j > 0 && depth(mounts[j]) < depth(mounts[j-1]); j-- {
			mounts[j], mounts[j-1] = mounts[j-1], mounts[j]
		}
	}
	return mounts
}

// user is who a container runs as: what it says, else what its pod says, else the image.
func (n *Node) user(pod *corev1.Pod, container *corev1.Container, image Image) (identity, error) {
	user := identity{UID: image.User}
	nonRoot := false
	var groups []int64
	if s := pod.Spec.SecurityContext; s != nil {
		user = identity{UID: valueOr(s.RunAsUser, user.UID), GID: valueOr(s.RunAsGroup, user.GID)}
		nonRoot = valueOr(s.RunAsNonRoot, nonRoot)
		groups = append(groups, s.SupplementalGroups...)
		if s.FSGroup != nil {
			groups = append(groups, *s.FSGroup)
		}
	}
	if s := container.SecurityContext; s != nil {
		user = identity{UID: valueOr(s.RunAsUser, user.UID), GID: valueOr(s.RunAsGroup, user.GID)}
		nonRoot = valueOr(s.RunAsNonRoot, nonRoot)
	}
	if nonRoot && user.UID == 0 {
		return identity{}, fmt.Errorf("container has runAsNonRoot and image will run as root (pod: %q, container: %s)", podName(pod), container.Name)
	}
	for _, group := range groups {
		if n.gids.has(group) {
			user.Groups = append(user.Groups, group)
		}
	}
	user.UID, user.GID = n.uids.orRoot(user.UID), n.gids.orRoot(user.GID)
	return user, nil
}

func valueOr[T any](value *T, fallback T) T {
	if value == nil {
		return fallback
	}
	return *value
}

// openLog opens the log of a run of a container for appending.
func (n *Node) openLog(pod *corev1.Pod, name string, run int32) (*os.File, error) {
	file := n.logFile(pod.Namespace, pod.Name, name, run)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, fmt.Errorf("create log directory: %w", err)
	}
	log, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return log, nil
}

func (n *Node) logFile(namespace, pod, name string, run int32) string {
	return filepath.Join(n.config.LogDir, namespace+"_"+pod, name, strconv.Itoa(int(run))+".log")
}

func (n *Node) podDir(pod *corev1.Pod) string {
	return filepath.Join(n.config.Dir, "pods", string(pod.UID))
}

func (n *Node) containerDir(pod *corev1.Pod, name string) string {
	return filepath.Join(n.podDir(pod), "containers", name)
}

// terminationFile makes the file in which a container may leave its last words.
func (n *Node) terminationFile(pod *corev1.Pod, container *corev1.Container, run int32) (mount, error) {
	file := n.terminationPath(pod, container.Name, run)
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		return mount{}, fmt.Errorf("create termination message: %w", err)
	}
	if err := os.Chmod(file, 0o666); err != nil {
		return mount{}, fmt.Errorf("open termination message: %w", err)
	}
	target := container.TerminationMessagePath
	if target == "" {
		target = corev1.TerminationMessagePathDefault
	}
	return mount{Kind: mountBind, Source: file, Target: target}, nil
}

func (n *Node) terminationPath(pod *corev1.Pod, name string, run int32) string {
	return filepath.Join(n.containerDir(pod, name), strconv.Itoa(int(run))+".termination")
}

// maxTermination and maxTerminationLog are how much of a termination message and of a log in its place is reported.
const (
	maxTermination    = 4096
	maxTerminationLog = 2048
)

// lastWords is the termination message of a run of a container; "" if there is none.
func (n *Node) lastWords(pod *corev1.Pod, container *corev1.Container, run int32, failed bool) string {
	raw, err := os.ReadFile(n.terminationPath(pod, container.Name, run))
	if err == nil && len(raw) > 0 {
		return string(raw[:min(len(raw), maxTermination)])
	}
	if container.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError || !failed {
		return ""
	}
	raw, err = os.ReadFile(n.logFile(pod.Namespace, pod.Name, container.Name, run))
	if err != nil {
		return ""
	}
	return string(raw[max(0, len(raw)-maxTerminationLog):])
}

// newContainerID makes an ID in the form of a container runtime.
func newContainerID() string {
	return "process://" + strings.ReplaceAll(string(uuid.NewUUID()), "-", "")
}

// terminated describes how a run ended.
func terminated(e exit, started time.Time, id, message string) *corev1.ContainerStateTerminated {
	reason := "Completed"
	if e.code != 0 {
		reason = "Error"
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: e.code, Signal: e.signal, Reason: reason, Message: message, ContainerID: id,
		StartedAt: metav1.NewTime(started), FinishedAt: metav1.NewTime(e.at),
	}
}

func podName(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

func podKey(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// isHold tells whether a container that could not be started has not run at all.
func isHold(err error) (*hold, bool) {
	var h *hold
	return h, errors.As(err, &h)
}
