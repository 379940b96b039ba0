package certs

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// clock is a clock that stands until it is moved.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

// world is an API server with our webhook configurations, and a clock.
type world struct {
	client.WithWatch
	clock *clock
}

func newWorld(t *testing.T) *world {
	t.Helper()
	fail := admissionv1.Fail
	none := admissionv1.SideEffectClassNone
	target := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "hook"}}
	c := fake.NewClientBuilder().WithScheme(clientscheme.Scheme).WithObjects(
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "conf"}, Webhooks: []admissionv1.ValidatingWebhook{
				{Name: "a.test", ClientConfig: target, FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}},
				{Name: "b.test", ClientConfig: target, FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}},
			},
		},
		&admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "conf"}, Webhooks: []admissionv1.MutatingWebhook{
				{Name: "c.test", ClientConfig: target, FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}},
			},
		},
	).Build()
	return &world{WithWatch: c, clock: &clock{now: start}}
}

func (w *world) keeper(t *testing.T) *Keeper {
	t.Helper()
	return w.keeperOver(t, w.WithWatch)
}

func (w *world) keeperOver(t *testing.T, c client.Client) *Keeper {
	t.Helper()
	k, err := New(Options{
		Mode: ModeSelf, Namespace: "ns", Secret: "certs", Service: "hook", Configuration: "conf",
		Policy: Policy{AuthorityLife: 90 * time.Hour, CertificateLife: 6 * time.Hour, Hold: time.Hour}, Now: w.clock.Now,
	})
	require.NoError(t, err)
	k.reader, k.writer, k.live = c, c, c
	return k
}

func (w *world) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "certs"}, s))
	return s
}

func (w *world) state(t *testing.T) *State {
	t.Helper()
	s, err := Decode(w.secret(t).Data)
	require.NoError(t, err)
	return s
}

func (w *world) validating(t *testing.T) *admissionv1.ValidatingWebhookConfiguration {
	t.Helper()
	v := &admissionv1.ValidatingWebhookConfiguration{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "conf"}, v))
	return v
}

// bundles are those of all entries of both configurations.
func (w *world) bundles(t *testing.T) [][]byte {
	t.Helper()
	all, err := configurations(t.Context(), w, "conf")
	require.NoError(t, err)
	var out [][]byte
	for _, c := range all {
		for _, e := range c.entries {
			out = append(out, e.bundle)
		}
	}
	require.Len(t, out, 3)
	return out
}

// trusted fails where the API server would not accept the certificate of one of the replicas.
func (w *world) trusted(t *testing.T, replicas ...*Keeper) {
	t.Helper()
	for _, bundle := range w.bundles(t) {
		for _, k := range replicas {
			require.NoError(t, Verify(bundle, k.serve.Load().Leaf, "hook.ns.svc", w.clock.now))
		}
	}
}

func TestAReplicaGetsReadyBeforeALeaderIsElected(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	require.NoError(t, k.Refresh(t.Context()))
	w.trusted(t, k)
	assert.Equal(t, Steady, w.state(t).Phase)
}

func TestTheBundleIsAllThatIsWrittenToAConfiguration(t *testing.T) {
	w := newWorld(t)
	before := w.validating(t)
	require.NoError(t, w.keeper(t).Lead(t.Context()))
	after := w.validating(t)
	for i := range after.Webhooks {
		assert.NotEmpty(t, after.Webhooks[i].ClientConfig.CABundle)
		after.Webhooks[i].ClientConfig.CABundle = nil
		// The fake client turns what is applied into the Go type first, whose fields without omitempty become null.
		after.Webhooks[i].SideEffects = before.Webhooks[i].SideEffects
		after.Webhooks[i].AdmissionReviewVersions = before.Webhooks[i].AdmissionReviewVersions
	}
	assert.Equal(t, before.Webhooks, after.Webhooks)
}

func TestNothingIsWrittenWhereNothingIsToBeDone(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	require.NoError(t, k.Lead(t.Context()))
	secret, conf, leaf := w.secret(t).ResourceVersion, w.validating(t).ResourceVersion, k.serve.Load()
	w.clock.now = w.clock.now.Add(time.Minute)
	require.NoError(t, k.Lead(t.Context()))
	require.NoError(t, k.Refresh(t.Context()))
	assert.Equal(t, secret, w.secret(t).ResourceVersion)
	assert.Equal(t, conf, w.validating(t).ResourceVersion)
	assert.Same(t, leaf, k.serve.Load())
}

func TestReplicasThatRaceForTheFirstSecretEndWithOneAuthority(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, w *world){
		"none yet": func(*testing.T, *world) {},
		"an empty one": func(t *testing.T, w *world) {
			t.Helper()
			require.NoError(t, w.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "certs"}}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(t, w)
			rival := w.keeper(t)
			var once sync.Once
			ahead := func(ctx context.Context) {
				once.Do(func() { assert.NoError(t, rival.Refresh(ctx)) })
			}
			late := w.keeperOver(t, interceptor.NewClient(w.WithWatch, interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					ahead(ctx)
					return c.Create(ctx, o, opts...)
				},
				Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
					ahead(ctx)
					return c.Update(ctx, o, opts...)
				},
			}))
			require.NoError(t, late.Refresh(t.Context()))
			w.trusted(t, rival, late)
			assert.Equal(t, rival.state.Bundle(), late.state.Bundle())
		})
	}
}

