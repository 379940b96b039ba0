package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

func requireAll(t *testing.T, w *world, want volume.Spec) {
	t.Helper()
	for _, m := range w.s.Members {
		require.True(t, m.Claim.Is(want), "%s: %v\n%s", m.PodName, m.Claim.Spec, w.story())
	}
	require.True(t, w.s.StatefulSet.Has(want))
	require.False(t, w.s.Etcd.Suspended, w.story())
	require.False(t, w.s.Etcd.Unprotected, w.story())
}

func TestAnyInterleavingEndsCompleteAndKeepsThePromises(t *testing.T) {
	t.Parallel()
	for seed := range int64(150) {
		w := newWorld(t, seed, 3+2*int(seed%2))
		w.confirm(fast)
		w.until(v1alpha1.Complete)
		requireAll(t, w, fast)
		require.Len(t, w.deleted, len(w.s.Members))
		require.Len(t, w.s.Rollouts[0].Status.RetainedVolumes, len(w.s.Members))
		for _, m := range w.s.Rollouts[0].Status.Members {
			require.Equal(t, v1alpha1.MemberReplaced, m.Phase)
			require.NotEmpty(t, m.Evidence)
			require.NotEqual(t, m.Old.MemberID, m.New.MemberID)
			require.NotEqual(t, m.Old.ClaimUID, m.New.ClaimUID)
		}
	}
}

func TestStatusThatIsLostAtAnyTimeChangesNothing(t *testing.T) {
	t.Parallel()
	for seed := range int64(60) {
		w := newWorld(t, seed, 3)
		w.confirm(fast)
		for range 400 {
			w.pass()
			if w.phase() == v1alpha1.Complete {
				break
			}
			if w.rng.Intn(3) == 0 && len(w.s.Rollouts) > 0 {
				w.s.Rollouts[0].Status = v1alpha1.VolumeRolloutStatus{}
			}
			w.turn()
		}
		w.until(v1alpha1.Complete)
		requireAll(t, w, fast)
		require.Len(t, w.deleted, 3)
	}
}

func TestANewerChangeAtAnyTimeSupersedesAndEndsComplete(t *testing.T) {
	t.Parallel()
	for seed := range int64(60) {
		w := newWorld(t, seed, 3)
		w.confirm(fast)
		for range w.rng.Intn(120) {
			w.pass()
			w.turn()
		}
		w.confirm(wide)
		w.finishOrAskAgain(wide)
		requireAll(t, w, wide)
	}
}

// finishOrAskAgain confirms once more where a claim is younger than the confirmation, as the rollout asks for.
func (w *world) finishOrAskAgain(want volume.Spec) {
	w.t.Helper()
	for range 4000 {
		step := w.pass()
		if w.phase() == v1alpha1.Complete && w.s.Rollouts[len(w.s.Rollouts)-1].To.Equal(want) {
			return
		}
		if step.Reason == plan.ClaimNotConfirmed {
			w.confirm(want)
		}
		w.turn()
	}
	require.Failf(w.t, "never complete", "%s", w.story())
}

func TestAChangeBackBeforeAnyMemberIsTouchedAborts(t *testing.T) {
	t.Parallel()
	for seed := range int64(60) {
		w := newWorld(t, seed, 3)
		w.confirm(fast)
		for range w.rng.Intn(25) {
			w.pass()
			w.turn()
		}
		if len(w.s.Rollouts) == 0 || len(w.deleted) > 0 {
			continue
		}
		w.s.Etcd.Wanted = slow
		w.until(v1alpha1.Aborted)
		for range 30 {
			w.pass()
			w.turn()
		}
		requireAll(t, w, slow)
		require.Empty(t, w.deleted)
		require.Empty(t, w.s.Volumes)
		for _, m := range w.s.Members {
			require.Equal(t, "Delete", m.Volume.Policy)
		}
	}
}

func TestAnEtcdDeletedAtAnyTimeHasEverythingPutBack(t *testing.T) {
	t.Parallel()
	for seed := range int64(60) {
		w := newWorld(t, seed, 3)
		w.confirm(fast)
		w.pass()
		for range w.rng.Intn(150) {
			w.pass()
			w.turn()
		}
		w.s.Etcd.Deleting = true
		deleted := len(w.deleted)
		for range 60 {
			w.pass()
			w.turn()
		}
		require.Len(t, w.deleted, deleted)
		require.False(t, w.s.Etcd.Suspended, w.story())
		require.False(t, w.s.Rollouts[0].Finalizer, w.story())
		for _, v := range w.s.Volumes {
			require.False(t, v.Mark.RetainedUntil.IsZero(), w.story())
			require.False(t, v.ClaimLives, w.story())
		}
		for _, m := range w.s.Members {
			require.True(t, m.Volume == nil || m.Claim == nil || m.Claim.Deleting || m.Volume.Policy == "Delete", w.story())
		}
	}
}

