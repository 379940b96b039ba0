// Package datadir judges the data directory of a member before etcd starts on it.
//
// Modelled from the real sidecar: the safe_guard file with the namespace, the directory structure, the revision against the
// newest snapshot (single member only), in full mode also the snapshot files, the write-ahead log and the database.
// Modelled from newer sidecars: the data of a member that was removed from the cluster is refused.
// Not modelled: repairing a torn write-ahead log.
package datadir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/embedded"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/restore"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// Mode says how closely to look: etcd-wrapper asks for Sanity after an orderly end and for Full otherwise.
type Mode string

// The modes of validation.
const (
	Full   Mode = "full"
	Sanity Mode = "sanity"
)

// Status is the verdict.
type Status int

// The verdicts.
const (
	Valid Status = iota
	WrongVolume
	Missing
	BadStructure
	Corrupt
	Unknown
	// InvalidAmongMany stands for any fault of the data of a multi-member cluster that has a backup.
	InvalidAmongMany
	RevisionBehind
	Locked
)

const (
	safeGuard    = "safe_guard"
	lockTimeout  = 2 * time.Minute
	catchUp      = time.Minute
	catchUpPause = time.Second
)

// Dir is a data directory with what it is judged by.
type Dir struct {
	Path      string
	Namespace string       // "" skips the safe_guard check
	Members   int          // in the initial cluster
	Store     *store.Local // nil without a backup
	Quota     int64
	Pace      pace.Pace
	Log       *zap.Logger
}

// Validate judges the directory. The error explains a status other than Valid where there is more to say.
func (d Dir) Validate(ctx context.Context, mode Mode) (Status, error) {
	status, err := d.sane(ctx)
	if status != Valid {
		return d.amongMany(status, err)
	}
	if mode != Full {
		return Valid, nil
	}
	err = d.intact()
	if errors.Is(err, bolterrors.ErrTimeout) {
		return Locked, err
	}
	if err != nil {
		d.Log.Info("data directory is corrupt", zap.Error(err))
		return Corrupt, nil
	}
	return Valid, nil
}

// amongMany lets the other members decide: where a backup exists the cluster was bootstrapped before.
func (d Dir) amongMany(status Status, err error) (Status, error) {
	if status == WrongVolume || status == Locked {
		return status, err
	}
	if d.Members > 1 && d.Store != nil && !d.Store.Empty() {
		return InvalidAmongMany, nil
	}
	return status, err
}

func (d Dir) sane(ctx context.Context) (Status, error) {
	if err := d.guard(); err != nil {
		return WrongVolume, err
	}
	exists, err := isDir(d.Path)
	if err != nil {
		return Unknown, err
	}
	if !exists {
		return Missing, fmt.Errorf("directory does not exist: %s", d.Path)
	}
	for _, sub := range []string{"member", "member/snap", "member/wal"} {
		exists, err := isDir(filepath.Join(d.Path, sub))
		if err != nil {
			return Unknown, err
		}
		if !exists {
			return BadStructure, nil
		}
	}
	if d.Store == nil {
		return Valid, nil
	}
	return d.revision(ctx)
}

// guard refuses a volume that another namespace has marked and marks one that nobody has.
func (d Dir) guard() error {
	if d.Namespace == "" {
		return nil
	}
	path := filepath.Join(filepath.Dir(d.Path), safeGuard)
	mark, err := os.ReadFile(path) //nolint:gosec // below the mounted volume
	if errors.Is(err, os.ErrNotExist) {
		return os.WriteFile(path, []byte(d.Namespace), 0o600)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", safeGuard, err)
	}
	if string(mark) != d.Namespace {
		return fmt.Errorf("wrong volume is mounted: namespace is %s, %s says %s", d.Namespace, safeGuard, mark)
	}
	return nil
}

