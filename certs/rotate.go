package certs

import (
	"fmt"
	"time"
)

// Policy is how long things live. The zero Policy is of no use: begin with [DefaultPolicy].
type Policy struct {
	// AuthorityLife is the life of a CA; it is rotated at two thirds.
	AuthorityLife time.Duration
	// CertificateLife is the life of a serving certificate; it is renewed at two thirds.
	CertificateLife time.Duration
	// Hold is how long a new bundle is left to reach every API server before a certificate depends on it.
	Hold time.Duration
}

// DefaultPolicy rotates the CA every 60 days and renews the serving certificates every 2 days.
func DefaultPolicy() Policy {
	return Policy{AuthorityLife: 90 * 24 * time.Hour, CertificateLife: 72 * time.Hour, Hold: 10 * time.Minute}
}

// Validate reports why a rotation could not end before the old CA does; nil if it can.
func (p Policy) Validate() error {
	if p.Hold <= 0 || p.CertificateLife <= 0 || p.AuthorityLife <= 0 {
		return fmt.Errorf("lifetimes must be positive: authority %s, certificate %s, hold %s", p.AuthorityLife, p.CertificateLife, p.Hold)
	}
	if p.CertificateLife+2*p.Hold > p.AuthorityLife/3 {
		return fmt.Errorf("a certificate of %s and two holds of %s do not fit in the last third of an authority of %s",
			p.CertificateLife, p.Hold, p.AuthorityLife)
	}
	return nil
}

// Begin makes the first state: steady, with a new authority.
func Begin(p Policy, now time.Time) (*State, error) {
	ca, err := NewAuthority(now, p.AuthorityLife)
	if err != nil {
		return nil, err
	}
	return &State{Phase: Steady, Since: now, Current: ca}, nil
}

// Facts is what the leader saw when it asked for the next state.
type Facts struct {
	Now time.Time
	// Injected: each entry of each webhook configuration holds the bundle of the present state, read back from the API.
	Injected bool
	// Request asks for a rotation now, where it differs from the last one that was honoured.
	Request string
}

// Next returns the state that follows, or s itself where nothing is to be done. It takes one step at a time, changes
// nothing that it is given, and needs no memory but s.
func Next(s *State, p Policy, f Facts) (*State, error) {
	if !f.Now.Before(s.Current.Certificate.NotAfter) {
		return replace(s, p, f.Now)
	}
	switch s.Phase {
	case Steady:
		return stage(s, p, f)
	case Staged:
		return promote(s, p, f), nil
	case Promoted:
		return settle(s, p, f.Now), nil
	}
	return nil, fmt.Errorf("unknown phase %q: this is a bug", s.Phase)
}

// replace ends a rotation that came too late: no certificate of the current authority is accepted any more, so there
// is nothing left to overlap with.
func replace(s *State, p Policy, now time.Time) (*State, error) {
	if s.Next != nil && now.Before(s.Next.Certificate.NotAfter) {
		return promoted(s, now), nil
	}
	fresh, err := Begin(p, now)
	if err != nil {
		return nil, err
	}
	fresh.Request = s.Request
	return fresh, nil
}

func stage(s *State, p Policy, f Facts) (*State, error) {
	if !Due(s.Current.Certificate, f.Now) && f.Request == s.Request {
		return s, nil
	}
	next, err := NewAuthority(f.Now, p.AuthorityLife)
	if err != nil {
		return nil, err
	}
	return &State{Phase: Staged, Since: f.Now, Request: f.Request, Current: s.Current, Next: next}, nil
}

// promote waits until the bundle has been in place for the whole hold; where it was lost meanwhile, the hold begins anew.
func promote(s *State, p Policy, f Facts) *State {
	switch {
	case !f.Injected && s.Injected.IsZero():
		return s
	case !f.Injected:
		return injectedAt(s, time.Time{})
	case s.Injected.IsZero():
		return injectedAt(s, f.Now)
	case f.Now.Before(s.Injected.Add(p.Hold)):
		return s
	}
	return promoted(s, f.Now)
}

func injectedAt(s *State, t time.Time) *State {
	c := *s
	c.Injected = t
	return &c
}

func promoted(s *State, now time.Time) *State {
	return &State{Phase: Promoted, Since: now, Request: s.Request, Current: s.Next, Previous: s.Current.Certificate}
}

// settle drops the previous authority once the last certificate that it may have signed has ended: a replica that learned of
// the promotion as late as a hold after it may have signed one then.
func settle(s *State, p Policy, now time.Time) *State {
	if now.Before(s.Since.Add(p.CertificateLife + p.Hold)) {
		return s
	}
	return &State{Phase: Steady, Since: now, Request: s.Request, Current: s.Current}
}