func TestARolloutDeletedAtAnyTimeIsMadeAnewAndEndsComplete(t *testing.T) {
	t.Parallel()
	for seed := range int64(60) {
		w := newWorld(t, seed, 3)
		w.confirm(fast)
		w.pass()
		for range w.rng.Intn(100) {
			w.pass()
			w.turn()
		}
		if w.phase() == v1alpha1.Complete {
			continue
		}
		w.s.Rollouts[0].Deleting = true
		for range 3000 {
			if w.pass().Action == plan.Idle {
				break
			}
			w.turn()
		}
		requireAll(t, w, fast)
		require.Len(t, w.deleted, 3)
	}
}

func TestOldVolumesGetTheirPolicyBackWhenTheirTimeIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1, 3)
	w.confirm(fast)
	w.until(v1alpha1.Complete)
	require.Len(t, w.s.Volumes, 3)
	step := w.pass()
	require.Equal(t, plan.Idle, step.Action)
	require.Positive(t, step.Again)
	w.now = w.now.Add(2 * time.Hour)
	for range 4 {
		w.pass()
	}
	require.Empty(t, w.s.Volumes)
	require.Empty(t, w.s.Rollouts[0].Status.RetainedVolumes)
}

func TestAClassThatNeverProvisionsStallsAndAChangeToAnotherClassTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2, 3)
	broken := fast
	broken.Class = "broken"
	w.confirm(broken)
	w.until(v1alpha1.Stalled)
	require.Len(t, w.deleted, 1)
	st := w.s.Rollouts[0].Status
	require.Equal(t, string(plan.ClaimPending), st.Reason)
	require.Contains(t, st.Message, "waiting for a volume")
	w.confirm(fast)
	w.until(v1alpha1.Complete)
	requireAll(t, w, fast)
	require.Equal(t, v1alpha1.Superseded, w.s.Rollouts[0].Status.Phase)
}

func TestEachGateWaitsUnderItsOwnNameAndTouchesNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(w *world)
		want  plan.Reason
	}{
		"door":        {func(w *world) { w.s.Door = plan.Door{Fault: "gone"} }, plan.DoorNotStanding},
		"other stamp": {func(w *world) { w.s.Etcd.Wanted = wide }, plan.SpecDiffersFromStamp},
		"druid held by others": {func(w *world) {
			w.s.Rollouts[0].Held.Suspend, w.s.Etcd.Suspended = false, false
		}, plan.DruidNotHeld},
		"druid at work": {func(w *world) { w.s.Etcd.LastOperation = "Processing" }, plan.DruidBusy},
		"no class":      {func(w *world) { w.s.Class = plan.Class{} }, plan.ClassMissing},
		"class going":   {func(w *world) { w.s.Class.Deleting = true }, plan.ClassDeleting},
		"class by hand": {func(w *world) { w.s.Class.Provisioner = "kubernetes.io/no-provisioner" }, plan.ProvisionerUnknown},
		"scaled":        {func(w *world) { w.s.StatefulSet.Replicas = 5 }, plan.ReplicasChanged},
		"rolling":       {func(w *world) { w.s.StatefulSet.UpdateRevision = "other" }, plan.StatefulSetNotSettled},
		"foreign set":   {func(w *world) { w.s.StatefulSet.Templates = nil }, plan.StatefulSetForeign},
		"no set":        {func(w *world) { w.s.StatefulSet = nil }, plan.StatefulSetMissing},
		"alarm":         {func(w *world) { w.s.Cluster.Alarms = []string{"alarm:NOSPACE"} }, plan.MembersNotReady},
		"two sick":      {func(w *world) { w.s.Members[0].Pod.Ready, w.s.Members[1].Pod.Ready = false, false }, plan.MembersNotReady},
		"vote of the dead": {func(w *world) {
			w.s.Cluster.Listed = append(w.s.Cluster.Listed, plan.Listed{ID: 0xdead, Name: "etcd-9"})
		}, plan.MembersNotReady},
		"other size": {func(w *world) {
			w.s.Etcd.Replicas, w.s.Members = 5, append(w.s.Members, plan.Member{Ordinal: 3, PodName: "etcd-3"}, plan.Member{Ordinal: 4, PodName: "etcd-4"})
		}, plan.ReplicasChanged},
		"learner":            {func(w *world) { w.s.Cluster.Listed[0].Learner = true; w.s.Cluster.Listed[1].Learner = true }, plan.MembersNotReady},
		"lag":                {func(w *world) { w.s.Members[1].View.Index = 1 << 20 }, plan.MembersNotReady},
		"two clusters":       {func(w *world) { w.s.Members[2].View.ClusterID = 9 }, plan.MembersNotReady},
		"database too large": {func(w *world) { w.s.Members[2].View.DBSize = 11 << 30 }, plan.DatabaseTooLarge},
		"no stamp":           {func(w *world) { w.s.Stamp = nil }, plan.StampMissing},
		"unreadable stamp":   {func(w *world) { w.s.Stamp, w.s.StampError = nil, "torn" }, plan.StampInvalid},
		"foreign stamp":      {func(w *world) { w.s.Etcd.UID = "other" }, plan.StampInvalid},
		"operation":          {func(w *world) { w.s.Rollouts[0].Operation = "Recover" }, plan.OperationNotSupported},
		"single member":      {func(w *world) { w.s.Rollouts[0].Replicas = 1 }, plan.OperationNotSupported},
		"renamed template":   {func(w *world) { w.s.Rollouts[0].To.Template = "other" }, plan.OperationNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 1, 3)
			w.confirm(fast)
			require.Equal(t, plan.CreateRollout, w.pass().Action)
			tc.spoil(w)
			step := w.pass()
			require.Equal(t, tc.want, step.Reason, step.Message)
			require.NotEmpty(t, step.Message)
			for range 20 {
				require.False(t, w.pass().Action.Writes())
				w.now = w.now.Add(time.Minute)
			}
			require.Empty(t, w.deleted)
		})
	}
}

