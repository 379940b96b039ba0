package plan_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/report"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

const clusterID = 0xc1

var (
	slow = volume.Spec{Class: "slow", Capacity: resource.MustParse("10Gi"), Template: "main"}
	fast = volume.Spec{Class: "fast", Capacity: resource.MustParse("20Gi"), Template: "main"}
	wide = volume.Spec{Class: "fast", Capacity: resource.MustParse("40Gi"), Template: "main"}
)

// world is a model of one Etcd: the snapshot is the truth, steps are applied to it at once, and the controllers, kubelet and sidecar
// move by one change at a time.
type world struct {
	t       *testing.T
	s       plan.Snapshot
	now     time.Time
	rng     *rand.Rand
	ids     int
	renewAt map[int]bool // members whose lease does not yet know who they are
	trail   []string
	deleted []string // UIDs of claims that were deleted
}

func newWorld(t *testing.T, seed int64, replicas int) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC), rng: rand.New(rand.NewSource(seed)), renewAt: map[int]bool{}}
	w.s = plan.Snapshot{
		Namespace: "ns", Name: "etcd",
		Options: plan.Options{
			RetainVolumes: time.Hour, MemberDeadline: 10 * time.Minute, StepDeadline: 10 * time.Minute, Soak: 2 * time.Second, MaxLag: 1000,
			SnapshotRetry: time.Minute,
		},
		Etcd:  &plan.Etcd{UID: "etcd-uid", ResourceVersion: "1", Replicas: replicas, Wanted: slow, HasStore: seed%2 == 0},
		Door:  plan.Door{Stands: true},
		Class: plan.Class{Name: "fast", Exists: true, Provisioner: "example.com/disk"},
	}
	w.s.StatefulSet = &plan.StatefulSet{
		Name: "etcd", UID: w.uid("sts"), ResourceVersion: "1", Generation: 1, ObservedGeneration: 1, Replicas: replicas, StatusReplicas: replicas,
		Templates: []volume.Spec{slow},
	}
	for i := range replicas {
		w.s.Members = append(w.s.Members, plan.Member{Ordinal: i, Name: volume.PodName("etcd", i), PodName: volume.PodName("etcd", i)})
		m := &w.s.Members[i]
		w.makeClaim(m)
		w.bind(m)
		w.makePod(m)
		w.startPod(m)
		m.View.Learner = false
		w.list()
		m.Pod.Ready, m.Pod.ReadySince = true, w.now
		w.renew(m)
	}
	w.elect(0)
	return w
}

func (w *world) uid(kind string) string {
	w.ids++
	return kind + "-" + strconv.Itoa(w.ids)
}

func (w *world) makeClaim(m *plan.Member) {
	m.Claim = &plan.Claim{
		Name: volume.ClaimName("main", "etcd", m.Ordinal), UID: w.uid("claim"), ResourceVersion: w.uid("rv"), Created: w.now, Spec: w.s.StatefulSet.Templates[0],
	}
}

func (w *world) bind(m *plan.Member) {
	m.Claim.Bound, m.Claim.VolumeName = true, w.uid("pv")
	m.Volume = &plan.Volume{
		Name: m.Claim.VolumeName, UID: w.uid("pvuid"), ResourceVersion: w.uid("rv"), Policy: "Delete", ClaimNamespace: "ns", ClaimName: m.Claim.Name,
		BoundClaimUID: m.Claim.UID, ClaimLives: true,
	}
}

func (w *world) makePod(m *plan.Member) {
	m.Pod = &plan.Pod{Name: m.PodName, UID: w.uid("pod"), ResourceVersion: "1", ControllerUID: w.s.StatefulSet.UID, ClaimName: m.Claim.Name, StartedAt: w.now}
}

func (w *world) startPod(m *plan.Member) {
	w.ids++
	m.Pod.Running = true
	m.View = plan.View{Reached: true, MemberID: uint64(0x100 + w.ids), ClusterID: clusterID, Learner: true, Applied: 10, Index: 10, Reads: true, DBSize: 1 << 20}
	w.renewAt[m.Ordinal] = true
	w.list()
	w.elect(-1)
}

// list is the member list: everyone who runs and has not lost its data.
func (w *world) list() {
	w.s.Cluster = plan.Cluster{Alarms: w.s.Cluster.Alarms}
	for _, m := range w.s.Members {
		if m.View.MemberID != 0 {
			w.s.Cluster.Listed = append(w.s.Cluster.Listed, plan.Listed{ID: m.View.MemberID, Name: m.Name, Learner: m.View.Learner})
		}
	}
}

