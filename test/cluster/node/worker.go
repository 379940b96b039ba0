package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// worker owns one pod. All that happens to the pod arrives as a function in its inbox; the loop runs it, looks at what is
// to be done next, and publishes the status.
//
//	setting up -> running -> stopping -> torn down -> gone
//	                 \-> completed (waits to be deleted) -/
//
// Whatever may block (mounting, starting, hooks, probes, waiting for processes) runs beside the loop.
type worker struct {
	node   *Node
	inbox  chan func()
	gone   chan struct{}      // closed when nothing of the pod is left
	before <-chan struct{}    // the pod of the same name that has to be gone first; nil if there is none
	ctx    context.Context    // ends with the pod; of everything that runs beside the loop
	cancel context.CancelFunc // of ctx

	// snapshot is the pod as last published; it is read by other goroutines.
	snapshot atomic.Pointer[corev1.Pod]
	dirty    chan struct{}

	// All below is touched by the loop only.
	pod        *corev1.Pod
	start      time.Time
	containers []*container
	tokens     *tokenCache
	settingUp  bool
	noSetUp    context.CancelFunc // ends the attempts to set the pod up
	ip         string
	sandbox    *sandbox
	volumes    map[string]volume
	etc        []mount
	stop       *stopOrder
	verdict    corev1.PodPhase
	reason     string
	message    string
	cleaning   bool // processes are gone, teardown is under way
	clean      bool // teardown is done
	finished   bool // the loop ends
	wake       time.Time
}

// stopOrder says how a pod ends.
type stopOrder struct {
	deadline time.Time
	grace    time.Duration
	fate     fate
}

// fate is what becomes of a pod once its processes are gone. A later one prevails.
type fate int

const (
	complete fate = iota // the pod stays in the API with its verdict
	remove               // the pod is deleted from the API
	abandon              // the node goes; the API is left as it is
)

func newWorker(n *Node, pod *corev1.Pod, before <-chan struct{}) *worker {
	ctx, cancel := context.WithCancel(n.ctx)
	start := time.Now()
	if pod.Status.StartTime != nil {
		start = pod.Status.StartTime.Time
	}
	w := &worker{
		node: n, pod: pod, before: before, start: start, ctx: ctx, cancel: cancel,
		inbox: make(chan func(), 16), gone: make(chan struct{}), dirty: make(chan struct{}, 1),
		containers: newContainers(pod, n.config.BackOff, n.config.MaxBackOff),
		tokens:     newTokenCache(),
	}
	w.snapshot.Store(pod)
	return w
}

// send hands a function to the loop. It is dropped when the pod is gone.
func (w *worker) send(f func()) {
	select {
	case w.inbox <- f:
	case <-w.gone:
	}
}

// ask runs a function in the loop and waits for it. False means that the pod is gone.
func (w *worker) ask(f func()) bool {
	ran := make(chan struct{})
	w.send(func() { f(); close(ran) })
	select {
	case <-ran:
		return true
	case <-w.gone:
		return false
	}
}

// run is the loop.
func (w *worker) run() {
	defer close(w.gone)
	defer w.cancel()
	go w.notify()
	w.beginSetUp()
	w.publish()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for !w.finished {
		select {
		case f := <-w.inbox:
			f()
		case <-timer.C:
		}
		w.wake = time.Time{}
		w.reconcile(time.Now())
		w.publish()
		if w.wake.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(w.wake))
		}
	}
}

// wakeAt makes the loop look again at the given time at the latest.
func (w *worker) wakeAt(t time.Time) {
	if w.wake.IsZero() || t.Before(w.wake) {
		w.wake = t
	}
}

// notify tells the library about changes; it may block, the loop may not.
func (w *worker) notify() {
	for {
		select {
		case <-w.dirty:
			w.node.provider.notify(w.snapshot.Load())
		case <-w.gone:
			return
		}
	}
}

// publish makes the present state visible if it differs from what was visible before.
func (w *worker) publish() {
	last := w.snapshot.Load()
	status := podStatus(w.state(), last.Status, time.Now())
	merged := mergedStatus(w.pod.Status, status)
	pod := w.pod.DeepCopy()
	pod.Status = merged
	w.snapshot.Store(pod)
	if equality.Semantic.DeepEqual(last.Status, merged) {
		return
	}
	select {
	case w.dirty <- struct{}{}:
	default: // the notifier has not looked at the previous one yet
	}
}

