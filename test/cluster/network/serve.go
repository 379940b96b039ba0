package network

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Serve makes service addresses and cluster DNS work until ctx is done. It may
// be called before the API server is up.
func (n *Net) Serve(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect service network: %w", err)
	}
	return n.serve(ctx, client)
}

func (n *Net) serve(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	services := factory.Core().V1().Services().Informer()
	endpoints := factory.Discovery().V1().EndpointSlices().Informer()
	if err := endpoints.AddIndexers(sliceIndexers()); err != nil {
		return fmt.Errorf("index endpoint slices: %w", err)
	}
	dir := directory{services: services.GetIndexer(), slices: endpoints.GetIndexer()}
	proxy := newProxy(dir, n.log.WithName("proxy"))
	for _, informer := range []cache.SharedIndexInformer{services, endpoints} {
		if _, err := informer.AddEventHandler(enqueueService(proxy.queue.Add)); err != nil {
			return fmt.Errorf("watch services: %w", err)
		}
	}
	server, err := listenDNS(resolver{directory: dir}, n.log.WithName("dns"))
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	var both sync.WaitGroup
	both.Go(func() { proxy.run(ctx) })
	both.Go(func() { server.run(ctx) })
	both.Wait()
	return nil
}

// enqueueService names the service that an event is about.
func enqueueService(enqueue func(types.NamespacedName)) cache.ResourceEventHandler {
	handle := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		switch o := obj.(type) {
		case *corev1.Service:
			enqueue(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
		case *discoveryv1.EndpointSlice:
			enqueue(serviceOf(o))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: handle,
		// A slice's service label may change: then both are concerned.
		UpdateFunc: func(before, after any) { handle(before); handle(after) },
		DeleteFunc: handle,
	}
}
