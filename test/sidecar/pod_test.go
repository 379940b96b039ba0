package sidecar_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/leases"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/server"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/wrapper"
)

const (
	namespace  = "shoot--a"
	patience   = 3 * 60 * time.Second
	attempt    = 10 * time.Second
	poll       = 100 * time.Millisecond
	reelection = 1100 * time.Millisecond
	// atATime is how many tests run at a time. They wait more than they compute, also on a machine of two cores.
	atATime = "6"
)

// TestMain sets what a pod's environment must have; the pods of these tests are told their names otherwise.
func TestMain(m *testing.M) {
	os.Setenv("POD_NAME", "unset")
	os.Setenv("POD_NAMESPACE", namespace)
	flag.Parse()
	if err := flag.Set("test.parallel", atATime); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// retry asks until there is an answer: on a busy machine a cluster loses its leader now and then, and etcd says so.
func retry[T any](t *testing.T, ask func(context.Context) (T, error)) T {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(t.Context(), attempt)
		answer, err := ask(ctx)
		cancel()
		if err == nil {
			return answer
		}
		require.Less(t, time.Now(), deadline, "no answer: %v", err)
		require.NoError(t, pace.Pace{}.Sleep(t.Context(), poll))
	}
}

// subnets gives every cluster of this process loopback addresses of its own.
var subnets atomic.Int32

// cluster is the part of a Kubernetes cluster that the pods of one Etcd see.
type cluster struct {
	t      *testing.T
	dir    string
	prefix string // of member names
	store  bool
	certs  string // directory of certificates; "" is no TLS
	leases leases.Client
	pods   []*pod
	ports  ports
	svc    string // host:port of the client service
}

type ports struct{ client, peer, sidecar, wrapper int }

// pod is one member with its volume, and what a kubelet would do with its two containers.
type pod struct {
	cluster    *cluster
	name, ip   string
	volume     string
	reelection time.Duration
	logs       *logBuffer
	cancel     context.CancelFunc
	running    sync.WaitGroup
}

// An option changes a cluster before it is started.
type option func(*cluster)

func withStore(c *cluster)  { c.store = true }
func withPrefix(c *cluster) { c.prefix = "seed" }

func newCluster(t *testing.T, size int, options ...option) *cluster {
	t.Helper()
	subnet := fmt.Sprintf("127.%d.%d", 64+os.Getpid()%128, subnets.Add(1))
	c := &cluster{t: t, dir: t.TempDir()}
	for _, apply := range options {
		apply(c)
	}
	c.leases = leases.Client{Leases: fake.NewClientset().CoordinationV1().Leases(namespace)}
	c.ports = ports{client: free(t, subnet), peer: free(t, subnet), sidecar: free(t, subnet), wrapper: free(t, subnet)}
	for i := range size {
		name := fmt.Sprintf("main-%d", i)
		c.pods = append(c.pods, &pod{
			cluster: c, name: name, ip: fmt.Sprintf("%s.%d", subnet, 10+i), volume: filepath.Join(c.dir, name),
			reelection: reelection, logs: &logBuffer{},
		})
		require.NoError(t, os.MkdirAll(c.pods[i].volume, 0o700))
		c.createLease(c.pods[i].member())
	}
	c.createLease("main-full-snap")
	c.createLease("main-delta-snap")
	c.svc = c.serve(subnet + ".5")
	t.Cleanup(func() {
		for _, p := range c.pods {
			p.stop()
			if t.Failed() {
				t.Logf("logs of %s:\n%s", p.name, p.logs.tail())
			}
		}
	})
	return c
}

func free(t *testing.T, subnet string) int {
	t.Helper()
	l, err := net.Listen("tcp", subnet+".10:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (c *cluster) createLease(name string) {
	c.t.Helper()
	_, err := c.leases.Leases.Create(c.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(c.t, err)
}

func (c *cluster) lease(name string) *coordinationv1.Lease {
	c.t.Helper()
	lease, err := c.leases.Leases.Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	return lease
}

func (c *cluster) holder(name string) string {
	holder := c.lease(name).Spec.HolderIdentity
	if holder == nil {
		return ""
	}
	return *holder
}

// serve is the client Service: it connects to a ready pod, or hangs up.
func (c *cluster) serve(ip string) string {
	c.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(c.ports.client)))
	require.NoError(c.t, err)
	var open sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	open.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { c.forward(ctx, conn) })
		}
	})
	c.t.Cleanup(func() { cancel(); l.Close(); open.Wait() })
	return l.Addr().String()
}

func (c *cluster) forward(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	for _, p := range c.pods {
		if !p.ready() {
			continue
		}
		backend, err := net.Dial("tcp", net.JoinHostPort(p.ip, strconv.Itoa(c.ports.client)))
		if err != nil {
			continue
		}
		defer backend.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close(); backend.Close() })
		defer stop()
		go func() { _, _ = io.Copy(backend, conn); backend.Close() }()
		_, _ = io.Copy(conn, backend)
		return
	}
}

func (c *cluster) start() {
	for _, p := range c.pods {
		p.start()
	}
}

