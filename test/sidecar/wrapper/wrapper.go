// Package wrapper is the stand-in for the container etcd: etcd-wrapper, command "start-etcd".
//
// It asks the sidecar to prepare the data directory (every second, until that was successful), fetches the member's
// configuration, and runs a real etcd in its own process. /readyz says whether the last linearizable read of the
// own member succeeded - a learner, a member without quorum and a member without a leader fail it. POST /stop ends it.
//
// SIGTERM writes the signal's name to exit_code beside the data directory, so that the next start asks for the quick
// validation, and closes etcd in order: leadership is handed over and running requests end. The file is deleted once etcd has
// been started. An end by SIGKILL leaves none, and the next start validates fully.
//
// Not modelled: file permissions of older versions, the legacy validation_marker.
package wrapper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/args"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
)

const (
	// exitCodeFile is on the data volume, beside the data directory.
	exitCodeFile = "/var/etcd/data/exit_code"

	readyPeriod      = 2 * time.Second
	readyTimeout     = 5 * time.Second
	dialTimeout      = 5 * time.Second
	readHeaderPeriod = 5 * time.Second
)

// Config is everything that a wrapper is told.
type Config struct {
	Host string // to listen on; "" is all
	Port int

	Sidecar    string // host:port
	SidecarTLS bool
	SidecarCA  string

	ServerName     string // host of the own etcd, as in its certificate
	ClientPort     int
	ClientCertFile string
	ClientKeyFile  string
	ReadyTimeout   time.Duration // 0 does not wait for etcd to be ready before deleting exit_code

	ExitCodeFile string
	Pace         pace.Pace
	Log          *zap.Logger
}

// FromArgs reads the command line that druid renders.
func FromArgs(arguments []string, p pace.Pace, log *zap.Logger) (Config, error) {
	c := Config{ExitCodeFile: exitCodeFile, Pace: p, Log: log}
	fs := pflag.NewFlagSet("start-etcd", pflag.ContinueOnError)
	fs.IntVar(&c.Port, "etcd-wrapper-port", 9095, "port to listen on")
	fs.StringVar(&c.Sidecar, "backup-restore-host-port", ":8080", "host:port of the sidecar")
	fs.BoolVar(&c.SidecarTLS, "backup-restore-tls-enabled", false, "the sidecar uses TLS")
	fs.StringVar(&c.SidecarCA, "backup-restore-ca-cert-bundle-path", "", "CA of the sidecar's certificate")
	fs.StringVar(&c.ServerName, "etcd-server-name", "", "host of the own etcd")
	fs.IntVar(&c.ClientPort, "etcd-client-port", 2379, "client port of the own etcd")
	fs.StringVar(&c.ClientCertFile, "etcd-client-cert-path", "", "client certificate for the own etcd")
	fs.StringVar(&c.ClientKeyFile, "etcd-client-key-path", "", "key of the client certificate for the own etcd")
	fs.DurationVar(&c.ReadyTimeout, "etcd-ready-timeout", 0, "how long to wait for etcd to be ready")
	if err := args.Parse(fs, arguments, log); err != nil {
		return Config{}, err
	}
	return c, c.validate()
}

func (c Config) validate() error {
	if _, _, err := net.SplitHostPort(c.Sidecar); err != nil {
		return fmt.Errorf("backup-restore-host-port: %w", err)
	}
	if c.SidecarTLS && c.SidecarCA == "" {
		return errors.New("backup-restore-ca-cert-bundle-path must be set when TLS is enabled")
	}
	return nil
}

// CaptureExit records the signal that ends the process.
func CaptureExit(file string, signal os.Signal) error {
	if err := os.WriteFile(file, []byte(signal.String()), 0o600); err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	return nil
}

// Run prepares and runs etcd until ctx is done, /stop is called or etcd ends; none of these is an error.
func Run(ctx context.Context, c Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sidecar, err := newSidecar(c)
	if err != nil {
		return err
	}
	cfg, err := sidecar.prepare(ctx)
	if err != nil {
		return err
	}
	client, err := c.client(cfg)
	if err != nil {
		return err
	}
	p := &probe{client: client, log: c.Log}
	go p.run(ctx)
	web, err := c.listen(ctx, cfg, p, cancel)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	etcd, err := c.startEtcd(cfg)
	if err == nil {
		c.await(ctx, etcd)
	}
	// As in the real wrapper /readyz is gone before etcd begins to close.
	err = errors.Join(err, web.Close(), client.Close())
	if etcd != nil {
		stop(etcd)
	}
	return err
}

