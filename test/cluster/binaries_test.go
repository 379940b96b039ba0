package cluster

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
)

func TestVersionsAreThoseOfTheModules(t *testing.T) {
	t.Parallel()
	for module, want := range map[string]string{
		"kubernetes": "k8s.io/kubernetes " + KubernetesVersion,
		"etcd":       "go.etcd.io/etcd/server/v3 " + EtcdVersion,
	} {
		gomod, err := os.ReadFile(filepath.Join("build", module, "go.mod"))
		require.NoError(t, err)
		assert.Contains(t, string(gomod), want)
	}
}

func TestBinariesInTheCacheAreUsedInSilence(t *testing.T) {
	t.Parallel()
	var progress strings.Builder
	paths, err := BuildBinaries(t.Context(), &progress)
	require.NoError(t, err)
	assert.Empty(t, progress.String())
	assert.Len(t, paths, 7)
	for name, path := range paths {
		assert.FileExists(t, path)
		assert.Equal(t, name, filepath.Base(path))
	}
}

func TestCachePathDependsOnVersionModulesFlagsAndGo(t *testing.T) {
	t.Parallel()
	here := checkout{dir: filepath.Join("..", ".."), goVersion: "go1"}
	path := func(c checkout, b binary) string {
		p, err := c.cachePath("cache", b)
		require.NoError(t, err)
		return p
	}
	b := etcdBinary("etcd", "server")
	base := path(here, b)
	assert.Equal(t, base, path(here, b))
	otherGo, otherFlags, otherModule, otherVersion := here, b, b, b
	otherGo.goVersion = "go2"
	otherFlags.linkFlags = "-s"
	otherModule.module = "kubernetes"
	otherVersion.version = "v0"
	seen := map[string]bool{base: true}
	for _, p := range []string{path(otherGo, b), path(here, otherFlags), path(here, otherModule), path(here, otherVersion)} {
		assert.False(t, seen[p], p)
		seen[p] = true
	}
}

func TestALockIsHeldByOneAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), io.Discard, path)
	require.NoError(t, err)
	said := make(chan string, 1)
	locked := make(chan error, 1)
	go func() {
		again, err := lock(t.Context(), writerFunc(func(p []byte) { said <- string(p) }), path)
		if err == nil {
			again()
		}
		locked <- err
	}()
	assert.Contains(t, <-said, "waiting for another build")
	select {
	case err := <-locked:
		assert.Fail(t, "locked twice", "%v", err)
	default:
	}
	unlock()
	require.NoError(t, <-locked)
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

func TestBuiltProgramsAreRemovedByTheirOwner(t *testing.T) {
	t.Parallel()
	dir, remove, err := Build(t.Context(), io.Discard, "./test/cluster/cmd/local-cluster")
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(dir, "local-cluster"))
	remove()
	assert.NoDirExists(t, dir)
}

func TestImagesAreFoundByWholeReferenceOrBareName(t *testing.T) {
	t.Parallel()
	table := newImageTable(map[string]node.Image{
		"wrapper":                   {Path: "/bare"},
		"registry.test/x/wrapper:2": {Path: "/whole"},
	})
	for ref, want := range map[string]string{
		"wrapper":                          "/bare",
		"wrapper:1":                        "/bare",
		"localhost:5000/wrapper":           "/bare",
		"registry.test/x/wrapper:1":        "/bare",
		"registry.test/x/wrapper@sha256:0": "/bare",
		"registry.test/x/wrapper:2":        "/whole",
	} {
		image, err := table.resolve(ref)
		require.NoError(t, err, ref)
		assert.Equal(t, want, image.Path, ref)
	}
	_, err := table.resolve("registry.test/wrapper/other")
	assert.ErrorContains(t, err, `"registry.test/wrapper/other" is not registered`)
}

func TestTailIsTheEndOfALog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	for _, content := range []string{"1\n2\n3\n", "1\n2\n3", strings.Repeat("long line\n", tailBytes) + "2\n3\n"} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		assert.Equal(t, "2\n3", strings.TrimSuffix(tail(path, 2), "\n"))
	}
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	assert.Empty(t, tail(path, 2))
}