// revision compares the database with the newest snapshot: a single member that is behind its own backup has lost
// data. Members of a larger cluster catch up by themselves.
func (d Dir) revision(ctx context.Context) (Status, error) {
	reached, err := d.lastRevision()
	if errors.Is(err, bolterrors.ErrTimeout) {
		return Locked, err
	}
	if err != nil {
		d.Log.Info("data directory is corrupt", zap.Error(err))
		return Corrupt, nil
	}
	if d.Members > 1 {
		return Valid, nil
	}
	full, deltas, err := d.Store.Latest()
	if err != nil {
		return Unknown, err
	}
	newest := newestRevision(full, deltas)
	if reached >= newest {
		return Valid, nil
	}
	d.Log.Info("database is behind the newest snapshot", zap.Int64("database", reached), zap.Int64("snapshot", newest))
	return d.replayed(ctx, newest)
}

func newestRevision(full *store.Snapshot, deltas []*store.Snapshot) int64 {
	switch {
	case len(deltas) > 0:
		return deltas[len(deltas)-1].LastRevision
	case full != nil:
		return full.LastRevision
	default:
		return 0
	}
}

// replayed starts an etcd on the directory, because the write-ahead log may reach further than the database.
func (d Dir) replayed(ctx context.Context, newest int64) (status Status, err error) {
	etcd, err := embedded.Start(ctx, d.Path, d.Quota, d.Log)
	if err != nil {
		return Corrupt, err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, d.Pace.Timeout(catchUp))
	defer cancel()
	for {
		reached, err := restore.Revision(ctx, etcd.Client)
		if err == nil && reached >= newest {
			return Valid, nil
		}
		if d.Pace.Sleep(ctx, catchUpPause) != nil {
			return RevisionBehind, nil
		}
	}
}

func (d Dir) lastRevision() (revision int64, err error) {
	err = d.view(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		if bucket == nil {
			return errors.New("database has no keys")
		}
		key, _ := bucket.Cursor().Last()
		revision = 1
		if len(key) >= 8 {
			revision = int64(binary.BigEndian.Uint64(key)) //nolint:gosec // etcd's revisions are non-negative int64
		}
		return nil
	})
	return revision, err
}

// view opens the database for reading. bbolt panics on some damages; that is damage too.
func (d Dir) view(look func(*bbolt.Tx) error) (err error) {
	path := filepath.Join(d.Path, "member", "snap", "db")
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("open database: %v", r)
		}
	}()
	db, err := bbolt.Open(path, 0o400, &bbolt.Options{Timeout: d.Pace.Timeout(lockTimeout), ReadOnly: true})
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer db.Close()
	return db.View(look)
}

// intact reads everything there is.
func (d Dir) intact() error {
	if _, err := snap.New(zap.NewNop(), filepath.Join(d.Path, "member", "snap")).Load(); err != nil && !errors.Is(err, snap.ErrNoSnapshot) {
		return fmt.Errorf("snapshot files: %w", err)
	}
	start, err := d.walStart()
	if err != nil {
		return err
	}
	if _, err := wal.Verify(zap.NewNop(), d.walDir(), start); err != nil {
		return fmt.Errorf("write-ahead log: %w", err)
	}
	return d.view(func(tx *bbolt.Tx) error {
		var faults []error
		for fault := range tx.Check() {
			faults = append(faults, fault)
		}
		return errors.Join(faults...)
	})
}

// MemberID returns the etcd member that wrote the directory.
func (d Dir) MemberID() (uint64, error) {
	start, err := d.walStart()
	if err != nil {
		return 0, err
	}
	log, err := wal.OpenForRead(zap.NewNop(), d.walDir(), start)
	if err != nil {
		return 0, fmt.Errorf("open write-ahead log: %w", err)
	}
	defer log.Close()
	data, _, _, err := log.ReadAll()
	if err != nil {
		return 0, fmt.Errorf("read write-ahead log: %w", err)
	}
	metadata := &etcdserverpb.Metadata{}
	if err := proto.Unmarshal(data, metadata); err != nil {
		return 0, fmt.Errorf("read metadata of write-ahead log: %w", err)
	}
	return metadata.GetNodeID(), nil
}

func (d Dir) walStart() (*walpb.Snapshot, error) {
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), d.walDir())
	if err != nil {
		return nil, fmt.Errorf("write-ahead log: %w", err)
	}
	if len(snapshots) == 0 {
		return &walpb.Snapshot{}, nil
	}
	return snapshots[len(snapshots)-1], nil
}

func (d Dir) walDir() string { return filepath.Join(d.Path, "member", "wal") }

func isDir(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return info.IsDir(), nil
}
