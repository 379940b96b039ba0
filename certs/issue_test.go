package certs

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T, now time.Time, life time.Duration) *Authority {
	t.Helper()
	a, err := NewAuthority(now, life)
	require.NoError(t, err)
	return a
}

func leafOf(t *testing.T, a *Authority, now time.Time, life time.Duration) *x509.Certificate {
	t.Helper()
	c, err := Issue(a, Names("hook", "ns"), now, life)
	require.NoError(t, err)
	return c.Leaf
}

func TestACertificateIsAcceptedForEachNameOfTheService(t *testing.T) {
	a := authority(t, start, 90*24*time.Hour)
	leaf := leafOf(t, a, start, 72*time.Hour)
	for _, name := range []string{"hook", "hook.ns", "hook.ns.svc", "hook.ns.svc.cluster.local"} {
		require.NoError(t, Verify(encodeCertificate(a.Certificate), leaf, name, start), name)
	}
	assert.Error(t, Verify(encodeCertificate(a.Certificate), leaf, "hook.other.svc", start))
}

func TestACertificateIsAcceptedByClocksThatAreBehindAndNotAfterItsEnd(t *testing.T) {
	a := authority(t, start, 90*24*time.Hour)
	leaf, bundle := leafOf(t, a, start, 72*time.Hour), encodeCertificate(a.Certificate)
	for at, accepted := range map[time.Duration]bool{
		-2 * time.Hour: false, -59 * time.Minute: true, 0: true, 72 * time.Hour: true, 72*time.Hour + time.Second: false,
	} {
		assert.Equal(t, accepted, Verify(bundle, leaf, "hook.ns.svc", start.Add(at)) == nil, "at %s", at)
	}
}

func TestACertificateNeverOutlivesItsAuthority(t *testing.T) {
	a := authority(t, start, 10*time.Hour)
	leaf := leafOf(t, a, start, 72*time.Hour)
	assert.Equal(t, a.Certificate.NotAfter, leaf.NotAfter)
	_, err := Issue(a, Names("hook", "ns"), start.Add(10*time.Hour), time.Hour)
	assert.ErrorContains(t, err, "authority ended")
}

func TestACertificateIsDueAtTwoThirdsOfItsLife(t *testing.T) {
	leaf := leafOf(t, authority(t, start, 1000*time.Hour), start, 72*time.Hour)
	assert.False(t, Due(leaf, start.Add(48*time.Hour-time.Second)))
	assert.True(t, Due(leaf, start.Add(48*time.Hour)))
}

func TestABundleThatIsNotMadeOfAuthoritiesIsRefused(t *testing.T) {
	a, other := authority(t, start, 1000*time.Hour), authority(t, start, 1000*time.Hour)
	leaf := leafOf(t, a, start, time.Hour)
	for name, bundle := range map[string][]byte{
		"empty": nil, "garbage": []byte("garbage"), "the certificate itself": encodeCertificate(leaf),
		"another authority": encodeCertificate(other.Certificate),
	} {
		require.Error(t, Verify(bundle, leaf, "hook.ns.svc", start), name)
	}
	assert.NoError(t, Verify(append(encodeCertificate(other.Certificate), encodeCertificate(a.Certificate)...), leaf, "hook.ns.svc", start))
}

func TestAStateSurvivesTheSecret(t *testing.T) {
	a, b := authority(t, start, 1000*time.Hour), authority(t, start.Add(time.Hour), 1000*time.Hour)
	for _, s := range []*State{
		{Phase: Steady, Since: start, Current: a},
		{Phase: Steady, Since: start, Current: a, Request: "now"},
		{Phase: Staged, Since: start, Current: a, Next: b},
		{Phase: Staged, Since: start, Injected: start.Add(time.Minute), Current: a, Next: b},
		{Phase: Promoted, Since: start, Current: b, Previous: a.Certificate},
	} {
		data, err := s.Encode()
		require.NoError(t, err)
		got, err := Decode(data)
		require.NoError(t, err)
		assert.Equal(t, s, got)
		assert.Equal(t, s.Bundle(), data[keyBundle])
	}
}

func TestASecretThatDoesNotHoldTogetherIsRefused(t *testing.T) {
	a, b := authority(t, start, 1000*time.Hour), authority(t, start, 1000*time.Hour)
	for name, spoil := range map[string]func(data map[string][]byte){
		"no progress":       func(d map[string][]byte) { delete(d, keyProgress) },
		"unknown phase":     func(d map[string][]byte) { d[keyProgress] = []byte(`{"phase":"dancing"}`) },
		"no certificate":    func(d map[string][]byte) { delete(d, keyCurrentCert) },
		"no key":            func(d map[string][]byte) { delete(d, keyCurrentKey) },
		"key of another":    func(d map[string][]byte) { d[keyCurrentKey] = d[keyNextKey] },
		"garbage":           func(d map[string][]byte) { d[keyCurrentCert] = []byte("garbage") },
		"two certificates":  func(d map[string][]byte) { d[keyCurrentCert] = append(d[keyCurrentCert], d[keyNextCert]...) },
		"staged, no next":   func(d map[string][]byte) { delete(d, keyNextCert) },
		"promoted, no prev": func(d map[string][]byte) { d[keyProgress] = []byte(`{"phase":"promoted"}`) },
	} {
		data, err := (&State{Phase: Staged, Since: start, Current: a, Next: b}).Encode()
		require.NoError(t, err)
		spoil(data)
		_, err = Decode(data)
		assert.Error(t, err, name)
	}
}

func TestTheBundleHasTheSameBytesInEveryOrder(t *testing.T) {
	old, young := authority(t, start, time.Hour), authority(t, start.Add(time.Minute), time.Hour)
	want := append(encodeCertificate(young.Certificate), encodeCertificate(old.Certificate)...)
	assert.Equal(t, want, (&State{Current: old, Next: young}).Bundle())
	assert.Equal(t, want, (&State{Current: young, Previous: old.Certificate}).Bundle())
}
