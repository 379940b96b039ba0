package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

type volumeSpec = volume.Spec

// Retain is the reclaim policy under which a volume outlives its claim.
const Retain = "Retain"

// Assessment is where one member stands in a rollout, and what it waits for.
type Assessment struct {
	Phase   v1alpha1.MemberPhase
	Reason  Reason
	Message string
}

// Assess says where one member stands, from the cluster alone.
func Assess(s Snapshot, r Rollout, m Member, now time.Time) Assessment {
	if m.Claim != nil && named(r.Claims, m.Ordinal, m.Claim.UID) {
		if !m.Claim.Deleting {
			return Assessment{Phase: v1alpha1.MemberWaiting}
		}
		return leavingMember(m)
	}
	for _, look := range []func(Snapshot, Rollout, Member) *Assessment{provisioning, resyncing, unproven} {
		if a := look(s, r, m); a != nil {
			return *a
		}
	}
	if left := s.Options.Soak - now.Sub(m.Pod.ReadySince); left > 0 {
		return Assessment{v1alpha1.MemberSoaking, Soaking, m.PodName + " is proven; it is watched for a moment before the next one"}
	}
	return Assessment{Phase: v1alpha1.MemberReplaced, Message: Evidence(s, m)}
}

// Evidence says in a sentence by what the resync of a member is proven.
func Evidence(s Snapshot, m Member) string {
	text := fmt.Sprintf("claim %s (UID %s) is bound to volume %s; pod %s (UID %s) is ready; member %s of cluster %s answers as voter, applied index %d",
		m.Claim.Name, m.Claim.UID, m.Claim.VolumeName, m.PodName, m.Pod.UID, m.Lease.MemberID, m.Lease.ClusterID, m.View.Applied)
	if lost := s.lostIDs(m); len(lost) > 0 {
		text += "; it was " + strings.Join(lost, ", ") + " before"
	}
	return text
}

func leavingMember(m Member) Assessment {
	if m.Pod != nil && !m.Pod.Deleting {
		return Assessment{v1alpha1.MemberLeaving, PodLeaving, "pod " + m.PodName + " is to be evicted; its claim is being deleted"}
	}
	if m.Pod != nil {
		return Assessment{v1alpha1.MemberLeaving, PodLeaving, "waiting until pod " + m.PodName + " has stopped"}
	}
	return Assessment{v1alpha1.MemberLeaving, ClaimLeaving, "waiting until claim " + m.Claim.Name + " is gone"}
}

func provisioning(s Snapshot, r Rollout, m Member) *Assessment {
	say := func(reason Reason, format string, args ...any) *Assessment {
		return &Assessment{v1alpha1.MemberProvisioning, reason, fmt.Sprintf(format, args...)}
	}
	c := m.Claim
	switch {
	case c == nil:
		return say(ClaimMissing, "waiting until the claim of %s is made", m.PodName)
	case c.Deleting:
		return say(ClaimLeaving, "waiting until claim %s is gone", c.Name)
	case !c.Is(r.To):
		return say(ClaimNotConfirmed, "claim %s is not as confirmed (%s) and may not be deleted: it is younger than the confirmation; "+
			"change the spec to something else and back, confirming both",
			c.Name, plain(c.Spec))
	case !c.Bound:
		return say(ClaimPending, "waiting for a volume for claim %s%s", c.Name, because(c.Warning, podMessage(m)))
	case m.Pod == nil:
		return say(PodPending, "waiting until pod %s is made", m.PodName)
	case m.Pod.Deleting:
		return say(PodLeaving, "waiting until pod %s has stopped", m.PodName)
	case !m.Pod.Running:
		return say(PodPending, "waiting until pod %s runs%s", m.PodName, because(m.Pod.Message))
	}
	return nil
}

func resyncing(s Snapshot, _ Rollout, m Member) *Assessment {
	fault := s.fault(m)
	if fault == "" {
		return nil
	}
	return &Assessment{v1alpha1.MemberResyncing, Resyncing, fault}
}

