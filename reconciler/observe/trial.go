package observe

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// answer puts the planner's questions until it has none.
func (o Observer) answer(ctx context.Context, s *plan.Snapshot, now time.Time) error {
	for range rounds {
		q := plan.Wants(*s, now)
		if q.Claim == nil && q.Pod == nil {
			return nil
		}
		if err := o.try(ctx, s, q); err != nil {
			return err
		}
	}
	return nil
}

// trialPatience bounds one question. The client waits by itself where the API server says "later", and must not for long.
const trialPatience = 5 * time.Second

func (o Observer) try(ctx context.Context, s *plan.Snapshot, q plan.Questions) error {
	ctx, cancel := context.WithTimeout(ctx, trialPatience)
	defer cancel()
	if q.Claim != nil {
		refused, err := refusal(o.Trial.Create(ctx, trialClaim(s.Namespace, s.Name, *q.Claim)))
		if err != nil {
			return fmt.Errorf("try to create a claim for %s/%s: %w", s.Namespace, s.Name, err)
		}
		s.Answers.ClaimAsked, s.Answers.ClaimRefused = true, refused
	}
	if q.Pod != nil {
		refused, err := refusal(o.tryEviction(ctx, s.Namespace, *q.Pod))
		if err != nil {
			return fmt.Errorf("try to evict pod %s/%s: %w", s.Namespace, q.Pod.Name, err)
		}
		s.Answers.EvictionAsked, s.Answers.EvictionRefused = q.Pod.UID, refused
	}
	return nil
}

func (o Observer) tryEviction(ctx context.Context, namespace string, target plan.Target) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: target.Name}}
	uid := types.UID(target.UID)
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: target.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &uid}},
	}
	return o.Trial.SubResource("eviction").Create(ctx, pod, eviction, client.DryRunAll)
}

// refusal tells an answer (the words of a refusal) from a failed look.
func refusal(err error) (string, error) {
	switch {
	case err == nil:
		return "", nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsTooManyRequests(err),
		apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return err.Error(), nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "the API server says to try again later", nil
	}
	return "", err
}

// trialClaim is what the StatefulSet controller would create, under a name that disturbs nobody.
func trialClaim(namespace, etcd string, spec volume.Spec) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, GenerateName: spec.Template + "-" + etcd + "-trial-",
			Labels: map[string]string{volume.ManagedByLabel: volume.ManagedByDruid, volume.PartOfLabel: etcd},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: spec.Capacity}},
		},
	}
	if spec.Class != "" {
		claim.Spec.StorageClassName = &spec.Class
	}
	return claim
}
