package plan

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
)

// noProvisioner is the provisioner of classes whose volumes somebody makes by hand.
const noProvisioner = "kubernetes.io/no-provisioner"

// databaseShare: a volume must hold the database twice, as defragmentation and resync write a second copy beside the first.
const databaseShare = 2

// preflightGates must be open before the StatefulSet is replaced, and again before each member is taken.
var preflightGates = []rolloutGuard{classKnown, claimAccepted, membersFit, databaseFits, backedUp}

func preflight(s Snapshot, r Rollout, now time.Time) *Step {
	for _, g := range preflightGates {
		if step := g(s, r, now); step != nil {
			return step
		}
	}
	return nil
}

// classKnown: a claim of a class that does not exist, goes away or makes no volumes would wait for ever.
func classKnown(s Snapshot, r Rollout, _ time.Time) *Step {
	phase, c := s.phase(r), s.Class
	switch {
	case !c.Exists && r.To.Class == "":
		return wait(r, phase, ClassMissing, "no storage class is asked for, and the cluster has no default one")
	case !c.Exists:
		return wait(r, phase, ClassMissing, "storage class %s does not exist", r.To.Class)
	case c.Deleting:
		return wait(r, phase, ClassDeleting, "storage class %s is being deleted", c.Name)
	case c.Provisioner == "" || c.Provisioner == noProvisioner:
		return wait(r, phase, ProvisionerUnknown, "storage class %s has no provisioner that would make volumes", c.Name)
	}
	return nil
}

// claimAccepted: quota and policies have their say before anything is destroyed.
func claimAccepted(s Snapshot, r Rollout, _ time.Time) *Step {
	switch {
	case !s.Answers.ClaimAsked:
		return wait(r, s.phase(r), claimNotAsked, "it is not known whether a new claim would be accepted")
	case s.Answers.ClaimRefused != "":
		return wait(r, s.phase(r), ClaimRefused, "a new claim would be refused: %s", s.Answers.ClaimRefused)
	}
	return nil
}

// membersFit: all are well; one sick member is tolerated if it is the first to be replaced.
func membersFit(s Snapshot, r Rollout, _ time.Time) *Step {
	if m := s.pick(r); m != nil {
		return othersFit(s, r, *m)
	}
	return nil
}

func databaseFits(s Snapshot, r Rollout, _ time.Time) *Step {
	var size int64
	for _, m := range s.Members {
		size = max(size, m.View.DBSize)
	}
	capacity := r.To.Capacity.DeepCopy()
	if databaseShare*size <= capacity.Value() {
		return nil
	}
	return wait(r, s.phase(r), DatabaseTooLarge, "the database has %s; the new volume of %s must hold it twice",
		resource.NewQuantity(size, resource.BinarySI), capacity.String())
}

// backedUp: where backups are kept, a full one is taken in this rollout; the lease of the sidecar proves it.
func backedUp(s Snapshot, r Rollout, now time.Time) *Step {
	if !s.Etcd.HasStore || !s.Backup.FullAt.IsZero() && !s.Backup.FullAt.Before(r.Created) {
		return nil
	}
	if last := r.Status.Snapshot; last != nil && last.AttemptTime != nil && now.Sub(last.AttemptTime.Time) < s.Options.SnapshotRetry {
		if last.Error != "" {
			return wait(r, s.phase(r), SnapshotFailed, "the full snapshot failed, it is tried again: %s", last.Error)
		}
		return wait(r, s.phase(r), SnapshotNotProven, "waiting until the lease of the full snapshots proves the one that was taken")
	}
	return &Step{
		Action: TakeSnapshot, Reason: "SnapshotTaken", Rollout: r.Name, Phase: v1alpha1.Preparing, Member: -1, Again: lookAgain,
		Message: "a full snapshot is taken before the first member is touched",
	}
}
