package plan

import (
	"time"

	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Questions are what the API server has to be asked, without any change, before the next step can be judged.
type Questions struct {
	// Claim, if not nil, is asked for by a dry-run create.
	Claim *volume.Spec
	// Pod, if not nil, is asked about by a dry-run eviction.
	Pod *Target
}

// Wants says which questions matter for the next step: the step itself, found with every answer unknown, tells.
func Wants(s Snapshot, now time.Time) Questions {
	var q Questions
	step := Next(s, now)
	r := s.rollout(step.Rollout)
	if r == nil || step.Action != Wait {
		return q
	}
	if step.Reason == claimNotAsked {
		q.Claim = &r.To
	}
	if step.Reason == evictionNotAsked {
		q.Pod = &step.Target
	}
	return q
}

// Reasons by which the planner asks; they are never reported, as observe answers them in the same pass.
const (
	claimNotAsked    Reason = "ClaimNotAsked"
	evictionNotAsked Reason = "EvictionNotAsked"
)
