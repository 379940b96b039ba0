package certs

import (
	"crypto/tls"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALifetimeThatCanNotWorkIsRefused(t *testing.T) {
	require.NoError(t, DefaultPolicy().Validate())
	for name, p := range map[string]Policy{
		"nothing":          {},
		"certificate long": {AuthorityLife: 30 * time.Hour, CertificateLife: 10 * time.Hour, Hold: time.Minute},
		"hold long":        {AuthorityLife: 30 * time.Hour, CertificateLife: time.Hour, Hold: 5 * time.Hour},
		"no hold":          {AuthorityLife: 30 * time.Hour, CertificateLife: time.Hour},
		"negative":         {AuthorityLife: -time.Hour, CertificateLife: time.Hour, Hold: time.Hour},
	} {
		assert.Error(t, p.Validate(), name)
	}
}

// step takes one step, by way of the Secret's bytes: nothing but they may matter.
func step(t *testing.T, s *State, p Policy, f Facts) *State {
	t.Helper()
	data, err := s.Encode()
	require.NoError(t, err)
	s, err = Decode(data)
	require.NoError(t, err)
	next, err := Next(s, p, f)
	require.NoError(t, err)
	return next
}

func TestARotationGoesThroughItsPhases(t *testing.T) {
	p := Policy{AuthorityLife: 90 * time.Hour, CertificateLife: 6 * time.Hour, Hold: time.Hour}
	first, err := Begin(p, start)
	require.NoError(t, err)
	at := func(d time.Duration, injected bool) Facts { return Facts{Now: start.Add(d), Injected: injected} }

	s := step(t, first, p, at(60*time.Hour-time.Second, true))
	assert.Equal(t, first, s, "steady until two thirds")

	staged := step(t, s, p, at(60*time.Hour, true))
	assert.Equal(t, Staged, staged.Phase)
	assert.Equal(t, first.Current, staged.Current, "the old one still signs")

	assert.Equal(t, staged, step(t, staged, p, at(70*time.Hour, false)), "not promoted before the bundle is seen")
	seen := step(t, staged, p, at(70*time.Hour, true))
	assert.Equal(t, start.Add(70*time.Hour), seen.Injected)
	assert.Equal(t, seen, step(t, seen, p, at(71*time.Hour-time.Second, true)), "held")
	assert.True(t, step(t, seen, p, at(71*time.Hour, false)).Injected.IsZero(), "the hold begins anew when the bundle is lost")

	promoted := step(t, seen, p, at(71*time.Hour, true))
	assert.Equal(t, Promoted, promoted.Phase)
	assert.Equal(t, staged.Next, promoted.Current)
	assert.Equal(t, first.Current.Certificate, promoted.Previous)
	assert.Equal(t, seen.Bundle(), promoted.Bundle(), "both are trusted")

	assert.Equal(t, promoted, step(t, promoted, p, at(78*time.Hour-time.Second, true)), "a certificate of the old one may live")
	settled := step(t, promoted, p, at(78*time.Hour, true))
	assert.Equal(t, &State{Phase: Steady, Since: start.Add(78 * time.Hour), Current: promoted.Current}, settled)
}

func TestARotationCanBeAskedForOncePerRequest(t *testing.T) {
	p := DefaultPolicy()
	s, err := Begin(p, start)
	require.NoError(t, err)
	staged := step(t, s, p, Facts{Now: start.Add(time.Minute), Injected: true, Request: "a"})
	require.Equal(t, Staged, staged.Phase)
	s = step(t, staged, p, Facts{Now: start.Add(time.Minute), Injected: true, Request: "a"})
	s = step(t, s, p, Facts{Now: start.Add(time.Hour), Injected: true, Request: "a"})
	s = step(t, s, p, Facts{Now: start.Add(100 * time.Hour), Injected: true, Request: "a"})
	require.Equal(t, Steady, s.Phase)
	assert.Equal(t, s, step(t, s, p, Facts{Now: start.Add(101 * time.Hour), Injected: true, Request: "a"}))
	assert.Equal(t, Staged, step(t, s, p, Facts{Now: start.Add(101 * time.Hour), Injected: true, Request: "b"}).Phase)
}

func TestAnAuthorityThatEndedIsReplacedAtOnce(t *testing.T) {
	p := DefaultPolicy()
	s, err := Begin(p, start)
	require.NoError(t, err)
	end := s.Current.Certificate.NotAfter
	fresh := step(t, s, p, Facts{Now: end})
	assert.Equal(t, Steady, fresh.Phase)
	assert.NotEqual(t, s.Current, fresh.Current)

	staged := step(t, s, p, Facts{Now: end.Add(-time.Hour)})
	require.Equal(t, Staged, staged.Phase)
	promoted := step(t, staged, p, Facts{Now: end})
	assert.Equal(t, Promoted, promoted.Phase)
	assert.Equal(t, staged.Next, promoted.Current)
}

// replica is a server that learns of the Secret late.
type replica struct {
	leaf  *tls.Certificate
	knows *State
}

func (r *replica) refresh(t *testing.T, s *State, p Policy, now time.Time) {
	t.Helper()
	r.knows = s
	if r.leaf == nil || r.leaf.Leaf.CheckSignatureFrom(s.Current.Certificate) != nil || Due(r.leaf.Leaf, now) {
		c, err := Issue(s.Current, Names("hook", "ns"), now, p.CertificateLife)
		require.NoError(t, err)
		r.leaf = c
	}
}

// Months of rotations with leaders and replicas that act in any order and late: the certificate of every replica verifies
// under what the API server has at each instant.
func TestEveryCertificateIsTrustedAtEveryInstantWhateverTheOrder(t *testing.T) {
	p := Policy{AuthorityLife: 30 * 24 * time.Hour, CertificateLife: 48 * time.Hour, Hold: 2 * time.Hour}
	require.NoError(t, p.Validate())
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 1))
		now := start
		secret, err := Begin(p, now)
		require.NoError(t, err)
		injected := secret.Bundle()
		replicas := make([]replica, 3)
		for i := range replicas {
			replicas[i].refresh(t, secret, p, now)
		}
		authorities, verified := map[string]bool{}, map[string]bool{}
		for now.Before(start.Add(150 * 24 * time.Hour)) {
			now = now.Add(time.Duration(random.Int64N(int64(90 * time.Minute))))
			switch random.IntN(3) {
			case 0: // the leader takes a step, and may crash before it injects
				secret = step(t, secret, p, Facts{Now: now, Injected: string(injected) == string(secret.Bundle())})
				authorities[secret.Current.Certificate.Subject.CommonName] = true
			case 1: // the leader injects
				injected = secret.Bundle()
			default: // a replica looks
				replicas[random.IntN(len(replicas))].refresh(t, secret, p, now)
			}
			for i := range replicas {
				if Due(replicas[i].leaf.Leaf, now) { // the minute's tick: it looks at the clock, even with yesterday's Secret
					replicas[i].refresh(t, replicas[i].knows, p, now)
				}
				leaf := replicas[i].leaf.Leaf
				require.True(t, now.Before(leaf.NotAfter), "seed %d, %s, replica %d has ended", seed, now.Sub(start), i)
				if pair := leaf.SerialNumber.String() + string(injected); !verified[pair] { // a certificate ends no later than its authority
					require.NoError(t, Verify(injected, leaf, "hook.ns.svc", now), "seed %d, %s, replica %d", seed, now.Sub(start), i)
					verified[pair] = true
				}
			}
		}
		assert.Greater(t, len(authorities), 5, "the walk went through many rotations")
	}
}
