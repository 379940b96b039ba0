package storage

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
)

const (
	// pendingTime is how long a claim shows that the file system on the node is
	// still to be resized: long enough to be seen by whoever watches.
	pendingTime = 300 * time.Millisecond

	// annotationProvisionedBy names the provisioner of a volume.
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
)

// resizer acts out the part of the external resizer and that of the kubelet.
type resizer struct {
	client  kubernetes.Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	events  record.EventRecorder
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	log     logr.Logger
}

// enqueue notes claims that ask for more than they have. Most changes of
// claims are of another kind.
func (r *resizer) enqueue(obj any) {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	if ok && wantsMore(claim) {
		r.queue.Add(keyOf(claim))
	}
}

// run works until ctx is done.
func (r *resizer) run(ctx context.Context, workers int) {
	stop := context.AfterFunc(ctx, r.queue.ShutDown)
	defer stop()
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	all.Wait()
}

func (r *resizer) next(ctx context.Context) bool {
	key, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(key)
	if err := r.sync(ctx, key); err != nil {
		r.log.V(1).Info("claim not expanded", "claim", key, "reason", err.Error())
		r.queue.AddRateLimited(key)
		return true
	}
	r.queue.Forget(key)
	return true
}

// sync carries one claim through a whole expansion. An expansion that was
// interrupted is done again from the start, which changes nothing that is done.
func (r *resizer) sync(ctx context.Context, key types.NamespacedName) error {
	claim, volume, err := r.find(ctx, key)
	if err != nil || claim == nil {
		return err
	}
	params, err := r.parameters(volume)
	if err != nil {
		return r.fail(ctx, claim, volume, err)
	}
	size := requested(claim)
	r.events.Event(claim, corev1.EventTypeNormal, "Resizing", "External resizer is resizing volume "+volume.Name)
	if err := r.update(ctx, claim, inProgress(size)); err != nil {
		return err
	}
	if err := wait(ctx, params.expandDelay); err != nil {
		return err
	}
	if err := refusal(params, size); err != nil {
		return r.fail(ctx, claim, volume, err)
	}
	if err := r.grow(ctx, volume, size); err != nil {
		return err
	}
	r.events.Event(claim, corev1.EventTypeNormal, "FileSystemResizeRequired", "Require file system resize of volume on node")
	if err := r.update(ctx, claim, pendingOnNode); err != nil {
		return err
	}
	if err := wait(ctx, pendingTime); err != nil {
		return err
	}
	if err := r.update(ctx, claim, finished(size)); err != nil {
		return err
	}
	r.events.Eventf(claim, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume %q", volume.Name)
	return nil
}

// find returns nil where there is nothing to expand. What the cache calls for
// is looked up once more: right after an expansion it may not show the end yet,
// and the claim would be expanded again.
func (r *resizer) find(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	cached, err := r.claims.PersistentVolumeClaims(key.Namespace).Get(key.Name)
	if err != nil || !wantsMore(cached) {
		return nil, nil, ignoreNotFound(err)
	}
	claim, err := r.client.CoreV1().PersistentVolumeClaims(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil || !wantsMore(claim) {
		return nil, nil, ignoreNotFound(err)
	}
	volume, err := r.volumes.Get(claim.Spec.VolumeName)
	if err != nil {
		return nil, nil, fmt.Errorf("get volume of claim %s: %w", key, err)
	}
	ours := volume.Annotations[annotationProvisionedBy] == Provisioner
	if ref := volume.Spec.ClaimRef; !ours || ref == nil || ref.UID != claim.UID {
		return nil, nil, nil
	}
	return claim, volume, nil
}

// parameters of a class that is gone are none: its volumes stay usable.
func (r *resizer) parameters(volume *corev1.PersistentVolume) (parameters, error) {
	class, err := r.classes.Get(volume.Spec.StorageClassName)
	if apierrors.IsNotFound(err) {
		return parameters{}, nil
	}
	if err != nil {
		return parameters{}, fmt.Errorf("get storage class: %w", err)
	}
	return parse(class.Parameters)
}

func refusal(params parameters, size resource.Quantity) error {
	if params.expandFailure != "" {
		return rpcError("Internal", params.expandFailure)
	}
	if params.exceeds(size) {
		return rpcError("OutOfRange", "out of capacity")
	}
	return nil
}

// fail tells the user and has the expansion tried again.
func (r *resizer) fail(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, cause error) error {
	message := fmt.Sprintf("resize volume %q by resizer %q failed: %v", volume.Name, Provisioner, cause)
	r.events.Event(claim, corev1.EventTypeWarning, "VolumeResizeFailed", message)
	if err := r.update(ctx, claim, failed(message)); err != nil {
		return err
	}
	return cause
}

// grow raises the volume's capacity; it never lowers it.
func (r *resizer) grow(ctx context.Context, volume *corev1.PersistentVolume, size resource.Quantity) error {
	if has := volume.Spec.Capacity[corev1.ResourceStorage]; has.Cmp(size) >= 0 {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"capacity":{"storage":%q}}}`, volume.UID, size.String())
	_, err := r.client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("raise capacity of volume %s: %w", volume.Name, err)
	}
	return nil
}

// update changes the status of the claim, as long as it is still that claim.
func (r *resizer) update(ctx context.Context, claim *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaimStatus)) error {
	api := r.client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := api.Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if live.UID != claim.UID {
			return apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), claim.Name)
		}
		change(&live.Status)
		_, err = api.UpdateStatus(ctx, live, metav1.UpdateOptions{})
		return err
	})
	if err := ignoreNotFound(err); err != nil {
		return fmt.Errorf("update status of claim %s: %w", keyOf(claim), err)
	}
	return nil
}

func inProgress(size resource.Quantity) func(*corev1.PersistentVolumeClaimStatus) {
	return func(s *corev1.PersistentVolumeClaimStatus) {
		setStorage(&s.AllocatedResources, size)
		setResizeStatus(s, corev1.PersistentVolumeClaimControllerResizeInProgress)
		setCondition(s, corev1.PersistentVolumeClaimResizing, "")
	}
}

func pendingOnNode(s *corev1.PersistentVolumeClaimStatus) {
	setResizeStatus(s, corev1.PersistentVolumeClaimNodeResizePending)
	dropConditions(s)
	setCondition(s, corev1.PersistentVolumeClaimFileSystemResizePending,
		"Waiting for user to (re-)start a pod to finish file system resize of volume on node.")
}

func finished(size resource.Quantity) func(*corev1.PersistentVolumeClaimStatus) {
	return func(s *corev1.PersistentVolumeClaimStatus) {
		setStorage(&s.Capacity, size)
		delete(s.AllocatedResourceStatuses, corev1.ResourceStorage)
		dropConditions(s)
	}
}

func failed(message string) func(*corev1.PersistentVolumeClaimStatus) {
	return func(s *corev1.PersistentVolumeClaimStatus) {
		setCondition(s, corev1.PersistentVolumeClaimControllerResizeError, message)
	}
}

func setStorage(list *corev1.ResourceList, size resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[corev1.ResourceStorage] = size
}

func setResizeStatus(s *corev1.PersistentVolumeClaimStatus, status corev1.ClaimResourceStatus) {
	if s.AllocatedResourceStatuses == nil {
		s.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	s.AllocatedResourceStatuses[corev1.ResourceStorage] = status
}

// setCondition keeps the time of a condition that holds already.
func setCondition(s *corev1.PersistentVolumeClaimStatus, kind corev1.PersistentVolumeClaimConditionType, message string) {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			s.Conditions[i].Message = message
			return
		}
	}
	s.Conditions = append(s.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Message: message,
	})
}

// dropConditions removes those that an expansion sets, and no other.
func dropConditions(s *corev1.PersistentVolumeClaimStatus) {
	own := []corev1.PersistentVolumeClaimConditionType{
		corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool { return slices.Contains(own, c.Type) })
}

func requested(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	return claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

func wantsMore(claim *corev1.PersistentVolumeClaim) bool {
	has, ok := claim.Status.Capacity[corev1.ResourceStorage]
	size := requested(claim)
	return ok && claim.Status.Phase == corev1.ClaimBound && size.Cmp(has) > 0
}

// expansionHandler has claims looked at that are new or changed.
func expansionHandler(enqueue func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, after any) { enqueue(after) },
	}
}

// ignoreNotFound is for claims: one that is gone needs nothing any more.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func keyOf(claim *corev1.PersistentVolumeClaim) types.NamespacedName {
	return types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
}
