package node

import "time"

// backOff says how long a container that ended has to wait for its next start: not at all the first time, then the
// initial delay, doubled each time up to the maximum. A container that ran well for twice the maximum starts afresh.
type backOff struct {
	initial, maximum time.Duration
	delay            time.Duration // the delay the next end will cost; 0 before the first
	last             time.Time     // when delay was last raised
}

// next returns the delay after an end at the given time and raises the one to follow.
func (b *backOff) next(ended time.Time) time.Duration {
	if b.delay == 0 || ended.Sub(b.last) > 2*b.maximum {
		b.delay, b.last = b.initial, ended
		return 0
	}
	delay := b.delay
	b.delay, b.last = min(2*b.delay, b.maximum), ended
	return delay
}
