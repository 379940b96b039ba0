package stage

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Event is one change of one object, as the API server told it.
type Event struct {
	Type     watch.EventType
	Resource string
	Object   *unstructured.Unstructured
	// Revision orders events of all resources: the API server's etcd counts every write of the cluster.
	Revision int64
	At       time.Time
}

// resources are what a rollout can touch; the promises are checked on their history.
var resources = []schema.GroupVersionResource{
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Version: "v1", Resource: "persistentvolumes"},
	{Version: "v1", Resource: "pods"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "druid.gardener.cloud", Version: "v1alpha1", Resource: "etcds"},
	{Group: "volumes.druid.gardener.cloud", Version: "v1alpha1", Resource: "volumerollouts"},
}

// History is every change of every object that a rollout can touch, since it was begun.
type History struct {
	cancel  context.CancelFunc
	factory dynamicinformer.DynamicSharedInformerFactory

	mu        sync.Mutex
	events    []Event
	listeners []func(Event)
}

// Record begins a history: first all objects that exist (as ADDED), then every change. A watch that breaks (the API server
// restarts, a CRD is changed) is taken up again.
func Record(ctx context.Context, config *rest.Config) (*History, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("client of the history: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	h := &History{cancel: cancel, factory: dynamicinformer.NewDynamicSharedInformerFactory(client, 0)}
	for _, r := range resources {
		if _, err := h.factory.ForResource(r).Informer().AddEventHandler(h.handler(r.Resource)); err != nil {
			cancel()
			return nil, fmt.Errorf("follow %s: %w", r.Resource, err)
		}
	}
	h.factory.Start(ctx.Done())
	for r, synced := range h.factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			cancel()
			return nil, fmt.Errorf("list %s: %w", r.Resource, ctx.Err())
		}
	}
	return h, nil
}

func (h *History) handler(resource string) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { h.note(watch.Added, object, resource) },
		UpdateFunc: func(_, object any) { h.note(watch.Modified, object, resource) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			h.note(watch.Deleted, object, resource)
		},
	}
}

func (h *History) note(kind watch.EventType, seen any, resource string) {
	object, ok := seen.(*unstructured.Unstructured)
	if !ok {
		return
	}
	revision, err := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	event := Event{Type: kind, Resource: resource, Object: object, Revision: revision, At: time.Now()}
	h.mu.Lock()
	h.events = append(h.events, event)
	listeners := slices.Clone(h.listeners)
	h.mu.Unlock()
	for _, l := range listeners {
		l(event)
	}
}

// Listen calls f for every further event, in the goroutine that received it: f must be quick.
func (h *History) Listen(f func(Event)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.listeners = append(h.listeners, f)
}

// Stop ends the recording.
func (h *History) Stop() {
	h.cancel()
	h.factory.Shutdown()
}

// Events returns what has been recorded, in the order in which the API server wrote it.
func (h *History) Events() []Event {
	h.mu.Lock()
	events := slices.Clone(h.events)
	h.mu.Unlock()
	slices.SortStableFunc(events, func(a, b Event) int {
		switch {
		case a.Revision < b.Revision:
			return -1
		case a.Revision > b.Revision:
			return 1
		}
		return 0
	})
	return events
}
