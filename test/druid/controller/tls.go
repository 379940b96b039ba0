package controller

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/render"
)

// followTLS brings new certificates to the pods before anything else changes: the members have to agree on peer TLS
// before the cluster may grow.
func (r *Reconciler) followTLS(ctx context.Context, etcd *api.Etcd, live *appsv1.StatefulSet, in render.Input) error {
	if etcd.Spec.Replicas == 0 {
		return nil
	}
	if !tlsInSync(etcd, live) {
		return r.rollTLS(ctx, etcd, live, in)
	}
	inSync, err := r.peerTLSReported(ctx, etcd, ptr.Deref(live.Spec.Replicas, 0))
	if err != nil {
		return syncFailure(etcd, "look for peer TLS of the members of", err)
	}
	if !inSync {
		return &notYet{why: "not every member has reported that it follows the change of peer TLS."}
	}
	return nil
}

func (r *Reconciler) rollTLS(ctx context.Context, etcd *api.Etcd, live *appsv1.StatefulSet, in render.Input) error {
	replicas, ready := ptr.Deref(live.Spec.Replicas, 0), live.Status.ReadyReplicas
	peersChange := len(tlsMounts(live, render.ContainerEtcd, render.IsPeerTLSVolume)) != len(render.PeerTLSMounts(etcd))
	if peersChange && replicas > 1 && ready > 0 && ready < replicas {
		return &notYet{why: fmt.Sprintf("peer TLS is not changed while only %d of %d members are ready.", ready, replicas)}
	}
	in.Replicas = replicas
	if err := r.applyStatefulSet(ctx, etcd, in, render.MutableStatefulSet); err != nil {
		return err
	}
	return &notYet{why: "the pods are being given other certificates."}
}

func tlsInSync(etcd *api.Etcd, live *appsv1.StatefulSet) bool {
	return sameMounts(tlsMounts(live, render.ContainerEtcd, render.IsTLSVolume), render.EtcdTLSMounts(etcd)) &&
		sameMounts(tlsMounts(live, render.ContainerBackup, render.IsTLSVolume), render.BackupTLSMounts(etcd))
}

func tlsMounts(sts *appsv1.StatefulSet, container string, counts func(string) bool) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	for _, c := range sts.Spec.Template.Spec.Containers {
		if c.Name != container {
			continue
		}
		for _, m := range c.VolumeMounts {
			if counts(m.Name) {
				mounts = append(mounts, m)
			}
		}
	}
	return mounts
}

func sameMounts(live, wanted []corev1.VolumeMount) bool {
	if len(live) != len(wanted) {
		return false
	}
	for _, w := range wanted {
		if !slices.ContainsFunc(live, func(l corev1.VolumeMount) bool { return l.Name == w.Name && l.MountPath == w.MountPath }) {
			return false
		}
	}
	return true
}

// peerTLSReported says whether the leases of so many members agree with the spec on peer TLS. Where there are fewer
// leases, they do not.
func (r *Reconciler) peerTLSReported(ctx context.Context, etcd *api.Etcd, members int32) (bool, error) {
	leases := &coordinationv1.LeaseList{}
	if err := r.client.List(ctx, leases, client.InNamespace(etcd.Namespace)); err != nil {
		return false, err
	}
	wanted := etcd.Spec.Etcd.PeerURLTLS != nil
	agreeing := int32(0)
	for i := range leases.Items {
		lease := &leases.Items[i]
		if !metav1.IsControlledBy(lease, etcd) || !slices.Contains(etcd.MemberNames(), lease.Name) {
			continue
		}
		enabled, err := peerTLSOf(lease)
		if err != nil {
			return false, err
		}
		if enabled == wanted {
			agreeing++
		}
	}
	return agreeing >= members, nil
}

func peerTLSOf(lease *coordinationv1.Lease) (bool, error) {
	value, ok := lease.Annotations[api.AnnotationPeerTLS]
	if !ok {
		return false, nil
	}
	enabled, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("annotation %s of lease %s: %w", api.AnnotationPeerTLS, client.ObjectKeyFromObject(lease), err)
	}
	return enabled, nil
}
