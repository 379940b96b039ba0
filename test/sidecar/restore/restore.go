// Package restore rebuilds the data directory of a member from a full snapshot and the delta snapshots after it.
//
// The full snapshot is restored by etcd's own snapshot library under the name and the peer URL that the real sidecar leaves at their
// defaults, so member ID and cluster ID are new and always the same two. Deltas are applied through an embedded etcd, one
// transaction a revision. Nothing is filtered: an alarm in the full snapshot is an alarm after
// the restore, and with NOSPACE the first put of a delta fails with "database space exceeded", for ever.
//
// Not modelled: compaction and defragmentation while applying, fetching in parallel, switching authentication off.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/embedded"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// What the real sidecar's flags default to; druid sets none of them.
const (
	memberName   = "default"
	peerURL      = "http://localhost:2380"
	clusterToken = "etcd-cluster"
)

// Source is what is restored: a full snapshot and the deltas after it, in order.
type Source struct {
	Store  *store.Local
	Full   *store.Snapshot
	Deltas []*store.Snapshot
}

// Target is where it goes.
type Target struct {
	Dir     string // must not exist
	TempDir string
	Quota   int64
	Log     *zap.Logger
	// Applied is called with the embedded etcd after the last delta; it is not called without deltas.
	Applied func(ctx context.Context, client *clientv3.Client) error
}

// Run restores src into dst.
func Run(ctx context.Context, src Source, dst Target) error {
	if src.Full == nil {
		return errors.New("restore: there are delta snapshots but no full snapshot")
	}
	if err := os.MkdirAll(dst.TempDir, 0o700); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(dst.TempDir)
	if err := full(src, dst); err != nil {
		return fmt.Errorf("restore full snapshot %s: %w", src.Full.SnapName, err)
	}
	if len(src.Deltas) == 0 {
		return nil
	}
	return deltas(ctx, src, dst)
}

func full(src Source, dst Target) error {
	path, err := download(src, dst.TempDir)
	if err != nil {
		return err
	}
	return snapshot.NewV3(dst.Log.Named("restore")).Restore(snapshot.RestoreConfig{
		SnapshotPath:        path,
		Name:                memberName,
		OutputDataDir:       dst.Dir,
		PeerURLs:            []string{peerURL},
		InitialCluster:      memberName + "=" + peerURL,
		InitialClusterToken: clusterToken,
	})
}

func download(src Source, dir string) (string, error) {
	content, err := src.Store.Fetch(src.Full)
	if err != nil {
		return "", err
	}
	defer content.Close()
	file, err := os.CreateTemp(dir, "snapshot-*.db")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(file, content)
	return file.Name(), errors.Join(err, file.Close())
}

func deltas(ctx context.Context, src Source, dst Target) (err error) {
	etcd, err := embedded.Start(ctx, dst.Dir, dst.Quota, dst.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	for _, delta := range src.Deltas {
		if err := apply(ctx, etcd.Client, src.Store, delta); err != nil {
			return fmt.Errorf("apply delta snapshot %s: %w", delta.SnapName, err)
		}
	}
	if dst.Applied == nil {
		return nil
	}
	return dst.Applied(ctx, etcd.Client)
}

// apply brings the etcd to the delta's last revision and fails if it ends anywhere else.
func apply(ctx context.Context, client *clientv3.Client, from *store.Local, delta *store.Snapshot) error {
	events, err := load(from, delta)
	if err != nil {
		return err
	}
	reached, err := Revision(ctx, client)
	if err != nil {
		return err
	}
	// The full snapshot may reach further than its name says, so that it overlaps with the first delta.
	if err := commit(ctx, client, after(events, reached)); err != nil {
		return err
	}
	reached, err = Revision(ctx, client)
	if err != nil {
		return err
	}
	if reached != delta.LastRevision {
		return fmt.Errorf("revision is %d after applying, want %d", reached, delta.LastRevision)
	}
	return nil
}

func load(from *store.Local, delta *store.Snapshot) ([]Event, error) {
	content, err := from.Fetch(delta)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	return Decode(content)
}

func after(events []Event, revision int64) []Event {
	for i, event := range events {
		if event.Revision > revision {
			return events[i:]
		}
	}
	return nil
}

// commit applies the events in order, all of one revision in one transaction.
func commit(ctx context.Context, client *clientv3.Client, events []Event) error {
	var ops []clientv3.Op
	for i, event := range events {
		ops = append(ops, event.op())
		if i+1 < len(events) && events[i+1].Revision == event.Revision {
			continue
		}
		if _, err := client.Txn(ctx).Then(ops...).Commit(); err != nil {
			return fmt.Errorf("apply revision %d: %w", event.Revision, err)
		}
		ops = nil
	}
	return nil
}

// Revision returns the revision of the etcd behind client.
func Revision(ctx context.Context, client *clientv3.Client) (int64, error) {
	resp, err := client.Get(ctx, "", clientv3.WithLastRev()...)
	if err != nil {
		return 0, fmt.Errorf("get revision: %w", err)
	}
	return resp.Header.Revision, nil
}