// elect makes the given member lead, or keeps the leader if that still runs, or takes the first voter.
func (w *world) elect(ordinal int) {
	var id uint64
	for _, m := range w.s.Members {
		if !m.View.Reached || m.View.Learner {
			continue
		}
		if m.Ordinal == ordinal || id == 0 || ordinal < 0 && m.View.Leads() {
			id = m.View.MemberID
		}
	}
	for i := range w.s.Members {
		if w.s.Members[i].View.Reached {
			w.s.Members[i].View.Leader = id
		}
	}
}

func (w *world) renew(m *plan.Member) {
	m.Lease = &plan.Lease{MemberID: strconv.FormatUint(m.View.MemberID, 16), ClusterID: strconv.FormatUint(m.View.ClusterID, 16), Renewed: w.now}
	delete(w.renewAt, m.Ordinal)
}

// confirm is what the door does with a confirmed change.
func (w *world) confirm(to volume.Spec) {
	ask := confirm.Ask{
		EtcdUID: w.s.Etcd.UID, Generation: confirm.NextGeneration(w.s.Stamp), Operation: confirm.Replace, From: w.s.Etcd.Wanted, To: to,
	}
	for _, m := range w.s.Members {
		if m.Claim != nil && !m.Claim.Deleting && !m.Claim.Is(to) {
			ask.Claims = append(ask.Claims, confirm.Claim{Ordinal: m.Ordinal, Name: m.Claim.Name, UID: m.Claim.UID})
		}
	}
	held := confirm.Held{Suspend: !w.s.Etcd.Suspended, Protection: !w.s.Etcd.Unprotected}
	if old := w.s.Stamp; old != nil && (w.phase() != v1alpha1.Complete || w.s.Rollouts[len(w.s.Rollouts)-1].Generation < old.Generation) {
		held.Suspend, held.Protection = held.Suspend || old.Held.Suspend, held.Protection || old.Held.Protection
	}
	stamp := confirm.StampOf(ask, "admin", "colleague", held)
	w.s.Stamp, w.s.Etcd.Wanted, w.s.Etcd.Suspended, w.s.Etcd.Unprotected = &stamp, to, true, true
}

// pass is one pass of the reconciler; a step that Check refuses fails the test.
func (w *world) pass() plan.Step {
	w.t.Helper()
	w.s.Answers = plan.Answers{}
	for range 3 {
		q := plan.Wants(w.s, w.now)
		if q.Claim != nil {
			w.s.Answers.ClaimAsked = true
		}
		if q.Pod != nil {
			w.s.Answers.EvictionAsked = q.Pod.UID
		}
	}
	step := plan.Next(w.s, w.now)
	w.trail = append(w.trail, fmt.Sprintf("%s %s %d: %s", step.Action, step.Reason, step.Member, step.Message))
	require.NoError(w.t, plan.Check(w.s, step), "%v\n%s", step, w.story())
	before := w.s
	w.apply(step)
	for _, st := range report.Of(before, step, report.Result{}, w.now).Statuses {
		for i := range w.s.Rollouts {
			if w.s.Rollouts[i].Name == st.Rollout {
				w.s.Rollouts[i].Status = st.Now
			}
		}
	}
	return step
}

func (w *world) story() string {
	text := ""
	for _, line := range w.trail[max(0, len(w.trail)-60):] {
		text += line + "\n"
	}
	return text
}

