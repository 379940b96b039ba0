package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/test/cluster/network"
	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
	"github.com/etcd-volumes/etcd-volumes/test/cluster/storage"
)

// Options of a cluster. The zero value is useful.
type Options struct {
	Dir    string                // state and logs; "" makes a new directory under os.TempDir
	Keep   bool                  // Stop leaves Dir in place
	Images map[string]node.Image // see RegisterImage
	Log    io.Writer             // progress and problems; nil means standard error
	// RestartBackOff bounds the back-off of containers that ended; 0 means the kubelet's own, 10 s doubling to 5 min.
	RestartBackOff time.Duration
}

// Cluster is a running cluster.
type Cluster struct {
	Dir        string
	Kubeconfig string // of a member of system:masters
	AuditLog   string // JSON lines of audit.k8s.io/v1 Events
	LogDir     string // one file a component, and pods/<namespace>_<pod>/<container>/<restart>.log
	// KubectlPath is a script that runs kubectl against this cluster from outside its namespaces.
	KubectlPath string

	options Options
	rest    *rest.Config
	pki     *pki
	plane   *controlPlane
	nodes   []clusterNode
	parts   *parts
	images  *imageTable
	net     *network.Net // nil until it is laid
	logs    []io.Closer
	keep    bool
}

// Start brings up a cluster and returns when it is ready: API, controllers, three ready nodes, storage
// classes, Services and DNS, and a default service account. Enter must have been called. ctx bounds the
// start only. What could not be started is stopped again, and its logs are kept.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if inside == nil {
		return nil, errors.New("start a cluster: cluster.Enter was not called first; this is a bug")
	}
	began := time.Now()
	c, err := newCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			c.DumpOnFailure(c.options.Log) //nolint:contextcheck // ctx may have ended, which is then the failure
		}
		c.Stop() //nolint:contextcheck // as above: what runs must be stopped all the same
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	say(c.options.Log, "cluster up in %.1f s\n", time.Since(began).Seconds())
	return c, nil
}

// newCluster prepares directories, certificates and processes, and starts nothing.
func newCluster(ctx context.Context, o Options) (*Cluster, error) {
	if o.Log == nil {
		o.Log = os.Stderr
	}
	dir, err := makeDir(o.Dir)
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(dir, "logs")
	c := &Cluster{
		Dir:         dir,
		LogDir:      logs,
		AuditLog:    auditLog(logs),
		KubectlPath: filepath.Join(dir, "kubectl"),
		options:     o,
		parts:       newParts(ctx),
		images:      newImageTable(o.Images),
		keep:        o.Keep,
	}
	if err := os.MkdirAll(c.podLogs(), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of logs: %w", err)
	}
	p, err := newPKI(filepath.Join(dir, "pki"))
	if err != nil {
		return nil, err
	}
	c.pki = p
	if c.plane, err = newControlPlane(dir, logs, p); err != nil {
		return nil, err
	}
	if c.Kubeconfig, err = p.client("admin", "admin", "system:masters"); err != nil {
		return nil, err
	}
	if c.rest, err = restConfig(c.Kubeconfig); err != nil {
		return nil, err
	}
	return c, c.writeKubectlScript()
}

// makeDir makes the directory of a cluster, which pods of any user must be able to enter. Stop deletes it,
// so that it must be the cluster's alone.
func makeDir(dir string) (string, error) {
	var err error
	if dir == "" {
		dir, err = os.MkdirTemp("", "etcd-volumes-cluster-")
	} else {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", fmt.Errorf("make the cluster's directory: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cluster's directory: %w", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		return "", errors.Join(fmt.Errorf("the cluster's directory %s must be new or empty", dir), err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", fmt.Errorf("open the cluster's directory: %w", err)
	}
	return dir, nil
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // the API server's own fairness is enough on one machine
	return config, nil
}

func (c *Cluster) podLogs() string { return filepath.Join(c.LogDir, "pods") }

// start starts everything, each thing as soon as what it needs is there.
func (c *Cluster) start(ctx context.Context) error {
	volumes, err := c.prepare()
	if err != nil {
		return err
	}
	serving, err := c.partREST("network")
	if err != nil {
		return err
	}
	if err := c.plane.startAPI(ctx); err != nil {
		return err
	}
	c.parts.run("network", func(ctx context.Context) error { return c.net.Serve(ctx, serving) })
	c.parts.run("storage", volumes.Run)
	if err := c.createClasses(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		c.parts.run(n.name, n.Run)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.plane.startControllers(ctx) })
	group.Go(func() error { return c.waitUsable(ctx) })
	return group.Wait()
}

// prepare makes what needs no API server yet.
func (c *Cluster) prepare() (*storage.Storage, error) {
	var logs [3]logr.Logger
	for i, name := range []string{"clients", "network", "storage"} {
		var err error
		if logs[i], err = c.logger(name); err != nil {
			return nil, err
		}
	}
	clientsLog.Store(&logs[0])
	var err error
	if c.net, err = network.New(filepath.Join(c.Dir, "netns"), logs[1]); err != nil {
		return nil, fmt.Errorf("lay the network: %w", err)
	}
	if err := c.newNodes(); err != nil {
		return nil, err
	}
	providing, err := c.partREST("storage")
	if err != nil {
		return nil, err
	}
	volumes, err := storage.New(c.parts.ctx, providing, filepath.Join(c.Dir, "storage"), logs[2])
	if err != nil {
		return nil, fmt.Errorf("prepare storage: %w", err)
	}
	return volumes, nil
}

