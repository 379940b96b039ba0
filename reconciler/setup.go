package reconciler

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/etcd-volumes/etcd-volumes/reconciler/act"
	"github.com/etcd-volumes/etcd-volumes/reconciler/backup"
	"github.com/etcd-volumes/etcd-volumes/reconciler/members"
	"github.com/etcd-volumes/etcd-volumes/reconciler/observe"
	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Options are the reconciler's. Start from DefaultOptions.
type Options struct {
	// RetainVolumes is how long old volumes are kept after their rollout ended.
	RetainVolumes time.Duration
	// MemberDeadline is how long one member may be out before its rollout counts as stalled.
	MemberDeadline time.Duration
	// StepDeadline is how long anything else may be waited for before the rollout counts as stalled.
	StepDeadline time.Duration
	// Soak is how long a replaced member must have been ready before the next one is taken.
	Soak time.Duration
	// MaxLag is how many raft entries a member may be behind and still count as caught up.
	MaxLag uint64
	// SnapshotRetry is how long is waited before a full snapshot that failed, or is not proven, is asked for again.
	SnapshotRetry time.Duration
	// MaxConcurrentReconciles is how many Etcds are worked on at once.
	MaxConcurrentReconciles int
}

// DefaultOptions are good for clusters of any size.
func DefaultOptions() Options {
	return Options{
		RetainVolumes: 24 * time.Hour, MemberDeadline: 10 * time.Minute, StepDeadline: 10 * time.Minute, Soak: 5 * time.Second,
		MaxLag: 1000, SnapshotRetry: time.Minute, MaxConcurrentReconciles: 10,
	}
}

// Validate says what can not work.
func (o Options) Validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"the retention of volumes", o.RetainVolumes},
		{"the deadline of a member", o.MemberDeadline},
		{"the deadline of a step", o.StepDeadline},
		{"the retry of a snapshot", o.SnapshotRetry},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s must be longer than 0, not %s", d.name, d.value)
		}
	}
	if o.Soak < 0 || o.MaxConcurrentReconciles < 1 {
		return fmt.Errorf("the soak time must not be negative (%s) and at least one Etcd be worked on at once (%d)", o.Soak, o.MaxConcurrentReconciles)
	}
	return nil
}

func (o Options) plan() plan.Options {
	return plan.Options{
		RetainVolumes: o.RetainVolumes, MemberDeadline: o.MemberDeadline, StepDeadline: o.StepDeadline, Soak: o.Soak, MaxLag: o.MaxLag,
		SnapshotRetry: o.SnapshotRetry,
	}
}

// Caches narrows the manager's caches to what the reconciler watches. Give it to the manager; without it all pods, claims and
// leases of the cluster are watched.
func Caches() map[client.Object]cache.ByObject {
	druid := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{volume.ManagedByLabel: volume.ManagedByDruid})}
	marked := labels.NewSelector()
	if req, err := labels.NewRequirement(volume.EtcdLabel, selection.Exists, nil); err == nil { // a constant: can not fail
		marked = marked.Add(*req)
	}
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: druid, &corev1.PersistentVolumeClaim{}: druid, &coordinationv1.Lease{}: druid, &appsv1.StatefulSet{}: druid,
		&corev1.PersistentVolume{}: {Label: marked},
	}
}

// +kubebuilder:rbac:groups=druid.gardener.cloud,resources=etcds,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=druid.gardener.cloud,resources=etcds/status,verbs=patch
// The StatefulSet comes back with its blocking owner reference; some clusters let set that only who may finalize the owner.
// +kubebuilder:rbac:groups=druid.gardener.cloud,resources=etcds/finalizers,verbs=update
// +kubebuilder:rbac:groups=volumes.druid.gardener.cloud,resources=volumerollouts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=volumes.druid.gardener.cloud,resources=volumerollouts/status,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=events,verbs=list;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,verbs=get

// Setup adds the reconciler to the manager. It works on the leader only.
func Setup(mgr ctrl.Manager, o Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	r := New(mgr.GetClient(), mgr.GetAPIReader(), o)
	r.Recorder = mgr.GetEventRecorder("etcd-volumes")
	if err := r.measures.register(metrics.Registry); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	leaderOnly := true
	err := ctrl.NewControllerManagedBy(mgr).
		Named("volumes").
		For(&volume.Etcd{}, builder.OnlyMetadata).
		Owns(&v1alpha1.VolumeRollout{}, builder.OnlyMetadata).
		WatchesMetadata(&appsv1.StatefulSet{}, handler.EnqueueRequestsFromMapFunc(partOf)).
		WatchesMetadata(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(partOf)).
		WatchesMetadata(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.partOfActive)).
		WatchesMetadata(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(r.partOfActive)).
		WatchesMetadata(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(markedFor)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.MaxConcurrentReconciles, NeedLeaderElection: &leaderOnly,
			// The default would wait up to 16 minutes after some failures, with a member out.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](100*time.Millisecond, 10*time.Second),
		}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the reconciler: %w", err)
	}
	return nil
}

// New wires a Reconciler that reaches real members and sidecars.
func New(c client.Client, uncached client.Reader, o Options) *Reconciler {
	etcds := members.Client{Reader: uncached}
	return &Reconciler{
		Observer: observe.New(uncached, c, etcds, o.plan()),
		Actor:    act.Actor{Client: c, Reader: uncached, Leaders: etcds, Backups: backup.Client{Reader: uncached}},
		Client:   c, Now: time.Now, measures: newMeasures(),
	}
}

// partOf maps what druid renders to its Etcd.
func partOf(_ context.Context, obj client.Object) []ctrl.Request {
	name := obj.GetLabels()[volume.PartOfLabel]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}

// partOfActive maps as partOf, for Etcds with work to do: leases are renewed all the time.
func (r *Reconciler) partOfActive(ctx context.Context, obj client.Object) []ctrl.Request {
	requests := partOf(ctx, obj)
	if len(requests) == 0 {
		return nil
	}
	if _, active := r.active.Load(requests[0].NamespacedName); !active {
		return nil
	}
	return requests
}

// markedFor maps a volume with our marks to the Etcd in whose name it is kept, also if that is gone.
func markedFor(_ context.Context, obj client.Object) []ctrl.Request {
	l := obj.GetLabels()
	if l[volume.EtcdLabel] == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: l[volume.EtcdNamespaceLabel], Name: l[volume.EtcdLabel]}}}
}
