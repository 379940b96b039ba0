package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/restore"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/server"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// What a restored member is always called: the hash of the snapshot library's defaults.
const (
	restoredCluster = uint64(0xcdf818194e3a8c32)
	restoredMember  = uint64(0x8e9e05c52164694d)
)

type latest struct {
	Full   *store.Snapshot   `json:"fullSnapshot"`
	Deltas []*store.Snapshot `json:"deltaSnapshots"`
}

// content is all keys of an etcd with their values, and its revision.
func content(t *testing.T, client *clientv3.Client) (map[string]string, int64) {
	t.Helper()
	resp := retry(t, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return client.Get(ctx, "", clientv3.WithPrefix())
	})
	keys := map[string]string{}
	for _, kv := range resp.Kvs {
		keys[string(kv.Key)] = string(kv.Value)
	}
	return keys, resp.Header.Revision
}

func put(t *testing.T, client *clientv3.Client, prefix string, n int) {
	t.Helper()
	for i := range n {
		retry(t, func(ctx context.Context) (*clientv3.PutResponse, error) {
			return client.Put(ctx, fmt.Sprintf("%s-%d", prefix, i), strconv.Itoa(i))
		})
	}
}

// awaitSaved takes deltas until the store holds the given revision.
func (p *pod) awaitSaved(revision int64) {
	t := p.cluster.t
	t.Helper()
	require.Eventually(t, func() bool {
		if code, _, err := p.tryAsk("/snapshot/delta"); err != nil || code != http.StatusOK {
			return false
		}
		newest, err := p.tryLatest()
		if err != nil {
			return false
		}
		if len(newest.Deltas) > 0 {
			return newest.Deltas[len(newest.Deltas)-1].LastRevision >= revision
		}
		return newest.Full.LastRevision >= revision
	}, patience, poll, "revision %d is saved", revision)
}

func (p *pod) latest() latest {
	t := p.cluster.t
	t.Helper()
	l, err := p.tryLatest()
	require.NoError(t, err)
	return l
}

// tryLatest is latest for a sidecar that may not answer.
func (p *pod) tryLatest() (l latest, _ error) {
	code, body, err := p.tryAsk("/snapshot/latest")
	if err != nil {
		return l, err
	}
	if code != http.StatusOK {
		return l, fmt.Errorf("answer %d: %s", code, body)
	}
	return l, json.Unmarshal(body, &l)
}

func alarm(t *testing.T, client *clientv3.Client, action etcdserverpb.AlarmRequest_AlarmAction) {
	t.Helper()
	_, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	require.NoError(t, err)
}

func TestASingleMemberIsRestoredFromFullAndDeltaToTheExactContent(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, withStore)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	client := c.client()
	put(t, client, "before", 20)
	p.awaitSnapshots()
	code, _ := p.ask("/snapshot/full")
	require.Equal(t, http.StatusOK, code)
	put(t, client, "after", 10)
	_, err := client.Delete(t.Context(), "before-3")
	require.NoError(t, err)
	_, err = client.Txn(t.Context()).Then(clientv3.OpPut("one", "1"), clientv3.OpPut("two", "2"), clientv3.OpDelete("after-1")).Commit()
	require.NoError(t, err)
	wantKeys, wantRevision := content(t, client)
	p.awaitSaved(wantRevision)
	newest := p.latest()
	assert.NotEmpty(t, newest.Deltas)
	assert.Equal(t, newest.Full.LastRevision+1, newest.Deltas[0].StartRevision)

	p.terminate()
	p.wipe()
	p.start()
	p.awaitReady()

	gotKeys, gotRevision := content(t, c.client())
	assert.Equal(t, wantKeys, gotKeys)
	assert.Equal(t, wantRevision, gotRevision)
	status := p.status()
	assert.Equal(t, restoredCluster, status.Header.ClusterId)
	assert.Equal(t, restoredMember, status.Header.MemberId)
	require.Eventually(t, func() bool {
		return c.holder("main-0") == "8e9e05c52164694d:cdf818194e3a8c32:Leader"
	}, patience, poll, "the restored member beats")
	c.awaitMembers("peer URLs are corrected", func(members []*etcdserverpb.Member) bool {
		return len(members) == 1 && len(members[0].PeerURLs) == 1 && members[0].PeerURLs[0] == p.url(c.ports.peer)
	})
}