// unproven says what is missing to prove that a healthy member is a new one of the old cluster.
func unproven(s Snapshot, r Rollout, m Member) *Assessment {
	say := func(reason Reason, format string, args ...any) *Assessment {
		return &Assessment{v1alpha1.MemberResyncing, reason, fmt.Sprintf(format, args...)}
	}
	l := m.Lease
	switch {
	case l == nil || l.MemberID == "":
		return say(ResyncNotProven, "waiting until the lease of %s names its member", m.Name)
	case l.Renewed.Before(m.Pod.StartedAt):
		return say(ResyncNotProven, "waiting until the lease of %s is renewed by the new pod", m.Name)
	case slices.Contains(s.lostIDs(m), l.MemberID):
		return say(ResyncNotProven, "waiting until the lease of %s names a new member: %s lived on the old volume", m.Name, l.MemberID)
	case l.MemberID != hex(m.View.MemberID) || l.ClusterID != hex(m.View.ClusterID):
		return say(ResyncNotProven, "waiting until the lease of %s and etcd agree on member and cluster", m.Name)
	}
	if was := s.formerCluster(r, m); was != "" && was != l.ClusterID {
		return say(ForeignCluster, "%s is in cluster %s, but was in %s: nothing more is touched", m.PodName, l.ClusterID, was)
	}
	return nil
}

// formerCluster is the cluster that the member must be in: the one noted on a volume of this rollout, or that of the other members.
// Volumes of an earlier Etcd of the same name bear the same marks, but not the claims of this rollout.
func (s Snapshot) formerCluster(r Rollout, m Member) string {
	for _, v := range s.Volumes {
		if v.Mark.ClusterID != "" && r.Destroys(v.Mark.ClaimUID) {
			return v.Mark.ClusterID
		}
	}
	for _, o := range s.Members {
		if o.Ordinal != m.Ordinal && o.View.Reached {
			return hex(o.View.ClusterID)
		}
	}
	return ""
}

// lostIDs are the member IDs that lived on volumes which the member no longer has.
func (s Snapshot) lostIDs(m Member) []string {
	var ids []string
	for _, v := range s.Volumes {
		if v.Mark.Member == m.PodName && v.Mark.MemberID != "" && (m.Claim == nil || v.Mark.ClaimUID != m.Claim.UID) {
			ids = append(ids, v.Mark.MemberID)
		}
	}
	return ids
}

// fault says why the member is not a ready, caught-up voter of the cluster; "" if it is.
func (s Snapshot) fault(m Member) string {
	v := m.View
	switch {
	case m.Pod == nil:
		return m.PodName + " has no pod"
	case m.Pod.Deleting || !m.Pod.Running:
		return m.PodName + " does not run" + because(m.Pod.Message)
	case !v.Reached:
		return m.PodName + " does not answer" + because(v.Error)
	case v.Learner:
		return m.PodName + " is a learner and not yet a voter"
	case !v.Reads:
		return m.PodName + " does not serve reads" + because(v.Error)
	case !m.Pod.Ready:
		return m.PodName + " is not ready" + because(m.Pod.Message)
	case v.Leader == 0:
		return m.PodName + " knows no leader"
	case s.lag(v) > s.Options.MaxLag:
		return fmt.Sprintf("%s is %d entries behind", m.PodName, s.lag(v))
	case !s.voter(v.MemberID):
		return m.PodName + " is not in the member list as a voter" + because(s.Cluster.Trouble)
	}
	return ""
}

func (s Snapshot) lag(v View) uint64 {
	var newest uint64
	for _, m := range s.Members {
		newest = max(newest, m.View.Index)
	}
	if newest < v.Applied {
		return 0
	}
	return newest - v.Applied
}

func (s Snapshot) voter(id uint64) bool {
	for _, l := range s.Cluster.Listed {
		if l.ID == id {
			return !l.Learner
		}
	}
	return false
}

// inFlight is the member that is out and not yet proven, nil if none; one that is only going comes first.
func (s Snapshot) inFlight(r Rollout, now time.Time) *Member {
	var out *Member
	for _, m := range s.Members {
		if !touched(r, m) {
			continue
		}
		switch Assess(s, r, m, now).Phase {
		case v1alpha1.MemberReplaced, v1alpha1.MemberWaiting:
		case v1alpha1.MemberLeaving:
			return &m
		case v1alpha1.MemberProvisioning, v1alpha1.MemberResyncing, v1alpha1.MemberSoaking:
			if out == nil {
				out = &m
			}
		}
	}
	return out
}