// idle runs until nothing is left to do.
func (w *world) idle() {
	w.t.Helper()
	for range 3000 {
		if w.pass().Action == plan.Idle {
			return
		}
		w.turn()
	}
	require.Failf(w.t, "never idle", "%s", w.story())
}

func TestARolloutDeletedWhileItsStatefulSetIsGoingMakesItAgainFirst(t *testing.T) {
	t.Parallel()
	w, _ := before(t, plan.DeleteStatefulSet)
	require.Equal(t, plan.DeleteStatefulSet, w.pass().Action)
	w.s.Rollouts[0].Deleting = true
	require.Equal(t, plan.StatefulSetLeaving, w.pass().Reason)
	w.setTurns(w.s.StatefulSet)[0]()
	require.Nil(t, w.s.StatefulSet)
	require.Equal(t, plan.CreateStatefulSet, w.pass().Action)
	w.idle()
	requireAll(t, w, fast)
}

func TestAnEndedRolloutThatIsDeletedMakesNoStatefulSetOfItsOldManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6, 3)
	w.confirm(fast)
	w.until(v1alpha1.Complete)
	w.confirm(wide)
	for w.s.StatefulSet != nil {
		w.pass()
		w.turn()
	}
	require.Len(t, w.s.Records, 2)
	w.s.Rollouts[0].Deleting = true
	w.until(v1alpha1.Complete)
	for _, line := range w.trail {
		require.NotContains(t, line, "PromiseAtRisk")
	}
	require.Len(t, w.s.Rollouts, 1)
	requireAll(t, w, wide)
	made := 0
	for _, line := range w.trail {
		if strings.HasPrefix(line, string(plan.CreateStatefulSet)) {
			made++
		}
	}
	require.Equal(t, 2, made, "once for each change\n%s", w.story())
}

func TestARolloutOfMoreMembersThanTheEtcdHasNowIsNotComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 7, 3)
	w.confirm(fast)
	for len(w.deleted) < 2 {
		w.pass()
		w.turn()
	}
	all := w.s.Members
	done := slices.IndexFunc(all, func(m plan.Member) bool {
		return m.Claim != nil && m.Claim.UID != w.s.Rollouts[0].Claims[m.Ordinal].UID
	})
	require.GreaterOrEqual(t, done, 0)
	w.s.Etcd.Replicas, w.s.Members = 1, all[done:done+1]
	for _, wanted := range []volume.Spec{fast, slow} {
		w.s.Etcd.Wanted = wanted
		for range 20 {
			require.False(t, w.pass().Action.Writes(), w.story())
			w.now = w.now.Add(time.Minute)
		}
		require.NotEqual(t, v1alpha1.Complete, w.phase())
		require.NotEqual(t, v1alpha1.Aborted, w.phase())
	}
	w.s.Etcd.Replicas, w.s.Etcd.Wanted, w.s.Members = 3, fast, all
	w.until(v1alpha1.Complete)
	requireAll(t, w, fast)
}