func TestSnapshotLeasesFollowTheStore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, withStore)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	p.awaitSnapshots()
	put(t, c.client(), "key", 5)
	code, body := p.ask("/snapshot/full?final=true")
	require.Equal(t, http.StatusOK, code)
	var full store.Snapshot
	require.NoError(t, json.Unmarshal(body, &full))
	assert.True(t, full.IsFinal)
	require.Eventually(t, func() bool {
		return c.holder("main-full-snap") == strconv.FormatInt(full.LastRevision, 10)
	}, patience, poll, "the full snapshot's lease names its revision")
	assert.True(t, c.lease("main-full-snap").Spec.RenewTime.Time.Equal(full.CreatedOn))

	put(t, c.client(), "more", 3)
	_, revision := content(t, c.client())
	p.awaitSaved(revision)
	require.Eventually(t, func() bool {
		return c.holder("main-delta-snap") == strconv.FormatInt(revision, 10)
	}, patience, poll, "the delta snapshot's lease names its revision")
	code, _ = p.ask("/snapshot/full?final=maybe")
	assert.Equal(t, http.StatusBadRequest, code)
}

func TestWithoutAStoreALostVolumeMeansAnEmptyEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	put(t, c.client(), "key", 5)
	code, _ := p.ask("/snapshot/full")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
	require.Eventually(t, func() bool { code, _, err := p.tryAsk("/healthz"); return err == nil && code == http.StatusOK }, patience, poll)

	p.terminate()
	p.wipe()
	p.start()
	p.awaitReady()

	keys, revision := content(t, c.client())
	assert.Empty(t, keys)
	assert.Equal(t, int64(1), revision)
}

func TestASoundVolumeIsStartedAsItIs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, withStore)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	put(t, c.client(), "key", 5)
	keys, revision := content(t, c.client())
	id := p.status().Header.MemberId

	p.terminate()
	exit, err := os.ReadFile(p.exitCode())
	require.NoError(t, err)
	assert.Equal(t, "terminated", string(exit))
	p.start()
	p.awaitReady()

	gotKeys, gotRevision := content(t, c.client())
	assert.Equal(t, keys, gotKeys)
	assert.Equal(t, revision, gotRevision)
	assert.Equal(t, id, p.status().Header.MemberId)
	assert.True(t, p.logs.contains(`"mode": "sanity"`), "an orderly end is followed by the quick validation")
	assert.NoFileExists(t, p.exitCode())
}

func TestASingleMemberBehindItsBackupIsRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, withStore)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	put(t, c.client(), "old", 2)
	p.terminate()
	old := filepath.Join(c.dir, "old")
	require.NoError(t, os.CopyFS(old, os.DirFS(p.volume)))
	p.start()
	p.awaitReady()
	put(t, c.client(), "new", 5)
	wantKeys, wantRevision := content(t, c.client())
	p.awaitSnapshots()
	p.awaitSaved(wantRevision)

	p.terminate()
	require.NoError(t, os.RemoveAll(p.volume))
	require.NoError(t, os.Rename(old, p.volume))
	p.start()
	p.awaitReady()

	gotKeys, gotRevision := content(t, c.client())
	assert.Equal(t, wantKeys, gotKeys)
	assert.Equal(t, wantRevision, gotRevision)
}

func TestTheVolumeOfAnotherNamespaceIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	p := c.pods[0]
	require.NoError(t, os.WriteFile(filepath.Join(p.volume, "safe_guard"), []byte("shoot--b"), 0o600))
	p.start()
	p.awaitLog("wrong volume is mounted: namespace is shoot--a, safe_guard says shoot--b")
	assert.NoDirExists(t, p.dataDir())
	assert.False(t, p.ready())
}