func (w *worker) state() podState {
	s := podState{
		pod: w.pod, sandbox: w.sandbox != nil, hostIP: w.node.address, start: w.start,
		stopping: w.stop != nil, verdict: w.verdict, reason: w.reason, message: w.message,
	}
	s.ip = w.ip
	for _, c := range w.containers {
		s.containers = append(s.containers, &c.containerState)
	}
	return s
}

// update takes over the pod as the API has it now.
func (w *worker) update(pod *corev1.Pod) {
	w.pod = pod
	for _, c := range w.containers {
		if spec := containerNamed(pod, c.name); spec != nil && spec.Image != c.spec.Image {
			c.spec, c.image = *spec, spec.Image
			if c.alive() {
				w.event(corev1.EventTypeNormal, "Killing", fmt.Sprintf("Container %s definition changed, will be restarted", c.name))
				w.kill(c, time.Now().Add(gracePeriod(pod)))
			}
		}
	}
}

func gracePeriod(pod *corev1.Pod) time.Duration {
	return time.Duration(valueOr(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second
}

// end asks the pod to end. A second order can only hasten it or decide more about its fate.
func (w *worker) end(grace time.Duration, what fate) {
	deadline := time.Now().Add(grace)
	if w.stop == nil {
		w.stop = &stopOrder{deadline: deadline, grace: grace, fate: what}
		return
	}
	w.stop.fate = max(w.stop.fate, what)
	if deadline.Before(w.stop.deadline) {
		w.stop.deadline, w.stop.grace = deadline, grace
		for _, c := range w.containers {
			if c.killing && deadline.Before(c.killAt) {
				c.killAt = deadline
			}
		}
	}
}

// reconcile does what is to be done next.
func (w *worker) reconcile(now time.Time) {
	for _, c := range w.containers {
		w.enforce(c, now)
	}
	switch {
	case w.stop != nil:
		w.reconcileStop()
	case w.verdict != "" || w.sandbox == nil:
	default:
		w.checkDeadline(now)
		w.reconcileContainers(now)
	}
}

// enforce kills a container whose grace is over.
func (w *worker) enforce(c *container, now time.Time) {
	if !c.killing || !c.alive() {
		return
	}
	if now.Before(c.killAt) {
		w.wakeAt(c.killAt)
		return
	}
	c.process.signal(unix.SIGKILL)
}

// checkDeadline ends a pod that has used up its active deadline.
func (w *worker) checkDeadline(now time.Time) {
	if w.pod.Spec.ActiveDeadlineSeconds == nil {
		return
	}
	deadline := w.start.Add(time.Duration(*w.pod.Spec.ActiveDeadlineSeconds) * time.Second)
	if now.Before(deadline) {
		w.wakeAt(deadline)
		return
	}
	w.verdict, w.reason, w.message = corev1.PodFailed, "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	w.end(gracePeriod(w.pod), complete)
}

// reconcileContainers starts what is due, in the order of the pod: an init container holds back all that follow until
// it has succeeded, a sidecar until it has started.
func (w *worker) reconcileContainers(now time.Time) {
	if w.stop != nil {
		return
	}
	over := true
	for _, c := range w.containers {
		if c.kind == initContainer && c.initialized() {
			continue
		}
		if w.endedForGood(c) {
			if c.kind == initContainer {
				w.finish(corev1.PodFailed)
				return
			}
			continue
		}
		w.ensure(c, now)
		if c.kind == mainContainer {
			over = false
			continue
		}
		if !c.initialized() {
			return
		}
	}
	if over {
		w.finish(w.state().phase())
	}
}

// endedForGood tells whether a container has run and is not to be started again.
func (w *worker) endedForGood(c *container) bool {
	return c.state.Terminated != nil && !restarts(w.pod, &c.containerState) && !c.busy()
}

// finish ends a pod that has come to a verdict by itself.
func (w *worker) finish(verdict corev1.PodPhase) {
	w.verdict = verdict
	w.end(gracePeriod(w.pod), complete)
}

// ensure starts a container if it does not run and its time has come.
func (w *worker) ensure(c *container, now time.Time) {
	switch {
	case c.busy():
	case now.Before(c.retryAt):
		w.wakeAt(c.retryAt)
	default:
		w.launch(c)
	}
}

// launch starts a container beside the loop.
func (w *worker) launch(c *container) {
	c.starting = true
	if c.state.Waiting != nil && c.state.Waiting.Reason == reasonInitializing {
		c.state.Waiting.Reason = reasonCreating
	}
	request := startRequest{
		pod: w.addressed(), spec: *c.spec.DeepCopy(), run: c.launched,
		sandbox: w.sandbox, volumes: w.volumes, etc: w.etc,
	}
	go func() {
		p, err := w.node.startContainer(w.ctx, request)
		w.deliver(p, func() { w.launchedContainer(c, p, err) })
	}()
}

// deliver sends the result of a start; a process that nobody waits for any more is killed.
func (w *worker) deliver(p *process, f func()) {
	if !w.ask(f) && p != nil {
		p.signal(unix.SIGKILL)
		<-p.done
	}
}

// addressed is the pod with its addresses, for the downward API.
func (w *worker) addressed() *corev1.Pod {
	pod := w.pod.DeepCopy()
	pod.Status.HostIP, pod.Status.PodIP = w.node.address, w.ip
	return pod
}

// launchedContainer takes over the result of a start.
func (w *worker) launchedContainer(c *container, p *process, err error) {
	c.starting = false
	if h, ok := isHold(err); ok {
		w.held(c, h)
		return
	}
	c.restarts, c.launched = c.launched, c.launched+1
	if ended := c.ended(); ended != nil {
		c.last = corev1.ContainerState{Terminated: ended}
	}
	c.id = newContainerID()
	if err != nil {
		now := time.Now()
		w.event(corev1.EventTypeWarning, "Failed", "Error: "+err.Error())
		ended := terminated(exit{code: launchFailed, at: now}, now, c.id, err.Error())
		ended.Reason = reasonStart
		w.ended(c, ended)
		return
	}
	c.process = p
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.started)}}
	w.event(corev1.EventTypeNormal, "Started", "Started container "+c.name)
	go func() {
		<-p.done
		w.send(func() { w.exited(c, p) })
	}()
	w.watch(c)
}

