package verdict

import (
	"slices"
	"time"

	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Role is a member's part in the cluster, as far as it is known.
type Role string

// Roles.
const (
	Leader   Role = "leader"
	Follower Role = "follower"
	RoleOpen Role = "" // not known
)

// Plan is what would be done, in order, as far as it can be foreseen.
type Plan struct {
	// Steps are the members whose volumes are replaced: the sick first, then followers, the leader last.
	Steps []Step
	// Members is the number of members of the Etcd.
	Members int
	// Tolerance is how many further members may fail while one is out: members - 1 - majority, >= 0.
	Tolerance int
	// Wanted is what the new volumes look like.
	Wanted volume.Spec
	Retain time.Duration
	Backup Fact[Backup]
	Now    time.Time
	// LeaderKnown: the order is final as of now.
	LeaderKnown bool
	// Unknowns are what could not be looked up and is not needed to decide, with the reason.
	Unknowns []string
}

// Step is the replacement of one member's volume.
type Step struct {
	Ordinal int
	Member  string // the pod's name
	Role    Role
	Ready   bool
	Claim   Claim
}

func (c *judged) plan() Plan {
	members := c.members()
	leader, known := c.leader()
	p := Plan{
		Members: members, Tolerance: max(0, members-1-(members/2+1)), Wanted: c.changes.After, Retain: c.Retain,
		Backup: c.Backup, Now: c.Now, LeaderKnown: known, Unknowns: c.unknowns(),
	}
	for _, claim := range c.doomed {
		p.Steps = append(p.Steps, Step{
			Ordinal: claim.Ordinal, Member: volume.PodName(c.Before.Name, claim.Ordinal), Role: role(claim.Ordinal, leader, known),
			Ready: c.ready(claim.Ordinal), Claim: claim,
		})
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return a.turn() - b.turn() })
	return p
}

// turn sorts steps; within a turn they stay in the order of their ordinals.
func (s Step) turn() int {
	switch {
	case !s.Ready:
		return 0
	case s.Role == Leader:
		return 2
	default:
		return 1
	}
}

func role(ordinal, leader int, known bool) Role {
	switch {
	case !known:
		return RoleOpen
	case ordinal == leader:
		return Leader
	default:
		return Follower
	}
}

// leader returns the ordinal of the leader. For some seconds after an election two leases can both say Leader: the one renewed last is
// right.
func (c *judged) leader() (ordinal int, known bool) {
	var newest time.Time
	for _, l := range c.Leases.Value {
		if l.Leader && (!known || l.Renewed.After(newest)) {
			ordinal, newest, known = l.Ordinal, l.Renewed, true
		}
	}
	return ordinal, known
}

func (c *judged) ready(ordinal int) bool {
	return slices.ContainsFunc(c.Members.Value, func(m Member) bool { return m.Ordinal == ordinal && m.Ready })
}

func (c *judged) unknowns() []string {
	var unknowns []string
	if !c.Leases.OK() {
		unknowns = append(unknowns, "who leads: "+c.Leases.Unknown)
	}
	if !c.Backup.OK() {
		unknowns = append(unknowns, "the age of the newest backup: "+c.Backup.Unknown)
	}
	return unknowns
}