// touched reports whether the claim that was confirmed to be destroyed is going or gone.
func touched(r Rollout, m Member) bool {
	for _, c := range r.Claims {
		if c.Ordinal == m.Ordinal {
			return m.Claim == nil || m.Claim.Deleting || m.Claim.UID != c.UID
		}
	}
	return false
}

// bring is the next step for the member that is out; nil once it is replaced.
func bring(s Snapshot, r Rollout, m Member, now time.Time) *Step {
	a := Assess(s, r, m, now)
	if a.Phase == v1alpha1.MemberReplaced {
		return nil
	}
	if a.Phase == v1alpha1.MemberLeaving {
		if step := leaveMember(s, r, m); step != nil {
			return step
		}
	}
	step := wait(r, v1alpha1.Replacing, a.Reason, "%s", a.Message)
	step.Member = m.Ordinal
	if a.Phase == v1alpha1.MemberSoaking {
		step.Again = max(s.Options.Soak-now.Sub(m.Pod.ReadySince), time.Millisecond)
	}
	return step
}

// leaveMember is what is still to be done for a member whose claim is going; nil when there is nothing but to wait.
func leaveMember(s Snapshot, r Rollout, m Member) *Step {
	if m.Pod != nil && !m.Pod.Deleting {
		return evict(s, r, m)
	}
	if m.Volume != nil && !m.Volume.Deleting && m.Volume.BoundClaimUID == m.Claim.UID && m.Volume.Policy != Retain {
		return protect(s, r, m) // someone else deleted claim and pod: the volume goes with the claim
	}
	return nil
}

// evict stops the member whose claim is already going. Its volume is kept first: the claim may have been deleted by someone else, or
// for another rollout.
func evict(s Snapshot, r Rollout, m Member) *Step {
	for _, look := range []func(Snapshot, Rollout, Member) *Step{protect, othersFit, evictable, stepDown} {
		if step := look(s, r, m); step != nil {
			return step
		}
	}
	return &Step{
		Action: EvictPod, Reason: "PodEvicted", Rollout: r.Name, Phase: v1alpha1.Replacing, Member: m.Ordinal, Again: lookAgain,
		Message: "pod " + m.PodName + " is evicted to come back on a new volume", Target: Target{m.Pod.Name, m.Pod.UID, m.Pod.ResourceVersion},
	}
}

// take begins with the next member: its volume is kept, its eviction is tried out, leadership moves away, its claim goes.
func take(s Snapshot, r Rollout, _ time.Time) *Step {
	m := s.pick(r)
	if m == nil {
		return unconfirmed(s, r)
	}
	for _, look := range []func(Snapshot, Rollout, Member) *Step{othersFit, protect, evictable, stepDown} {
		if step := look(s, r, *m); step != nil {
			return step
		}
	}
	return &Step{
		Action: DeleteClaim, Reason: "ClaimDeleted", Rollout: r.Name, Phase: v1alpha1.Replacing, Member: m.Ordinal, Again: lookAgain,
		Message: fmt.Sprintf("claim %s is deleted; its volume %s stays", m.Claim.Name, m.Claim.VolumeName),
		Target:  Target{m.Claim.Name, m.Claim.UID, m.Claim.ResourceVersion},
	}
}

// unconfirmed says what stands in the way when no member is left that may be replaced and yet not all are as wanted.
func unconfirmed(s Snapshot, r Rollout) *Step {
	for _, m := range s.Members {
		a := Assess(s, r, m, time.Time{}.AddDate(9000, 0, 0))
		if a.Phase != v1alpha1.MemberReplaced {
			step := wait(r, v1alpha1.Replacing, a.Reason, "%s", a.Message)
			step.Member = m.Ordinal
			return step
		}
	}
	return wait(r, v1alpha1.Replacing, Soaking, "every member is proven; they are watched for a moment")
}