func (w *world) apply(step plan.Step) {
	w.t.Helper()
	switch step.Action {
	case plan.CreateRollout:
		st := step.Stamp
		w.s.Rollouts = append(w.s.Rollouts, plan.Rollout{
			Name: step.Target.Name, UID: w.uid("rollout"), ResourceVersion: w.uid("rv"), Created: w.now, Finalizer: true, EtcdUID: st.EtcdUID, Generation: st.Generation,
			Operation: st.Operation, Replicas: step.Replicas, From: st.From, To: st.To, Claims: st.Claims, Token: st.Token, Held: st.Held,
		})
	case plan.HoldDruid:
		w.s.Etcd.Suspended, w.s.Etcd.Unprotected = w.s.Etcd.Suspended || step.Held.Suspend, w.s.Etcd.Unprotected || step.Held.Protection
	case plan.ReleaseDruid:
		w.s.Etcd.Suspended, w.s.Etcd.Unprotected = w.s.Etcd.Suspended && !step.Held.Suspend, w.s.Etcd.Unprotected && !step.Held.Protection
	case plan.TakeSnapshot:
		w.s.Backup = plan.Backup{FullAt: w.now, Revision: 7}
	case plan.RecordStatefulSet:
		w.s.Records = append(w.s.Records, plan.Record{
			Name: plan.RecordName(step.Rollout), UID: w.uid("record"), ResourceVersion: "1", StatefulSetUID: step.Target.UID, Generation: step.Generation, PodUIDs: step.PodUIDs,
		})
	case plan.DropRecord:
		w.s.Records = slices.DeleteFunc(w.s.Records, func(r plan.Record) bool { return r.UID == step.Target.UID })
	case plan.DeleteStatefulSet:
		w.s.StatefulSet.Deleting = true
	case plan.CreateStatefulSet:
		w.s.StatefulSet = &plan.StatefulSet{
			Name: "etcd", UID: w.uid("sts"), ResourceVersion: w.uid("rv"), Generation: 1, Replicas: len(w.s.Members), Templates: []volume.Spec{step.Spec},
		}
	case plan.ProtectVolume, plan.KeepVolume, plan.RestorePolicy:
		w.applyVolume(step)
	case plan.MoveLeader:
		for _, m := range w.s.Members {
			if m.View.MemberID == step.Transferee {
				w.elect(m.Ordinal)
			}
		}
	case plan.DeleteClaim:
		w.deleteClaim(&w.s.Members[step.Member])
	case plan.EvictPod:
		w.s.Members[step.Member].Pod.Deleting = true
	case plan.RemoveFinalizer:
		if r := w.rollout(step.Target.Name); r.Deleting {
			// What was kept belongs to the rollout, and is collected with it.
			w.s.Records = slices.DeleteFunc(w.s.Records, func(rec plan.Record) bool { return rec.Name == plan.RecordName(r.Name) })
		}
		w.s.Rollouts = slices.DeleteFunc(w.s.Rollouts, func(r plan.Rollout) bool { return r.Name == step.Target.Name && r.Deleting })
		for i := range w.s.Rollouts {
			if w.s.Rollouts[i].Name == step.Target.Name {
				w.s.Rollouts[i].Finalizer = false
			}
		}
	case plan.Idle, plan.Wait, plan.Reject, plan.Finish, plan.Supersede, plan.Abort:
	}
}

func (w *world) rollout(name string) plan.Rollout {
	w.t.Helper()
	i := slices.IndexFunc(w.s.Rollouts, func(r plan.Rollout) bool { return r.Name == name })
	require.GreaterOrEqual(w.t, i, 0, "there is no rollout %s\n%s", name, w.story())
	return w.s.Rollouts[i]
}

