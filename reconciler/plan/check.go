package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
)

// promise is one promise of the project, told for the actions that could break it.
type promise struct {
	name    string
	actions []Action
	kept    func(s Snapshot, r Rollout, step Step) error
}

// promises, in the order of the project's list. Each stands alone and knows nothing of how the planner works.
var promises = []promise{
	{"a claim is deleted only if the confirmed stamp names its UID", []Action{DeleteClaim}, claimIsNamed},
	{"a rollout destroys only what the Etcd still asks for", []Action{DeleteClaim, ProtectVolume}, stillAskedFor},
	{"a claim is deleted only if its volume is kept and bears our marks", []Action{DeleteClaim, EvictPod}, volumeIsKept},
	{"one member at most is out", []Action{DeleteClaim, EvictPod}, othersAreVoters},
	{"a pod is evicted only if its claim is going", []Action{EvictPod}, claimIsGoing},
	{"a claim is deleted only under the new template", []Action{DeleteClaim, EvictPod}, templateIsNew},
	{"the leader is not taken out", []Action{DeleteClaim, EvictPod}, targetDoesNotLead},
	{"the StatefulSet is deleted only if its manifest is kept", []Action{DeleteStatefulSet}, manifestIsKept},
	{"the StatefulSet is made again only if it is gone", []Action{CreateStatefulSet}, manifestIsNeeded},
	{"nothing is destroyed unless the door stands", []Action{DeleteClaim, DeleteStatefulSet}, doorStands},
	{"nothing is destroyed unless druid is held", []Action{DeleteClaim, DeleteStatefulSet}, druidIsHeld},
	{"a claim is deleted only after a proven backup, where backups are kept", []Action{DeleteClaim}, backupIsProven},
	{"every delete carries UID and resourceVersion", []Action{DeleteClaim, EvictPod, DeleteStatefulSet, DropRecord}, preconditionsStand},
	{"leadership moves to a voter that is caught up", []Action{MoveLeader}, transfereeIsFit},
	{"a policy is given back only as it was, and never to a volume in use by the rollout", []Action{RestorePolicy}, policyIsOriginal},
	{"only what was set is taken away", []Action{ReleaseDruid}, heldByUs},
}

