package node

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// provider is what the library calls: it keeps one worker for each pod. Pods are known by UID; the library knows them by
// name only, so that a pod that replaces another of its name needs care.
type provider struct {
	node *Node

	mu      sync.Mutex
	workers map[types.UID]*worker
	newest  map[types.NamespacedName]types.UID
	publish func(*corev1.Pod)
	closed  bool
}

func newProvider(n *Node) *provider {
	return &provider{node: n, workers: map[types.UID]*worker{}, newest: map[types.NamespacedName]types.UID{}}
}

// CreatePod starts a worker for the pod. A pod of the same name that still runs has lost its place in the API and is
// ended; the new one waits for it.
func (p *provider) CreatePod(_ context.Context, pod *corev1.Pod) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || pod.DeletionTimestamp != nil || p.workers[pod.UID] != nil {
		return nil
	}
	key := podKey(pod)
	var before <-chan struct{}
	if old := p.workers[p.newest[key]]; old != nil {
		before = old.gone
		go old.send(func() { old.end(0, remove) })
	}
	w := newWorker(p.node, pod, before)
	p.workers[pod.UID], p.newest[key] = w, pod.UID
	go func() {
		w.run()
		p.forget(pod.UID, key)
	}()
	return nil
}

func (p *provider) forget(uid types.UID, key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workers, uid)
	if p.newest[key] == uid {
		delete(p.newest, key)
	}
}

// UpdatePod hands the worker the changed pod.
func (p *provider) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	p.updated(pod)
	return nil
}

// DeletePod asks the pod to end within the time it was given. Of a pod that is not here, only the API is left to know.
func (p *provider) DeletePod(_ context.Context, pod *corev1.Pod) error {
	if p.byUID(pod.UID) == nil {
		if pod.DeletionTimestamp != nil {
			p.node.background(func(ctx context.Context) { p.node.deletePod(ctx, pod) })
		}
		return errdefs.NotFoundf("pod %s is not on this node", podName(pod))
	}
	p.end(pod)
	return nil
}

// GetPod returns the pod unless the API has another of that name by now: that one is to be created, not updated.
func (p *provider) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	w := p.named(namespace, name)
	if w == nil {
		return nil, errdefs.NotFoundf("pod %s/%s is not on this node", namespace, name)
	}
	pod := w.snapshot.Load()
	if current, err := p.node.lister.Pods(namespace).Get(name); err == nil && current.UID != pod.UID {
		return nil, errdefs.NotFoundf("pod %s has been replaced", podName(pod))
	}
	return pod.DeepCopy(), nil
}

// GetPodStatus returns the status of a pod.
func (p *provider) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns the pods of this node.
func (p *provider) GetPods(context.Context) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for _, w := range p.all() {
		pods = append(pods, w.snapshot.Load().DeepCopy())
	}
	return pods, nil
}

// NotifyPods takes the function that is to be called on each change of a status.
func (p *provider) NotifyPods(_ context.Context, publish func(*corev1.Pod)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.publish = publish
}

// notify tells the library about a change, unless the pod has been replaced: the library would take it for its successor.
func (p *provider) notify(pod *corev1.Pod) {
	p.mu.Lock()
	publish, newest := p.publish, p.newest[podKey(pod)]
	p.mu.Unlock()
	if publish != nil && newest == pod.UID {
		publish(pod)
	}
}

// updated takes over a pod as the informer has it now. A request to delete it is obeyed at once.
func (p *provider) updated(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	w := p.byUID(pod.UID)
	if w == nil {
		return
	}
	pod = pod.DeepCopy()
	w.send(func() { w.update(pod) })
	if pod.DeletionTimestamp != nil {
		p.end(pod)
	}
}

// deleted ends a pod that has vanished from the API. The library does not see pods that vanished while the watch was
// interrupted.
func (p *provider) deleted(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok {
		if w := p.byUID(pod.UID); w != nil {
			w.send(func() { w.end(0, remove) })
		}
	}
}

// end asks the worker of a pod to end it.
func (p *provider) end(pod *corev1.Pod) {
	w := p.byUID(pod.UID)
	if w == nil {
		return
	}
	grace := gracePeriod(pod)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	}
	if pod.DeletionTimestamp == nil {
		grace = 0 // it is gone from the API already
	}
	w.send(func() { w.end(grace, remove) })
}

func (p *provider) byUID(uid types.UID) *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[uid]
}

func (p *provider) named(namespace, name string) *worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.workers[p.newest[types.NamespacedName{Namespace: namespace, Name: name}]]
}

func (p *provider) all() []*worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	workers := make([]*worker, 0, len(p.workers))
	for _, w := range p.workers {
		workers = append(workers, w)
	}
	return workers
}

// shutDown ends all pods of the node and waits for it. The API is left as it is, as when a machine loses power.
func (p *provider) shutDown() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	workers := p.all()
	for _, w := range workers {
		w.send(func() { w.end(0, abandon) })
	}
	for _, w := range workers {
		<-w.gone
	}
}

// tearDown releases what a pod without processes still holds, but for its directory.
func (n *Node) tearDown(pod *corev1.Pod, box *sandbox) error {
	if box != nil {
		box.close()
	}
	if pod.Spec.HostNetwork {
		return nil
	}
	if err := n.config.Network.DelPod(string(pod.UID)); err != nil {
		return fmt.Errorf("remove network: %w", err)
	}
	return nil
}

// removeDir removes the directory of a pod. Claims and host paths are not in it: they are mounted in containers only.
func (n *Node) removeDir(pod *corev1.Pod) error {
	if err := os.RemoveAll(n.podDir(pod)); err != nil {
		return fmt.Errorf("remove directory of pod %s: %w", podName(pod), err)
	}
	return nil
}

// containerNamed finds a container; only the loop may call it.
func (w *worker) containerNamed(name string) *container {
	for _, c := range w.containers {
		if c.name == name {
			return c
		}
	}
	return nil
}
