package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/health"
)

// Reconciler reconciles Etcds.
type Reconciler struct {
	client   client.Client
	config   Config
	recorder record.EventRecorder
	presync  *presync
}

// New returns a Reconciler that reads and writes through the client.
func New(c client.Client, recorder record.EventRecorder, config Config) *Reconciler {
	return &Reconciler{client: c, config: config, recorder: recorder, presync: newPresync(takeSnapshot(c))}
}

// step is a part of a pass. The first that is not done ends its part of the pass.
type step func(context.Context, *api.Etcd) outcome

// Reconcile does one pass over an Etcd.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	etcd := &api.Etcd{}
	if err := r.client.Get(ctx, req.NamespacedName, etcd); err != nil {
		if apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, fmt.Errorf("get Etcd %s: %w", req, err)
	}
	if etcd.DeletionTimestamp != nil {
		return r.delete(ctx, etcd).result()
	}
	turn := r.specsTurn(etcd)
	var spec outcome
	if turn {
		spec = r.reconcileSpec(ctx, etcd)
	}
	if err := r.reconcileStatus(ctx, etcd); err != nil {
		return ctrl.Result{}, err
	}
	if !spec.done() {
		return spec.result()
	}
	if turn {
		if completed := r.complete(ctx, etcd); !completed.done() {
			return completed.result()
		}
	}
	return ctrl.Result{RequeueAfter: r.config.StatusSyncPeriod}, nil
}

// specsTurn says whether the spec is reconciled in this pass.
func (r *Reconciler) specsTurn(etcd *api.Etcd) bool {
	if etcd.Suspended() {
		r.recorder.Eventf(etcd, corev1.EventTypeWarning, "SpecReconciliationSkipped",
			"the spec of %s/%s is left alone because of its annotation %s", etcd.Namespace, etcd.Name, api.AnnotationSuspend)
		return false
	}
	return r.config.AutoReconcile || etcd.ReconcileRequested() || etcd.Status.ObservedGeneration == nil
}

func (r *Reconciler) reconcileSpec(ctx context.Context, etcd *api.Etcd) outcome {
	return r.run(ctx, etcd, api.OperationReconcile, r.recordStart(api.OperationReconcile), r.addFinalizer, r.beforeSync, r.sync, r.recordSuccess)
}

// run does the steps of an operation, and records it when one of them is not done.
func (r *Reconciler) run(ctx context.Context, etcd *api.Etcd, operation api.OperationType, steps ...step) outcome {
	for _, do := range steps {
		o := do(ctx, etcd)
		if o.done() {
			continue
		}
		if err := r.recordUnfinished(ctx, etcd, operation, o); err != nil {
			return failed(err)
		}
		return o
	}
	return outcome{}
}

func (r *Reconciler) addFinalizer(ctx context.Context, etcd *api.Etcd) outcome {
	return r.patchMeta(ctx, etcd, addFinalizer)
}

func (r *Reconciler) beforeSync(ctx context.Context, etcd *api.Etcd) outcome {
	return ofSync(r.snapshotBeforeHibernation(ctx, etcd), r.config.RetryInterval)
}

// reconcileStatus writes what the cluster looks like, whether or not the spec was reconciled.
func (r *Reconciler) reconcileStatus(ctx context.Context, etcd *api.Etcd) error {
	before := etcd.DeepCopy()
	world, err := r.observe(ctx, etcd)
	if err != nil {
		return err
	}
	health.Apply(etcd, world, r.config.Thresholds)
	if err := r.client.Status().Patch(ctx, etcd, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch status of Etcd %s: %w", client.ObjectKeyFromObject(etcd), err)
	}
	return nil
}

// complete says that the generation is observed, after all else of the status, and takes the request for this pass
// away.
func (r *Reconciler) complete(ctx context.Context, etcd *api.Etcd) outcome {
	return r.run(ctx, etcd, api.OperationReconcile, r.observeGeneration, r.removeRequest)
}

func (r *Reconciler) observeGeneration(ctx context.Context, etcd *api.Etcd) outcome {
	before := etcd.DeepCopy()
	generation := etcd.Generation
	etcd.Status.ObservedGeneration = &generation
	if err := r.client.Status().Patch(ctx, etcd, client.MergeFrom(before)); err != nil {
		return failed(fmt.Errorf("patch observed generation of Etcd %s: %w", client.ObjectKeyFromObject(etcd), err))
	}
	return outcome{}
}

func (r *Reconciler) removeRequest(ctx context.Context, etcd *api.Etcd) outcome {
	if !etcd.ReconcileRequested() {
		return outcome{}
	}
	return r.patchMeta(ctx, etcd, func(e *api.Etcd) bool {
		delete(e.Annotations, api.AnnotationOperation)
		delete(e.Annotations, api.AnnotationGardenerOperation)
		return true
	})
}

// patchMeta patches what change changes; change says whether there is anything to patch.
func (r *Reconciler) patchMeta(ctx context.Context, etcd *api.Etcd, change func(*api.Etcd) bool) outcome {
	before := etcd.DeepCopy()
	if !change(etcd) {
		return outcome{}
	}
	if err := r.client.Patch(ctx, etcd, client.MergeFrom(before)); err != nil {
		return failed(fmt.Errorf("patch metadata of Etcd %s: %w", client.ObjectKeyFromObject(etcd), err))
	}
	return outcome{}
}
