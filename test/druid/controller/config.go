package controller

import (
	"time"

	"github.com/etcd-volumes/etcd-volumes/test/druid/health"
	"github.com/etcd-volumes/etcd-volumes/test/druid/render"
)

// Config is how the controller behaves.
type Config struct {
	// AutoReconcile reconciles the spec whenever it changes, without an operation annotation.
	AutoReconcile bool
	// StatusSyncPeriod is the time between two passes, and the longest back-off.
	StatusSyncPeriod time.Duration
	// RetryInterval is the time after which a component that is not there yet is synced again.
	RetryInterval time.Duration
	// CleanupInterval is the time after which a deletion is looked at again.
	CleanupInterval time.Duration
	// Workers is the number of Etcds that are reconciled at once.
	Workers int
	// Images and ReadinessDelay go into the pods.
	Images         render.Images
	ReadinessDelay time.Duration
	// Thresholds are the ages of leases at which members are doubted.
	Thresholds health.Thresholds
}

// DefaultConfig is how the real one is configured by default, with the images of the local cluster.
func DefaultConfig() Config {
	return Config{
		StatusSyncPeriod: 15 * time.Second,
		RetryInterval:    10 * time.Second,
		CleanupInterval:  5 * time.Second,
		Workers:          3,
		Images:           render.Images{Etcd: "etcd-wrapper:local", Backup: "etcdbrctl:local", Init: "etcdbrctl:local"},
		ReadinessDelay:   render.DefaultReadinessDelay,
		Thresholds:       health.DefaultThresholds,
	}
}
