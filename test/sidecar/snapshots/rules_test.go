package snapshots //nolint:testpackage // the rules are not worth an API

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

func TestTheScheduleSaysHowOldAFullSnapshotMayBe(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]time.Duration{
		"0 */24 * * *": 24 * time.Hour,
		"0 */6 * * *":  6 * time.Hour,
		"30 3 * * *":   24 * time.Hour,
		"0 */6 1 * *":  24 * time.Hour,
		"0 0 * * 1":    7 * 24 * time.Hour,
		"@hourly":      24 * time.Hour,
	} {
		assert.Equal(t, want, window(schedule), schedule)
	}
}

func TestSurplusIsAllBeforeTheOldestFullSnapshotThatIsKept(t *testing.T) {
	t.Parallel()
	kinds := []string{store.Full, store.Delta, store.Full, store.Delta, store.Full, store.Delta}
	list := make([]*store.Snapshot, 0, len(kinds))
	for i, kind := range kinds {
		list = append(list, &store.Snapshot{Kind: kind, LastRevision: int64(i)})
	}
	assert.Equal(t, list[:2], surplus(list, 2))
	assert.Equal(t, list[:4], surplus(list, 1))
	assert.Empty(t, surplus(list, 3))
	assert.Empty(t, surplus(list, 9))
}
