package stage

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/backoff"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/deploy"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/test/cluster"
	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
	"github.com/etcd-volumes/etcd-volumes/test/druid"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// reconnect makes a client notice quickly that its member is back.
var reconnect = backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.1, MaxDelay: 200 * time.Millisecond}

// sidecarSpeedup divides the back-offs of the sidecar, which make a first start of three members take two minutes: the
// order of events and their outcome stay as they are.
const sidecarSpeedup = "30"

// Enter must be the first thing that main or TestMain does: it builds the programs and moves into namespaces of its own.
func Enter() {
	cluster.Enter(cluster.Program("./cmd/etcd-volumes", "./test/druid/cmd/druid", "./test/sidecar/cmd/etcd-sidecar"))
}

// Options of a stage.
type Options struct {
	// ReadinessDelay is the members' initialDelaySeconds; 0 = etcd-druid's own 15s.
	ReadinessDelay time.Duration
	// Operator are further arguments of its command.
	Operator []string
	// RestartBackOff bounds the back-off of containers that ended; 0 = the kubelet's own.
	RestartBackOff time.Duration
	// Log takes progress; nil = silence.
	Log io.Writer
	// Keep leaves the cluster's directory behind.
	Keep bool
}

// Stage is a running cluster with all that plays on it.
type Stage struct {
	*cluster.Cluster
	Client  client.WithWatch
	History *History
}

// Open brings everything up: when it returns, the webhooks answer and the reconciler runs.
func Open(ctx context.Context, o Options) (*Stage, error) {
	c, err := cluster.Start(ctx, cluster.Options{Log: o.Log, Keep: o.Keep, RestartBackOff: o.RestartBackOff})
	if err != nil {
		return nil, fmt.Errorf("start the cluster: %w", err)
	}
	s := &Stage{Cluster: c}
	if err := s.populate(ctx, o); err != nil {
		s.Keep()
		if o.Log != nil {
			s.DumpOnFailure(o.Log) //nolint:contextcheck // ctx may be why it failed
		}
		s.Close() //nolint:contextcheck // what was started must be stopped also when ctx is done
		return nil, err
	}
	return s, nil
}

// Close tears all of it down.
func (s *Stage) Close() {
	if s.History != nil {
		s.History.Stop()
	}
	s.Stop()
}

func (s *Stage) populate(ctx context.Context, o Options) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, volume.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("build the scheme: %w", err)
		}
	}
	var err error
	if s.Client, err = client.NewWithWatch(s.REST(), client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	s.registerImages()
	if err := s.installDruid(ctx, o); err != nil {
		return err
	}
	if err := s.Install(ctx, o.Operator...); err != nil {
		return err
	}
	s.History, err = Record(context.WithoutCancel(ctx), s.REST())
	return err
}

func (s *Stage) registerImages() {
	s.RegisterImage("etcd-volumes", node.Image{Path: cluster.ProgramPath("etcd-volumes"), User: 65532})
	s.RegisterImage("druid", node.Image{Path: cluster.ProgramPath("druid"), User: 65532})
	for _, name := range []string{"etcd-wrapper", "etcdbrctl"} {
		s.RegisterImage(name, node.Image{Path: cluster.ProgramPath("etcd-sidecar"), User: 65532, Env: map[string]string{"SIDECAR_SPEEDUP": sidecarSpeedup}})
	}
}

func (s *Stage) installDruid(ctx context.Context, o Options) error {
	var args []string
	if o.ReadinessDelay > 0 {
		args = append(args, "--readiness-initial-delay="+o.ReadinessDelay.String())
	}
	// Relaxed, as installing us leaves it.
	if err := s.Apply(ctx, string(druid.CRD(false))); err != nil {
		return fmt.Errorf("install the Etcd CRD: %w", err)
	}
	if err := s.Apply(ctx, druid.Manifests(args...)); err != nil {
		return fmt.Errorf("install the stand-in for etcd-druid: %w", err)
	}
	return s.Available(ctx, druid.Namespace, druid.Deployment)
}

// Install applies what users apply, adds arguments to the command, and waits until both replicas are ready.
func (s *Stage) Install(ctx context.Context, args ...string) error {
	if err := s.Apply(ctx, string(deploy.Manifests())); err != nil {
		return fmt.Errorf("install etcd-volumes: %w", err)
	}
	if len(args) > 0 {
		var ops []string
		for _, a := range args {
			ops = append(ops, fmt.Sprintf(`{"op":"add","path":"/spec/template/spec/containers/0/args/-","value":%q}`, a))
		}
		if _, stderr, err := s.Kubectl(ctx, "-n", Namespace, "patch", "deployment", Deployment, "--type=json", "-p", "["+strings.Join(ops, ",")+"]"); err != nil {
			return fmt.Errorf("add arguments: %w: %s", err, stderr)
		}
	}
	return s.Available(ctx, Namespace, Deployment)
}

// Where etcd-volumes is installed.
const (
	Namespace  = "etcd-volumes-system"
	Deployment = "etcd-volumes"
)

// Available waits until all replicas of a Deployment are available in their newest version.
func (s *Stage) Available(ctx context.Context, namespace, deployment string) error {
	if _, stderr, err := s.Kubectl(ctx, "-n", namespace, "rollout", "status", "deployment", deployment, "--timeout=60s"); err != nil {
		return fmt.Errorf("wait for deployment %s/%s: %w: %s", namespace, deployment, err, stderr)
	}
	return nil
}

// Dial reaches a host:port by the cluster's own names.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: time.Second, Resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, "10.96.0.10:53")
		},
	}}
	return d.DialContext(ctx, "tcp", address)
}

// Endpoints are the client URLs of the members, by ordinal.
func Endpoints(namespace, name string, members int) []string {
	var urls []string
	for i := range members {
		urls = append(urls, "http://"+volume.MemberHost(namespace, name, i)+".cluster.local:2379")
	}
	return urls
}

// Write starts a writer through all members of an Etcd.
func (s *Stage) Write(ctx context.Context, namespace, name string, members int) (*Writer, error) {
	return StartWriter(ctx, Endpoints(namespace, name, members), Dial)
}