func (c *cluster) awaitReady() {
	c.t.Helper()
	for _, p := range c.pods {
		p.awaitReady()
	}
}

// client is a client of all members.
func (c *cluster) client() *clientv3.Client {
	c.t.Helper()
	endpoints := make([]string, 0, len(c.pods))
	for _, p := range c.pods {
		endpoints = append(endpoints, p.url(c.ports.client))
	}
	return c.connect(endpoints...)
}

func (c *cluster) connect(endpoints ...string) *clientv3.Client {
	c.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: c.clientTLS(), Logger: zap.NewNop()})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { client.Close() })
	return client
}

func (c *cluster) members() []*etcdserverpb.Member {
	c.t.Helper()
	client := c.client()
	return retry(c.t, func(ctx context.Context) ([]*etcdserverpb.Member, error) {
		list, err := client.MemberList(ctx)
		if err != nil {
			return nil, err
		}
		return list.Members, nil
	})
}

// awaitMembers waits until the members are as wanted.
func (c *cluster) awaitMembers(what string, wanted func([]*etcdserverpb.Member) bool) {
	c.t.Helper()
	client := c.client()
	require.Eventually(c.t, func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), attempt)
		defer cancel()
		list, err := client.MemberList(ctx)
		return err == nil && wanted(list.Members)
	}, patience, poll, what)
}

func (p *pod) url(port int) string {
	return p.cluster.scheme() + "://" + net.JoinHostPort(p.ip, strconv.Itoa(port))
}

func (p *pod) member() string {
	if p.cluster.prefix == "" {
		return p.name
	}
	return p.cluster.prefix + "-" + p.name
}

// config writes what druid would put into the ConfigMap, but for the addresses to listen on.
func (p *pod) config() string {
	c := p.cluster
	var initial []string
	var peers, clients strings.Builder
	for _, other := range c.pods {
		initial = append(initial, other.member()+"="+other.url(c.ports.peer))
		fmt.Fprintf(&peers, "  %s: [%q]\n", other.member(), other.url(c.ports.peer))
		fmt.Fprintf(&clients, "  %s: [%q]\n", other.member(), other.url(c.ports.client))
	}
	text := fmt.Sprintf(`name: etcd-config
data-dir: %s
metrics: basic
snapshot-count: 10000
enable-grpc-gateway: false
quota-backend-bytes: 1073741824
initial-cluster-token: etcd-cluster
initial-cluster-state: new
initial-cluster: %s
auto-compaction-mode: periodic
auto-compaction-retention: 30m
listen-peer-urls: %s
listen-client-urls: %s
initial-advertise-peer-urls:
%sadvertise-client-urls:
%snext-cluster-version-compatible: true
`, p.dataDir(), strings.Join(initial, ","), p.url(c.ports.peer), p.url(c.ports.client), &peers, &clients)
	if c.prefix != "" {
		text += "member-name-prefix: " + c.prefix + "\n"
	}
	text += c.security()
	path := filepath.Join(c.dir, p.name+".yaml")
	require.NoError(c.t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (p *pod) dataDir() string  { return filepath.Join(p.volume, "new.etcd") }
func (p *pod) exitCode() string { return filepath.Join(p.volume, "exit_code") }

// start runs both containers, and again whenever one ends.
func (p *pod) start() {
	p.cluster.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	wrapperConfig, serverConfig := p.wrapper(), p.server()
	p.running.Go(func() { p.restart(ctx, func() error { return wrapper.Run(ctx, wrapperConfig) }) })
	p.running.Go(func() { p.restart(ctx, func() error { return server.New(serverConfig).Run(ctx) }) })
}

func (p *pod) restart(ctx context.Context, run func() error) {
	for ctx.Err() == nil {
		if err := run(); err != nil && !errors.Is(err, context.Canceled) {
			p.logger().Error("container has ended", zap.Error(err))
		}
		_ = pace.Pace{}.Sleep(ctx, poll) // the kubelet's back-off
	}
}

// terminate ends the pod as a kubelet does, by SIGTERM to its containers.
func (p *pod) terminate() {
	p.cluster.t.Helper()
	require.NoError(p.cluster.t, wrapper.CaptureExit(p.exitCode(), syscall.SIGTERM))
	p.stop()
}

func (p *pod) stop() {
	if p.cancel == nil {
		return
	}
	p.cancel()
	p.running.Wait()
	p.cancel = nil
}

// wipe gives the pod a new, empty volume.
func (p *pod) wipe() {
	p.cluster.t.Helper()
	require.NoError(p.cluster.t, os.RemoveAll(p.volume))
	require.NoError(p.cluster.t, os.MkdirAll(p.volume, 0o700))
}

func (p *pod) pace() pace.Pace {
	fast, err := pace.Parse("20")
	require.NoError(p.cluster.t, err)
	return fast
}

func (p *pod) wrapper() wrapper.Config {
	c := p.cluster
	arguments := []string{
		"--backup-restore-host-port=" + net.JoinHostPort(p.ip, strconv.Itoa(c.ports.sidecar)),
		"--etcd-server-name=" + p.ip,
		fmt.Sprintf("--backup-restore-tls-enabled=%t", c.certs != ""),
		fmt.Sprintf("--etcd-client-port=%d", c.ports.client),
		fmt.Sprintf("--etcd-wrapper-port=%d", c.ports.wrapper),
	}
	config, err := wrapper.FromArgs(append(arguments, c.wrapperTLS()...), p.pace(), p.logger())
	require.NoError(c.t, err)
	config.Host = p.ip
	config.ExitCodeFile = p.exitCode()
	return config
}

func (p *pod) server() server.Config {
	c := p.cluster
	arguments := []string{
		fmt.Sprintf("--server-port=%d", c.ports.sidecar),
		"--etcd-defrag-timeout=15m", "--auto-compaction-mode=periodic", "--auto-compaction-retention=30m",
		"--endpoints=" + p.url(c.ports.client),
		"--service-endpoints=" + c.scheme() + "://" + c.svc,
		"--data-dir=" + p.dataDir(),
		"--restoration-temp-snapshots-dir=" + filepath.Join(p.volume, "restoration.temp"),
		"--snapstore-temp-directory=" + filepath.Join(p.volume, "temp"),
		"--etcd-connection-timeout=5m", "--use-etcd-wrapper=true",
		"--enable-member-lease-renewal=true", "--k8s-heartbeat-duration=500ms",
		"--embedded-etcd-quota-bytes=1073741824",
		"--reelection-period=" + p.reelection.String(),
	}
	if c.store {
		arguments = append(arguments,
			"--enable-snapshot-lease-renewal=true", "--full-snapshot-lease-name=main-full-snap", "--delta-snapshot-lease-name=main-delta-snap",
			"--storage-provider=Local", "--store-container=bucket", "--store-prefix="+namespace+"--uid/main",
			"--schedule=0 */24 * * *", "--delta-snapshot-period=1h", "--delta-snapshot-memory-limit=104857600",
			"--garbage-collection-policy=LimitBased", "--max-backups=7", "--compress-snapshots=true", "--compression-policy=gzip",
			"--etcd-snapshot-timeout=15m")
	}
	config, err := server.FromArgs(append(arguments, c.serverTLS()...), p.pace(), p.logger())
	require.NoError(c.t, err)
	config.Host = p.ip
	config.Pod = p.name
	config.ConfigFile = p.config()
	config.WrapperPort = c.ports.wrapper
	config.Homes = []string{filepath.Join(c.dir, "home")}
	config.Leases = &c.leases
	return config
}

func (p *pod) logger() *zap.Logger {
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), p.logs, zap.InfoLevel)
	return zap.New(core)
}

