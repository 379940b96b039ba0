package server

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/etcdconf"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/leases"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/metrics"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/snapshots"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// role is what the member was found to be.
type role string

const (
	unknown  role = "unknown"
	follower role = "follower"
	learner  role = "learner"
	leader   role = "leader"
)

const (
	firstRestart   = 2 * time.Second
	longestRestart = 128 * time.Second
	// fullLeaseRetry is how often a full snapshot's lease is tried again after its renewal failed.
	fullLeaseRetry = time.Minute
	leaseTimeout   = time.Minute
)

var errNoLeader = errors.New("there is no etcd leader: quorum is lost or an election is being held")

// election follows the member's role. Losing sight of etcd stops the heartbeat and the snapshots at once.
//
//	from \ to   unknown          follower, learner      leader
//	unknown     -                start beating          start beating, start leading
//	follower    stop beating     promote if a learner   start leading
//	leader      stop both        stop leading           -
type election struct {
	server *Server
	log    *zap.Logger
	state  role
	beat   stoppable
	lead   stoppable
}

// stoppable is work in the background that can be stopped and waited for.
type stoppable struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func (b *stoppable) start(ctx context.Context, work func(context.Context)) {
	ctx, b.cancel = context.WithCancel(ctx)
	b.done.Go(func() { work(ctx) })
}

func (b *stoppable) stop() {
	if b.cancel == nil {
		return
	}
	b.cancel()
	b.done.Wait()
	b.cancel = nil
}

func (e *election) run(ctx context.Context) error {
	e.state = follower
	e.beat.start(ctx, e.heartbeat)
	defer e.beat.stop()
	defer e.lead.stop()
	ticker := time.NewTicker(e.server.config.ReelectionPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
			e.become(ctx, e.look(ctx))
		}
	}
}

func (e *election) look(ctx context.Context) role {
	status, err := e.server.status(ctx, e.server.config.ElectionTimeout)
	switch {
	case err != nil:
		e.log.Warn("role of the member is not known", zap.Error(err))
		return unknown
	case status.Header.MemberId == status.Leader:
		return leader
	case status.Leader == 0:
		e.log.Warn("role of the member is not known", zap.Error(errNoLeader))
		return unknown
	case status.IsLearner:
		return learner
	default:
		return follower
	}
}

func (e *election) become(ctx context.Context, now role) {
	was := e.state
	if now == learner {
		e.promote(ctx, was)
		now = follower
	}
	if was == now {
		return
	}
	e.log.Info("role has changed", zap.String("from", string(was)), zap.String("to", string(now)))
	e.state = now
	if was == leader {
		e.lead.stop()
	}
	switch {
	case now == unknown:
		e.beat.stop()
	case was == unknown:
		e.beat.start(ctx, e.heartbeat)
	}
	if now == leader {
		e.lead.start(ctx, e.server.leadOn)
	}
}

func (e *election) promote(ctx context.Context, was role) {
	if was != follower {
		return
	}
	metrics.IsLearner.Set(1)
	if err := e.server.control.Promote(ctx); err != nil {
		e.log.Info("learner is not promoted yet", zap.Error(err))
		return
	}
	e.log.Info("promoted the learner to a voter")
}

// heartbeat renews the member's lease until ctx is done; the first time after one period.
func (e *election) heartbeat(ctx context.Context) {
	c := e.server.config
	if !c.MemberLease || c.Leases == nil {
		return
	}
	ticker := time.NewTicker(c.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := e.server.renewMemberLease(ctx); err != nil && ctx.Err() == nil {
				e.log.Warn("member lease is not renewed", zap.Error(err))
			}
		}
	}
}

