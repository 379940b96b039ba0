// Package pace shortens waiting without changing what is waited for.
//
// The real sidecar retries in seconds: a three-member cluster needs more than a minute of back-offs
// before its first etcd starts. With a factor the order of events, the number of attempts and the outcomes stay
// as they are; only the pauses between attempts and the patience with a silent peer shrink.
// Periods that druid renders as flags (heartbeat, re-election, delta snapshots) are never scaled.
package pace

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

const (
	// shortestTimeout keeps a scaled timeout above what a healthy etcd on a busy machine needs for an answer.
	shortestTimeout = 5 * time.Second
	// shortestGlance does so for a question that is asked several times, where silence is the common answer.
	shortestGlance = time.Second
	// longestPause is the cap of the exponential back-off, as in the real sidecar.
	longestPause = 2 * time.Minute
)

// Pace divides pauses and timeouts by a factor; its zero value leaves them as they are.
type Pace struct {
	factor float64 // >= 1, or 0 for 1
}

// Parse reads a factor of at least 1; an empty text means 1.
func Parse(text string) (Pace, error) {
	if text == "" {
		return Pace{}, nil
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Pace{}, fmt.Errorf("parse speed-up %q: %w", text, err)
	}
	if factor < 1 {
		return Pace{}, fmt.Errorf("parse speed-up %q: must be at least 1", text)
	}
	return Pace{factor: factor}, nil
}

// Pause returns the scaled pause between two attempts.
func (p Pace) Pause(d time.Duration) time.Duration {
	if p.factor <= 1 {
		return d
	}
	return time.Duration(float64(d) / p.factor)
}

// Timeout returns the scaled patience with a peer, never less than 5 s unless d itself is shorter.
func (p Pace) Timeout(d time.Duration) time.Duration {
	return max(p.Pause(d), min(d, shortestTimeout))
}

// Glance is a Timeout that may be as short as a second: for looking whether there is a cluster at all.
func (p Pace) Glance(d time.Duration) time.Duration {
	return max(p.Pause(d), min(d, shortestGlance))
}

// Sleep waits for the scaled pause or until ctx is done.
func (p Pace) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(p.Pause(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Backoff says how often something is tried and how long to wait in between.
type Backoff struct {
	First    time.Duration
	Factor   float64
	Attempts int
}

// Retry runs act until it succeeds, the attempts are used up or ctx is done; it returns act's last error.
func (p Pace) Retry(ctx context.Context, b Backoff, act func() error) error {
	pause := b.First
	for attempt := 1; ; attempt++ {
		err := act()
		if err == nil || attempt >= b.Attempts {
			return err
		}
		if sleepErr := p.Sleep(ctx, jitter(pause)); sleepErr != nil {
			return err
		}
		pause = min(time.Duration(float64(pause)*b.Factor), longestPause)
	}
}

// jitter adds up to a tenth, so that three members that start together do not stay in step.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Float64()*0.1*float64(d)) //nolint:gosec // spreading retries needs no secrecy
}
