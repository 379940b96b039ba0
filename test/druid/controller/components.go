package controller

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/render"
)

// sync makes and patches the components in their order: first what the pods need, the StatefulSet last.
func (r *Reconciler) sync(ctx context.Context, etcd *api.Etcd) outcome {
	var checksum string
	order := []func() error{
		func() error { return r.syncAccess(ctx, etcd) },
		func() error { return r.syncMemberLeases(ctx, etcd) },
		func() error { return r.syncSnapshotLeases(ctx, etcd) },
		func() error { return r.syncBudget(ctx, etcd) },
		func() error { return r.syncServices(ctx, etcd) },
		func() (err error) {
			checksum, err = r.syncConfigMap(ctx, etcd)
			return err
		},
		func() error { return r.syncStatefulSet(ctx, etcd, checksum) },
	}
	for _, one := range order {
		if o := ofSync(one(), r.config.RetryInterval); !o.done() {
			return o
		}
	}
	return outcome{}
}

// apply makes the object, or patches it to what set makes of it.
func (r *Reconciler) apply(ctx context.Context, obj client.Object, code string, set func() error) error {
	if _, err := controllerutil.CreateOrPatch(ctx, r.client, obj, set); err != nil {
		return fail(code, operationSync, fmt.Sprintf("create or patch %s", client.ObjectKeyFromObject(obj)), err)
	}
	return nil
}

func meta(etcd *api.Etcd, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: etcd.Namespace, Name: name}
}

func (r *Reconciler) syncAccess(ctx context.Context, etcd *api.Etcd) error {
	account := &corev1.ServiceAccount{ObjectMeta: meta(etcd, etcd.Name)}
	if err := r.apply(ctx, account, CodeSyncServiceAccount, func() error {
		render.ServiceAccount(account, etcd)
		return nil
	}); err != nil {
		return err
	}
	role := &rbacv1.Role{ObjectMeta: meta(etcd, etcd.RoleName())}
	if err := r.apply(ctx, role, CodeSyncRole, func() error {
		render.Role(role, etcd)
		return nil
	}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta(etcd, etcd.RoleName())}
	return r.apply(ctx, binding, CodeSyncRoleBinding, func() error {
		render.RoleBinding(binding, etcd)
		return nil
	})
}

// syncMemberLeases makes the leases of the members that the spec asks for. Those of a hibernated cluster stay.
func (r *Reconciler) syncMemberLeases(ctx context.Context, etcd *api.Etcd) error {
	var errs []error
	for _, name := range etcd.MemberNames() {
		lease := &coordinationv1.Lease{ObjectMeta: meta(etcd, name)}
		errs = append(errs, r.apply(ctx, lease, CodeSyncMemberLease, func() error {
			render.MemberLease(lease, etcd)
			return nil
		}))
	}
	return errors.Join(errs...)
}

// syncSnapshotLeases makes the two leases where there is a store, and removes them where there is none.
func (r *Reconciler) syncSnapshotLeases(ctx context.Context, etcd *api.Etcd) error {
	if !etcd.HasStore() {
		if err := r.deleteLeases(ctx, etcd, render.ComponentSnapshotLease); err != nil {
			return fail(CodeSyncSnapshotLease, operationSync, "delete the snapshot leases of an Etcd without store", err)
		}
		return nil
	}
	var errs []error
	for _, name := range []string{etcd.DeltaSnapshotLeaseName(), etcd.FullSnapshotLeaseName()} {
		lease := &coordinationv1.Lease{ObjectMeta: meta(etcd, name)}
		errs = append(errs, r.apply(ctx, lease, CodeSyncSnapshotLease, func() error {
			render.SnapshotLease(lease, etcd)
			return nil
		}))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) syncBudget(ctx context.Context, etcd *api.Etcd) error {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta(etcd, etcd.Name)}
	return r.apply(ctx, budget, CodeSyncBudget, func() error {
		render.Budget(budget, etcd)
		return nil
	})
}

func (r *Reconciler) syncServices(ctx context.Context, etcd *api.Etcd) error {
	clients := &corev1.Service{ObjectMeta: meta(etcd, etcd.ClientServiceName())}
	if err := r.apply(ctx, clients, CodeSyncClientService, func() error {
		render.ClientService(clients, etcd)
		return nil
	}); err != nil {
		return err
	}
	peers := &corev1.Service{ObjectMeta: meta(etcd, etcd.PeerServiceName())}
	return r.apply(ctx, peers, CodeSyncPeerService, func() error {
		render.PeerService(peers, etcd)
		return nil
	})
}

func (r *Reconciler) syncConfigMap(ctx context.Context, etcd *api.Etcd) (string, error) {
	cm := &corev1.ConfigMap{ObjectMeta: meta(etcd, etcd.ConfigMapName())}
	if err := r.apply(ctx, cm, CodeSyncConfigMap, func() error { return render.ConfigMap(cm, etcd) }); err != nil {
		return "", err
	}
	checksum, err := render.Checksum(cm)
	if err != nil {
		return "", fail(CodeSyncConfigMap, operationSync, "compute checksum", err)
	}
	return checksum, nil
}

