package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	vklog "github.com/virtual-kubelet/virtual-kubelet/log"
	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listerscorev1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// Image is what stands in for a container image: one program of this machine.
type Image struct {
	Path string   // the binary that is the entry point
	Args []string // its arguments when the container gives none
	User int64    // the user it runs as when neither container nor pod say
	// Env are variables that the image brings along; the container's own win.
	Env map[string]string
}

// Images resolves the image reference of a container. An error makes the container wait with ErrImagePull.
type Images func(ref string) (Image, error)

// Network gives pods their network.
type Network interface {
	// AddPod makes a network namespace with an address; asked again for the same ID it returns the same.
	AddPod(ctx context.Context, id string) (PodNet, error)
	// DelPod removes it; that it does not exist is no error.
	DelPod(id string) error
}

// PodNet is the network of a pod.
type PodNet struct {
	IP    string
	NetNS string // path of the network namespace
}

// Config says what a node is. The fields of the first group are required.
type Config struct {
	Name, Zone string
	REST       *rest.Config
	Dir        string // state: pods/<uid>/...
	LogDir     string // <LogDir>/<namespace>_<pod>/<container>/<restart>.log, kept when the pod is gone
	Images     Images
	Network    Network
	DNS        string // address of the cluster's DNS server
	APIServer  string // host:port that pods find in KUBERNETES_SERVICE_HOST and _PORT
	Self       string // path of a binary that calls MaybeShim first thing in main

	Region     string        // default "local"
	Address    string        // of the node; default is the host of APIServer, which runs beside the nodes
	BackOff    time.Duration // before the second restart of a container; default 10 s
	MaxBackOff time.Duration // what it doubles up to; default 5 min
	ServerTLS  *tls.Config   // of the endpoint for logs and exec; default is a certificate of its own, and any client
	Log        logr.Logger   // default discards
}

func (c Config) withDefaults() (Config, error) {
	if slices.Contains([]string{c.Name, c.Dir, c.LogDir, c.Self}, "") || c.REST == nil || c.Images == nil || c.Network == nil {
		return c, errors.New("node needs a name, a REST config, directories, images, a network and a launcher binary")
	}
	host, _, err := net.SplitHostPort(c.APIServer)
	if err != nil {
		return c, fmt.Errorf("parse address of API server: %w", err)
	}
	c.Address = cmp.Or(c.Address, host)
	c.Region = cmp.Or(c.Region, "local")
	c.BackOff = cmp.Or(c.BackOff, 10*time.Second)
	c.MaxBackOff = cmp.Or(c.MaxBackOff, 5*time.Minute)
	return c, nil
}

// Node is one node of the cluster. Any number of them can run in one process.
type Node struct {
	config   Config
	address  string
	client   kubernetes.Interface
	lister   listerscorev1.PodLister
	recorder record.EventRecorder
	launcher launcher
	uids     idMap
	gids     idMap
	provider *provider
	ctx      context.Context // ends with Run
	cancel   context.CancelFunc
	tasks    sync.WaitGroup // what outlives the worker that began it
}

// New checks the configuration and prepares a node; nothing runs yet.
func New(c Config) (*Node, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	uids, err := readIDMap("/proc/self/uid_map")
	if err != nil {
		return nil, err
	}
	gids, err := readIDMap("/proc/self/gid_map")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create state directory: %w", err)
	}
	config := rest.CopyConfig(c.REST)
	config.QPS, config.Burst = 500, 1000 // promptness is worth more here than the API server's ease
	config.UserAgent = "kubelet/" + c.Name
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	n := &Node{config: c, address: c.Address, client: client, launcher: launcher{self: c.Self}, uids: uids, gids: gids}
	n.provider = newProvider(n)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n, nil
}

// Run makes the node part of the cluster until the context ends. It returns after the last process of its pods is gone.
func Run(ctx context.Context, c Config) error {
	n, err := New(c)
	if err != nil {
		return err
	}
	return n.Run(ctx)
}

// podSyncWorkers is how many pods the library handles at a time.
const podSyncWorkers = 10

