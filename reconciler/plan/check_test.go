package plan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
)

// before runs a rollout until the given action is the next step, and returns it undone.
func before(t *testing.T, action plan.Action) (*world, plan.Step) {
	t.Helper()
	w := newWorld(t, 4, 3)
	w.confirm(fast)
	for range 1000 {
		probe := *w
		probe.s.Answers.ClaimAsked = true
		for _, m := range w.s.Members {
			if m.Pod == nil {
				continue
			}
			probe.s.Answers.EvictionAsked = m.Pod.UID
			if step := plan.Next(probe.s, w.now); step.Action == action {
				w.s.Answers = probe.s.Answers
				require.NoError(t, plan.Check(w.s, step))
				return w, step
			}
		}
		w.pass()
		w.turn()
	}
	require.Fail(t, "never came to "+string(action))
	return nil, plan.Step{}
}

func TestEachPromiseRefusesAStepThatWouldBreakIt(t *testing.T) {
	t.Parallel()
	other := func(step plan.Step) int { return (step.Member + 1) % 3 }
	table := map[string]struct {
		action plan.Action
		spoil  func(w *world, step *plan.Step)
	}{
		"a claim is deleted only if the confirmed stamp names its UID":          {plan.DeleteClaim, func(w *world, s *plan.Step) { w.s.Members[s.Member].Claim.UID, s.Target.UID = "x", "x" }},
		"a rollout destroys only what the Etcd still asks for":                  {plan.DeleteClaim, func(w *world, _ *plan.Step) { w.s.Etcd.Wanted = wide }},
		"a claim is deleted only if its volume is kept and bears our marks":     {plan.DeleteClaim, func(w *world, s *plan.Step) { w.s.Members[s.Member].Volume.Policy = "Delete" }},
		"one member at most is out":                                             {plan.DeleteClaim, func(w *world, s *plan.Step) { w.s.Members[other(*s)].Pod.Ready = false }},
		"a pod is evicted only if its claim is going":                           {plan.EvictPod, func(w *world, s *plan.Step) { w.s.Members[s.Member].Claim.Deleting = false }},
		"a claim is deleted only under the new template":                        {plan.DeleteClaim, func(w *world, _ *plan.Step) { w.s.StatefulSet.Templates[0] = slow }},
		"the leader is not taken out":                                           {plan.DeleteClaim, func(w *world, s *plan.Step) { w.elect(s.Member) }},
		"the StatefulSet is deleted only if its manifest is kept":               {plan.DeleteStatefulSet, func(w *world, _ *plan.Step) { w.s.Records[0].Generation = 7 }},
		"the StatefulSet is made again only if it is gone":                      {plan.CreateStatefulSet, func(w *world, _ *plan.Step) { w.s.StatefulSet = &plan.StatefulSet{} }},
		"nothing is destroyed unless the door stands":                           {plan.DeleteClaim, func(w *world, _ *plan.Step) { w.s.Door = plan.Door{Fault: "gone"} }},
		"nothing is destroyed unless druid is held":                             {plan.DeleteStatefulSet, func(w *world, _ *plan.Step) { w.s.Etcd.Suspended = false }},
		"a claim is deleted only after a proven backup, where backups are kept": {plan.DeleteClaim, func(w *world, _ *plan.Step) { w.s.Backup.FullAt = time.Time{} }},
		"every delete carries UID and resourceVersion":                          {plan.DeleteClaim, func(_ *world, s *plan.Step) { s.Target.ResourceVersion = "" }},
		"leadership moves to a voter that is caught up":                         {plan.MoveLeader, func(_ *world, s *plan.Step) { s.Transferee = 1 }},
		"a policy is given back only as it was, and never to a volume in use by the rollout": {plan.KeepVolume, func(_ *world, s *plan.Step) {
			s.Action, s.Policy = plan.RestorePolicy, "Delete"
		}},
		"only what was set is taken away": {plan.ReleaseDruid, func(w *world, _ *plan.Step) { w.s.Rollouts[0].Held.Suspend = false }},
	}
	require.Len(t, table, len(plan.Promises()), "every promise has its breach")
	for promise, tc := range table {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			w, step := before(t, tc.action)
			tc.spoil(w, &step)
			require.ErrorContains(t, plan.Check(w.s, step), promise)
		})
	}
}

func TestAPromiseIsNotKeptByAppearanceAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		action plan.Action
		spoil  func(w *world, step *plan.Step)
		want   string
	}{
		"the leader does not answer": {plan.DeleteClaim, func(w *world, s *plan.Step) {
			w.elect(s.Member)
			w.s.Members[s.Member].View = plan.View{}
		}, "which may be etcd-"},
		"a member that is no more still has a vote": {plan.DeleteClaim, func(w *world, _ *plan.Step) {
			w.s.Cluster.Listed = append(w.s.Cluster.Listed, plan.Listed{ID: 0xdead, Name: "etcd-9"})
		}, "etcd lists 4 members"},
		"fewer members were confirmed than there are": {plan.DeleteClaim, func(w *world, _ *plan.Step) { w.s.Rollouts[0].Replicas = 5 }, "confirmed for 5"},
		"the rollout is being deleted":                {plan.DeleteClaim, func(w *world, _ *plan.Step) { w.s.Rollouts[0].Deleting = true }, "being deleted"},
		"the rollout has ended":                       {plan.ProtectVolume, func(w *world, _ *plan.Step) { w.s.Rollouts[0].Status.Phase = v1alpha1.Complete }, "has ended"},
		"the manifest is of a rollout that has ended": {plan.CreateStatefulSet, func(w *world, _ *plan.Step) { w.s.Rollouts[0].Status.Phase = v1alpha1.Complete }, "an old one"},
		"a volume of a claim that stays is marked for a stale change": {plan.ProtectVolume, func(w *world, _ *plan.Step) {
			w.s.Etcd.Wanted = wide
		}, "other volumes than were confirmed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, step := before(t, tc.action)
			tc.spoil(w, &step)
			require.ErrorContains(t, plan.Check(w.s, step), tc.want)
		})
	}
}

func TestAVolumeWhoseClaimIsGoingMayBeKeptWhateverIsAskedFor(t *testing.T) {
	t.Parallel()
	w, step := before(t, plan.ProtectVolume)
	w.s.Members[step.Member].Claim.Deleting, w.s.Etcd.Wanted = true, wide
	require.NoError(t, plan.Check(w.s, step))
}

func TestARefusedStepIsReportedInsteadOfDone(t *testing.T) {
	t.Parallel()
	w, step := before(t, plan.DeleteClaim)
	w.s.Etcd.Wanted = wide
	refused := plan.Refuse(step, plan.Check(w.s, step))
	require.False(t, refused.Action.Writes())
	require.Equal(t, plan.PromiseAtRisk, refused.Reason)
	require.Contains(t, refused.Message, "the Etcd asks for other volumes than were confirmed")
}
