package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/datadir"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/etcdconf"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/initializer"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/member"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/snapshots"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/initialization/start", s.startInitialization)
	mux.HandleFunc("/initialization/status", s.initializationStatus)
	mux.HandleFunc("/config", s.serveConfig)
	mux.HandleFunc("/healthz", s.serveHealth)
	mux.HandleFunc("/snapshot/full", s.byLeader(s.fullSnapshot))
	mux.HandleFunc("/snapshot/delta", s.byLeader(s.deltaSnapshot))
	mux.HandleFunc("/snapshot/latest", s.byLeader(s.latestSnapshots))
	mux.Handle("/metrics", promhttp.Handler())
	return mux
}

// phase is what /initialization/status says.
type phase string

const (
	phaseNew        phase = "New"
	phaseProgress   phase = "Progress"
	phaseSuccessful phase = "Successful"
	phaseFailed     phase = "Failed"
)

// initialization is the preparation of the data directory, one at a time.
type initialization struct {
	run func(context.Context, datadir.Mode) error

	mu      sync.Mutex
	phase   phase // "" is New
	closed  bool
	running sync.WaitGroup
}

// start moves from New to Progress and begins in the background; it does nothing if one is
// under way, its result has not been read, or the sidecar is ending.
func (i *initialization) start(work func() error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || i.phase != "" && i.phase != phaseNew {
		return
	}
	i.phase = phaseProgress
	i.running.Go(func() { i.finish(work()) })
}

// close waits for what has begun; nothing begins afterwards.
func (i *initialization) close() {
	i.mu.Lock()
	i.closed = true
	i.mu.Unlock()
	i.running.Wait()
}

func (i *initialization) finish(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.phase = phaseSuccessful
	if err != nil {
		i.phase = phaseFailed
	}
}

// read returns the phase and, if it is a result, begins anew.
func (i *initialization) read() phase {
	i.mu.Lock()
	defer i.mu.Unlock()
	p := i.phase
	if p == "" {
		p = phaseNew
	}
	if p == phaseSuccessful || p == phaseFailed {
		i.phase = phaseNew
	}
	return p
}

func (s *Server) startInitialization(_ http.ResponseWriter, req *http.Request) {
	mode := datadir.Full
	if req.URL.Query().Get("mode") == string(datadir.Sanity) {
		mode = datadir.Sanity
	}
	s.init.start(func() error { return s.initialize(mode) })
}

// initialize goes on when the request is answered, for as long as the sidecar lives.
func (s *Server) initialize(mode datadir.Mode) error {
	s.healthy.Store(false)
	s.config.Log.Info("initialization begins", zap.String("mode", string(mode)))
	err := s.init.run(s.life, mode)
	if err != nil {
		s.config.Log.Error("initialization failed", zap.Error(err))
	}
	if errors.Is(err, initializer.ErrGiveUp) {
		s.fail(err)
	}
	return err
}

func (s *Server) initializationStatus(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte(s.init.read()))
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	healthy := s.healthy.Load()
	if !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(health{Health: healthy})
}

type health struct {
	Health bool `json:"health"`
}

func (s *Server) serveConfig(w http.ResponseWriter, req *http.Request) {
	data, err := s.memberConfig(req.Context())
	if err != nil {
		s.refuse(w, http.StatusInternalServerError, err)
		return
	}
	_, _ = w.Write(data)
}

// memberConfig renders the configuration of the own member: initial-cluster has the members
// that the cluster lists and the own one, and the state is "existing" only while there is a learner.
func (s *Server) memberConfig(ctx context.Context) ([]byte, error) {
	f, err := etcdconf.Read(s.config.ConfigFile)
	if err != nil {
		return nil, err
	}
	name := f.Member(s.config.Pod)
	f.InitialCluster = s.initialCluster(ctx, f, name)
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	return f.Render(name, f.InitialCluster, s.clusterState(ctx, size))
}

func (s *Server) initialCluster(ctx context.Context, f etcdconf.File, own string) string {
	members, err := s.listOnce(ctx)
	if err != nil {
		s.config.Log.Info("members cannot be listed, keeping initial-cluster", zap.Error(err))
		return f.InitialCluster
	}
	if len(members) <= 1 {
		return f.InitialCluster
	}
	names := map[string]bool{own: true}
	for _, m := range members {
		names[m.Name] = true
	}
	return f.Restricted(names)
}

func (s *Server) listOnce(ctx context.Context) ([]*etcdserverpb.Member, error) {
	client, err := s.config.Conn.Service()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, s.config.Pace.Glance(member.CallTimeout))
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	return list.Members, nil
}

// clusterState is "new" also where nothing is known, on purpose: a cluster that is being bootstrapped cannot answer.
func (s *Server) clusterState(ctx context.Context, size int) string {
	if size == 1 {
		return etcdconf.StateNew
	}
	present, err := s.control.LearnerPresent(ctx)
	if err != nil {
		s.config.Log.Info("cluster does not answer, its state is taken for new", zap.Error(err))
		return etcdconf.StateNew
	}
	if present {
		return etcdconf.StateExisting
	}
	return etcdconf.StateNew
}

// byLeader serves a request for snapshots here if this sidecar leads, else through the one that does.
func (s *Server) byLeader(serve func(*snapshots.Snapshotter, *http.Request) (any, int, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		snapshotter := s.leading()
		switch {
		case snapshotter != nil:
			s.reply(w, req, snapshotter, serve)
		case s.hasStore():
			s.passOn(w, req)
		default:
			s.refuse(w, http.StatusMethodNotAllowed, errors.New("no store is configured"))
		}
	}
}

func (s *Server) reply(w http.ResponseWriter, req *http.Request, snapshotter *snapshots.Snapshotter,
	serve func(*snapshots.Snapshotter, *http.Request) (any, int, error),
) {
	body, code, err := serve(snapshotter, req)
	if err != nil {
		s.refuse(w, code, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func (*Server) fullSnapshot(snapshotter *snapshots.Snapshotter, req *http.Request) (any, int, error) {
	final := false
	if text := req.URL.Query().Get("final"); text != "" {
		var err error
		if final, err = strconv.ParseBool(text); err != nil {
			return nil, http.StatusBadRequest, err
		}
	}
	// The snapshot is taken to its end also if the client goes away, as by the real sidecar.
	snapshot, err := snapshotter.Full(context.WithoutCancel(req.Context()), final)
	return snapshot, http.StatusInternalServerError, err
}

func (*Server) deltaSnapshot(snapshotter *snapshots.Snapshotter, req *http.Request) (any, int, error) {
	snapshot, err := snapshotter.Delta(context.WithoutCancel(req.Context()))
	return snapshot, http.StatusInternalServerError, err
}

// latest is the answer of /snapshot/latest.
type latest struct {
	Full   *store.Snapshot   `json:"fullSnapshot"`
	Deltas []*store.Snapshot `json:"deltaSnapshots"`
}

// latestSnapshots reads the store, not the snapshotter's memory.
func (s *Server) latestSnapshots(*snapshots.Snapshotter, *http.Request) (any, int, error) {
	backup, err := s.openStore()
	if err != nil {
		return nil, http.StatusInternalServerError, err
	}
	full, deltas, err := backup.Latest()
	return latest{Full: full, Deltas: deltas}, http.StatusInternalServerError, err
}

func (s *Server) refuse(w http.ResponseWriter, code int, err error) {
	s.config.Log.Warn("request refused", zap.Int("code", code), zap.Error(err))
	w.WriteHeader(code)
}