// held notes that a container cannot be started for now.
func (w *worker) held(c *container, h *hold) {
	now := time.Now()
	if ended := c.state.Terminated; ended != nil {
		c.last = corev1.ContainerState{Terminated: ended}
	}
	if h.reason == reasonPull {
		w.heldByImage(c, h, now)
		return
	}
	if c.state.Waiting == nil || c.state.Waiting.Message != h.Error() {
		w.event(corev1.EventTypeWarning, "Failed", "Error: "+h.Error())
	}
	c.wait(h.reason, h.Error(), now.Add(configRetry))
}

// heldByImage notes that the image of a container is not known: ErrImagePull at first, then a back-off.
func (w *worker) heldByImage(c *container, h *hold, now time.Time) {
	w.event(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", c.image, h))
	delay := c.back.next(now)
	if delay == 0 {
		c.wait(reasonPull, h.Error(), now.Add(configRetry))
		return
	}
	c.wait(reasonPullBackOff, fmt.Sprintf("Back-off pulling image %q: %s: %s", c.image, reasonPull, h), now.Add(delay))
}

// exited takes note of the end of a process.
func (w *worker) exited(c *container, p *process) {
	run := c.launched - 1
	message := w.node.lastWords(w.pod, &c.spec, run, p.exit.code != 0)
	w.ended(c, terminated(p.exit, p.started, c.id, message))
}

// ended is the end of one run of a container, and says when the next may begin.
func (w *worker) ended(c *container, how *corev1.ContainerStateTerminated) {
	c.process, c.killing, c.started, c.ready = nil, false, false, false
	if c.stopProbe != nil {
		c.stopProbe()
		c.stopProbe = nil
	}
	c.state = corev1.ContainerState{Terminated: how}
	if w.stop != nil || !restarts(w.pod, &c.containerState) {
		return
	}
	delay := c.back.next(how.FinishedAt.Time)
	c.retryAt = how.FinishedAt.Add(delay)
	if delay == 0 {
		return
	}
	c.last = corev1.ContainerState{Terminated: how}
	message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", delay, c.name, podName(w.pod))
	c.wait(reasonCrashLoop, message, c.retryAt)
	w.event(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container "+c.name+" in pod "+podName(w.pod))
}

// watch begins the probes of a container that has just started, and its postStart hook.
func (w *worker) watch(c *container) {
	ctx, cancel := context.WithCancel(w.ctx)
	c.stopProbe = cancel
	p, spec := c.process, c.spec
	t := target{spec: &spec, ip: w.sandbox.ip, process: p, launch: w.node.launcher}
	if spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil {
		go w.postStart(ctx, c, t)
	}
	if spec.StartupProbe == nil {
		w.startedUp(ctx, c, t)
		return
	}
	go t.observe(ctx, spec.StartupProbe, w.reporter("Startup"), func(r probeResult) {
		w.onProbe(c, p, func() {
			switch {
			case !r.ok:
				w.unhealthy(c, spec.StartupProbe, "startup")
			case !c.started:
				w.startedUp(ctx, c, t)
			}
		})
	})
}

// startedUp begins what waits for the startup probe.
func (w *worker) startedUp(ctx context.Context, c *container, t target) {
	c.started, c.ready = true, t.spec.ReadinessProbe == nil
	if probe := t.spec.ReadinessProbe; probe != nil {
		go t.observe(ctx, probe, w.reporter("Readiness"), func(r probeResult) {
			w.onProbe(c, t.process, func() { c.ready = r.ok && !c.killing })
		})
	}
	if probe := t.spec.LivenessProbe; probe != nil {
		go t.observe(ctx, probe, w.reporter("Liveness"), func(r probeResult) {
			w.onProbe(c, t.process, func() {
				if !r.ok {
					w.unhealthy(c, probe, "liveness")
				}
			})
		})
	}
}

// onProbe runs f in the loop if the process that was probed is still the one of the container.
func (w *worker) onProbe(c *container, p *process, f func()) {
	w.send(func() {
		if c.process == p {
			f()
		}
	})
}

// reporter reports failures of a probe as events.
func (w *worker) reporter(kind string) func(string) {
	return func(message string) {
		w.event(corev1.EventTypeWarning, "Unhealthy", kind+" probe failed: "+message)
	}
}

// unhealthy ends a container that failed its startup or liveness probe.
func (w *worker) unhealthy(c *container, probe *corev1.Probe, kind string) {
	if c.killing {
		return
	}
	grace := gracePeriod(w.pod)
	if probe.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*probe.TerminationGracePeriodSeconds) * time.Second
	}
	w.event(corev1.EventTypeNormal, "Killing", fmt.Sprintf("Container %s failed %s probe, will be restarted", c.name, kind))
	w.kill(c, time.Now().Add(grace))
}

