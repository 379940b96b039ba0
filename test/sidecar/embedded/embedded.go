// Package embedded starts an etcd on an existing data directory for the sidecar itself: to
// apply delta snapshots and to see how far a data directory reaches. It listens on free ports of the loopback only.
package embedded

import (
	"context"
	"fmt"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	startTimeout    = time.Minute
	maxRequestBytes = 10 << 20
	maxTxnOps       = 10 << 10
)

// Etcd is a running server with a client of it.
type Etcd struct {
	server *embed.Etcd
	Client *clientv3.Client
}

// Start starts an etcd on dir with the given quota.
func Start(ctx context.Context, dir string, quota int64, log *zap.Logger) (*Etcd, error) {
	server, err := embed.StartEtcd(config(dir, quota, log))
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd on %s: %w", dir, err)
	}
	if err := ready(ctx, server); err != nil {
		stop(server)
		return nil, fmt.Errorf("start embedded etcd on %s: %w", dir, err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Clients[0].Addr().String()}, Logger: zap.NewNop()})
	if err != nil {
		stop(server)
		return nil, fmt.Errorf("connect to embedded etcd: %w", err)
	}
	return &Etcd{server: server, Client: client}, nil
}

// Close stops the server; what it applied is on disk afterwards.
func (e *Etcd) Close() error {
	err := e.Client.Close()
	stop(e.server)
	return err
}

func stop(server *embed.Etcd) {
	server.Server.Stop()
	server.Close()
}

func ready(ctx context.Context, server *embed.Etcd) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-server.Server.ReadyNotify():
		return nil
	case err := <-server.Err():
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait until ready: %w", ctx.Err())
	}
}

func config(dir string, quota int64, log *zap.Logger) *embed.Config {
	loopback := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ListenPeerUrls = []url.URL{loopback}
	cfg.ListenClientUrls = []url.URL{loopback}
	cfg.AdvertisePeerUrls = []url.URL{loopback}
	cfg.AdvertiseClientUrls = []url.URL{loopback}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.QuotaBackendBytes = quota
	cfg.MaxRequestBytes = maxRequestBytes
	cfg.MaxTxnOps = maxTxnOps
	cfg.UnsafeNoFsync = true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log.Named("embedded").WithOptions(zap.IncreaseLevel(zap.WarnLevel)))
	return cfg
}
