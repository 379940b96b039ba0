package server_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/server"
)

func parse(t *testing.T, arguments ...string) (server.Config, error) {
	t.Helper()
	t.Setenv("POD_NAME", "main-0")
	t.Setenv("POD_NAMESPACE", "ns")
	t.Setenv("STORAGE_CONTAINER", "bucket")
	t.Setenv("HOME", "/home/someone")
	return server.FromArgs(arguments, pace.Pace{}, zap.NewNop())
}

func TestWhatDruidLeavesOutIsAsInTheRealSidecar(t *testing.T) {
	c, err := parse(t)
	require.NoError(t, err)
	assert.Equal(t, 8080, c.Port)
	assert.Equal(t, "/var/etcd/config/etcd.conf.yaml", c.ConfigFile)
	assert.Equal(t, 30*time.Second, c.Heartbeat)
	assert.Equal(t, 5*time.Second, c.ReelectionPeriod)
	assert.Equal(t, 5*time.Second, c.ElectionTimeout)
	assert.Equal(t, 20*time.Second, c.Snapshots.DeltaPeriod)
	assert.Equal(t, "0 */1 * * *", c.Snapshots.Schedule)
	assert.Equal(t, 9095, c.WrapperPort)
	assert.Equal(t, "bucket", c.Container)
	assert.Equal(t, []string{"/home/someone", "/home/nonroot", "/root"}, c.Homes)
	assert.Empty(t, c.Provider)
	assert.Zero(t, c.Snapshots.MaxBackups, "only LimitBased deletes snapshots")
}

func TestWhatDruidRendersIsTaken(t *testing.T) {
	c, err := parse(t,
		"--server-port=8081", "--storage-provider=Local", "--store-prefix=ns--uid/main", "--garbage-collection-policy=LimitBased", "--max-backups=3",
		"--endpoints=https://main-local:2379", "--service-endpoints=https://main-client:2379,https://other:2379", "--insecure-transport=false",
		"--cacert=/var/etcd/ssl/ca/ca.crt", "--k8s-heartbeat-duration=10s", "--enable-member-lease-renewal=true", "--defragmentation-schedule=0 */24 * * *")
	require.NoError(t, err)
	assert.Equal(t, 8081, c.Port)
	assert.Equal(t, 3, c.Snapshots.MaxBackups)
	assert.Equal(t, []string{"https://main-local:2379"}, c.Conn.Endpoints)
	assert.Equal(t, []string{"https://main-client:2379", "https://other:2379"}, c.Conn.ServiceEndpoints)
	assert.False(t, c.Conn.InsecureTransport)
	assert.Equal(t, 10*time.Second, c.Heartbeat)
	assert.True(t, c.MemberLease)
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	for name, arguments := range map[string][]string{
		"another provider":    {"--storage-provider=S3"},
		"no heartbeat":        {"--k8s-heartbeat-duration=0s"},
		"short re-election":   {"--reelection-period=1s"},
		"unknown compression": {"--compress-snapshots=true", "--compression-policy=zstd"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, arguments...)
			assert.Error(t, err)
		})
	}
}