// partREST makes a part a user of its own, so that the audit log tells it from the admin.
func (c *Cluster) partREST(name string) (*rest.Config, error) {
	kubeconfig, err := c.pki.client(name, "local-cluster:"+name, "system:masters")
	if err != nil {
		return nil, err
	}
	return restConfig(kubeconfig)
}

func (c *Cluster) createClasses(ctx context.Context) error {
	clients, err := c.Clientset()
	if err != nil {
		return err
	}
	for _, class := range storage.Classes() {
		_, err := clients.StorageV1().StorageClasses().Create(ctx, &class, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create storage class %s: %w", class.Name, err)
		}
	}
	return nil
}

// waitUsable waits for what a first pod needs.
func (c *Cluster) waitUsable(ctx context.Context) error {
	clients, err := c.Clientset()
	if err != nil {
		return err
	}
	var missing error
	err = wait.PollUntilContextCancel(ctx, readyPoll, true, func(ctx context.Context) (bool, error) {
		missing = errors.Join(nodesReady(ctx, clients, len(c.nodes)), defaultAccount(ctx, clients))
		return missing == nil, c.parts.failure()
	})
	if err != nil {
		return fmt.Errorf("wait until pods can run: %w", errors.Join(err, missing))
	}
	return nil
}

func nodesReady(ctx context.Context, clients kubernetes.Interface, want int) error {
	list, err := clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	ready := 0
	for _, n := range list.Items {
		if nodeReady(&n) {
			ready++
		}
	}
	if ready < want {
		return fmt.Errorf("%d of %d nodes are ready", ready, want)
	}
	return nil
}

// nodeReady demands also that no taint of a new node is left.
func nodeReady(n *corev1.Node) bool {
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func defaultAccount(ctx context.Context, clients kubernetes.Interface) error {
	_, err := clients.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the default service account: %w", err)
	}
	return nil
}

// REST is a new configuration for clients of the admin, without client-side limits.
func (c *Cluster) REST() *rest.Config { return rest.CopyConfig(c.rest) }

// Clientset is a typed client of the admin.
func (c *Cluster) Clientset() (kubernetes.Interface, error) {
	clients, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return clients, nil
}

// Client is a client of the admin for the types of a scheme; it reads from the API server, not a cache.
func (c *Cluster) Client(scheme *runtime.Scheme) (client.Client, error) {
	made, err := client.New(c.REST(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return made, nil
}

// RegisterImage says which program of this machine stands for an image. ref is either a whole reference,
// matched literally, or the bare name of a repository, matched whatever the registry, path, tag and digest.
// Pods that wait for an image get it with their next pull.
func (c *Cluster) RegisterImage(ref string, image node.Image) { c.images.register(ref, image) }

// Network cuts pods off and puts them back.
func (c *Cluster) Network() *network.Net { return c.net }

// Failure reports nodes, network or storage that have given up; nil while all is well.
func (c *Cluster) Failure() error { return c.parts.failure() }

// RestartAPIServer stops the API server in order if it runs, starts it and waits until it is ready.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	return restart(ctx, c.plane.apiServer)
}

// KillAPIServer kills the API server, which stays away until RestartAPIServer.
func (c *Cluster) KillAPIServer(ctx context.Context) error {
	return c.plane.apiServer.end(ctx, syscall.SIGKILL)
}

// RestartControllerManager is RestartAPIServer for the kube-controller-manager.
func (c *Cluster) RestartControllerManager(ctx context.Context) error {
	return restart(ctx, c.plane.controllerManager)
}

// KillControllerManager is KillAPIServer for the kube-controller-manager.
func (c *Cluster) KillControllerManager(ctx context.Context) error {
	return c.plane.controllerManager.end(ctx, syscall.SIGKILL)
}

// Keep makes Stop leave the directory in place, as after a failure.
func (c *Cluster) Keep() { c.keep = true }

// Stop ends every pod and every process of the cluster. It removes the directory, unless it is to be
// kept or something failed, and says on the log where what is left can be found.
func (c *Cluster) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	err := errors.Join(c.parts.failure(), c.parts.stop(), c.plane.kill(ctx))
	if c.net != nil {
		err = errors.Join(err, c.net.Close())
	}
	clientsLog.Store(nil)
	for _, log := range c.logs {
		err = errors.Join(err, log.Close())
	}
	if err == nil && !c.keep {
		err = os.RemoveAll(c.Dir)
	}
	if err != nil {
		say(c.options.Log, "stop the cluster: %v\n", err)
	}
	if err != nil || c.keep {
		say(c.options.Log, "state and logs are kept in %s\n", c.Dir)
	}
}
