package reconciler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/reconciler/act"
	"github.com/etcd-volumes/etcd-volumes/reconciler/observe"
	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/report"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// atOnce is the pause after a step that was done: none to speak of.
const atOnce = time.Millisecond

// passPatience bounds one pass; the longest step is to wait for a snapshot.
const passPatience = 2 * time.Minute

// longestNote is how much of a message an event can carry.
const longestNote = 1000

// Reconciler carries out confirmed volume changes, one step a pass.
type Reconciler struct {
	Observer observe.Observer
	Actor    act.Actor
	Client   client.Client // for status alone
	Recorder events.EventRecorder
	Now      func() time.Time

	measures *measures
	active   sync.Map // keys of Etcds with work to do: only their pods and leases are worth a look
}

// Reconcile makes one pass for the Etcd of the given name.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, passPatience)
	defer cancel()
	key, now := req.NamespacedName, r.Now()
	snap, err := r.Observer.Cluster(ctx, key, now)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe %s: %w", key, err)
	}
	r.remember(key, snap)
	step := plan.Next(snap, now)
	if err := plan.Check(snap, step); err != nil {
		r.measures.refused(step.Action)
		step = plan.Refuse(step, err)
	}
	outcome, actErr := r.Actor.Do(ctx, key, step)
	result := report.Result{Err: actErr, Conflict: outdated(actErr), Revision: outcome.Revision}
	reportErr := r.write(ctx, snap, report.Of(snap, step, result, now))
	r.measures.pass(key, snap, step, result, now)
	if result.Conflict {
		actErr = nil // what preconditions are for
	}
	return again(step, result), errors.Join(actErr, reportErr)
}

func again(step plan.Step, result report.Result) ctrl.Result {
	// Who takes off druid's annotations again and again is not fought at full speed.
	if result.Conflict || step.Action.Writes() && step.Action != plan.HoldDruid && result.Err == nil {
		return ctrl.Result{RequeueAfter: atOnce}
	}
	return ctrl.Result{RequeueAfter: step.Again}
}

// outdated reports whether a step failed only because something was changed since it was observed.
func outdated(err error) bool { return apierrors.IsConflict(err) || errors.Is(err, act.ErrChanged) }

func (r *Reconciler) remember(key types.NamespacedName, snap plan.Snapshot) {
	if snap.Active() {
		r.active.Store(key, struct{}{})
		return
	}
	r.active.Delete(key)
}

// write puts the report down: statuses first, events only after.
func (r *Reconciler) write(ctx context.Context, snap plan.Snapshot, rep report.Report) error {
	var errs []error
	for _, st := range rep.Statuses {
		if err := r.writeStatus(ctx, snap.Namespace, st); err != nil {
			errs = append(errs, fmt.Errorf("write status of rollout %s/%s: %w", snap.Namespace, st.Rollout, err))
		}
	}
	if rep.Condition != nil {
		if err := r.writeCondition(ctx, snap, *rep.Condition); err != nil {
			errs = append(errs, fmt.Errorf("write condition of etcd %s/%s: %w", snap.Namespace, snap.Name, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, e := range rep.Events {
		r.tell(snap, e)
	}
	return nil
}

// writeStatus patches what differs. There is one writer (the leader), and no decision rests on the status but for
// whether the rollout has ended and when a snapshot was last asked for.
func (r *Reconciler) writeStatus(ctx context.Context, namespace string, st report.Status) error {
	before := &v1alpha1.VolumeRollout{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: st.Rollout}, Status: st.Before}
	now := before.DeepCopy()
	now.Status = st.Now
	return client.IgnoreNotFound(r.Client.Status().Patch(ctx, now, client.MergeFrom(before)))
}

// writeCondition writes the list of conditions back under optimistic locking, as druid writes it too. A lost race is made up
// for in the next pass.
func (r *Reconciler) writeCondition(ctx context.Context, snap plan.Snapshot, part report.EtcdPart) error {
	before := &volume.Etcd{
		ObjectMeta: metav1.ObjectMeta{Namespace: snap.Namespace, Name: snap.Name, ResourceVersion: part.ResourceVersion, UID: types.UID(part.UID)},
		Status:     volume.EtcdStatus{Conditions: part.Before},
	}
	now := before.DeepCopy()
	now.Status.Conditions = part.Now
	err := r.Client.Status().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// tell records an event on the Etcd, and on the rollout where there is one.
func (r *Reconciler) tell(snap plan.Snapshot, e report.Event) {
	kind, note := corev1.EventTypeNormal, e.Message
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	if len(note) > longestNote {
		note = note[:longestNote]
	}
	if snap.Etcd != nil {
		etcd := &volume.Etcd{ObjectMeta: metav1.ObjectMeta{Namespace: snap.Namespace, Name: snap.Name, UID: types.UID(snap.Etcd.UID)}}
		r.Recorder.Eventf(etcd, nil, kind, e.Reason, "VolumeRollout", "%s", note)
	}
	for _, ro := range snap.Rollouts {
		if ro.Name == e.Rollout {
			rollout := &v1alpha1.VolumeRollout{ObjectMeta: metav1.ObjectMeta{Namespace: snap.Namespace, Name: ro.Name, UID: types.UID(ro.UID)}}
			r.Recorder.Eventf(rollout, nil, kind, e.Reason, "VolumeRollout", "%s", note)
		}
	}
}