// Check judges a step by the promises alone; an error names the promise that it would break.
func Check(s Snapshot, step Step) error {
	var broken []error
	for _, p := range promises {
		if !slices.Contains(p.actions, step.Action) {
			continue
		}
		r, err := rolloutOf(s, step)
		if err == nil {
			err = p.kept(s, r, step)
		}
		if err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return errors.Join(broken...)
}

// rolloutOf is the rollout that the step is done for. Giving a policy back needs none: the volume may outlive it.
func rolloutOf(s Snapshot, step Step) (Rollout, error) {
	for _, r := range s.Rollouts {
		if r.Name == step.Rollout {
			return r, nil
		}
	}
	if step.Action == RestorePolicy {
		return Rollout{Name: step.Rollout}, nil
	}
	return Rollout{}, errors.New("the step belongs to no rollout")
}

func memberOf(s Snapshot, step Step) (Member, error) {
	for _, m := range s.Members {
		if m.Ordinal == step.Member {
			return m, nil
		}
	}
	return Member{}, fmt.Errorf("there is no member %d", step.Member)
}

// claimOf is the target's live claim.
func claimOf(s Snapshot, step Step) (Claim, error) {
	m, err := memberOf(s, step)
	if err != nil {
		return Claim{}, err
	}
	if m.Claim == nil {
		return Claim{}, fmt.Errorf("%s has no claim", m.PodName)
	}
	return *m.Claim, nil
}

func claimIsNamed(s Snapshot, r Rollout, step Step) error {
	c, err := claimOf(s, step)
	if err != nil {
		return err
	}
	if c.UID != step.Target.UID || c.Name != step.Target.Name {
		return fmt.Errorf("the live claim is %s (UID %s)", c.Name, c.UID)
	}
	if s.Stamp == nil {
		return errors.New("the Etcd has no stamp")
	}
	want := confirm.Claim{Ordinal: step.Member, Name: c.Name, UID: c.UID}
	if !slices.Contains(s.Stamp.Claims, want) || !slices.Contains(r.Claims, want) {
		return fmt.Errorf("claim %s (UID %s) is not named", c.Name, c.UID)
	}
	return nil
}

// stillAskedFor: a volume whose claim is going already, whoever deleted it, may be kept whatever is asked for by now.
func stillAskedFor(s Snapshot, r Rollout, step Step) error {
	if r.Deleting || r.Final() {
		return errors.New("the rollout has ended or is being deleted")
	}
	if c, err := claimOf(s, step); err == nil && c.Deleting && step.Action == ProtectVolume {
		return nil
	}
	return stampStands(s, r)
}

func stampStands(s Snapshot, r Rollout) error {
	switch {
	case s.Etcd == nil || s.Etcd.Deleting:
		return errors.New("the Etcd is gone or going")
	case s.Stamp == nil || s.StampError != "":
		return errors.New("the Etcd has no stamp that can be read")
	case s.Stamp.EtcdUID != s.Etcd.UID || r.EtcdUID != s.Etcd.UID:
		return errors.New("stamp or rollout were made for another Etcd")
	case s.Stamp.Token != r.Token || s.Stamp.Generation != r.Generation:
		return errors.New("the stamp is not the one that the rollout was made of")
	case !s.Etcd.Wanted.Equal(s.Stamp.To) || !s.Etcd.Wanted.Equal(r.To):
		return errors.New("the Etcd asks for other volumes than were confirmed")
	}
	return nil
}

func volumeIsKept(s Snapshot, r Rollout, step Step) error {
	m, err := memberOf(s, step)
	if err != nil {
		return err
	}
	if m.Claim == nil {
		return fmt.Errorf("%s has no claim", m.PodName)
	}
	v := m.Volume
	switch {
	case m.Claim.VolumeName == "":
		return nil
	case v == nil || v.Name != m.Claim.VolumeName:
		return fmt.Errorf("volume %s was not seen", m.Claim.VolumeName)
	case v.Policy != "Retain":
		return fmt.Errorf("volume %s has reclaim policy %s", v.Name, v.Policy)
	case v.BoundClaimUID != m.Claim.UID:
		return fmt.Errorf("volume %s belongs to another claim", v.Name)
	}
	got := [...]string{v.Mark.Namespace, v.Mark.Etcd, v.Mark.Member, v.Mark.Rollout, v.Mark.ClaimUID}
	if got != [...]string{s.Namespace, s.Name, m.PodName, r.Name, m.Claim.UID} || v.Mark.OriginalPolicy == "" {
		return fmt.Errorf("volume %s does not bear the marks of this rollout", v.Name)
	}
	return nil
}

func othersAreVoters(s Snapshot, r Rollout, step Step) error {
	if err := clusterIsWhole(s, r); err != nil {
		return err
	}
	clusters := map[uint64]bool{}
	for _, m := range s.Members {
		if m.Ordinal == step.Member {
			continue
		}
		if err := isVoter(s, m); err != nil {
			return err
		}
		clusters[m.View.ClusterID] = true
	}
	if len(clusters) != 1 {
		return fmt.Errorf("the other members are in %d clusters", len(clusters))
	}
	return nil
}

func clusterIsWhole(s Snapshot, r Rollout) error {
	switch seen := len(s.Members); {
	case s.Etcd == nil || seen != s.Etcd.Replicas || seen < 3:
		return errors.New("not every member of the Etcd was seen, or there are less than three")
	case seen != r.Replicas:
		return fmt.Errorf("%d members were seen, but the change was confirmed for %d", seen, r.Replicas)
	case s.Cluster.Trouble != "" || len(s.Cluster.Alarms) > 0:
		return fmt.Errorf("etcd has trouble %q, alarms %v", s.Cluster.Trouble, s.Cluster.Alarms)
	case len(s.Cluster.Listed) > seen:
		return fmt.Errorf("etcd lists %d members, but only %d can vote", len(s.Cluster.Listed), seen)
	}
	return nil
}

func isVoter(s Snapshot, m Member) error {
	if m.Claim == nil || m.Claim.Deleting {
		return fmt.Errorf("%s has no lasting claim", m.PodName)
	}
	if m.Pod == nil || m.Pod.Deleting || !m.Pod.Ready {
		return fmt.Errorf("%s is not ready", m.PodName)
	}
	return serves(s, m)
}

func serves(s Snapshot, m Member) error {
	v := m.View
	if !v.Reached || !v.Reads || v.Learner || v.Leader == 0 {
		return fmt.Errorf("%s is not a voter that serves", m.PodName)
	}
	if !slices.ContainsFunc(s.Cluster.Listed, func(l Listed) bool { return l.ID == v.MemberID && !l.Learner }) {
		return fmt.Errorf("%s is not listed as a voter", m.PodName)
	}
	for _, o := range s.Members {
		if o.View.Index > v.Applied && o.View.Index-v.Applied > s.Options.MaxLag {
			return fmt.Errorf("%s is %d entries behind", m.PodName, o.View.Index-v.Applied)
		}
	}
	return nil
}

func claimIsGoing(s Snapshot, r Rollout, step Step) error {
	m, err := memberOf(s, step)
	if err != nil {
		return err
	}
	switch {
	case m.Pod == nil || m.Pod.UID != step.Target.UID:
		return fmt.Errorf("the live pod of %s is another one", m.PodName)
	case m.Claim == nil || !m.Claim.Deleting:
		return fmt.Errorf("the claim of %s is not being deleted", m.PodName)
	case !slices.Contains(r.Claims, confirm.Claim{Ordinal: m.Ordinal, Name: m.Claim.Name, UID: m.Claim.UID}):
		return fmt.Errorf("the claim of %s is not one of this rollout", m.PodName)
	}
	return nil
}

func templateIsNew(s Snapshot, r Rollout, _ Step) error {
	t := s.StatefulSet
	if t == nil || t.Deleting {
		return errors.New("there is no lasting StatefulSet")
	}
	if len(t.Templates) != 1 || !t.Templates[0].Equal(r.To) {
		return errors.New("the live StatefulSet does not have the confirmed template")
	}
	return nil
}

// targetDoesNotLead: who does not answer may be the leader that the others name, so each of them must name one that is not the target.
func targetDoesNotLead(s Snapshot, _ Rollout, step Step) error {
	m, err := memberOf(s, step)
	if err != nil {
		return err
	}
	if m.View.Reached && m.View.Leader != 0 && m.View.Leader == m.View.MemberID {
		return fmt.Errorf("%s says that it leads", m.PodName)
	}
	var answering []Member // beside the target
	for _, o := range s.Members {
		if o.Ordinal != step.Member && o.View.Reached {
			answering = append(answering, o)
		}
	}
	for _, o := range answering {
		named := func(l Member) bool { return l.View.MemberID == o.View.Leader }
		if o.View.Leader != 0 && !slices.ContainsFunc(answering, named) {
			return fmt.Errorf("%s says that %x leads, which may be %s", o.PodName, o.View.Leader, m.PodName)
		}
	}
	return nil
}

func manifestIsKept(s Snapshot, r Rollout, step Step) error {
	t := s.StatefulSet
	if t == nil || t.UID != step.Target.UID {
		return errors.New("the live StatefulSet is another one")
	}
	if s.Etcd == nil || !s.Etcd.Wanted.Equal(step.Spec) {
		return errors.New("the Etcd asks for another template than it would come back with")
	}
	for _, rec := range s.Records {
		if rec.Name == r.Name+"-statefulset" && rec.StatefulSetUID == t.UID && rec.Generation == t.Generation {
			return nil
		}
	}
	return errors.New("the live manifest is not kept")
}

func manifestIsNeeded(s Snapshot, r Rollout, step Step) error {
	if r.Final() {
		return errors.New("the rollout has ended, and its manifest is an old one")
	}
	if s.StatefulSet != nil {
		return errors.New("there is a StatefulSet")
	}
	if !slices.ContainsFunc(s.Records, func(rec Record) bool { return rec.Name == step.Target.Name && rec.UID == step.Target.UID }) {
		return errors.New("there is no manifest to make it from")
	}
	return nil
}

func doorStands(s Snapshot, _ Rollout, _ Step) error {
	if !s.Door.Stands {
		return errors.New(s.Door.Fault)
	}
	return nil
}

func druidIsHeld(s Snapshot, _ Rollout, _ Step) error {
	if s.Etcd == nil || !s.Etcd.Suspended || !s.Etcd.Unprotected {
		return errors.New("its annotations do not stand")
	}
	return nil
}

func backupIsProven(s Snapshot, r Rollout, _ Step) error {
	if s.Etcd != nil && s.Etcd.HasStore && (s.Backup.FullAt.IsZero() || s.Backup.FullAt.Before(r.Created)) {
		return errors.New("no full snapshot since the rollout began")
	}
	return nil
}

func preconditionsStand(_ Snapshot, _ Rollout, step Step) error {
	if step.Target.Name == "" || step.Target.UID == "" || step.Target.ResourceVersion == "" {
		return fmt.Errorf("the target is %+v; this is a bug", step.Target)
	}
	return nil
}

func transfereeIsFit(s Snapshot, _ Rollout, step Step) error {
	for _, m := range s.Members {
		if m.View.Reached && m.View.MemberID == step.Transferee {
			if m.Ordinal == step.Member {
				return errors.New("it would move to where it is")
			}
			return isVoter(s, m)
		}
	}
	return errors.New("the transferee was not seen")
}

func policyIsOriginal(s Snapshot, _ Rollout, step Step) error {
	for _, v := range s.Volumes {
		if v.Name != step.Target.Name || v.UID != step.Target.UID {
			continue
		}
		if step.Policy == "" || step.Policy != v.Mark.OriginalPolicy {
			return fmt.Errorf("volume %s had policy %q", v.Name, v.Mark.OriginalPolicy)
		}
		return lastsOrIsOver(v)
	}
	return errors.New("the volume does not bear our marks")
}

// lastsOrIsOver: a volume whose claim is going or gone keeps its policy until the noted time.
func lastsOrIsOver(v Volume) error {
	if !v.Mark.RetainedUntil.IsZero() || v.ClaimLives {
		return nil
	}
	return fmt.Errorf("the claim of volume %s is gone, and until when it is kept was not noted", v.Name)
}

func heldByUs(s Snapshot, r Rollout, step Step) error {
	var suspend, protection bool
	for _, o := range s.Rollouts {
		if o.EtcdUID == r.EtcdUID && o.Generation <= r.Generation {
			suspend, protection = suspend || o.Held.Suspend, protection || o.Held.Protection
		}
	}
	if step.Held.Suspend && !suspend || step.Held.Protection && !protection {
		return errors.New("an annotation was not set by us")
	}
	return nil
}
