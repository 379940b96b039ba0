package etcdconf_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/etcdconf"
)

const rendered = `
name: etcd-config
data-dir: /var/etcd/data/new.etcd
metrics: basic
snapshot-count: 10000
enable-grpc-gateway: true
quota-backend-bytes: 8589934592
initial-cluster-token: etcd-cluster
initial-cluster-state: new
initial-cluster: p-main-0=http://main-0.main-peer.ns.svc:2380,p-main-1=http://main-1.main-peer.ns.svc:2380,p-main-2=http://main-2.main-peer.ns.svc:2380
auto-compaction-mode: periodic
auto-compaction-retention: 30m
listen-peer-urls: http://0.0.0.0:2380
listen-client-urls: http://0.0.0.0:2379
initial-advertise-peer-urls:
  p-main-0: [http://main-0.main-peer.ns.svc:2380]
  p-main-1: [http://main-1.main-peer.ns.svc:2380]
  p-main-2: [http://main-2.main-peer.ns.svc:2380]
advertise-client-urls:
  p-main-0: [http://main-0.main-peer.ns.svc:2379]
  p-main-1: [http://main-1.main-peer.ns.svc:2379]
  p-main-2: [http://main-2.main-peer.ns.svc:2379]
member-name-prefix: p
next-cluster-version-compatible: true
backend-bbolt-freelist-type: array
`

func parsed(t *testing.T) etcdconf.File {
	t.Helper()
	f, err := etcdconf.Parse([]byte(rendered))
	require.NoError(t, err)
	return f
}

func TestTheMemberNameCarriesThePrefix(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "p-main-1", parsed(t).Member("main-1"))
}

func TestTheSizeIsTheNumberOfInitialMembers(t *testing.T) {
	t.Parallel()
	size, err := parsed(t).Size()
	require.NoError(t, err)
	assert.Equal(t, 3, size)
}

func TestARenderedConfigurationIsOneThatEtcdReads(t *testing.T) {
	t.Parallel()
	f := parsed(t)
	data, err := f.Render("p-main-1", f.Restricted(map[string]bool{"p-main-1": true, "p-main-2": true}), etcdconf.StateExisting)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "etcd.conf.yaml")
	require.NoError(t, os.WriteFile(path, data, 0o600))

	cfg, err := embed.ConfigFromFile(path)

	require.NoError(t, err)
	assert.Equal(t, "p-main-1", cfg.Name)
	assert.Equal(t, "existing", cfg.ClusterState)
	assert.Equal(t, "p-main-1=http://main-1.main-peer.ns.svc:2380,p-main-2=http://main-2.main-peer.ns.svc:2380", cfg.InitialCluster)
	assert.Equal(t, "main-1.main-peer.ns.svc:2380", cfg.AdvertisePeerUrls[0].Host)
	assert.Equal(t, int64(8589934592), cfg.QuotaBackendBytes)
}

func TestAMemberWithoutURLsIsAnError(t *testing.T) {
	t.Parallel()
	_, err := parsed(t).Render("main-1", "", etcdconf.StateNew)
	assert.ErrorContains(t, err, "no peer URLs of member main-1")
}