func (w *world) applyVolume(step plan.Step) {
	known := slices.ContainsFunc(w.s.Volumes, func(v plan.Volume) bool { return v.Name == step.Target.Name })
	for i := range w.s.Members {
		if v := w.s.Members[i].Volume; v != nil && v.Name == step.Target.Name {
			w.changeVolume(v, step)
			if step.Action == plan.ProtectVolume && !known {
				w.s.Volumes = append(w.s.Volumes, *v)
			}
		}
	}
	for i := range w.s.Volumes {
		if w.s.Volumes[i].Name == step.Target.Name {
			w.changeVolume(&w.s.Volumes[i], step)
		}
	}
	slices.SortFunc(w.s.Volumes, func(a, b plan.Volume) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	w.s.Volumes = slices.DeleteFunc(w.s.Volumes, func(v plan.Volume) bool { return !v.Mark.Marked() })
}

func (w *world) changeVolume(v *plan.Volume, step plan.Step) {
	v.ResourceVersion = w.uid("rv")
	v.Mark = step.Mark // none where the policy is given back
	if step.Action == plan.ProtectVolume {
		v.Policy = "Retain"
	}
	if step.Action == plan.RestorePolicy {
		v.Policy = step.Policy
	}
}

// deleteClaim keeps the promises in view of the whole world, apart from Check.
func (w *world) deleteClaim(m *plan.Member) {
	w.t.Helper()
	named := slices.ContainsFunc(w.s.Stamp.Claims, func(c confirm.Claim) bool { return c.UID == m.Claim.UID })
	require.True(w.t, named, "claim %s is not named\n%s", m.Claim.UID, w.story())
	require.True(w.t, m.Volume == nil || m.Volume.Policy == "Retain" && m.Volume.Mark.Marked(), "volume is not kept\n%s", w.story())
	require.True(w.t, w.s.StatefulSet.Has(w.s.Stamp.To), "old template\n%s", w.story())
	for _, o := range w.s.Members {
		well := o.Pod != nil && o.Pod.Ready && !o.Pod.Deleting && o.View.Reached && !o.View.Learner && o.Claim != nil && !o.Claim.Deleting
		require.True(w.t, o.Ordinal == m.Ordinal || well, "%s is out too\n%s", o.PodName, w.story())
	}
	m.Claim.Deleting, m.Claim.DeletedAt = true, w.now
	w.deleted = append(w.deleted, m.Claim.UID)
	if m.Volume != nil {
		m.Volume.ClaimLives = false
	}
	for i := range w.s.Volumes {
		if w.s.Volumes[i].Mark.ClaimUID == m.Claim.UID {
			w.s.Volumes[i].ClaimLives = false
		}
	}
}

// turn lets everybody else make one change: one of those that are possible, or time passes.
func (w *world) turn() {
	w.now = w.now.Add(time.Duration(1+w.rng.Intn(3)) * time.Second)
	var can []func()
	if t := w.s.StatefulSet; t != nil {
		can = append(can, w.setTurns(t)...)
	}
	for i := range w.s.Members {
		can = append(can, w.memberTurns(&w.s.Members[i])...)
	}
	if w.rng.Intn(20) == 0 && w.out() == 0 && len(w.s.Members) > 0 {
		can = append(can, func() { w.elect(w.rng.Intn(len(w.s.Members))) })
	}
	if len(can) > 0 {
		can[w.rng.Intn(len(can))]()
	}
}

func (w *world) out() int {
	out := 0
	for _, m := range w.s.Members {
		if m.Pod == nil || !m.Pod.Ready || m.View.Learner || m.Claim == nil || m.Claim.Deleting {
			out++
		}
	}
	return out
}

func (w *world) setTurns(t *plan.StatefulSet) []func() {
	if t.Deleting {
		return []func(){func() {
			w.s.StatefulSet = nil
			for i := range w.s.Members {
				if p := w.s.Members[i].Pod; p != nil {
					p.ControllerUID = ""
				}
			}
		}}
	}
	for i := range w.s.Members {
		if p := w.s.Members[i].Pod; p != nil && p.ControllerUID != t.UID {
			return []func(){func() { p.ControllerUID = t.UID }}
		}
	}
	if t.ObservedGeneration < t.Generation || t.StatusReplicas != t.Replicas {
		return []func(){func() { t.ObservedGeneration, t.StatusReplicas = t.Generation, t.Replicas }}
	}
	return nil
}

func (w *world) memberTurns(m *plan.Member) []func() {
	set := w.s.StatefulSet != nil && !w.s.StatefulSet.Deleting && w.s.StatefulSet.ObservedGeneration > 0
	switch {
	case m.Pod != nil && m.Pod.Deleting:
		return []func(){func() {
			m.Pod = nil
			m.View.Reached, m.View.Reads = false, false
			w.elect(-1)
		}}
	case m.Claim != nil && m.Claim.Deleting && m.Pod == nil:
		return []func(){func() { m.Claim, m.Volume, m.View = nil, nil, plan.View{}; w.list() }}
	case m.Claim == nil && set:
		return []func(){func() { w.makeClaim(m) }}
	case m.Claim != nil && m.Pod == nil && set:
		return []func(){func() { w.makePod(m) }}
	case m.Pod == nil || m.Claim == nil:
		return nil
	case !m.Claim.Bound && m.Claim.Spec.Class != "broken":
		return []func(){func() { w.bind(m) }}
	case !m.Claim.Bound:
		return nil
	case !m.Pod.Running:
		return []func(){func() { w.startPod(m) }}
	case m.View.Learner:
		return []func(){func() { m.View.Learner = false; w.list(); w.elect(-1) }, func() { w.renew(m) }}
	case !m.Pod.Ready:
		return []func(){func() { m.Pod.Ready, m.Pod.ReadySince = true, w.now }}
	case w.renewAt[m.Ordinal]:
		return []func(){func() { w.renew(m) }}
	}
	return nil
}

// phase is that of the newest rollout.
func (w *world) phase() v1alpha1.Phase {
	if len(w.s.Rollouts) == 0 {
		return ""
	}
	return w.s.Rollouts[len(w.s.Rollouts)-1].Status.Phase
}

// until runs until the newest rollout is in the given phase.
func (w *world) until(want v1alpha1.Phase) {
	w.t.Helper()
	for range 3000 {
		w.pass()
		require.LessOrEqual(w.t, w.out(), 1, w.story())
		if w.phase() == want {
			return
		}
		w.turn()
	}
	require.Failf(w.t, "never "+string(want), "%s", w.story())
}