// pick is the next member to be replaced: a sick one, then one whose volume is already protected, then followers, the leader last.
func (s Snapshot) pick(r Rollout) *Member {
	var best *Member
	for _, m := range s.Members {
		if m.Claim == nil || m.Claim.Deleting || !named(r.Claims, m.Ordinal, m.Claim.UID) {
			continue
		}
		if best == nil || s.rank(r, m) < s.rank(r, *best) {
			best = &m
		}
	}
	return best
}

func (s Snapshot) rank(r Rollout, m Member) int {
	switch {
	case s.fault(m) != "":
		return 0
	case s.protected(r, m):
		return 1
	case !m.View.Leads():
		return 2
	}
	return 3
}

// othersFit waits until every other member is a ready, caught-up voter of one cluster without alarm and without learner.
func othersFit(s Snapshot, r Rollout, target Member) *Step {
	fault := s.clusterFault(target)
	if fault == "" {
		return nil
	}
	step := wait(r, s.phase(r), MembersNotReady, "%s; no member is taken out meanwhile", fault)
	if target.Claim != nil && target.Claim.Deleting {
		step.Member = target.Ordinal
	}
	return step
}

func (s Snapshot) clusterFault(target Member) string {
	if s.Cluster.Trouble != "" {
		return "etcd does not tell its members and alarms: " + s.Cluster.Trouble
	}
	if len(s.Cluster.Alarms) > 0 {
		return "etcd has raised an alarm: " + strings.Join(s.Cluster.Alarms, ", ")
	}
	if n := len(s.Cluster.Listed); n > len(s.Members) {
		return fmt.Sprintf("etcd lists %d members, but the Etcd has %d: one more out may cost the majority", n, len(s.Members))
	}
	for _, l := range s.Cluster.Listed {
		if l.Learner && l.ID != target.View.MemberID {
			return "etcd has a learner that is not yet a voter"
		}
	}
	return s.othersFault(target)
}

func (s Snapshot) othersFault(target Member) string {
	cluster := uint64(0)
	for _, m := range s.Members {
		if m.Ordinal == target.Ordinal {
			continue
		}
		if m.Claim == nil || m.Claim.Deleting {
			return m.PodName + " has no lasting claim"
		}
		if f := s.fault(m); f != "" {
			return f
		}
		if cluster == 0 {
			cluster = m.View.ClusterID
		}
		if m.View.ClusterID != cluster {
			return m.PodName + " is in another cluster than the others"
		}
	}
	return ""
}

// protect keeps the old volume: policy Retain and our marks, read back in the next pass.
func protect(s Snapshot, r Rollout, m Member) *Step {
	v := m.Volume
	switch {
	case m.Claim.VolumeName == "" || s.protected(r, m):
		return nil // a claim that never got a volume holds no data
	case v == nil || v.Deleting:
		return wait(r, s.phase(r), VolumeMissing, "volume %s of claim %s does not exist or is being deleted", m.Claim.VolumeName, m.Claim.Name)
	case v.BoundClaimUID != m.Claim.UID:
		return wait(r, s.phase(r), VolumeForeign, "volume %s says that it belongs to another claim than %s", v.Name, m.Claim.Name)
	}
	return &Step{
		Action: ProtectVolume, Reason: "VolumeProtected", Rollout: r.Name, Phase: v1alpha1.Replacing, Member: m.Ordinal, Again: lookAgain,
		Message: fmt.Sprintf("volume %s of %s is kept: reclaim policy Retain", v.Name, m.PodName), Mark: s.mark(r, m),
		Target: Target{v.Name, v.UID, v.ResourceVersion},
	}
}

// protected reports whether the member's volume is kept in the name of this rollout.
func (s Snapshot) protected(r Rollout, m Member) bool {
	v := m.Volume
	return v != nil && m.Claim != nil && v.Policy == Retain && v.Mark.Marked() && v.Mark.Rollout == r.Name && v.Mark.ClaimUID == m.Claim.UID &&
		v.Mark.RetainedUntil.IsZero()
}