// stop closes etcd in order: its clients first, then the hand-over of its leadership.
func stop(etcd *embed.Etcd) {
	select {
	case <-etcd.Server.ReadyNotify():
	default:
		// An etcd that never became ready would wait for its client listeners for ever.
		etcd.Server.Stop()
	}
	etcd.Close()
}

func (c Config) startEtcd(cfg *embed.Config) (*embed.Etcd, error) {
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	c.awaitReady(etcd)
	if err := os.Remove(c.ExitCodeFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		c.Log.Warn("exit code of the last run is not deleted", zap.Error(err))
	}
	return etcd, nil
}

// await returns when etcd is to end or has ended by itself.
func (c Config) await(ctx context.Context, etcd *embed.Etcd) {
	select {
	case <-ctx.Done():
		c.Log.Info("stopping etcd")
	case <-etcd.Server.StopNotify():
		c.Log.Error("etcd has stopped")
	case err := <-etcd.Err():
		c.Log.Error("etcd has failed", zap.Error(err))
	}
}

func (c Config) awaitReady(etcd *embed.Etcd) {
	select {
	case <-etcd.Server.ReadyNotify():
		c.Log.Info("etcd is ready")
	case <-etcd.Server.StopNotify():
	case <-time.After(c.ReadyTimeout):
	}
}

// secured tells whether etcd serves its clients with TLS.
func secured(cfg *embed.Config) bool {
	info := cfg.ClientTLSInfo
	return info.CertFile != "" && info.KeyFile != "" && info.TrustedCAFile != ""
}

func (c Config) client(cfg *embed.Config) (*clientv3.Client, error) {
	endpoint := "http://" + net.JoinHostPort(c.ServerName, strconv.Itoa(c.ClientPort))
	config := clientv3.Config{DialTimeout: dialTimeout, Logger: zap.NewNop()}
	if secured(cfg) {
		endpoint = "https" + strings.TrimPrefix(endpoint, "http")
		info := transport.TLSInfo{
			ServerName: c.ServerName, TrustedCAFile: cfg.ClientTLSInfo.TrustedCAFile, CertFile: c.ClientCertFile, KeyFile: c.ClientKeyFile,
		}
		tlsConfig, err := info.ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("load client certificate: %w", err)
		}
		config.TLS = tlsConfig
	}
	config.Endpoints = []string{endpoint}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	return client, nil
}

// probe reads from etcd in the background, so that /readyz answers at once.
type probe struct {
	client *clientv3.Client
	log    *zap.Logger
	ready  atomic.Bool
}

func (p *probe) run(ctx context.Context) {
	ticker := time.NewTicker(readyPeriod)
	defer ticker.Stop()
	for {
		p.ready.Store(p.read(ctx))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *probe) read(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	_, err := p.client.Get(ctx, "foo")
	if err != nil {
		p.log.Info("etcd is not ready", zap.Error(err))
	}
	return err == nil
}

func (p *probe) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !p.ready.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// listen serves /readyz and /stop, with etcd's own certificate where it has one.
func (c Config) listen(ctx context.Context, cfg *embed.Config, p *probe, stop context.CancelFunc) (*http.Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", p.serveReady)
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, _ *http.Request) {
		c.Log.Info("asked to stop")
		// The answer must be out before the stop closes the connection.
		_ = http.NewResponseController(w).Flush()
		stop()
	})
	web := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderPeriod}
	serve := func() error { return web.Serve(listener) }
	if secured(cfg) {
		// Read now: etcd writes to its configuration when it starts.
		cert, key := cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile
		serve = func() error { return web.ServeTLS(listener, cert, key) }
	}
	go c.serve(serve, stop)
	return web, nil
}

// serve ends the wrapper if its HTTP server fails.
func (c Config) serve(serve func() error, stop context.CancelFunc) {
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		c.Log.Error("HTTP server has failed", zap.Error(err))
		stop()
	}
}
