package leases_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/leases"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

func client(t *testing.T, names ...string) leases.Client {
	t.Helper()
	c := leases.Client{Leases: fake.NewClientset().CoordinationV1().Leases("ns")}
	for _, name := range names {
		_, err := c.Leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return c
}

func get(t *testing.T, c leases.Client, name string) *coordinationv1.Lease {
	t.Helper()
	lease, err := c.Leases.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return lease
}

func TestTheHolderNamesMemberClusterAndRoleInHex(t *testing.T) {
	t.Parallel()
	header := &etcdserverpb.ResponseHeader{MemberId: 0x8e9e05c52164694d, ClusterId: 0xcdf818194e3a8c32}
	for name, tc := range map[string]struct {
		status *etcdserverpb.StatusResponse
		want   string
	}{
		"leader":   {&etcdserverpb.StatusResponse{Header: header, Leader: header.MemberId}, "8e9e05c52164694d:cdf818194e3a8c32:Leader"},
		"follower": {&etcdserverpb.StatusResponse{Header: header, Leader: 1}, "8e9e05c52164694d:cdf818194e3a8c32:Member"},
		"learner":  {&etcdserverpb.StatusResponse{Header: header, Leader: 1, IsLearner: true}, "8e9e05c52164694d:cdf818194e3a8c32:Member"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.want, leases.Holder((*clientv3.StatusResponse)(tc.status)))
		})
	}
}

func TestAMemberLeaseHasAHolderOnceItWasRenewed(t *testing.T) {
	t.Parallel()
	c := client(t, "main-0")
	had, err := c.HasHolder(t.Context(), "main-0")
	require.NoError(t, err)
	assert.False(t, had)

	require.NoError(t, c.RenewMember(t.Context(), "main-0", "1:2:Leader", map[string]string{leases.PeerTLSAnnotation: "false"}))

	had, err = c.HasHolder(t.Context(), "main-0")
	require.NoError(t, err)
	assert.True(t, had)
	lease := get(t, c, "main-0")
	assert.WithinDuration(t, time.Now(), lease.Spec.RenewTime.Time, time.Minute)
	assert.Equal(t, "false", lease.Annotations[leases.PeerTLSAnnotation])
}

func TestAMissingLeaseIsAnError(t *testing.T) {
	t.Parallel()
	c := client(t)
	require.Error(t, c.RenewMember(t.Context(), "main-0", "1:2:Leader", nil))
	_, err := c.HasHolder(t.Context(), "main-0")
	require.Error(t, err)
}

func TestTheFullSnapshotLeaseNeverGoesBack(t *testing.T) {
	t.Parallel()
	c := client(t, "full")
	newer := &store.Snapshot{LastRevision: 20, CreatedOn: time.Unix(2000, 0)}
	require.NoError(t, c.RenewFull(t.Context(), "full", newer))
	require.NoError(t, c.RenewFull(t.Context(), "full", &store.Snapshot{LastRevision: 10, CreatedOn: time.Unix(3000, 0)}))
	lease := get(t, c, "full")
	assert.Equal(t, "20", *lease.Spec.HolderIdentity)
	assert.True(t, lease.Spec.RenewTime.Time.Equal(newer.CreatedOn))
}

func TestTheDeltaLeaseIsRenewedEvenWithoutDeltas(t *testing.T) {
	t.Parallel()
	c := client(t, "delta")
	require.NoError(t, c.RenewDelta(t.Context(), "delta", nil))
	lease := get(t, c, "delta")
	assert.Equal(t, "0", *lease.Spec.HolderIdentity)
	assert.WithinDuration(t, time.Now(), lease.Spec.RenewTime.Time, time.Minute)

	require.NoError(t, c.RenewDelta(t.Context(), "delta", []*store.Snapshot{{LastRevision: 7}, {LastRevision: 9}}))
	assert.Equal(t, "9", *get(t, c, "delta").Spec.HolderIdentity)
}
