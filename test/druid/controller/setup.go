package controller

import (
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// Name is the name of the controller, and the source of its events.
const Name = "etcd-controller"

const firstBackoff = 10 * time.Millisecond

// SetUp makes the manager run the controller. It watches Etcds and nothing else.
func SetUp(mgr ctrl.Manager, config Config) error {
	recorder := mgr.GetEventRecorderFor(Name) //nolint:staticcheck // the real one still writes events of the core API.
	r := New(mgr.GetClient(), recorder, config)
	err := ctrl.NewControllerManagedBy(mgr).
		Named(Name).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: config.Workers,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, config.StatusSyncPeriod),
		}).
		For(&api.Etcd{}).
		WithEventFilter(wakes(config.AutoReconcile)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// wakes says which events start a pass: creation and deletion always, an update by the rules of wakesOnUpdate.
func wakes(auto bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return true },
		DeleteFunc:  func(event.DeleteEvent) bool { return true },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*api.Etcd)
			after, alsoOK := e.ObjectNew.(*api.Etcd)
			return ok && alsoOK && wakesOnUpdate(before, after, auto)
		},
	}
}

// wakesOnUpdate: a changed spec, or an Etcd that was never reconciled, wakes if it is the spec's turn; a request in an
// annotation also wakes when the newest reconciliation has succeeded, so that the status writes of one that fails do
// not start the next.
func wakesOnUpdate(before, after *api.Etcd, auto bool) bool {
	changed := before.Generation != after.Generation
	fresh := after.Status.LastOperation == nil && after.Status.ObservedGeneration == nil
	if after.ReconcileRequested() {
		return changed || fresh || succeeded(after)
	}
	return auto && (changed || fresh)
}

func succeeded(etcd *api.Etcd) bool {
	op := etcd.Status.LastOperation
	return op != nil && op.Type == api.OperationReconcile && op.State == api.OperationSucceeded
}
