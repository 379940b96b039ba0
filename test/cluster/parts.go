package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// partsGrace is how long the parts may take to stop.
const partsGrace = 20 * time.Second

// parts are the pieces of the cluster that run as goroutines of this process: nodes, network, storage.
type parts struct {
	cancel context.CancelFunc
	ctx    context.Context // the lifetime of the cluster, which no caller's context spans
	wg     sync.WaitGroup

	mu     sync.Mutex
	failed error
}

func newParts(ctx context.Context) *parts {
	p := &parts{}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return p
}

// run keeps a part running until stop, and remembers if it gave up earlier.
func (p *parts) run(name string, part func(context.Context) error) {
	p.wg.Go(func() {
		err := part(p.ctx)
		if p.ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed = errors.Join(p.failed, fmt.Errorf("%s: %w", name, err))
	})
}

// failure is what has gone wrong so far.
func (p *parts) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// stop ends all parts and waits for them.
func (p *parts) stop() error {
	p.cancel()
	done := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(partsGrace):
		return fmt.Errorf("nodes, network or storage did not stop within %s", partsGrace)
	}
}
