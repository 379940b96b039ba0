package snapshots

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/robfig/cron/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/member"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/metrics"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/restore"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// shortestDelta is the shortest period of delta snapshots; a shorter one switches them off.
const shortestDelta = time.Second

// ErrInactive says that the snapshotter is not running: it has not begun, or it lost its leadership.
var ErrInactive = errors.New("snapshotter is not active")

// Config says when and how snapshots are taken.
type Config struct {
	Schedule     string // of full snapshots, in cron's format
	DeltaPeriod  time.Duration
	MemoryLimit  int // of events that wait for the next delta
	Compression  store.Compression
	TempDir      string
	MaxBackups   int // full snapshots that are kept; 0 keeps all
	CollectEvery time.Duration
}

// Recorder is told about snapshots that are in the store.
type Recorder interface {
	Full(ctx context.Context, full *store.Snapshot)
	Delta(ctx context.Context, deltas []*store.Snapshot)
}

// Snapshotter takes snapshots while it runs.
type Snapshotter struct {
	config   Config
	schedule cron.Schedule
	store    *store.Local
	conn     member.Conn
	recorder Recorder
	log      *zap.Logger

	active   atomic.Bool
	requests chan request
	done     chan struct{} // closed when the last run has ended

	// All below belongs to the goroutine of Run.
	watch     *watch
	events    []restore.Event
	eventSize int
	previous  *store.Snapshot // the newest snapshot, a dummy at revision 0 if there is none
	full      *store.Snapshot // the newest full snapshot, or nil
	fullOK    bool            // the last attempt at a full snapshot succeeded
	fullTimer *time.Timer
	deltaTime *time.Timer
}

type request struct {
	full, final bool
	answer      chan<- answer
}

type answer struct {
	snapshot *store.Snapshot
	err      error
}

// New returns a snapshotter that goes on from what is in the store.
func New(config Config, from *store.Local, conn member.Conn, recorder Recorder, log *zap.Logger) (*Snapshotter, error) {
	schedule, err := cron.ParseStandard(config.Schedule)
	if err != nil {
		return nil, fmt.Errorf("parse schedule of full snapshots: %w", err)
	}
	full, deltas, err := from.Latest()
	if err != nil {
		return nil, err
	}
	s := &Snapshotter{
		config: config, schedule: schedule, store: from, conn: conn, recorder: recorder, log: log,
		requests: make(chan request), done: make(chan struct{}), full: full, fullOK: true,
	}
	s.previous = previous(full, deltas)
	return s, nil
}

func previous(full *store.Snapshot, deltas []*store.Snapshot) *store.Snapshot {
	switch {
	case full == nil:
		return store.New(store.Full, 0, 0, "", false)
	case len(deltas) > 0:
		return deltas[len(deltas)-1]
	default:
		return full
	}
}

// Full takes a full snapshot now. A final one that would hold nothing new is skipped.
func (s *Snapshotter) Full(ctx context.Context, final bool) (*store.Snapshot, error) {
	return s.ask(ctx, request{full: true, final: final})
}

// Delta takes a delta snapshot now; it is nil if there is nothing to save.
func (s *Snapshotter) Delta(ctx context.Context) (*store.Snapshot, error) {
	if s.config.DeltaPeriod < shortestDelta {
		return nil, errors.New("delta snapshots are switched off")
	}
	return s.ask(ctx, request{})
}

func (s *Snapshotter) ask(ctx context.Context, r request) (*store.Snapshot, error) {
	if !s.active.Load() {
		return nil, ErrInactive
	}
	reply := make(chan answer, 1)
	r.answer = reply
	select {
	case s.requests <- r:
	case <-s.done:
		return nil, ErrInactive
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a := <-reply:
		return a.snapshot, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close says that Run will not be called again, so that nobody waits for an answer.
func (s *Snapshotter) Close() { close(s.done) }

// Run takes the first snapshot and then serves requests and timers until ctx is done or a snapshot fails.
// It may be called again after a failure.
func (s *Snapshotter) Run(ctx context.Context) error {
	defer s.stop()
	if err := s.begin(ctx); err != nil {
		return err
	}
	s.active.Store(true)
	s.log.Info("snapshotter is active", zap.Int64("revision", s.previous.LastRevision))
	return s.serve(ctx)
}

func (s *Snapshotter) stop() {
	s.active.Store(false)
	s.forget()
	s.watch.close()
	s.watch = nil
	for _, timer := range []*time.Timer{s.fullTimer, s.deltaTime} {
		if timer != nil {
			timer.Stop()
		}
	}
	s.fullTimer, s.deltaTime = nil, nil
}

// begin takes the first snapshot: a delta where the newest full one is recent, else a full one.
func (s *Snapshotter) begin(ctx context.Context) error {
	started := false
	if !s.fullIsDue(time.Now()) {
		err := s.collect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.log.Warn("events since the newest snapshot cannot be collected", zap.Error(err))
		} else {
			if _, err := s.takeDelta(ctx); err != nil {
				return err
			}
			started = true
		}
	}
	if !started {
		if _, err := s.takeFull(ctx, false); err != nil {
			return err
		}
	}
	s.armFull(time.Now())
	if s.config.DeltaPeriod >= shortestDelta {
		s.deltaTime = time.NewTimer(s.config.DeltaPeriod)
	}
	return nil
}

func (s *Snapshotter) serve(ctx context.Context) error {
	collect := newTicker(s.config.CollectEvery)
	defer collect.stop()
	for {
		if err := s.serveNext(ctx, collect); err != nil {
			return err
		}
	}
}

// serveNext waits for what comes next and deals with it.
func (s *Snapshotter) serveNext(ctx context.Context, collect ticker) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case r := <-s.requests:
		return s.answer(ctx, r)
	case <-s.fullTimer.C:
		return s.takeScheduled(ctx)
	case <-tick(s.deltaTime):
		_, err := s.takeDelta(ctx)
		return err
	case resp, open := <-s.watch.events():
		if !open {
			return errors.New("watch has ended")
		}
		return s.add(ctx, resp)
	case <-collect.ticks():
		s.collectGarbage()
		return nil
	}
}

