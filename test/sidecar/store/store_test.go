package store_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

func opened(t *testing.T) *store.Local {
	t.Helper()
	s, err := store.Open([]string{t.TempDir()}, "bucket", "ns--uid/main")
	require.NoError(t, err)
	return s
}

func save(t *testing.T, s *store.Local, kind string, start, last int64) *store.Snapshot {
	t.Helper()
	snapshot := store.New(kind, start, last, "gzip", false)
	require.NoError(t, s.Save(snapshot, "gzip", strings.NewReader("content")))
	return snapshot
}

func TestASnapshotComesBackAsItWasSaved(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"gzip", "zlib", "lzw", ""} {
		t.Run("policy "+policy, func(t *testing.T) {
			t.Parallel()
			compression, err := store.ParseCompression(policy != "", policy)
			require.NoError(t, err)
			s := opened(t)
			saved := store.New(store.Full, 0, 42, compression, true)
			require.NoError(t, s.Save(saved, compression, strings.NewReader("the whole database")))

			full, deltas, err := s.Latest()

			require.NoError(t, err)
			assert.Empty(t, deltas)
			assert.Equal(t, saved.SnapName, full.SnapName)
			assert.Equal(t, saved.CompressionSuffix, full.CompressionSuffix)
			assert.True(t, full.IsFinal)
			r, err := s.Fetch(full)
			require.NoError(t, err)
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			assert.Equal(t, "the whole database", string(data))
		})
	}
}

func TestLatestIsTheNewestFullSnapshotAndTheDeltasAfterIt(t *testing.T) {
	t.Parallel()
	s := opened(t)
	save(t, s, store.Full, 0, 10)
	save(t, s, store.Delta, 11, 20)
	full := save(t, s, store.Full, 0, 21)
	first := save(t, s, store.Delta, 22, 25)
	second := save(t, s, store.Delta, 26, 100)

	gotFull, gotDeltas, err := s.Latest()

	require.NoError(t, err)
	assert.Equal(t, full.SnapName, gotFull.SnapName)
	require.Len(t, gotDeltas, 2)
	assert.Equal(t, []string{first.SnapName, second.SnapName}, []string{gotDeltas[0].SnapName, gotDeltas[1].SnapName})
}

func TestForeignFilesAreNotSnapshots(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	s, err := store.Open([]string{home}, "bucket", "p")
	require.NoError(t, err)
	for _, name := range []string{".incoming-1", "Full-1-2", "Half-1-2-3", "Full-9-2-3", "Full-x-2-3"} {
		require.NoError(t, os.WriteFile(filepath.Join(home, "bucket", "p", "v2", name), nil, 0o600))
	}
	assert.True(t, s.Empty())
}

func TestTheHomeThatHasTheContainerIsTaken(t *testing.T) {
	t.Parallel()
	first, second := t.TempDir(), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(second, "bucket"), 0o700))
	_, err := store.Open([]string{first, second}, "bucket", "p")
	require.NoError(t, err)
	assert.DirExists(t, filepath.Join(second, "bucket", "p", "v2"))
	assert.NoDirExists(t, filepath.Join(first, "bucket"))
}

func TestAnUnknownCompressionPolicyIsRefused(t *testing.T) {
	t.Parallel()
	_, err := store.ParseCompression(true, "zstd")
	assert.Error(t, err)
}
