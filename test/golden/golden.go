// Package golden compares texts with files under testdata. A test run with -update writes the files; read the diff before it is
// committed.
//
//	golden.Equal(t, "refusal.txt", text)   // testdata/refusal.txt
//	golden.NoStale(t, "*.txt")             // last: a file that no test asked for fails
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	mu    sync.Mutex
	asked = map[string]bool{}
)

// Equal fails where got is not what the file says.
func Equal(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	mu.Lock()
	asked[path] = true
	mu.Unlock()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run the test with -update to write it")
	assert.Equal(t, string(want), got, "%s differs; if that is wanted, run the test with -update and read the diff", path)
}

// NoStale fails where files of the pattern lie in testdata that this run did not ask for. Call it in the test that asked for them all.
func NoStale(t *testing.T, pattern string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	require.NoError(t, err)
	mu.Lock()
	defer mu.Unlock()
	for _, path := range paths {
		assert.True(t, asked[path], "%s is stale: no test asks for it", path)
	}
}