func TestTheVolumeIsMarkedWithTheNamespace(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	mark, err := os.ReadFile(filepath.Join(p.volume, "safe_guard"))
	require.NoError(t, err)
	assert.Equal(t, namespace, string(mark))
}

func TestAFullSnapshotUnderTheAlarmIsATrap(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, withStore)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	client := c.client()
	put(t, client, "key", 5)
	p.awaitSnapshots()
	alarm(t, client, etcdserverpb.AlarmRequest_ACTIVATE)
	code, _ := p.ask("/snapshot/full")
	require.Equal(t, http.StatusOK, code)

	p.terminate()
	p.wipe()
	p.start()
	p.awaitReady()

	client = c.client()
	keys, _ := content(t, client)
	assert.Len(t, keys, 5)
	_, err := client.Put(t.Context(), "refused", "")
	require.ErrorContains(t, err, "database space exceeded", "the restored etcd still has the alarm")

	alarms, err := client.AlarmList(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, alarms.Alarms)
	for _, a := range alarms.Alarms {
		_, err := client.AlarmDisarm(t.Context(), (*clientv3.AlarmMember)(a))
		require.NoError(t, err)
	}
	put(t, client, "after", 3)
	_, revision := content(t, client)
	p.awaitSnapshots()
	p.awaitSaved(revision)

	backup, err := store.Open([]string{filepath.Join(c.dir, "home")}, "bucket", namespace+"--uid/main")
	require.NoError(t, err)
	full, deltas, err := backup.Latest()
	require.NoError(t, err)
	require.NotEmpty(t, deltas)
	err = restore.Run(t.Context(), restore.Source{Store: backup, Full: full, Deltas: deltas}, restore.Target{
		Dir: filepath.Join(t.TempDir(), "new.etcd"), TempDir: filepath.Join(t.TempDir(), "temp"), Quota: 1 << 30, Log: zap.NewNop(),
	})
	require.ErrorContains(t, err, "database space exceeded", "deltas on top of such a snapshot can never be applied")
}

func TestARestoreWithoutDeltasRestartsEtcdToCorrectItsPeerURLs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, withStore)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	put(t, c.client(), "key", 5)
	p.awaitSnapshots()
	code, _ := p.ask("/snapshot/full")
	require.Equal(t, http.StatusOK, code)
	p.terminate()
	p.wipe()

	p.start()
	p.awaitLog("asked to stop")
	p.awaitReady()

	members := c.members()
	require.Len(t, members, 1)
	assert.Equal(t, []string{p.url(c.ports.peer)}, members[0].PeerURLs)
	keys, _ := content(t, c.client())
	assert.Len(t, keys, 5)
}

func TestACorruptDatabaseOfASingleMemberIsRestored(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, withStore)
	p := c.pods[0]
	p.start()
	p.awaitReady()
	put(t, c.client(), "key", 5)
	want, revision := content(t, c.client())
	p.awaitSnapshots()
	p.awaitSaved(revision)
	p.terminate()
	require.NoError(t, os.WriteFile(filepath.Join(p.dataDir(), "member", "snap", "db"), []byte("no database"), 0o600))

	p.start()
	p.awaitReady()

	got, _ := content(t, c.client())
	assert.Equal(t, want, got)
}

func TestReadingAResultOfTheInitializationResetsIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	p := c.pods[0]
	ctx, cancel := context.WithCancel(t.Context())
	sidecar := server.New(p.server())
	p.running.Go(func() { _ = sidecar.Run(ctx) })
	t.Cleanup(func() { cancel(); p.running.Wait() })
	status := func() string {
		resp, err := http.Get(p.url(c.ports.sidecar) + "/initialization/status")
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return ""
		}
		return string(body)
	}
	require.Eventually(t, func() bool { return status() == "New" }, patience, poll)
	_, _ = p.ask("/initialization/start?mode=full")
	require.Eventually(t, func() bool { return status() == "Successful" }, patience, poll)
	assert.Equal(t, "New", status())
}
