package members_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/etcd-volumes/etcd-volumes/reconciler/members"
	"github.com/etcd-volumes/etcd-volumes/test/fixture"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// free is a URL that nobody listens on now.
func free(t *testing.T) url.URL {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return url.URL{Scheme: "http", Host: l.Addr().String()}
}

// cluster starts three real members in this process and returns where they answer.
func cluster(t *testing.T) []string {
	t.Helper()
	var peers, clients []url.URL
	var initial, endpoints []string
	for i := range 3 {
		peers, clients = append(peers, free(t)), append(clients, free(t))
		initial = append(initial, volume.PodName("main", i)+"="+peers[i].String())
		endpoints = append(endpoints, clients[i].String())
	}
	var started []*embed.Etcd
	for i := range 3 {
		c := embed.NewConfig()
		c.Name, c.Dir, c.LogLevel = volume.PodName("main", i), t.TempDir(), "fatal"
		c.ListenPeerUrls, c.AdvertisePeerUrls = peers[i:i+1], peers[i:i+1]
		c.ListenClientUrls, c.AdvertiseClientUrls = clients[i:i+1], clients[i:i+1]
		c.InitialCluster = strings.Join(initial, ",")
		c.UnsafeNoFsync = true
		e, err := embed.StartEtcd(c)
		require.NoError(t, err)
		t.Cleanup(e.Close)
		started = append(started, e)
	}
	for _, e := range started {
		select {
		case <-e.Server.ReadyNotify():
		case <-time.After(time.Minute):
			require.Fail(t, "etcd does not get ready")
		}
	}
	return endpoints
}

func at(endpoints []string) members.Client {
	return members.Client{
		Reader:  fake.NewClientBuilder().WithScheme(fixture.Scheme()).Build(),
		Address: func(_ *volume.Etcd, i int) string { return endpoints[i] },
	}
}

func TestEachMemberIsAskedForItselfAndLeadershipMovesWhereItIsSent(t *testing.T) {
	endpoints := cluster(t)
	c, etcd := at(append(endpoints, "http://"+free(t).Host)), fixture.Etcd()

	a := c.Ask(t.Context(), etcd, []int{0, 1, 2})
	require.Empty(t, a.Trouble)
	require.Len(t, a.Listed, 3)
	assert.Empty(t, a.Alarms)
	leader := -1
	for i, v := range a.Views {
		assert.Equal(t, i, v.Ordinal)
		assert.True(t, v.Reached && v.Reads, v.Error)
		assert.False(t, v.Learner)
		assert.Equal(t, a.Views[0].ClusterID, v.ClusterID)
		assert.Positive(t, v.DBSize)
		if v.Leader == v.MemberID {
			leader = i
		}
	}
	require.GreaterOrEqual(t, leader, 0)

	to := (leader + 1) % 3
	require.NoError(t, c.MoveLeader(t.Context(), etcd, leader, a.Views[to].MemberID))
	a = c.Ask(t.Context(), etcd, []int{leader, to})
	for _, v := range a.Views {
		assert.Equal(t, c.Ask(t.Context(), etcd, []int{to}).Views[0].MemberID, v.Leader)
	}
	require.Error(t, c.MoveLeader(t.Context(), etcd, leader, a.Views[0].MemberID), "only the leader can hand over")
}

func TestALearnerIsSeenInTheList(t *testing.T) {
	endpoints := cluster(t)
	c, etcd := at(endpoints), fixture.Etcd()
	cl, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = cl.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	peer := "http://" + free(t).Host
	require.Eventually(t, func() bool { // refused as unhealthy while the members have only just met
		_, err := cl.MemberAddAsLearner(ctx, []string{peer})
		return err == nil
	}, time.Minute, 200*time.Millisecond)
	a := c.Ask(t.Context(), etcd, []int{0, 1, 2})
	learners := 0
	for _, l := range a.Listed {
		if l.Learner {
			learners++
		}
	}
	assert.Equal(t, 1, learners)
}

func TestAMemberThatDoesNotAnswerIsSaidAndDoesNotHoldUpTheOthers(t *testing.T) {
	c, etcd := at([]string{"http://" + free(t).Host, "http://192.0.2.1:2379"}), fixture.Etcd()
	begin := time.Now()
	a := c.Ask(t.Context(), etcd, []int{0, 1})
	assert.Less(t, time.Since(begin), 10*time.Second)
	assert.NotEmpty(t, a.Trouble)
	for _, v := range a.Views {
		assert.False(t, v.Reached)
		assert.NotEmpty(t, v.Error)
	}
	assert.NotEmpty(t, c.Ask(t.Context(), etcd, nil).Trouble)
}

func TestTLSThatCanNotBeReadIsTroubleAndNotSilence(t *testing.T) {
	etcd := fixture.Etcd()
	etcd.Spec.Etcd.ClientURLTLS = &volume.TLSConfig{
		TLSCASecretRef: volume.SecretReference{SecretReference: corev1.SecretReference{Name: "ca"}},
	}
	assert.Equal(t, "https://main-1.main-peer.shop.svc:2379", members.Endpoint(etcd, 1))
	c := at(nil)
	assert.Contains(t, c.Ask(t.Context(), etcd, []int{0}).Trouble, "secret shop/ca")

	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ca"}}
	c.Reader = fake.NewClientBuilder().WithScheme(fixture.Scheme()).WithObjects(empty).Build()
	assert.Contains(t, c.Ask(t.Context(), etcd, []int{0}).Trouble, `no certificate under "bundle.crt"`)
}
