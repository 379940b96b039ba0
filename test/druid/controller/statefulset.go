package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/render"
)

// renderer is render.StatefulSet or render.MutableStatefulSet.
type renderer func(*appsv1.StatefulSet, *api.Etcd, render.Input) error

// syncStatefulSet makes or patches the StatefulSet. Where only pods are left of it, it is first made again as large as
// the cluster was.
func (r *Reconciler) syncStatefulSet(ctx context.Context, etcd *api.Etcd, checksum string) error {
	in, err := r.input(ctx, etcd, checksum)
	if err != nil {
		return syncFailure(etcd, "read the store's secret", err)
	}
	live, err := r.liveStatefulSet(ctx, etcd)
	if err != nil {
		return syncFailure(etcd, "read", err)
	}
	if live == nil && etcd.Status.ObservedGeneration != nil {
		if err := r.adoptOrphans(ctx, etcd, in); err != nil {
			return err
		}
	}
	if live != nil {
		if err := r.followTLS(ctx, etcd, live, in); err != nil {
			return err
		}
		if err := r.orphanOnOtherSelector(ctx, etcd, live); err != nil {
			return err
		}
	}
	in.Replicas = etcd.Spec.Replicas
	return r.applyStatefulSet(ctx, etcd, in, render.StatefulSet)
}

func syncFailure(etcd *api.Etcd, what string, cause error) error {
	return fail(CodeSyncStatefulSet, operationSync, fmt.Sprintf("%s StatefulSet %s/%s", what, etcd.Namespace, etcd.Name), cause)
}

func (r *Reconciler) input(ctx context.Context, etcd *api.Etcd, checksum string) (render.Input, error) {
	host, err := r.hostPath(ctx, etcd)
	return render.Input{Images: r.config.Images, ReadinessDelay: r.config.ReadinessDelay, ConfigChecksum: checksum, HostPath: host}, err
}

// hostPath is the node's directory for local backups, which the store's secret may name.
func (r *Reconciler) hostPath(ctx context.Context, etcd *api.Etcd) (string, error) {
	if !render.IsLocal(etcd) || etcd.Spec.Backup.Store.SecretRef == nil {
		return render.DefaultHostPath, nil
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: etcd.Namespace, Name: etcd.Spec.Backup.Store.SecretRef.Name}
	if err := r.client.Get(ctx, key, secret); err != nil {
		return "", fmt.Errorf("get secret %s: %w", key, err)
	}
	if path, ok := secret.Data[render.HostPathKey]; ok {
		return string(path), nil
	}
	return render.DefaultHostPath, nil
}

// liveStatefulSet is the StatefulSet of that name, whoever controls it; nil if there is none.
func (r *Reconciler) liveStatefulSet(ctx context.Context, etcd *api.Etcd) (*appsv1.StatefulSet, error) {
	sts := &appsv1.StatefulSet{}
	err := r.client.Get(ctx, client.ObjectKeyFromObject(etcd), sts)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return sts, nil
}

// applyStatefulSet creates or patches. The API server refuses the patch as a whole when a fixed field differs.
func (r *Reconciler) applyStatefulSet(ctx context.Context, etcd *api.Etcd, in render.Input, set renderer) error {
	sts := &appsv1.StatefulSet{ObjectMeta: meta(etcd, etcd.Name)}
	if _, err := controllerutil.CreateOrPatch(ctx, r.client, sts, func() error { return set(sts, etcd, in) }); err != nil {
		return syncFailure(etcd, fmt.Sprintf("create or patch to %d replicas", in.Replicas), err)
	}
	return nil
}

// adoptOrphans makes a StatefulSet for the pods that are left of one, as large as the status has members, so that none
// of them is taken for superfluous. The spec's own number follows in the next pass.
func (r *Reconciler) adoptOrphans(ctx context.Context, etcd *api.Etcd, in render.Input) error {
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if err := r.client.List(ctx, pods, client.InNamespace(etcd.Namespace), client.MatchingLabels(etcd.DefaultLabels())); err != nil {
		return syncFailure(etcd, "look for pods of", err)
	}
	members := len(etcd.Status.Members)
	if len(pods.Items) == 0 || members == 0 {
		return nil
	}
	in.Replicas = int32(members)
	if err := r.applyStatefulSet(ctx, etcd, in, render.StatefulSet); err != nil {
		return err
	}
	return &notYet{why: fmt.Sprintf("the StatefulSet was made again for the %d members that there were.", members)}
}

// orphanOnOtherSelector removes a StatefulSet with another selector and leaves its pods, to be adopted later.
func (r *Reconciler) orphanOnOtherSelector(ctx context.Context, etcd *api.Etcd, live *appsv1.StatefulSet) error {
	if labels.Equals(live.Spec.Selector.MatchLabels, etcd.DefaultLabels()) {
		return nil
	}
	if err := r.client.Delete(ctx, live, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		return syncFailure(etcd, "orphan the pods of", err)
	}
	return &notYet{why: "the StatefulSet with another selector is being removed."}
}