func (p *pod) ready() bool {
	resp, err := p.cluster.http().Get(p.url(p.cluster.ports.wrapper) + "/readyz")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (p *pod) awaitReady() {
	p.cluster.t.Helper()
	require.Eventually(p.cluster.t, p.ready, patience, poll, "%s is ready", p.name)
}

func (p *pod) awaitLog(text string) {
	p.cluster.t.Helper()
	require.Eventually(p.cluster.t, func() bool { return p.logs.contains(text) }, patience, poll, "%s logs %q", p.name, text)
}

// ask calls the sidecar and returns the answer's code and body.
func (p *pod) ask(path string) (int, []byte) {
	p.cluster.t.Helper()
	code, body, err := p.tryAsk(path)
	require.NoError(p.cluster.t, err)
	return code, body
}

// tryAsk is ask for a sidecar that may not answer.
func (p *pod) tryAsk(path string) (int, []byte, error) {
	resp, err := p.cluster.http().Get(p.url(p.cluster.ports.sidecar) + path)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// awaitSnapshots waits until the pod's sidecar or the one it passes on to takes snapshots.
func (p *pod) awaitSnapshots() {
	p.cluster.t.Helper()
	require.Eventually(p.cluster.t, func() bool {
		code, _, err := p.tryAsk("/snapshot/delta")
		return err == nil && code == http.StatusOK
	}, patience, poll, "snapshots are taken")
}

// awaitFull takes a full snapshot, by way of the leader's sidecar where this is a follower's.
func (p *pod) awaitFull() store.Snapshot {
	p.cluster.t.Helper()
	return retry(p.cluster.t, func(context.Context) (full store.Snapshot, _ error) {
		code, body, err := p.tryAsk("/snapshot/full")
		if err != nil {
			return full, err
		}
		if code != http.StatusOK {
			return full, fmt.Errorf("answer %d: %s", code, body)
		}
		return full, json.Unmarshal(body, &full)
	})
}

func (p *pod) status() *clientv3.StatusResponse {
	p.cluster.t.Helper()
	endpoint := p.url(p.cluster.ports.client)
	client := p.cluster.connect(endpoint)
	return retry(p.cluster.t, func(ctx context.Context) (*clientv3.StatusResponse, error) { return client.Status(ctx, endpoint) })
}

// logBuffer keeps what a pod logs.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(data)
}

func (*logBuffer) Sync() error { return nil }

func (b *logBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.buf.String(), text)
}

func (b *logBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.buf.String()
	return text[max(0, len(text)-20000):]
}
