// Package initializer decides how a member's data directory comes to be before etcd starts on it.
//
// n is the number of members in initial-cluster, B whether the store has a snapshot, API whether a linearizable read
// through the client service succeeds, M whether the member is listed by name, L whether its lease has a holder.
//
//	n   API   M    L    B      directory   what happens
//	any -     -    -    -      foreign     refused: wrong volume (safe_guard)
//	1   -     -    -    yes    faulty      newest full snapshot and deltas restored into <dir>.part, then renamed
//	1   -     -    -    no     faulty      removed; etcd starts EMPTY, silently
//	1   -     -    -    error  faulty      fails, is asked again
//	>1  ok    yes  -    any    faulty      member removed, directory wiped, member added as a learner
//	>1  ok    no   -    any    any         directory wiped, member added as a learner; gives up after six attempts
//	>1  ok    yes  -    any    removed     refused: data of a member that was removed from the cluster
//	>1  fail  ?    yes  any    faulty      removing fails, is asked again
//	>1  fail  ?    no   yes    faulty      removing fails, is asked again
//	>1  fail  ?    no   no     faulty      as n = 1: bootstrap
//
// A faulty directory is one that is missing, has no etcd structure, is corrupt or, of a single member, is behind the
// newest snapshot. A sound one is left alone.
package initializer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/datadir"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/etcdconf"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/leases"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/member"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/metrics"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/pace"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/restore"
	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// ErrGiveUp marks a failure after which the sidecar ends itself, so that its container is restarted.
var ErrGiveUp = errors.New("giving up")

// actBackoff is the back-off of removing and adding a member.
var actBackoff = pace.Backoff{First: 10 * time.Millisecond, Factor: 5, Attempts: 4}

// Initializer prepares the data directory of one member.
type Initializer struct {
	Dir        string
	RestoreDir string // for the snapshot that is being restored
	SnapDir    string // for snapshots that are being taken; emptied
	Namespace  string
	Quota      int64
	OpenStore  func() (*store.Local, error) // returns nil where no store is configured
	Control    member.Control
	Leases     *leases.Client // nil outside of a cluster
	Pace       pace.Pace
	Log        *zap.Logger
}

// cluster is what the member knows about its cluster.
type cluster struct {
	size      int
	members   []*etcdserverpb.Member // nil if the cluster does not answer
	wasMember bool
	listed    bool
}

// Initialize prepares the directory, having looked at it in the given mode.
func (i Initializer) Initialize(ctx context.Context, mode datadir.Mode) error {
	f, err := etcdconf.Read(i.Control.ConfigFile)
	if err != nil {
		return err
	}
	c, err := i.look(ctx, f)
	if err != nil {
		return err
	}
	metrics.ClusterSize.Set(float64(c.size))
	if c.size > 1 && c.members != nil && !c.listed {
		return i.join(ctx)
	}
	backup, err := i.OpenStore()
	if err != nil {
		return err
	}
	if err := i.prepare(ctx, c, backup, mode); err != nil {
		return err
	}
	return i.emptySnapDir(backup)
}

// join adds a member that the cluster does not have: it is new, or a replacement was interrupted half-way.
func (i Initializer) join(ctx context.Context) error {
	i.Log.Info("cluster does not list this member, adding it")
	err := i.Control.AddLearnerPatiently(ctx, func() error { return os.RemoveAll(i.Dir) })
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGiveUp, err)
	}
	return nil
}

func (i Initializer) look(ctx context.Context, f etcdconf.File) (cluster, error) {
	size, err := f.Size()
	if err != nil || size <= 1 {
		return cluster{size: size}, err
	}
	c := cluster{size: size}
	name := f.Member(i.Control.Pod)
	c.members, err = i.Control.Members(ctx)
	if err == nil {
		c.listed = slices.ContainsFunc(c.members, func(m *etcdserverpb.Member) bool { return m.Name == name })
		c.wasMember = c.listed
		return c, nil
	}
	i.Log.Info("cluster does not answer", zap.Error(err))
	c.wasMember = i.hadLease(ctx, name)
	if c.wasMember {
		return c, nil
	}
	return i.lookAgain(ctx, c, name), nil
}

// lookAgain asks once more before a member without a lease is taken for a new one, as the real sidecar does.
func (i Initializer) lookAgain(ctx context.Context, c cluster, name string) cluster {
	members, err := i.Control.Members(ctx)
	if err != nil {
		i.Log.Info("cluster still does not answer", zap.Error(err))
		return c
	}
	c.members = members
	c.listed = slices.ContainsFunc(members, func(m *etcdserverpb.Member) bool { return m.Name == name })
	return c
}

func (i Initializer) hadLease(ctx context.Context, name string) bool {
	if i.Leases == nil {
		return false
	}
	had, err := i.Leases.HasHolder(ctx, name)
	if err != nil {
		i.Log.Info("member lease cannot be read", zap.Error(err))
	}
	return had
}

