package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/initializer"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/member"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/snapshots"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

const (
	runningPause     = 4 * time.Second
	runningTimeout   = 2 * time.Second
	readHeaderPeriod = 5 * time.Second
)

// peerURLBackoff is the back-off of correcting peer URLs.
var peerURLBackoff = pace.Backoff{First: 10 * time.Millisecond, Factor: 5, Attempts: 4}

// Server is one sidecar.
type Server struct {
	config  Config
	control member.Control
	init    initialization
	healthy atomic.Bool
	life    context.Context         //nolint:containedctx // of the sidecar, from Run
	fail    context.CancelCauseFunc // ends it

	mu          sync.Mutex
	snapshotter *snapshots.Snapshotter // nil unless this sidecar leads
}

// New returns a sidecar that does nothing until it runs.
func New(c Config) *Server {
	s := &Server{
		config:  c,
		control: member.Control{Conn: c.Conn, ConfigFile: c.ConfigFile, Pod: c.Pod, Pace: c.Pace, Log: c.Log.Named("member")},
	}
	s.init.run = initializer.Initializer{
		Dir: c.DataDir, RestoreDir: c.RestoreDir, SnapDir: c.Snapshots.TempDir, Namespace: c.Namespace, Quota: c.Quota,
		OpenStore: s.openStore, Control: s.control, Leases: c.Leases, Pace: c.Pace, Log: c.Log.Named("initializer"),
	}.Initialize
	return s
}

// Run serves until ctx is done or something happens after which the real sidecar exits too.
func (s *Server) Run(ctx context.Context) error {
	ctx, s.fail = context.WithCancelCause(ctx)
	defer s.init.close()
	defer s.fail(nil)
	s.life = ctx
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(s.config.Host, strconv.Itoa(s.config.Port)))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: readHeaderPeriod}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.serve(web, listener) })
	group.Go(func() error { <-groupCtx.Done(); return web.Close() })
	group.Go(func() error { return s.attend(groupCtx) })
	err = group.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (s *Server) serve(web *http.Server, listener net.Listener) error {
	var err error
	if s.tls() {
		err = web.ServeTLS(listener, s.config.CertFile, s.config.KeyFile)
	} else {
		err = web.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

func (s *Server) tls() bool { return s.config.CertFile != "" && s.config.KeyFile != "" }

// attend looks after the member from when its etcd first answers.
func (s *Server) attend(ctx context.Context) error {
	if err := s.awaitEtcd(ctx); err != nil {
		return err
	}
	if err := s.correctPeerURLs(ctx); err != nil {
		s.config.Log.Warn("peer URLs are not corrected", zap.Error(err))
	}
	e := &election{server: s, log: s.config.Log.Named("election")}
	return e.run(ctx)
}

func (s *Server) awaitEtcd(ctx context.Context) error {
	for {
		_, err := s.status(ctx, runningTimeout)
		if err == nil {
			s.config.Log.Info("etcd is running")
			return nil
		}
		if err := s.config.Pace.Sleep(ctx, runningPause); err != nil {
			return err
		}
	}
}

// status asks the own member, which also a learner and a member without a leader answers.
func (s *Server) status(ctx context.Context, timeout time.Duration) (*clientv3.StatusResponse, error) {
	client, err := s.config.Conn.Local()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	status, err := client.Status(ctx, s.config.Conn.Endpoints[0])
	if err != nil {
		return nil, fmt.Errorf("get status of etcd: %w", err)
	}
	return status, nil
}

func (s *Server) correctPeerURLs(ctx context.Context) error {
	changed, err := s.control.PeerURLsChanged(ctx)
	if err != nil || !changed {
		return err
	}
	client, err := s.config.Conn.Local()
	if err != nil {
		return err
	}
	defer client.Close()
	err = s.config.Pace.Retry(ctx, peerURLBackoff, func() error { return s.control.UpdatePeerURLs(ctx, client) })
	if err != nil {
		return err
	}
	s.config.Log.Info("corrected peer URLs")
	if !s.config.UseWrapper {
		return nil
	}
	if err := s.restartEtcd(ctx); err != nil {
		s.fail(fmt.Errorf("restart etcd: %w", err))
	}
	return nil
}

// restartEtcd asks etcd-wrapper to end; its container is then started again.
func (s *Server) restartEtcd(ctx context.Context) error {
	endpoint, err := url.Parse(s.config.Conn.Endpoints[0])
	if err != nil {
		return err
	}
	client, err := s.httpClient()
	if err != nil {
		return err
	}
	stop := url.URL{Scheme: endpoint.Scheme, Host: net.JoinHostPort(endpoint.Hostname(), strconv.Itoa(s.config.WrapperPort)), Path: "/stop"}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, stop.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (s *Server) hasStore() bool { return s.config.Provider != "" }

func (s *Server) openStore() (*store.Local, error) {
	if !s.hasStore() {
		return nil, nil //nolint:nilnil // no store is configured
	}
	return store.Open(s.config.Homes, s.config.Container, s.config.Prefix)
}

func (s *Server) setSnapshotter(snapshotter *snapshots.Snapshotter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshotter = snapshotter
}

func (s *Server) leading() *snapshots.Snapshotter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshotter
}
