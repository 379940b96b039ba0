package storage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

const (
	// workers is how many volumes are worked on at the same time; each may be
	// waiting for the delay of its class.
	workers = 16

	// Delays between attempts. The library's own begin with 15 seconds, which
	// is right for a cloud's quota and wrong for a test.
	minRetryDelay = 250 * time.Millisecond
	maxRetryDelay = 10 * time.Second
)

// Storage is the provisioner and the resizer of one cluster.
type Storage struct {
	factory    informers.SharedInformerFactory
	controller *controller.ProvisionController
	resizer    *resizer
	workers    *sync.WaitGroup
}

// New prepares to provide volumes as directories under dir; ctx bounds the
// life of the event recorders.
func New(ctx context.Context, config *rest.Config, dir string, log logr.Logger) (*Storage, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the default of 5 requests a second would be felt
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect storage: %w", err)
	}
	return newStorage(ctx, client, dir, log)
}

// Run is New and Storage.Run in one.
func Run(ctx context.Context, config *rest.Config, dir string, log logr.Logger) error {
	s, err := New(ctx, config, dir, log)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

func newStorage(ctx context.Context, client kubernetes.Interface, dir string, log logr.Logger) (*Storage, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find directory of volumes: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create directory of volumes: %w", err)
	}
	ctx = klog.NewContext(ctx, log)
	s := &Storage{factory: informers.NewSharedInformerFactory(client, 0), workers: &sync.WaitGroup{}}
	core, classes := s.factory.Core().V1(), s.factory.Storage().V1().StorageClasses()
	s.resizer = &resizer{
		client: client, log: log.WithName("resizer"),
		claims:  core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(),
		classes: classes.Lister(),
		events:  recorder(ctx, client),
		queue:   workqueue.NewTypedRateLimitingQueue(retries[types.NamespacedName]()),
	}
	claims := core.PersistentVolumeClaims().Informer()
	if _, err := claims.AddEventHandler(expansionHandler(s.resizer.enqueue)); err != nil {
		return nil, fmt.Errorf("watch claims: %w", err)
	}
	s.controller = controller.NewProvisionController(ctx, client, Provisioner, &provisioner{client: client, dir: dir},
		controller.ClaimsInformer(claims),
		controller.VolumesInformer(core.PersistentVolumes().Informer()),
		controller.ClassesInformer(classes.Informer()),
		controller.LeaderElection(false),
		controller.AddFinalizer(true),
		controller.Threadiness(workers),
		controller.RateLimiter(retries[string]()),
		controller.CreateProvisionedPVLimiter(retries[string]()),
		controller.RetryIntervalMax(maxRetryDelay),
		controller.ResyncPeriod(0), // all that fails is tried again by itself
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
	)
	s.controller.ControllerWaitGroup(s.workers)
	return s, nil
}

// Run provides, expands and reclaims volumes until ctx is done.
func (s *Storage) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, s.resizer.log)
	s.factory.Start(ctx.Done())
	defer s.factory.Shutdown()
	s.factory.WaitForCacheSync(ctx.Done())
	var both sync.WaitGroup
	both.Go(func() { s.controller.Run(ctx) })
	both.Go(func() { s.resizer.run(ctx, workers) })
	both.Wait()
	s.workers.Wait()
	return nil
}

func retries[T comparable]() workqueue.TypedRateLimiter[T] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[T](minRetryDelay, maxRetryDelay)
}

func recorder(ctx context.Context, client kubernetes.Interface) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "external-resizer " + Provisioner})
}