func (i Initializer) prepare(ctx context.Context, c cluster, backup *store.Local, mode datadir.Mode) error {
	dir := datadir.Dir{
		Path: i.Dir, Namespace: i.Namespace, Members: c.size, Store: backup, Quota: i.Quota, Pace: i.Pace, Log: i.Log,
	}
	status, err := dir.Validate(ctx, mode)
	switch status {
	case datadir.WrongVolume:
		return fmt.Errorf("will not start etcd on a wrong volume: %w", err)
	case datadir.Locked:
		return fmt.Errorf("another process holds the lock of the database: %w", err)
	case datadir.Unknown:
		return fmt.Errorf("validate data directory: %w", err)
	case datadir.Valid:
		return refuseRemoved(dir, c.members)
	case datadir.Missing, datadir.BadStructure, datadir.Corrupt, datadir.InvalidAmongMany, datadir.RevisionBehind:
		i.Log.Info("data directory is faulty", zap.Int("status", int(status)), zap.NamedError("reason", err))
		return i.mend(ctx, c, backup, status)
	}
	return fmt.Errorf("status %d of the data directory is none that is known: this is a bug", status)
}

// mend gives the member its data again: from the other members where they have it, else from the backup.
func (i Initializer) mend(ctx context.Context, c cluster, backup *store.Local, status datadir.Status) error {
	if status == datadir.InvalidAmongMany || c.size > 1 && (status == datadir.Corrupt || c.wasMember) {
		return i.observe(func() error { return i.replace(ctx) })
	}
	return i.observe(func() error { return i.restore(ctx, backup) })
}

// observe measures one restoration.
func (Initializer) observe(act func() error) error {
	start := time.Now()
	err := act()
	metrics.Since(metrics.Restoration, start, err)
	return err
}

// refuseRemoved keeps etcd from starting as a member that the cluster has removed: the data is a copy, not a way back.
func refuseRemoved(dir datadir.Dir, members []*etcdserverpb.Member) error {
	if len(members) == 0 {
		return nil
	}
	id, err := dir.MemberID()
	if err != nil {
		return fmt.Errorf("read member ID of the data directory: %w", err)
	}
	if slices.ContainsFunc(members, func(m *etcdserverpb.Member) bool { return m.ID == id }) {
		return nil
	}
	return fmt.Errorf("data directory is that of member %x, which was removed from the cluster", id)
}

// replace gives the cluster a new member in the place of the one whose data is gone.
func (i Initializer) replace(ctx context.Context) error {
	if err := i.Pace.Retry(ctx, actBackoff, func() error { return i.Control.Remove(ctx) }); err != nil {
		return fmt.Errorf("replace member: %w", err)
	}
	if err := os.RemoveAll(i.Dir); err != nil {
		return fmt.Errorf("replace member: %w", err)
	}
	if err := i.Pace.Retry(ctx, actBackoff, func() error { return i.Control.AddLearner(ctx) }); err != nil {
		return fmt.Errorf("replace member: %w", err)
	}
	return nil
}

// restore rebuilds the directory from the backup. Without a backup it removes the
// directory and succeeds, so that etcd starts empty.
func (i Initializer) restore(ctx context.Context, backup *store.Local) error {
	if backup == nil {
		i.Log.Warn("no store is configured, starting with an empty data directory")
		return os.RemoveAll(i.Dir)
	}
	full, deltas, err := backup.Latest()
	if err != nil {
		return err
	}
	if full == nil && len(deltas) == 0 {
		i.Log.Warn("the store has no snapshot, starting with an empty data directory")
		return os.RemoveAll(i.Dir)
	}
	part := i.Dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("restore data directory: %w", err)
	}
	target := restore.Target{Dir: part, TempDir: i.RestoreDir, Quota: i.Quota, Log: i.Log, Applied: i.updatePeerURLs}
	if err := restore.Run(ctx, restore.Source{Store: backup, Full: full, Deltas: deltas}, target); err != nil {
		return fmt.Errorf("restore data directory: %w", err)
	}
	if err := os.RemoveAll(i.Dir); err != nil {
		return fmt.Errorf("restore data directory: %w", err)
	}
	if err := os.Rename(part, i.Dir); err != nil {
		return fmt.Errorf("restore data directory: %w", err)
	}
	return nil
}

func (i Initializer) updatePeerURLs(ctx context.Context, client *clientv3.Client) error {
	return i.Control.UpdatePeerURLs(ctx, client)
}

func (i Initializer) emptySnapDir(backup *store.Local) error {
	if backup == nil || i.SnapDir == "" {
		return nil
	}
	if err := os.RemoveAll(i.SnapDir); err != nil {
		return fmt.Errorf("empty snapshot directory: %w", err)
	}
	if err := os.MkdirAll(i.SnapDir, 0o700); err != nil {
		return fmt.Errorf("empty snapshot directory: %w", err)
	}
	return nil
}
