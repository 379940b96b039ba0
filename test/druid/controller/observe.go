package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/health"
)

const maxWarningsPerClaim = 2

// observe reads all that the status is made from. Only a StatefulSet that cannot be read keeps the status from being
// written; everything else that cannot be read is said in it.
func (r *Reconciler) observe(ctx context.Context, etcd *api.Etcd) (health.World, error) {
	sts, err := r.controlledStatefulSet(ctx, etcd)
	if err != nil {
		return health.World{}, err
	}
	w := health.World{
		Now:             time.Now().UTC(),
		Leases:          map[string]health.Found[coordinationv1.Lease]{},
		ContainersReady: map[string]health.Found[bool]{},
		StatefulSet:     health.Found[appsv1.StatefulSet]{Value: sts},
	}
	for _, member := range etcd.MemberNames() {
		w.Leases[member] = lookup(ctx, r.client, etcd.Namespace, member, &coordinationv1.Lease{})
		pod := etcd.PodOfMember(member)
		w.ContainersReady[pod] = containersReady(lookup(ctx, r.client, etcd.Namespace, pod, &corev1.Pod{}))
	}
	for _, name := range []string{etcd.FullSnapshotLeaseName(), etcd.DeltaSnapshotLeaseName()} {
		w.Leases[name] = lookup(ctx, r.client, etcd.Namespace, name, &coordinationv1.Lease{})
	}
	if sts != nil {
		warnings, err := r.volumeWarnings(ctx, sts)
		w.VolumeWarnings = health.Found[string]{Value: &warnings, Err: err}
	}
	return w, nil
}

// controlledStatefulSet is the StatefulSet if the Etcd controls it.
func (r *Reconciler) controlledStatefulSet(ctx context.Context, etcd *api.Etcd) (*appsv1.StatefulSet, error) {
	sts, err := r.liveStatefulSet(ctx, etcd)
	if err != nil {
		return nil, fmt.Errorf("get StatefulSet %s: %w", client.ObjectKeyFromObject(etcd), err)
	}
	if sts == nil || !metav1.IsControlledBy(sts, etcd) {
		return nil, nil
	}
	return sts, nil
}

// lookup reads one object into obj.
func lookup[T any, P interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, namespace, name string, obj P) health.Found[T] {
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return health.Found[T]{}
	}
	if err != nil {
		return health.Found[T]{Err: err}
	}
	return health.Found[T]{Value: obj}
}

func containersReady(pod health.Found[corev1.Pod]) health.Found[bool] {
	if pod.Value == nil {
		return health.Found[bool]{Err: pod.Err}
	}
	for _, c := range pod.Value.Status.Conditions {
		if c.Type == corev1.ContainersReady {
			return health.Found[bool]{Value: ptr.To(c.Status == corev1.ConditionTrue)}
		}
	}
	return health.Found[bool]{Value: ptr.To(false)}
}

// volumeWarnings is what the newest warning events of the claims say that are not bound. Claims are found by the
// beginning of their name.
func (r *Reconciler) volumeWarnings(ctx context.Context, sts *appsv1.StatefulSet) (string, error) {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := r.client.List(ctx, claims, client.InNamespace(sts.Namespace)); err != nil {
		return "", fmt.Errorf("list claims: %w", err)
	}
	var all []string
	var errs error
	for _, template := range sts.Spec.VolumeClaimTemplates {
		for i := range claims.Items {
			claim := &claims.Items[i]
			if !strings.HasPrefix(claim.Name, template.Name+"-"+sts.Name) || claim.Status.Phase == corev1.ClaimBound {
				continue
			}
			warnings, err := r.warningsOf(ctx, claim)
			errs = errors.Join(errs, err)
			if len(warnings) > 0 {
				all = append(all, fmt.Sprintf("claim %s: %s", claim.Name, strings.Join(warnings, ", ")))
			}
		}
	}
	return strings.Join(all, "; "), errs
}

func (r *Reconciler) warningsOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) ([]string, error) {
	events := &corev1.EventList{}
	if err := r.client.List(ctx, events, client.InNamespace(claim.Namespace)); err != nil {
		return nil, fmt.Errorf("list events of claim %s: %w", claim.Name, err)
	}
	about := slices.DeleteFunc(events.Items, func(e corev1.Event) bool {
		return e.Type != corev1.EventTypeWarning || e.InvolvedObject.Kind != "PersistentVolumeClaim" || e.InvolvedObject.Name != claim.Name
	})
	slices.SortFunc(about, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	if len(about) > maxWarningsPerClaim {
		about = about[len(about)-maxWarningsPerClaim:]
	}
	messages := make([]string, 0, len(about))
	for _, e := range about {
		messages = append(messages, fmt.Sprintf("%s: %s", cmp.Or(e.Source.Component, e.ReportingController), e.Message))
	}
	return messages, nil
}
