package webhook_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	kjson "sigs.k8s.io/json"

	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// FuzzNoUnconfirmedChangeIsEverAdmitted feeds any bytes to both webhooks, before a cluster in which the Etcd shop/main is live. Whatever
// is admitted either leaves the volumes as they are, or carries a stamp for exactly this change of exactly these claims.
func FuzzNoUnconfirmedChangeIsEverAdmitted(f *testing.F) {
	cluster := newCluster(fixture.World(fixture.Etcd())...)
	d := newDoor(f, cluster, cluster)
	_, stamped := d.replace("admin")
	fast := fixture.Etcd(fixture.Class("fast"))
	for _, seed := range [][2]*volume.Etcd{
		{fixture.Etcd(), fast},
		{fixture.Etcd(), stamped},
		{stamped, fast},
		{stamped, fixture.Etcd()},
		{fast, stamped},
		{fixture.Etcd(), fixture.Etcd(fixture.Replicas(0))},
		{fixture.Etcd(fixture.Replicas(-1)), fixture.Etcd(fixture.Capacity("8Gi"))},
	} {
		f.Add(encoded(f, seed[0]), encoded(f, seed[1]), "admin", true)
		f.Add(encoded(f, seed[0]), encoded(f, seed[1]), "colleague", false)
	}
	f.Add([]byte(`{"spec":{"StorageClass":"slow"}}`), []byte(`{"spec":{"storageClass":"fast","storageClass":"slow"}}`), "", true)
	f.Add([]byte(`{"metadata":{"annotations":null}}`), []byte(`{"metadata":null,"spec":null}`), "", true)
	f.Fuzz(func(t *testing.T, before, after []byte, user string, mutates bool) {
		sent := request(t, user, fixture.Etcd(), fixture.Etcd())
		sent.Operation, sent.OldObject.Raw, sent.Object.Raw = admissionv1.Update, before, after
		if mutates {
			mutated := d.mutating.Handle(t.Context(), sent)
			require.True(t, mutated.Allowed)
			if json.Valid(after) && len(mutated.Patches) > 0 && hasMetadata(after) {
				sent.Object.Raw = applied(t, after, mutated)
			}
		}

		response := d.validating.Handle(t.Context(), sent)

		if response.Allowed {
			assertHarmless(t, before, sent.Object.Raw)
		}
	})
}

func encoded(tb testing.TB, e *volume.Etcd) []byte {
	tb.Helper()
	return raw(tb, e).Raw
}

// hasMetadata: the API server never sends an object without.
func hasMetadata(object []byte) bool {
	var o struct {
		Metadata map[string]any `json:"metadata"`
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(object, &o) == nil && o.Metadata != nil
}

func assertHarmless(t *testing.T, before, after []byte) {
	t.Helper()
	var old, stored volume.Etcd
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(before, &old))
	require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(after, &stored))
	old.Name, stored.Name = fixture.Name, fixture.Name
	from, to, live := volume.Of(&old), volume.Of(&stored), volume.Of(fixture.Etcd())
	if from.Equal(to) || to.Equal(live) {
		return
	}
	stamp, err := confirm.Read(stored.Annotations)
	require.NoError(t, err)
	require.NotNil(t, stamp, "a change without a stamp")
	assert.True(t, stamp.From.Equal(from) && stamp.To.Equal(to), "a stamp of another change")
	assert.Contains(t, []string{confirm.Given(old.Annotations), confirm.Given(stored.Annotations)}, stamp.Token)
	var uids []string
	for _, claim := range stamp.Claims {
		uids = append(uids, claim.UID)
	}
	assert.Equal(t, []string{string(fixture.ClaimUID(0)), string(fixture.ClaimUID(1)), string(fixture.ClaimUID(2))}, uids)
}
