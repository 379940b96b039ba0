package snapshots

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/metrics"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/restore"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// pageSize is what an etcd snapshot is a multiple of, apart from the hash at its end.
const pageSize = 512

func (s *Snapshotter) takeFull(ctx context.Context, final bool) (*store.Snapshot, error) {
	defer s.forget()
	s.unfollow()
	snapshot, err := s.saveFull(ctx, final)
	s.fullOK = err == nil
	if err != nil {
		return nil, fmt.Errorf("take full snapshot: %w", err)
	}
	metrics.Required.WithLabelValues(store.Full).Set(0)
	metrics.Required.WithLabelValues(store.Delta).Set(0)
	s.recorder.Full(ctx, snapshot)
	if s.config.DeltaPeriod < shortestDelta {
		return snapshot, nil
	}
	return snapshot, s.follow(ctx)
}

// saveFull saves one full snapshot, or returns the previous one if that is final and nothing has changed since.
func (s *Snapshotter) saveFull(ctx context.Context, final bool) (*store.Snapshot, error) {
	revision, err := s.revision(ctx)
	if err != nil {
		return nil, err
	}
	p := s.previous
	if final && p.IsFinal && p.Kind == store.Full && p.LastRevision == revision {
		return p, nil
	}
	file, err := s.download(ctx)
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	snapshot := store.New(store.Full, 0, revision, s.config.Compression, final)
	if err := s.store.Save(snapshot, s.config.Compression, file); err != nil {
		return nil, err
	}
	s.previous, s.full = snapshot, snapshot
	s.saved(snapshot)
	return snapshot, nil
}

// download copies etcd's snapshot into a file and checks it. The caller closes and removes the file.
func (s *Snapshotter) download(ctx context.Context) (_ *os.File, err error) {
	client, err := s.conn.Local()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, s.conn.SnapshotTimeout)
	defer cancel()
	content, err := client.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if err := os.MkdirAll(s.config.TempDir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(s.config.TempDir, "db")) //nolint:gosec // the directory is ours
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(file, content); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	if err := verify(file); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	return file, nil
}

// verify compares a snapshot with the hash at its end and leaves the file at its beginning.
func verify(file *os.File) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size%pageSize != sha256.Size {
		return errors.New("snapshot is missing its hash")
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(file, 0, size-sha256.Size)); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := file.ReadAt(want, size-sha256.Size); err != nil {
		return err
	}
	if got := hash.Sum(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("snapshot is damaged: sha256 is %x, want %x", got, want)
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// takeDelta saves the events that have arrived; without any it saves nothing and returns nil.
func (s *Snapshotter) takeDelta(ctx context.Context) (*store.Snapshot, error) {
	snapshot, err := s.saveDelta()
	if err != nil {
		return nil, fmt.Errorf("take delta snapshot: %w", err)
	}
	metrics.Required.WithLabelValues(store.Delta).Set(0)
	if s.deltaTime != nil {
		s.deltaTime.Reset(s.config.DeltaPeriod)
	}
	_, deltas, err := s.store.Latest()
	if err != nil {
		s.log.Warn("delta snapshot lease is not renewed", zap.Error(err))
		return snapshot, nil
	}
	s.recorder.Delta(ctx, deltas)
	return snapshot, nil
}

func (s *Snapshotter) saveDelta() (*store.Snapshot, error) {
	defer s.forget()
	if len(s.events) == 0 {
		return nil, nil //nolint:nilnil // nothing to save is not an error
	}
	data, err := restore.Encode(s.events)
	if err != nil {
		return nil, err
	}
	last := s.events[len(s.events)-1].Revision
	snapshot := store.New(store.Delta, s.previous.LastRevision+1, last, s.config.Compression, false)
	if err := s.store.Save(snapshot, s.config.Compression, bytes.NewReader(data)); err != nil {
		return nil, err
	}
	s.previous = snapshot
	s.saved(snapshot)
	return snapshot, nil
}

func (s *Snapshotter) saved(snapshot *store.Snapshot) {
	metrics.LatestRevision.WithLabelValues(snapshot.Kind).Set(float64(snapshot.LastRevision))
	metrics.LatestTime.WithLabelValues(snapshot.Kind).Set(float64(snapshot.CreatedOn.Unix()))
	s.log.Info("saved snapshot", zap.String("name", snapshot.SnapName))
}

// fullIsDue decides at the start: there is no full snapshot, it was the last before a hibernation, it
// failed, it is too old, or it would be before the schedule comes round again.
func (s *Snapshotter) fullIsDue(now time.Time) bool {
	if s.full == nil || s.full.IsFinal || !s.fullOK {
		return true
	}
	window := window(s.config.Schedule)
	age := now.Sub(s.full.CreatedOn)
	return age > window || age+s.schedule.Next(now).Sub(now) > window
}

// collectGarbage deletes all but the newest full snapshots and the deltas between those that go.
func (s *Snapshotter) collectGarbage() {
	if s.config.MaxBackups == 0 {
		return
	}
	list, err := s.store.List()
	if err != nil {
		s.log.Warn("garbage is not collected", zap.Error(err))
		return
	}
	for _, snapshot := range surplus(list, s.config.MaxBackups) {
		if err := s.store.Delete(snapshot); err != nil {
			s.log.Warn("garbage is not collected", zap.Error(err))
		}
	}
}
