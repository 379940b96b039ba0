package restore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Event is one change in a delta snapshot. Leases are left out, as in the real sidecar: a restored key lives on.
type Event struct {
	Deleted  bool   `json:"deleted,omitempty"`
	Key      []byte `json:"key"`
	Value    []byte `json:"value,omitempty"`
	Revision int64  `json:"revision"`
}

// FromWatch converts what etcd's watch reports.
func FromWatch(e *clientv3.Event) Event {
	return Event{Deleted: e.Type == mvccpb.Event_DELETE, Key: e.Kv.Key, Value: e.Kv.Value, Revision: e.Kv.ModRevision}
}

// Size returns roughly the memory that the event takes.
func (e Event) Size() int { return len(e.Key) + len(e.Value) }

func (e Event) op() clientv3.Op {
	if e.Deleted {
		return clientv3.OpDelete(string(e.Key))
	}
	return clientv3.OpPut(string(e.Key), string(e.Value))
}

// Encode returns the content of a delta snapshot: the events as JSON and a SHA-256 of that.
func Encode(events []Event) ([]byte, error) {
	data, err := json.Marshal(events)
	if err != nil {
		return nil, fmt.Errorf("encode events: %w", err)
	}
	sum := sha256.Sum256(data)
	return append(data, sum[:]...), nil
}

// Decode reads the content of a delta snapshot and refuses one that is damaged.
func Decode(r io.Reader) ([]Event, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read delta snapshot: %w", err)
	}
	if len(data) < sha256.Size {
		return nil, errors.New("delta snapshot is missing its hash")
	}
	body, want := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], want) {
		return nil, fmt.Errorf("delta snapshot is damaged: sha256 is %x, want %x", got, want)
	}
	var events []Event
	if err := json.Unmarshal(body, &events); err != nil {
		return nil, fmt.Errorf("decode events: %w", err)
	}
	return events, nil
}
