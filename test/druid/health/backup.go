package health

import (
	"time"

	"github.com/robfig/cron/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

const (
	defaultFullInterval = 24 * time.Hour
	defaultDeltaPeriod  = 20 * time.Second
)

// backupReady is True while both kinds of snapshots keep coming in time, and False only once it was not True and the
// delta snapshots are late by three periods. Without a store there is no such condition.
func backupReady(etcd *api.Etcd, w World) verdict {
	if !hasStore(etcd) {
		return verdict{}
	}
	unknown := verdict{api.ConditionBackupReady, api.ConditionUnknown, "Unknown", "cannot tell whether backups succeed"}
	interval, err := fullInterval(etcd, w.Now)
	full, delta := w.Leases[etcd.FullSnapshotLeaseName()].Value, w.Leases[etcd.DeltaSnapshotLeaseName()].Value
	if err != nil || full == nil || delta == nil {
		return unknown
	}
	period, fullAge := deltaPeriod(etcd), ageOfFull(full, w.Now)
	if delta.Spec.RenewTime == nil {
		return withoutDelta(unknown, full.Spec.RenewTime != nil && fullAge > 5*period)
	}
	deltaAge := w.Now.Sub(delta.Spec.RenewTime.Time)
	switch {
	case deltaAge < 2*period && fullAge < interval:
		return verdict{api.ConditionBackupReady, api.ConditionTrue, "BackupSucceeded", "snapshots are taken in time"}
	case deltaAge > 3*period && wasNotTrue(etcd):
		return verdict{api.ConditionBackupReady, api.ConditionFalse, "BackupFailed", "no snapshot was recorded for too long"}
	}
	return unknown
}

func hasStore(etcd *api.Etcd) bool {
	store := etcd.Spec.Backup.Store
	return store != nil && ptr.Deref(store.Provider, "") != ""
}

// withoutDelta stays Unknown, and says why once a delta snapshot is overdue.
func withoutDelta(unknown verdict, overdue bool) verdict {
	if overdue {
		unknown.message = "no delta snapshot was taken yet"
	}
	return unknown
}

func deltaPeriod(etcd *api.Etcd) time.Duration {
	if p := etcd.Spec.Backup.DeltaSnapshotPeriod; p != nil {
		return p.Duration
	}
	return defaultDeltaPeriod
}

// ageOfFull is the age of the newest full snapshot. One that was never recorded counts from the making of its lease on.
func ageOfFull(lease *coordinationv1.Lease, now time.Time) time.Duration {
	if lease.Spec.RenewTime == nil {
		return now.Sub(lease.CreationTimestamp.Time)
	}
	return now.Sub(lease.Spec.RenewTime.Time)
}

// wasNotTrue looks at the status that BackupReady had or, where there was none, at that of the last condition in the
// list, as the real one does by mistake.
func wasNotTrue(etcd *api.Etcd) bool {
	conditions := etcd.Status.Conditions
	if len(conditions) == 0 {
		return false
	}
	before, existed := find(conditions, api.ConditionBackupReady)
	if !existed {
		before = conditions[len(conditions)-1]
	}
	return before.Status == api.ConditionUnknown || before.Status == api.ConditionFalse
}

// fullInterval is the time between the next two full snapshots.
func fullInterval(etcd *api.Etcd, now time.Time) (time.Duration, error) {
	line := etcd.Spec.Backup.FullSnapshotSchedule
	if line == nil {
		return defaultFullInterval, nil
	}
	schedule, err := cron.ParseStandard(*line)
	if err != nil {
		return 0, err
	}
	next := schedule.Next(now)
	return schedule.Next(next).Sub(next), nil
}
