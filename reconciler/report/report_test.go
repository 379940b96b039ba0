package report_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/report"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

var now = time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)

func snapshot(status v1alpha1.VolumeRolloutStatus) plan.Snapshot {
	return plan.Snapshot{
		Namespace: "shop", Name: "main",
		Etcd:     &plan.Etcd{UID: "e", ResourceVersion: "1", Replicas: 3, Wanted: volume.Spec{Class: "fast", Capacity: resource.MustParse("1Gi"), Template: "main"}},
		Rollouts: []plan.Rollout{{Name: "main-v1", EtcdUID: "e", Generation: 1, Replicas: 3, Status: status}},
	}
}

func waiting(reason plan.Reason) plan.Step {
	return plan.Step{Action: plan.Wait, Reason: reason, Message: "waiting for " + string(reason), Rollout: "main-v1", Phase: v1alpha1.Replacing, Member: -1}
}

func TestSinceIsKeptWhileTheReasonStaysAndEventsAreToldOnce(t *testing.T) {
	first := report.Of(snapshot(v1alpha1.VolumeRolloutStatus{}), waiting(plan.ClaimPending), report.Result{}, now)
	require.Len(t, first.Statuses, 1)
	require.Len(t, first.Events, 1)
	st := first.Statuses[0].Now
	assert.Equal(t, now, st.Since.Time)
	assert.Equal(t, "waiting for ClaimPending", st.Message)
	assert.True(t, meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionProgressing))

	later := report.Of(snapshot(st), waiting(plan.ClaimPending), report.Result{}, now.Add(time.Minute))
	assert.Empty(t, later.Statuses, "nothing changed, nothing is written")
	assert.Empty(t, later.Events)

	other := report.Of(snapshot(st), waiting(plan.PodPending), report.Result{}, now.Add(time.Minute))
	assert.Equal(t, now.Add(time.Minute), other.Statuses[0].Now.Since.Time)
	assert.Len(t, other.Events, 1)
}

func TestAFailedStepIsSaidAndAConflictIsNot(t *testing.T) {
	step := waiting("ClaimDeleted")
	step.Action = plan.DeleteClaim
	failed := report.Of(snapshot(v1alpha1.VolumeRolloutStatus{}), step, report.Result{Err: errors.New("no route")}, now)
	assert.Equal(t, "StepFailed", failed.Statuses[0].Now.Reason)
	assert.Contains(t, failed.Statuses[0].Now.Message, "no route")
	assert.True(t, failed.Events[0].Warning)
	conflict := report.Of(snapshot(v1alpha1.VolumeRolloutStatus{}), step, report.Result{Err: errors.New("x"), Conflict: true}, now)
	assert.Empty(t, conflict.Statuses)
	assert.Empty(t, conflict.Events)
}

func TestAStalledRolloutIsOneConditionAndAWarning(t *testing.T) {
	step := waiting(plan.ClaimPending)
	step.Stalled, step.Phase = true, v1alpha1.Stalled
	rep := report.Of(snapshot(v1alpha1.VolumeRolloutStatus{}), step, report.Result{}, now)
	st := rep.Statuses[0].Now
	assert.Equal(t, v1alpha1.Stalled, st.Phase)
	assert.True(t, meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled))
	assert.False(t, meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionProgressing))
	assert.True(t, rep.Events[0].Warning)
	assert.Equal(t, report.RolloutStalled, rep.Condition.Now[0].Reason)
}

func TestTheConditionSaysWhetherVolumesAreAsWantedAndKeepsThoseOfOthers(t *testing.T) {
	s := snapshot(v1alpha1.VolumeRolloutStatus{Phase: v1alpha1.Complete})
	s.Etcd.Conditions = []volume.Condition{{Type: "Ready", Status: metav1.ConditionTrue}}
	idle := plan.Step{Action: plan.Idle, Member: -1}
	of := func() volume.Condition {
		c := report.Of(s, idle, report.Result{}, now).Condition
		require.NotNil(t, c)
		assert.Equal(t, "Ready", c.Now[0].Type)
		return c.Now[1]
	}
	assert.Equal(t, report.NothingLive, of().Reason)
	s.StatefulSet = &plan.StatefulSet{Templates: []volume.Spec{s.Etcd.Wanted}}
	s.Members = []plan.Member{{PodName: "main-0", Claim: &plan.Claim{Name: "main-main-0", Spec: s.Etcd.Wanted}}}
	assert.Equal(t, metav1.ConditionTrue, of().Status)
	s.Members[0].Claim.Spec.Class = "slow"
	assert.Equal(t, report.VolumesDiffer, of().Reason)
	assert.Contains(t, of().Message, `claim main-main-0 has class "slow"`)

	s.Etcd.Conditions = append(s.Etcd.Conditions, of())
	assert.Nil(t, report.Of(s, idle, report.Result{}, now.Add(time.Hour)).Condition, "it stands already")
}
