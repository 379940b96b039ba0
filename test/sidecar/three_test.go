package sidecar_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

var holderFormat = regexp.MustCompile(`^[0-9a-f]{1,16}:[0-9a-f]{1,16}:(Leader|Member)$`)

// threeMembers is a running cluster of three with some content.
func threeMembers(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, 3, withStore, withPrefix)
	c.start()
	c.awaitReady()
	put(t, c.client(), "key", 20)
	return c
}

func (c *cluster) leader() *pod {
	c.t.Helper()
	return retry(c.t, func(ctx context.Context) (*pod, error) {
		for _, p := range c.pods {
			if p.ready() && p.leads(ctx) {
				return p, nil
			}
		}
		return nil, errors.New("no member leads")
	})
}

func (p *pod) leads(ctx context.Context) bool {
	endpoint := p.url(p.cluster.ports.client)
	status, err := p.cluster.connect(endpoint).Status(ctx, endpoint)
	return err == nil && status.Leader == status.Header.MemberId
}

func (c *cluster) follower() *pod {
	c.t.Helper()
	leader := c.leader()
	return c.pods[slices.IndexFunc(c.pods, func(p *pod) bool { return p != leader })]
}

func (c *cluster) memberID(name string) uint64 {
	c.t.Helper()
	for _, m := range c.members() {
		if m.Name == name {
			return m.ID
		}
	}
	return 0
}

func (c *cluster) learners() int {
	c.t.Helper()
	n := 0
	for _, m := range c.members() {
		if m.IsLearner {
			n++
		}
	}
	return n
}

func TestThreeMembersFormOneClusterAndSayWhoLeads(t *testing.T) {
	t.Parallel()
	c := threeMembers(t)
	members := c.members()
	require.Len(t, members, 3)
	require.Zero(t, c.learners())
	require.Eventually(t, func() bool {
		return slices.IndexFunc(c.pods, func(p *pod) bool { return c.holder(p.member()) == "" }) < 0
	}, patience, poll, "all members beat")
	leaders := 0
	for _, p := range c.pods {
		holder := c.holder(p.member())
		assert.Regexp(t, holderFormat, holder)
		assert.True(t, strings.HasPrefix(holder, fmt.Sprintf("%x:%x:", c.memberID(p.member()), p.status().Header.ClusterId)), holder)
		if strings.HasSuffix(holder, ":Leader") {
			leaders++
		}
	}
	assert.Equal(t, 1, leaders)
}

func TestAFollowersSidecarPassesSnapshotsOnToTheLeaders(t *testing.T) {
	t.Parallel()
	c := threeMembers(t)
	f := c.follower()
	f.awaitSnapshots()
	full := f.awaitFull()
	_, revision := content(t, c.client())
	assert.Equal(t, revision, full.LastRevision)
	assert.Equal(t, full.SnapName, f.latest().Full.SnapName)
	code, _ := f.ask("/healthz")
	assert.Equal(t, http.StatusServiceUnavailable, code, "only the leader's sidecar is healthy")
}

func TestAMemberThatLostItsDataIsReplacedByALearnerAndPromoted(t *testing.T) {
	t.Parallel()
	c := threeMembers(t)
	p := c.follower()
	p.awaitSnapshots()
	oldID, clusterID := c.memberID(p.member()), p.status().Header.ClusterId
	require.Eventually(t, func() bool { return strings.HasPrefix(c.holder(p.member()), fmt.Sprintf("%x:", oldID)) }, patience, poll)
	p.terminate()
	kept := filepath.Join(c.dir, "kept")
	require.NoError(t, os.CopyFS(kept, os.DirFS(p.volume)))
	p.wipe()

	// A sidecar that never looks at its role leaves its member a learner.
	p.reelection = time.Hour
	p.start()
	c.awaitMembers("the member has joined as a learner", func(members []*etcdserverpb.Member) bool {
		return slices.ContainsFunc(members, func(m *etcdserverpb.Member) bool { return m.IsLearner && m.Name == p.member() })
	})
	p.awaitLog("rpc not supported for learner")
	assert.False(t, p.ready(), "a learner is not ready")
	newID := c.memberID(p.member())
	assert.NotEqual(t, oldID, newID)
	assert.Len(t, c.members(), 3)
	require.Eventually(t, func() bool {
		return c.holder(p.member()) == fmt.Sprintf("%x:%x:Member", newID, clusterID)
	}, patience, poll, "a learner beats as a member")

	p.terminate()
	p.reelection = reelection
	p.start()
	p.awaitReady()
	require.Zero(t, c.learners())
	assert.Equal(t, newID, c.memberID(p.member()), "a started learner keeps its identity")
	assert.Equal(t, clusterID, p.status().Header.ClusterId)
	keys, _ := content(t, c.connect(p.url(c.ports.client)))
	assert.Len(t, keys, 20)

	p.terminate()
	require.NoError(t, os.RemoveAll(p.volume))
	require.NoError(t, os.Rename(kept, p.volume))
	p.start()
	p.awaitLog(fmt.Sprintf("data directory is that of member %x, which was removed from the cluster", oldID))
	assert.False(t, p.ready())
}

func TestAReplacementThatWasInterruptedAfterTheRemovalIsFinished(t *testing.T) {
	t.Parallel()
	c := threeMembers(t)
	p := c.follower()
	p.terminate()
	p.wipe()
	client := c.client()
	_, err := client.MemberRemove(t.Context(), c.memberID(p.member()))
	require.NoError(t, err)

	p.start()
	p.awaitReady()

	assert.Len(t, c.members(), 3)
	assert.Zero(t, c.learners())
	assert.True(t, p.logs.contains("cluster does not list this member, adding it"))
}

func TestALeaderThatIsTerminatedHandsItsLeadershipOver(t *testing.T) {
	t.Parallel()
	c := threeMembers(t)
	p := c.leader()
	id := p.status().Header.MemberId
	p.terminate()
	assert.True(t, p.logs.contains("leadership transfer finished") || p.logs.contains("leadership transfer starting"), "etcd hands leadership over")
	next := c.leader()
	assert.NotEqual(t, id, next.status().Leader)
	p.start()
	p.awaitReady()
	next.awaitSnapshots()
}

func TestWithoutQuorumAMemberWithoutDataWaitsAndDestroysNothing(t *testing.T) {
	t.Parallel()
	c := threeMembers(t)
	p := c.follower()
	p.awaitSnapshots()
	require.Eventually(t, func() bool { return c.holder(p.member()) != "" }, patience, poll)
	for _, other := range c.pods {
		other.terminate()
	}
	p.wipe()
	p.start()
	p.awaitLog("initialization failed")
	assert.NoDirExists(t, p.dataDir())
	for _, other := range c.pods {
		if other != p {
			other.start()
		}
	}
	c.awaitReady()
	assert.Len(t, c.members(), 3)
	keys, _ := content(t, c.connect(p.url(c.ports.client)))
	assert.Len(t, keys, 20)
}