// delete takes the components away, waits until they are gone, and then lets the Etcd go.
func (r *Reconciler) delete(ctx context.Context, etcd *api.Etcd) outcome {
	return r.run(ctx, etcd, api.OperationDelete, r.recordStart(api.OperationDelete), r.deleteComponents, r.awaitGone, r.removeFinalizer)
}

// single is a component of which there is one, and the code for when it cannot be deleted.
type single struct {
	obj  client.Object
	code string
}

func singles(etcd *api.Etcd) []single {
	return []single{
		{&corev1.ServiceAccount{ObjectMeta: meta(etcd, etcd.Name)}, "ERR_DELETE_SERVICE_ACCOUNT"},
		{&rbacv1.Role{ObjectMeta: meta(etcd, etcd.RoleName())}, "ERR_DELETE_ROLE"},
		{&rbacv1.RoleBinding{ObjectMeta: meta(etcd, etcd.RoleName())}, "ERR_DELETE_ROLE_BINDING"},
		{&policyv1.PodDisruptionBudget{ObjectMeta: meta(etcd, etcd.Name)}, "ERR_DELETE_POD_DISRUPTION_BUDGET"},
		{&corev1.Service{ObjectMeta: meta(etcd, etcd.ClientServiceName())}, "ERR_DELETE_CLIENT_SERVICE"},
		{&corev1.Service{ObjectMeta: meta(etcd, etcd.PeerServiceName())}, "ERR_DELETE_PEER_SERVICE"},
		{&corev1.ConfigMap{ObjectMeta: meta(etcd, etcd.ConfigMapName())}, "ERR_DELETE_CONFIGMAP"},
		{&appsv1.StatefulSet{ObjectMeta: meta(etcd, etcd.Name)}, "ERR_DELETE_STATEFULSET"},
	}
}

// deleteComponents asks for all at once, and goes on when one of them cannot be deleted.
func (r *Reconciler) deleteComponents(ctx context.Context, etcd *api.Etcd) outcome {
	var errs []error
	for _, s := range singles(etcd) {
		if err := r.client.Delete(ctx, s.obj); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fail(s.code, operationDelete, fmt.Sprintf("delete %s", client.ObjectKeyFromObject(s.obj)), err))
		}
	}
	if err := r.deleteLeases(ctx, etcd, render.ComponentMemberLease); err != nil {
		errs = append(errs, fail("ERR_DELETE_MEMBER_LEASE", operationDelete, "delete the member leases", err))
	}
	if err := r.deleteLeases(ctx, etcd, render.ComponentSnapshotLease); err != nil {
		errs = append(errs, fail("ERR_DELETE_SNAPSHOT_LEASE", operationDelete, "delete the snapshot leases", err))
	}
	if len(errs) > 0 {
		return failed(errs...)
	}
	return outcome{}
}

func (r *Reconciler) deleteLeases(ctx context.Context, etcd *api.Etcd, component string) error {
	return r.client.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(etcd.Namespace), client.MatchingLabels(render.LeaseSelector(etcd, component)))
}

func (r *Reconciler) awaitGone(ctx context.Context, etcd *api.Etcd) outcome {
	left, err := r.left(ctx, etcd)
	if err != nil {
		return failed(err)
	}
	if left > 0 {
		return later(r.config.CleanupInterval, fmt.Sprintf("%d components are still there.", left))
	}
	return outcome{}
}

// left counts the components that the Etcd still controls.
func (r *Reconciler) left(ctx context.Context, etcd *api.Etcd) (int, error) {
	count := 0
	for _, s := range singles(etcd) {
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(s.obj), s.obj); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return 0, fmt.Errorf("get component %s of Etcd %s: %w", s.obj.GetName(), client.ObjectKeyFromObject(etcd), err)
		}
		if metav1.IsControlledBy(s.obj, etcd) {
			count++
		}
	}
	leases := &coordinationv1.LeaseList{}
	if err := r.client.List(ctx, leases, client.InNamespace(etcd.Namespace), client.MatchingLabels(etcd.DefaultLabels())); err != nil {
		return 0, fmt.Errorf("list leases of Etcd %s: %w", client.ObjectKeyFromObject(etcd), err)
	}
	for i := range leases.Items {
		if metav1.IsControlledBy(&leases.Items[i], etcd) {
			count++
		}
	}
	return count, nil
}

func addFinalizer(etcd *api.Etcd) bool { return controllerutil.AddFinalizer(etcd, api.Finalizer) }

func (r *Reconciler) removeFinalizer(ctx context.Context, etcd *api.Etcd) outcome {
	before := etcd.DeepCopy()
	if !controllerutil.RemoveFinalizer(etcd, api.Finalizer) {
		return outcome{}
	}
	if err := r.client.Patch(ctx, etcd, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return failed(fmt.Errorf("remove finalizer of Etcd %s: %w", client.ObjectKeyFromObject(etcd), err))
	}
	return outcome{}
}
