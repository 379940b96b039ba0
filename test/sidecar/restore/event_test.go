package restore_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/restore"
)

func TestEventsComeBackAsTheyWereEncoded(t *testing.T) {
	t.Parallel()
	events := []restore.Event{{Key: []byte("a"), Value: []byte{0, 255}, Revision: 7}, {Deleted: true, Key: []byte("b"), Revision: 8}}
	data, err := restore.Encode(events)
	require.NoError(t, err)
	got, err := restore.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	assert.Equal(t, events, got)
}

func TestADamagedDeltaIsRefused(t *testing.T) {
	t.Parallel()
	data, err := restore.Encode([]restore.Event{{Key: []byte("a"), Revision: 7}})
	require.NoError(t, err)
	data[3] ^= 1
	_, err = restore.Decode(bytes.NewReader(data))
	require.ErrorContains(t, err, "damaged")
	_, err = restore.Decode(bytes.NewReader(data[:5]))
	assert.ErrorContains(t, err, "missing its hash")
}