func (s *Snapshotter) takeScheduled(ctx context.Context) error {
	if _, err := s.takeFull(ctx, false); err != nil {
		return err
	}
	s.armFull(time.Now())
	return nil
}

func (s *Snapshotter) answer(ctx context.Context, r request) error {
	var a answer
	if r.full {
		a.snapshot, a.err = s.takeFull(ctx, r.final)
		s.armFull(time.Now())
	} else {
		a.snapshot, a.err = s.takeDelta(ctx)
	}
	r.answer <- a
	return a.err
}

func (s *Snapshotter) armFull(now time.Time) {
	wait := s.schedule.Next(now).Sub(now)
	if s.fullTimer == nil {
		s.fullTimer = time.NewTimer(wait)
		return
	}
	s.fullTimer.Reset(wait)
}

// tick returns a timer's channel, or one that never speaks if there is no timer.
func tick(timer *time.Timer) <-chan time.Time {
	if timer == nil {
		return nil
	}
	return timer.C
}

// ticker is a time.Ticker that may be switched off.
type ticker struct{ *time.Ticker }

func newTicker(period time.Duration) ticker {
	if period <= 0 {
		return ticker{}
	}
	return ticker{time.NewTicker(period)}
}

func (t ticker) ticks() <-chan time.Time {
	if t.Ticker == nil {
		return nil
	}
	return t.C
}

func (t ticker) stop() {
	if t.Ticker != nil {
		t.Stop()
	}
}

// watch is a watch with the client that it runs on.
type watch struct {
	client *clientv3.Client
	cancel context.CancelFunc
	ch     clientv3.WatchChan
}

func (w *watch) events() clientv3.WatchChan {
	if w == nil {
		return nil
	}
	return w.ch
}

func (w *watch) close() {
	if w == nil {
		return
	}
	w.cancel()
	_ = w.client.Close()
}

// follow starts to watch after the newest snapshot.
func (s *Snapshotter) follow(ctx context.Context) error {
	client, err := s.conn.Local()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ch := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(s.previous.LastRevision+1))
	s.watch = &watch{client: client, cancel: cancel, ch: ch}
	return nil
}

func (s *Snapshotter) unfollow() {
	s.watch.close()
	s.watch = nil
}

func (s *Snapshotter) forget() { s.events, s.eventSize = nil, 0 }

// collect gathers the events between the newest snapshot and now.
func (s *Snapshotter) collect(ctx context.Context) error {
	s.unfollow()
	target, err := s.revision(ctx)
	if err != nil {
		return err
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	reached := s.previous.LastRevision
	for reached < target {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, open := <-s.watch.events():
			if !open {
				return errors.New("watch has ended")
			}
			if err := s.add(ctx, resp); err != nil {
				return err
			}
			if len(resp.Events) > 0 {
				reached = resp.Events[len(resp.Events)-1].Kv.ModRevision
			}
		}
	}
	return nil
}

// add keeps a watch's events for the next delta, and takes that one if they grow too large.
func (s *Snapshotter) add(ctx context.Context, resp clientv3.WatchResponse) error {
	if err := resp.Err(); err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	for _, e := range resp.Events {
		event := restore.FromWatch(e)
		s.events = append(s.events, event)
		s.eventSize += event.Size()
	}
	if len(resp.Events) > 0 {
		metrics.Required.WithLabelValues(store.Full).Set(1)
		metrics.Required.WithLabelValues(store.Delta).Set(1)
	}
	if s.config.MemoryLimit > 0 && s.eventSize >= s.config.MemoryLimit {
		_, err := s.takeDelta(ctx)
		return err
	}
	return nil
}

func (s *Snapshotter) revision(ctx context.Context) (int64, error) {
	client, err := s.conn.Local()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, s.conn.Timeout)
	defer cancel()
	return restore.Revision(ctx, client)
}
