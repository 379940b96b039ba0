package datadir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/datadir"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/embedded"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// written is a data directory that an etcd has run on, and the member's ID.
func written(t *testing.T) (datadir.Dir, uint64) {
	t.Helper()
	d := datadir.Dir{Path: filepath.Join(t.TempDir(), "new.etcd"), Namespace: "ns", Members: 1, Quota: 1 << 30, Log: zap.NewNop()}
	etcd, err := embedded.Start(t.Context(), d.Path, d.Quota, d.Log)
	require.NoError(t, err)
	resp, err := etcd.Client.Put(t.Context(), "key", "value")
	require.NoError(t, err)
	require.NoError(t, etcd.Close())
	return d, resp.Header.MemberId
}

func backup(t *testing.T, last int64) *store.Local {
	t.Helper()
	s, err := store.Open([]string{t.TempDir()}, "bucket", "p")
	require.NoError(t, err)
	require.NoError(t, s.Save(store.New(store.Full, 0, last, "", false), "", strings.NewReader("any")))
	return s
}

// fast shortens the wait for a log that might reach further than the database.
func fast(t *testing.T) pace.Pace {
	t.Helper()
	p, err := pace.Parse("60")
	require.NoError(t, err)
	return p
}

func TestADirectoryThatEtcdRanOnIsValidAndNamesItsMember(t *testing.T) {
	t.Parallel()
	d, id := written(t)
	for _, mode := range []datadir.Mode{datadir.Full, datadir.Sanity} {
		status, err := d.Validate(t.Context(), mode)
		require.NoError(t, err)
		assert.Equal(t, datadir.Valid, status, mode)
	}
	got, err := d.MemberID()
	require.NoError(t, err)
	assert.Equal(t, id, got)
}

func TestFaultsAreToldApart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		damage func(t *testing.T, d *datadir.Dir)
		want   datadir.Status
	}{
		"another namespace": {func(_ *testing.T, d *datadir.Dir) { d.Namespace = "other" }, datadir.WrongVolume},
		"missing": {func(t *testing.T, d *datadir.Dir) {
			t.Helper()
			require.NoError(t, os.RemoveAll(d.Path))
		}, datadir.Missing},
		"no log": {func(t *testing.T, d *datadir.Dir) {
			t.Helper()
			require.NoError(t, os.RemoveAll(filepath.Join(d.Path, "member", "wal")))
		}, datadir.BadStructure},
		"no database": {func(t *testing.T, d *datadir.Dir) {
			t.Helper()
			require.NoError(t, os.WriteFile(filepath.Join(d.Path, "member", "snap", "db"), []byte("nonsense"), 0o600))
		}, datadir.Corrupt},
		"behind its backup": {func(t *testing.T, d *datadir.Dir) {
			t.Helper()
			d.Store = backup(t, 1000)
		}, datadir.RevisionBehind},
		"among many with a backup": {func(t *testing.T, d *datadir.Dir) {
			t.Helper()
			d.Members = 3
			d.Store = backup(t, 2)
			require.NoError(t, os.RemoveAll(d.Path))
		}, datadir.InvalidAmongMany},
		"among many behind the backup": {func(t *testing.T, d *datadir.Dir) {
			t.Helper()
			d.Members = 3
			d.Store = backup(t, 1000)
		}, datadir.Valid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, _ := written(t)
			_, err := d.Validate(t.Context(), datadir.Sanity)
			require.NoError(t, err)
			d.Pace = fast(t)
			tc.damage(t, &d)
			status, _ := d.Validate(t.Context(), datadir.Full)
			assert.Equal(t, tc.want, status)
		})
	}
}