func TestAVolumeIsKeptThoughItsClaimWasDeletedBySomeoneElse(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(m *plan.Member){
		"its pod runs":     func(*plan.Member) {},
		"its pod is going": func(m *plan.Member) { m.Pod.Deleting = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, step := before(t, plan.ProtectVolume)
			m := &w.s.Members[step.Member]
			m.Claim.Deleting, m.Claim.DeletedAt, m.Volume.ClaimLives = true, w.now, false
			old := m.Volume.Name
			spoil(m)
			require.Equal(t, plan.ProtectVolume, w.pass().Action, w.story())
			w.until(v1alpha1.Complete)
			requireAll(t, w, fast)
			i := slices.IndexFunc(w.s.Volumes, func(v plan.Volume) bool { return v.Name == old })
			require.GreaterOrEqual(t, i, 0)
			require.Equal(t, plan.Retain, w.s.Volumes[i].Policy)
		})
	}
}

func TestALeaderThatDoesNotAnswerIsNotTaken(t *testing.T) {
	t.Parallel()
	w, step := before(t, plan.ProtectVolume)
	leader := (step.Member + 1) % 3
	w.elect(leader)
	w.s.Members[leader].View = plan.View{}
	for range 10 {
		require.NotEqual(t, plan.DeleteClaim, w.pass().Action, w.story())
	}
	require.Equal(t, string(plan.LeaderUndecided), w.s.Rollouts[0].Status.Reason)
	w.elect(step.Member) // the others found that it is dead
	require.Equal(t, plan.DeleteClaim, w.pass().Action, w.story())
	require.Len(t, w.deleted, 1)
}

func TestAStampOfWhichNothingIsLeftToDoMakesNoRolloutAnew(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world){
		"called off": func(w *world) {
			w.pass()
			w.s.Etcd.Wanted = slow
			w.until(v1alpha1.Aborted)
		},
		"without members": func(w *world) {
			w.until(v1alpha1.Complete)
			w.s.Etcd.Replicas, w.s.Members = 0, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 8, 3)
			w.confirm(fast)
			end(w)
			w.s.Rollouts[0].Deleting = true
			w.idle()
			require.Empty(t, w.s.Rollouts, w.story())
			require.False(t, w.s.Active())
		})
	}
}

func TestATornStampDoesNotKeepTheStatefulSetAway(t *testing.T) {
	t.Parallel()
	w, _ := before(t, plan.CreateStatefulSet)
	stamp := w.s.Stamp
	w.s.Stamp, w.s.StampError = nil, "torn"
	require.Equal(t, plan.CreateStatefulSet, w.pass().Action)
	require.Equal(t, plan.Reject, w.pass().Action)
	w.s.Stamp, w.s.StampError = stamp, ""
	w.until(v1alpha1.Complete)
	requireAll(t, w, fast)
}

func TestTheLeaderIsTakenLastAndLeadershipMovesOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 3)
	w.rng.Seed(42)
	w.confirm(fast)
	leader := w.s.Members[0].Claim.UID
	moves := 0
	for range 3000 {
		step := w.pass()
		if step.Action == plan.MoveLeader {
			moves++
		}
		if w.phase() == v1alpha1.Complete {
			break
		}
		w.turnQuietly()
	}
	require.Equal(t, v1alpha1.Complete, w.phase(), w.story())
	require.Equal(t, leader, w.deleted[2])
	require.Equal(t, 1, moves)
}

// turnQuietly is a turn without elections of their own.
func (w *world) turnQuietly() {
	w.now = w.now.Add(time.Second)
	if t := w.s.StatefulSet; t != nil {
		if can := w.setTurns(t); len(can) > 0 {
			can[0]()
			return
		}
	}
	for i := range w.s.Members {
		if can := w.memberTurns(&w.s.Members[i]); len(can) > 0 {
			can[0]()
			return
		}
	}
}

func TestASickMemberIsReplacedFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5, 3)
	w.s.Members[1].Pod.Ready, w.s.Members[1].View.Reads = false, false
	sick := w.s.Members[1].Claim.UID
	w.confirm(fast)
	for range 3000 {
		w.pass()
		if w.phase() == v1alpha1.Complete {
			break
		}
		if w.s.Members[1].Claim != nil && w.s.Members[1].Claim.UID == sick && !w.s.Members[1].Claim.Deleting {
			// It stays sick until it is replaced.
			w.now = w.now.Add(time.Second)
			if set := w.s.StatefulSet; set != nil {
				for _, turn := range w.setTurns(set) {
					turn()
				}
			}
			continue
		}
		w.turn()
	}
	require.Equal(t, v1alpha1.Complete, w.phase(), w.story())
	require.Equal(t, sick, w.deleted[0])
}

func ExampleNext() {
	fmt.Println(plan.Next(plan.Snapshot{Name: "main", Namespace: "ns"}, time.Time{}).Action)
	// Output: Idle
}