func (w *worker) postStart(ctx context.Context, c *container, t target) {
	err := t.hook(ctx, t.spec.Lifecycle.PostStart)
	if err == nil || ctx.Err() != nil {
		return
	}
	w.event(corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed: "+err.Error())
	w.onProbe(c, t.process, func() { w.kill(c, time.Now().Add(gracePeriod(w.pod))) })
}

// kill ends a container: preStop hook, SIGTERM, and SIGKILL at the deadline.
func (w *worker) kill(c *container, deadline time.Time) {
	if c.killing || !c.alive() {
		return
	}
	c.killing, c.killAt, c.ready = true, deadline, false
	w.wakeAt(deadline)
	if !time.Now().Before(deadline) {
		c.process.signal(unix.SIGKILL)
		return
	}
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
		c.process.signal(w.stopSignal(c))
		return
	}
	p, spec := c.process, c.spec
	t := target{spec: &spec, ip: w.sandbox.ip, process: p, launch: w.node.launcher}
	go func() {
		ctx, cancel := context.WithDeadline(w.ctx, deadline)
		defer cancel()
		if err := t.hook(ctx, spec.Lifecycle.PreStop); err != nil && w.ctx.Err() == nil {
			w.event(corev1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed: "+err.Error())
		}
		w.onProbe(c, p, func() { w.hookDone(c) })
	}()
}

// minimumGrace is what a container has left at least after its preStop hook, as with the kubelet.
const minimumGrace = 2 * time.Second

func (w *worker) hookDone(c *container) {
	if least := time.Now().Add(minimumGrace); c.killAt.Before(least) && (w.stop == nil || w.stop.grace > 0) {
		c.killAt = least
	}
	c.process.signal(w.stopSignal(c))
}

// stopSignal is the signal that asks a container to end.
func (w *worker) stopSignal(c *container) unix.Signal {
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.StopSignal == nil {
		return unix.SIGTERM
	}
	if sig := unix.SignalNum(string(*c.spec.Lifecycle.StopSignal)); sig != 0 {
		return sig
	}
	return unix.SIGTERM
}

// reconcileStop ends the containers: all but the sidecars at once, then the sidecars in reverse order.
func (w *worker) reconcileStop() {
	waiting := false
	for _, c := range w.containers {
		if c.kind != sidecarContainer && c.busy() {
			w.stopContainer(c)
			waiting = true
		}
	}
	for i := len(w.containers) - 1; i >= 0 && !waiting; i-- {
		if c := w.containers[i]; c.kind == sidecarContainer && c.busy() {
			w.stopContainer(c)
			waiting = true
		}
	}
	switch {
	case waiting:
		return
	case w.settingUp: // nothing may be made any more while it is being undone
		w.noSetUp()
		return
	case w.cleaning:
		w.leave()
		return
	}
	w.cleaning = true
	pod, box := w.pod, w.sandbox
	go func() {
		err := w.node.tearDown(pod, box)
		w.send(func() { w.toreDown(err) })
	}()
}

func (w *worker) stopContainer(c *container) {
	if w.stop.fate == abandon {
		if c.alive() {
			c.process.signal(unix.SIGKILL)
		}
		return
	}
	if c.alive() && !c.killing {
		w.event(corev1.EventTypeNormal, "Killing", "Stopping container "+c.name)
	}
	w.kill(c, w.stop.deadline)
}

// toreDown notes that network and namespaces are gone.
func (w *worker) toreDown(err error) {
	if err != nil {
		w.event(corev1.EventTypeWarning, "FailedKillPod", "error killing pod: "+err.Error())
	}
	w.clean, w.sandbox = true, nil
	w.leave()
}

// leave ends the worker once the pod is torn down and not to be kept.
func (w *worker) leave() {
	if !w.clean || w.finished || w.stop.fate == complete {
		return
	}
	w.finished = true
	if w.stop.fate == abandon {
		return
	}
	w.publish()
	last := w.snapshot.Load()
	w.node.background(func(ctx context.Context) { w.node.deletePod(ctx, last) })
}

// beginSetUp mounts the volumes and makes the network beside the loop.
func (w *worker) beginSetUp() {
	ctx, cancel := context.WithCancel(w.ctx)
	w.settingUp, w.noSetUp = true, cancel
	pod := w.pod
	go func() {
		defer cancel()
		result := w.setUp(ctx, pod)
		w.send(func() { w.setUpDone(result) })
	}()
}

// prepared is a pod that is ready to start containers.
type prepared struct {
	volumes map[string]volume
	sandbox *sandbox
	etc     []mount
}

// setUp tries again and again until it works; nil means that the context ended first.
func (w *worker) setUp(ctx context.Context, pod *corev1.Pod) *prepared {
	if w.before != nil {
		select {
		case <-w.before:
		case <-ctx.Done():
			return nil
		}
	}
	delay, told := 100*time.Millisecond, ""
	for {
		result, err := w.trySetUp(ctx, pod)
		switch {
		case err == nil:
			return result
		case ctx.Err() != nil:
			return nil
		case err.Error() != told:
			told = err.Error()
			w.tell(err)
		}
		if !sleep(ctx, delay) {
			return nil
		}
		delay = min(2*delay, time.Second)
	}
}

// trySetUp mounts the volumes first: a pod without them gets no network, as with the kubelet.
func (w *worker) trySetUp(ctx context.Context, pod *corev1.Pod) (*prepared, error) {
	volumes, err := w.node.setUpVolumes(ctx, pod, w.tokens)
	if err != nil {
		return nil, &setUpError{reason: "FailedMount", err: err}
	}
	box, err := w.node.newSandbox(ctx, pod)
	if err != nil {
		return nil, &setUpError{reason: "FailedCreatePodSandBox", err: fmt.Errorf("Failed to create pod sandbox: %w", err)} //nolint:staticcheck // the kubelet's own words
	}
	etc, err := w.node.writeEtc(pod, box.ip)
	if err != nil {
		box.close()
		return nil, &setUpError{reason: "FailedCreatePodSandBox", err: err}
	}
	return &prepared{volumes: volumes, sandbox: box, etc: etc}, nil
}

// setUpDone takes over what was set up, if it was.
func (w *worker) setUpDone(result *prepared) {
	w.settingUp = false
	if result == nil {
		return
	}
	w.volumes, w.sandbox, w.etc, w.ip = result.volumes, result.sandbox, result.etc, result.sandbox.ip
	go w.refresh()
}

// refresh keeps volumes from the API up to date.
func (w *worker) refresh() {
	for sleep(w.ctx, refreshPeriod) {
		if err := w.node.refreshVolumes(w.ctx, w.snapshot.Load(), w.tokens); err != nil && w.ctx.Err() == nil {
			w.event(corev1.EventTypeWarning, "FailedMount", err.Error())
		}
	}
}

// setUpError is why a pod is still creating, with the reason of its event.
type setUpError struct {
	reason string
	err    error
}

func (e *setUpError) Error() string { return e.err.Error() }
func (e *setUpError) Unwrap() error { return e.err }

func (w *worker) tell(err error) {
	var e *setUpError
	if errors.As(err, &e) {
		w.event(corev1.EventTypeWarning, e.reason, e.Error())
	}
}

// event records an event of the pod. It may be called from any goroutine.
func (w *worker) event(kind, reason, message string) {
	w.node.recorder.Event(w.snapshot.Load(), kind, reason, message)
}
