package controller

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// recordStart returns the step that says that an operation has begun.
func (r *Reconciler) recordStart(operation api.OperationType) step {
	description := "the components are being reconciled"
	if operation == api.OperationDelete {
		description = "the components are being deleted"
	}
	return func(ctx context.Context, etcd *api.Etcd) outcome {
		return ofSync(r.record(ctx, etcd, operation, api.OperationProcessing, description, nil), 0)
	}
}

func (r *Reconciler) recordSuccess(ctx context.Context, etcd *api.Etcd) outcome {
	return ofSync(r.record(ctx, etcd, api.OperationReconcile, api.OperationSucceeded, "the components are reconciled", nil), 0)
}

func (r *Reconciler) recordUnfinished(ctx context.Context, etcd *api.Etcd, operation api.OperationType, o outcome) error {
	state := api.OperationRequeue
	if len(o.errs) > 0 {
		state = api.OperationError
	}
	return r.record(ctx, etcd, operation, state, o.why+" It will be tried again.", lastErrors(o.errs))
}

func (r *Reconciler) record(ctx context.Context, etcd *api.Etcd, operation api.OperationType, state api.OperationState, description string, errs []api.LastError) error {
	before := etcd.DeepCopy()
	etcd.Status.LastOperation = &api.LastOperation{
		Type:           operation,
		State:          state,
		Description:    description,
		RunID:          string(controller.ReconcileIDFromContext(ctx)),
		LastUpdateTime: metav1.NewTime(time.Now().UTC()),
	}
	etcd.Status.LastErrors = errs
	if err := r.client.Status().Patch(ctx, etcd, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("record operation of Etcd %s: %w", client.ObjectKeyFromObject(etcd), err)
	}
	return nil
}
