package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Delays before a listener that could not be opened is tried again: the
// service that had the address before may not have been processed yet.
const (
	minListenDelay = 5 * time.Millisecond
	maxListenDelay = time.Second
)

// proxy makes the addresses of services work.
type proxy struct {
	directory directory
	log       logr.Logger
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]

	// fronts belongs to the one worker.
	fronts map[types.NamespacedName]map[netip.AddrPort]*front
	// open counts what the end of the proxy waits for.
	open sync.WaitGroup
}

// front is one port of one service that has an endpoint.
type front struct {
	listener *net.TCPListener
	backends atomic.Pointer[[]netip.AddrPort]
}

func newProxy(dir directory, log logr.Logger) *proxy {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minListenDelay, maxListenDelay)
	return &proxy{
		directory: dir, log: log,
		queue:  workqueue.NewTypedRateLimitingQueue(limiter),
		fronts: map[types.NamespacedName]map[netip.AddrPort]*front{},
	}
}

// run follows the queue until ctx is done, then closes all listeners and
// connections.
func (p *proxy) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, p.queue.ShutDown)
	defer stop()
	for p.next(ctx) {
	}
	for key := range p.fronts {
		_ = p.apply(ctx, key, nil) // closing what is open cannot fail
	}
	p.open.Wait()
}

func (p *proxy) next(ctx context.Context) bool {
	key, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(key)
	if err := p.apply(ctx, key, p.wanted(key)); err != nil {
		p.log.Error(err, "service port not reachable", "service", key)
		p.queue.AddRateLimited(key)
		return true
	}
	p.queue.Forget(key)
	return true
}

// wanted returns the ports to listen on with their endpoints. A port without
// an endpoint is not among them, so that it refuses connections.
func (p *proxy) wanted(key types.NamespacedName) map[netip.AddrPort][]netip.AddrPort {
	service := p.directory.service(key)
	if service == nil {
		return nil
	}
	addr, ok := clusterIP(service)
	if !ok || addr == DNSAddr {
		return nil
	}
	endpoints := p.directory.endpoints(key)
	wanted := map[netip.AddrPort][]netip.AddrPort{}
	for _, port := range service.Spec.Ports {
		if port.Protocol != corev1.ProtocolTCP && port.Protocol != "" {
			continue
		}
		if targets := backends(port, endpoints); len(targets) > 0 {
			wanted[netip.AddrPortFrom(addr, uint16(port.Port))] = targets //nolint:gosec // the API admits 1 to 65535
		}
	}
	return wanted
}

// apply makes the fronts of one service as wanted.
func (p *proxy) apply(ctx context.Context, key types.NamespacedName, wanted map[netip.AddrPort][]netip.AddrPort) error {
	fronts := p.fronts[key]
	if fronts == nil {
		fronts = map[netip.AddrPort]*front{}
		p.fronts[key] = fronts
	}
	for addr, front := range fronts {
		if _, ok := wanted[addr]; !ok {
			_ = front.listener.Close()
			delete(fronts, addr)
		}
	}
	var errs []error
	for addr, targets := range wanted {
		if front, ok := fronts[addr]; ok {
			front.backends.Store(&targets)
			continue
		}
		front, err := p.listen(ctx, addr, targets)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fronts[addr] = front
	}
	if len(fronts) == 0 {
		delete(p.fronts, key)
	}
	return errors.Join(errs...)
}

func (p *proxy) listen(ctx context.Context, addr netip.AddrPort, targets []netip.AddrPort) (*front, error) {
	listener, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, fmt.Errorf("listen on service address: %w", err)
	}
	f := &front{listener: listener}
	f.backends.Store(&targets)
	p.open.Go(func() { p.accept(ctx, f) })
	return f, nil
}

func (p *proxy) accept(ctx context.Context, f *front) {
	for {
		client, err := f.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.log.Error(err, "connection not accepted", "address", f.listener.Addr())
			pause(ctx, maxListenDelay)
			continue
		}
		targets := *f.backends.Load()
		target := targets[rand.IntN(len(targets))] //nolint:gosec // spreading load, not a secret
		p.open.Go(func() { forward(ctx, client, target) })
	}
}

// pause keeps a lasting shortage, as of descriptors, from turning into a busy loop.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