// mark is the record of a member, to be written on its volume.
func (s Snapshot) mark(r Rollout, m Member) Mark {
	mark := Mark{
		Namespace: s.Namespace, Etcd: s.Name, Member: m.PodName, Rollout: r.Name, OriginalPolicy: m.Volume.Policy, ClaimUID: m.Claim.UID,
	}
	if m.Volume.Mark.Marked() {
		mark.OriginalPolicy = m.Volume.Mark.OriginalPolicy
	}
	if m.Pod != nil {
		mark.PodUID = m.Pod.UID
	}
	switch {
	case m.View.Reached:
		mark.MemberID, mark.ClusterID = hex(m.View.MemberID), hex(m.View.ClusterID)
	case m.Lease != nil:
		mark.MemberID, mark.ClusterID = m.Lease.MemberID, m.Lease.ClusterID
	}
	return mark
}

// evictable asks whether the eviction of the member would be allowed, before anything of it is deleted.
func evictable(s Snapshot, r Rollout, m Member) *Step {
	if m.Pod == nil || m.Pod.Deleting {
		return nil
	}
	reason, text := evictionNotAsked, "it is not known whether pod "+m.PodName+" may be evicted"
	if s.Answers.EvictionAsked == m.Pod.UID {
		reason, text = EvictionRefused, "pod "+m.PodName+" may not be evicted now: "+s.Answers.EvictionRefused
		if s.Answers.EvictionRefused == "" {
			return nil
		}
	}
	step := wait(r, s.phase(r), reason, "%s", text)
	step.Member, step.Target = m.Ordinal, Target{m.Pod.Name, m.Pod.UID, m.Pod.ResourceVersion}
	return step
}

// stepDown moves leadership away from a member that is about to go, to one that is caught up and, if possible, already replaced.
func stepDown(s Snapshot, r Rollout, m Member) *Step {
	if !m.View.Leads() {
		return s.agreed(r, m)
	}
	var to *Member
	for _, o := range s.Members {
		if o.Ordinal == m.Ordinal || s.fault(o) != "" {
			continue
		}
		if to == nil || s.settled(r, o) && !s.settled(r, *to) {
			to = &o
		}
	}
	if to == nil {
		return wait(r, s.phase(r), NoTransferee, "%s leads, and no other member can take over", m.PodName)
	}
	return &Step{
		Action: MoveLeader, Reason: "LeadershipMoved", Rollout: r.Name, Phase: v1alpha1.Replacing, Member: m.Ordinal, Again: lookAgain,
		Message: fmt.Sprintf("leadership moves from %s to %s, so that clients see no election", m.PodName, to.PodName), Transferee: to.View.MemberID,
		Target: Target{Name: m.PodName, UID: hex(m.View.MemberID)},
	}
}

// undecided is the pace while leadership moves: it takes milliseconds, and nothing reports it.
const undecided = 50 * time.Millisecond

// agreed waits while others say that the member leads, or one that is not known: a leader that does not answer has no ID here.
func (s Snapshot) agreed(r Rollout, m Member) *Step {
	for _, o := range s.Members {
		if o.Ordinal != m.Ordinal && o.View.Reached && o.View.Leader != 0 && !s.answersBeside(m, o.View.Leader) {
			step := wait(r, s.phase(r), LeaderUndecided, "waiting until the members agree who leads")
			step.Again = undecided
			return step
		}
	}
	return nil
}

// answersBeside reports whether the ID is that of another member than the given one.
func (s Snapshot) answersBeside(m Member, id uint64) bool {
	return slices.ContainsFunc(s.Members, func(o Member) bool { return o.Ordinal != m.Ordinal && o.View.Reached && o.View.MemberID == id })
}

// settled reports whether the member is not going to be taken out any more.
func (s Snapshot) settled(r Rollout, m Member) bool {
	return m.Claim != nil && !m.Claim.Deleting && !named(r.Claims, m.Ordinal, m.Claim.UID)
}

func podMessage(m Member) string {
	if m.Pod == nil {
		return ""
	}
	return m.Pod.Message
}

// because joins the words of others, if there are any.
func because(words ...string) string {
	var said []string
	for _, w := range words {
		if w != "" {
			said = append(said, w)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return ": " + strings.Join(said, "; ")
}

func hex(id uint64) string { return strconv.FormatUint(id, 16) }