func TestManyReplicasAtOnceEndWithOneAuthority(t *testing.T) {
	w := newWorld(t)
	replicas := make([]*Keeper, 8)
	var group sync.WaitGroup
	for i := range replicas {
		replicas[i] = w.keeper(t)
		group.Go(func() { assert.NoError(t, replicas[i].Refresh(t.Context())) })
	}
	group.Wait()
	w.trusted(t, replicas...)
}

func TestOnlyTheLeaderReplacesABundle(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	require.NoError(t, k.Lead(t.Context()))
	want := w.bundles(t)

	foreign := w.validating(t)
	foreign.Webhooks[0].ClientConfig.CABundle = []byte("garbage")
	require.NoError(t, w.Update(t.Context(), foreign))
	require.NoError(t, k.Refresh(t.Context()))
	assert.Equal(t, []byte("garbage"), w.validating(t).Webhooks[0].ClientConfig.CABundle)
	require.NoError(t, k.Lead(t.Context()))
	assert.Equal(t, want, w.bundles(t))

	wiped := w.validating(t)
	wiped.Webhooks[1].ClientConfig.CABundle = nil
	require.NoError(t, w.Update(t.Context(), wiped))
	require.NoError(t, k.Refresh(t.Context()))
	assert.Equal(t, want, w.bundles(t), "an empty one is filled in by any replica")
}

func TestADeletedSecretIsPutBackAsItWas(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	require.NoError(t, k.Refresh(t.Context()))
	before := w.state(t)
	require.NoError(t, w.Delete(t.Context(), w.secret(t)))
	require.NoError(t, k.Refresh(t.Context()))
	assert.Equal(t, before, w.state(t))
}

func TestASecretThatCanNotBeReadIsMadeAnewByTheLeaderAlone(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.keeper(t).Refresh(t.Context()))
	broken := w.secret(t)
	broken.Data[keyCurrentKey] = []byte("garbage")
	require.NoError(t, w.Update(t.Context(), broken))

	k := w.keeper(t) // started after it broke: it remembers nothing
	require.ErrorIs(t, k.Refresh(t.Context()), errUnreadable)
	assert.Equal(t, []byte("garbage"), w.secret(t).Data[keyCurrentKey])
	require.ErrorIs(t, k.Lead(t.Context()), errUnreadable, "it is made anew, and said so")
	require.NoError(t, k.Lead(t.Context()))
	w.trusted(t, k)
}

func TestABundleThatWouldLockOurselvesOutIsWithheld(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	require.NoError(t, k.Lead(t.Context()))
	stranger, err := Issue(authority(t, start, time.Hour), Names("hook", "ns"), start, time.Hour)
	require.NoError(t, err)
	k.serve.Store(stranger)
	wiped := w.validating(t)
	wiped.Webhooks[0].ClientConfig.CABundle = nil
	require.NoError(t, w.Update(t.Context(), wiped))
	_, err = k.inject(t.Context(), configuration.bare)
	require.ErrorContains(t, err, "withheld")
	assert.Empty(t, w.validating(t).Webhooks[0].ClientConfig.CABundle)
}

func TestAMissingConfigurationHoldsTheRotationUp(t *testing.T) {
	w := newWorld(t)
	k := w.keeper(t)
	require.NoError(t, k.Lead(t.Context()))
	require.NoError(t, w.Delete(t.Context(), w.validating(t)))
	require.NoError(t, w.DeleteAllOf(t.Context(), &admissionv1.MutatingWebhookConfiguration{}))
	w.clock.now = start.Add(60 * time.Hour)
	for range 10 {
		require.NoError(t, k.Lead(t.Context()))
		w.clock.now = w.clock.now.Add(time.Hour)
	}
	assert.Equal(t, Staged, w.state(t).Phase)
}

// Nine days, hour by hour, with a leader that changes, a follower that sleeps, and crashes between any two writes.
func TestARotationNeverLosesAReplica(t *testing.T) {
	w := newWorld(t)
	var writes int
	crash := interceptor.NewClient(w.WithWatch, interceptor.Funcs{ // each third write is not answered
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := c.Update(ctx, o, opts...); err != nil {
				return err
			}
			if writes++; writes%3 == 0 {
				return context.DeadlineExceeded
			}
			return nil
		},
	})
	a, b := w.keeperOver(t, crash), w.keeperOver(t, crash)
	require.NoError(t, a.Refresh(t.Context()))
	require.NoError(t, b.Refresh(t.Context()))
	phases := map[Phase]int{}
	first := w.state(t).Current.Certificate.SerialNumber
	for hour := range 24 * 9 {
		w.clock.now = w.clock.now.Add(time.Hour)
		leader, follower := a, b
		if hour/50%2 == 1 {
			leader, follower = b, a
		}
		if err := leader.Lead(t.Context()); err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.NoError(t, leader.Refresh(t.Context()))
		w.trusted(t, a, b)
		if hour%2 == 0 { // the follower is late
			require.NoError(t, follower.Refresh(t.Context()))
		}
		w.trusted(t, a, b)
		phases[w.state(t).Phase]++
	}
	assert.NotEqual(t, first, w.state(t).Current.Certificate.SerialNumber)
	for _, p := range Phases {
		assert.Positive(t, phases[p], p)
	}
}