// Run makes the node part of the cluster until the context ends. It returns after the last process of its pods is gone.
// A node runs once.
func (n *Node) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, n.cancel)
	defer stop()
	defer n.shutDown()
	ctx = vklog.WithLogger(n.ctx, &libraryLog{log: n.config.Log.WithName(n.config.Name)})

	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")})
	n.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: n.config.Name})

	server, err := n.listen()
	if err != nil {
		return err
	}
	defer server.close()
	pods, err := n.podController(ctx)
	if err != nil {
		return err
	}
	n.background(func(context.Context) { n.register(ctx, server.port) })
	if err := pods.Run(ctx, podSyncWorkers); ctx.Err() == nil {
		return fmt.Errorf("pod controller of node %s: %w", n.config.Name, err)
	}
	return nil
}

// shutDown ends all pods and waits for them.
func (n *Node) shutDown() {
	n.cancel()
	n.provider.shutDown()
	n.tasks.Wait()
}

// background runs something that may outlive the worker of its pod, but not the node.
func (n *Node) background(f func(context.Context)) {
	n.tasks.Go(func() { f(n.ctx) })
}

// podController sets up the library's loop over the pods of this node.
func (n *Node) podController(ctx context.Context) (*vknode.PodController, error) {
	own := informers.NewSharedInformerFactoryWithOptions(n.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.config.Name).String()
	}))
	informer := own.Core().V1().Pods()
	n.lister = informer.Lister()
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, now any) { n.provider.updated(now) },
		DeleteFunc: n.provider.deleted,
	}); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	// The library wants these to resolve variables, which this node does itself; they are never started.
	unused := informers.NewSharedInformerFactory(n.client, 0).Core().V1()
	controller, err := vknode.NewPodController(vknode.PodControllerConfig{
		PodClient:                                podsGetter{PodsGetter: n.client.CoreV1(), node: n},
		PodInformer:                              informer,
		EventRecorder:                            quietRecorder{n.recorder},
		Provider:                                 n.provider,
		ConfigMapInformer:                        unused.ConfigMaps(),
		SecretInformer:                           unused.Secrets(),
		ServiceInformer:                          unused.Services(),
		SkipDownwardAPIResolution:                true,
		SyncPodsFromKubernetesRateLimiter:        prompt(),
		DeletePodsFromKubernetesRateLimiter:      prompt(),
		SyncPodStatusFromProviderRateLimiter:     prompt(),
		SyncPodsFromKubernetesShouldRetryFunc:    always,
		DeletePodsFromKubernetesShouldRetryFunc:  always,
		SyncPodStatusFromProviderShouldRetryFunc: always,
	})
	if err != nil {
		return nil, fmt.Errorf("create pod controller: %w", err)
	}
	own.Start(ctx.Done())
	return controller, nil
}

// prompt retries after a millisecond, and later up to a second.
func prompt() workqueue.TypedRateLimiter[any] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[any](time.Millisecond, time.Second)
}

// always retries: an API server that is away comes back, and then has to learn what happened meanwhile.
func always(context.Context, string, int, time.Time, error) (*time.Duration, error) {
	return nil, nil //nolint:nilnil // the library's way to say: try again after the usual delay
}

// quietRecorder drops the library's own events, which would say of each pod that its provider was asked to create it.
type quietRecorder struct{ record.EventRecorder }

// Event drops the event.
func (quietRecorder) Event(_ runtime.Object, _, _, _ string) {}

// ContainerPID returns the number of the first process of a running container, as this process sees it.
func (n *Node) ContainerPID(namespace, pod, container string) (int, error) {
	w := n.provider.named(namespace, pod)
	if w == nil {
		return 0, fmt.Errorf("pod %s/%s is not on node %s", namespace, pod, n.config.Name)
	}
	pid := 0
	w.ask(func() {
		if c := w.containerNamed(container); c != nil && c.alive() {
			pid = c.process.pid
		}
	})
	if pid == 0 {
		return 0, fmt.Errorf("container %s of pod %s/%s is not running", container, namespace, pod)
	}
	return pid, nil
}
