package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/metrics"
)

// layout is the version of the directory layout, the last element of the path.
const layout = "v2"

// Local is a store in a directory.
type Local struct{ dir string }

// Open returns the store of container and prefix below the first of homes that has the container, or else below homes[0].
//
// druid mounts the backup directory below the home directory of the image's user. A pod that runs as a process
// without an image keeps its caller's $HOME, which is why more than one home is looked at.
func Open(homes []string, container, prefix string) (*Local, error) {
	dir := filepath.Join(pick(homes, container), container, prefix, layout)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return &Local{dir: dir}, nil
}

func pick(homes []string, container string) string {
	for _, home := range homes {
		if info, err := os.Stat(filepath.Join(home, container)); err == nil && info.IsDir() {
			return home
		}
	}
	return homes[0]
}

// List returns all snapshots by last revision, then age; files that are no snapshots are passed over.
func (l *Local) List() ([]*Snapshot, error) {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var list []*Snapshot
	for _, entry := range entries {
		snapshot, err := ParseName(entry.Name())
		if err != nil {
			continue
		}
		snapshot.Prefix = l.dir + "/"
		list = append(list, snapshot)
	}
	slices.SortStableFunc(list, func(a, b *Snapshot) int {
		if a.LastRevision != b.LastRevision {
			return int(a.LastRevision - b.LastRevision)
		}
		return a.CreatedOn.Compare(b.CreatedOn)
	})
	return list, nil
}

// Latest returns the newest full snapshot, nil if there is none, and the deltas after it in order.
func (l *Local) Latest() (*Snapshot, []*Snapshot, error) {
	list, err := l.List()
	if err != nil {
		return nil, nil, err
	}
	var deltas []*Snapshot
	for _, snapshot := range slices.Backward(list) {
		if snapshot.Kind == Full {
			slices.Reverse(deltas)
			observeDeltas(deltas)
			return snapshot, deltas, nil
		}
		deltas = append(deltas, snapshot)
	}
	slices.Reverse(deltas)
	observeDeltas(deltas)
	return nil, deltas, nil
}

func observeDeltas(deltas []*Snapshot) {
	if len(deltas) == 0 {
		metrics.DeltaRevisions.Set(0)
		return
	}
	metrics.DeltaRevisions.Set(float64(deltas[len(deltas)-1].LastRevision - deltas[0].StartRevision))
}

// Empty reports whether there is no snapshot; a store that cannot be listed counts as empty, as in the real sidecar.
func (l *Local) Empty() bool {
	full, deltas, err := l.Latest()
	return err != nil || full == nil && len(deltas) == 0
}

// Save writes a snapshot, compressed as its suffix says. It appears in the store complete or not at all.
func (l *Local) Save(snapshot *Snapshot, compression Compression, content io.Reader) error {
	file, err := os.CreateTemp(l.dir, ".incoming-*")
	if err != nil {
		return fmt.Errorf("save snapshot %s: %w", snapshot.SnapName, err)
	}
	defer os.Remove(file.Name())
	if err := errors.Join(fill(file, compression, content), file.Close()); err != nil {
		return fmt.Errorf("save snapshot %s: %w", snapshot.SnapName, err)
	}
	if err := os.Rename(file.Name(), filepath.Join(l.dir, snapshot.SnapName)); err != nil {
		return fmt.Errorf("save snapshot %s: %w", snapshot.SnapName, err)
	}
	snapshot.Prefix = l.dir + "/"
	return nil
}

func fill(file *os.File, compression Compression, content io.Reader) error {
	w := compression.writer(file)
	if _, err := io.Copy(w, content); err != nil {
		return err
	}
	return errors.Join(w.Close(), file.Sync())
}

// Fetch opens a snapshot for reading, uncompressed. The caller closes it.
func (l *Local) Fetch(snapshot *Snapshot) (io.ReadCloser, error) {
	file, err := os.Open(filepath.Join(l.dir, snapshot.SnapName))
	if err != nil {
		return nil, fmt.Errorf("fetch snapshot: %w", err)
	}
	r, err := reader(snapshot.CompressionSuffix, file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fetch snapshot %s: %w", snapshot.SnapName, err), file.Close())
	}
	return &content{ReadCloser: r, file: file}, nil
}

// Delete removes a snapshot; one that is gone is not an error.
func (l *Local) Delete(snapshot *Snapshot) error {
	err := os.Remove(filepath.Join(l.dir, snapshot.SnapName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete snapshot: %w", err)
	}
	return nil
}

type content struct {
	io.ReadCloser

	file *os.File
}

// Close closes the decompressor and the file below it.
func (c *content) Close() error { return errors.Join(c.ReadCloser.Close(), c.file.Close()) }