func (s *Server) renewMemberLease(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Conn.Timeout)
	defer cancel()
	status, err := s.status(ctx, s.config.Conn.Timeout)
	if err != nil {
		return err
	}
	f, err := etcdconf.Read(s.config.ConfigFile)
	if err != nil {
		return err
	}
	name := f.Member(s.config.Pod)
	tls, err := f.PeerTLS(name)
	if err != nil {
		return err
	}
	return s.config.Leases.RenewMember(ctx, name, leases.Holder(status), map[string]string{leases.PeerTLSAnnotation: strconv.FormatBool(tls)})
}

// leadOn is what the leader's sidecar does until ctx is done.
func (s *Server) leadOn(ctx context.Context) {
	defer s.healthy.Store(false)
	if !s.hasStore() {
		s.healthy.Store(true)
		<-ctx.Done()
		return
	}
	recorder := newRecorder(s.config)
	var recording stoppable
	recording.start(ctx, recorder.run)
	defer recording.stop()
	snapshotter, err := s.newSnapshotter(recorder)
	if err != nil {
		s.fail(err)
		return
	}
	s.setSnapshotter(snapshotter)
	defer snapshotter.Close()
	defer s.setSnapshotter(nil)
	s.takeSnapshots(ctx, snapshotter)
}

func (s *Server) newSnapshotter(recorder snapshots.Recorder) (*snapshots.Snapshotter, error) {
	backup, err := s.openStore()
	if err != nil {
		return nil, err
	}
	return snapshots.New(s.config.Snapshots, backup, s.config.Conn, recorder, s.config.Log.Named("snapshotter"))
}

// takeSnapshots keeps the snapshotter running, with longer and longer pauses while it fails.
func (s *Server) takeSnapshots(ctx context.Context, snapshotter *snapshots.Snapshotter) {
	pause := firstRestart
	for ctx.Err() == nil {
		if _, err := s.status(ctx, s.config.ElectionTimeout); err != nil {
			s.healthy.Store(false)
			_ = s.config.Pace.Sleep(ctx, firstRestart)
			continue
		}
		s.healthy.Store(true)
		started := time.Now()
		err := snapshotter.Run(ctx)
		if ctx.Err() != nil {
			return
		}
		s.config.Log.Warn("snapshotter has stopped", zap.Error(err))
		if time.Since(started) > longestRestart {
			pause = firstRestart
		}
		_ = s.config.Pace.Sleep(ctx, pause)
		pause = min(pause*2, longestRestart)
	}
}

// recorder keeps the snapshot leases in step with the store.
type recorder struct {
	config Config
	fulls  chan *store.Snapshot // holds the newest full snapshot that is not recorded yet
}

func newRecorder(c Config) *recorder {
	return &recorder{config: c, fulls: make(chan *store.Snapshot, 1)}
}

func (r *recorder) off() bool { return !r.config.SnapshotLease || r.config.Leases == nil }

// Full hands a full snapshot to be recorded in the background, replacing one that still waits.
func (r *recorder) Full(_ context.Context, full *store.Snapshot) {
	select {
	case <-r.fulls:
	default:
	}
	r.fulls <- full
}

// Delta records the deltas at once.
func (r *recorder) Delta(ctx context.Context, deltas []*store.Snapshot) {
	if r.off() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	if err := r.config.Leases.RenewDelta(ctx, r.config.DeltaLease, deltas); err != nil {
		r.config.Log.Warn("delta snapshot lease is not renewed", zap.Error(err))
	}
}

func (r *recorder) run(ctx context.Context) {
	ticker := time.NewTicker(fullLeaseRetry)
	defer ticker.Stop()
	var pending *store.Snapshot
	for {
		select {
		case <-ctx.Done():
			return
		case pending = <-r.fulls:
		case <-ticker.C:
		}
		if pending != nil && r.recordFull(ctx, pending) {
			pending = nil
		}
	}
}

func (r *recorder) recordFull(ctx context.Context, full *store.Snapshot) bool {
	if r.off() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	if err := r.config.Leases.RenewFull(ctx, r.config.FullLease, full); err != nil {
		r.config.Log.Warn("full snapshot lease is not renewed", zap.Error(err))
		return false
	}
	return true
}
