// Package metrics holds the sidecar's metrics that observers of a member replacement look at, under the real names.
package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const namespace = "etcdbr"

// Metrics about the member.
var (
	IsLearner = promauto.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "is_learner", Help: "1 while the member is a learner.",
	})
	ClusterSize = promauto.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "cluster_size", Help: "Members in the initial cluster.",
	})
	Restoration   = durations("restoration_duration_seconds", "Time to restore the data directory.")
	AddLearner    = durations("add_learner_duration_seconds", "Time to add the member as a learner.")
	MemberRemove  = durations("member_remove_duration_seconds", "Time to remove the member.")
	MemberPromote = durations("member_promote_duration_seconds", "Time to promote the member.")
)

// Metrics about the backup, by kind of snapshot (Full, Incr).
var (
	LatestRevision = gauges("snapshot_latest_revision", "Last revision of the newest snapshot.")
	LatestTime     = gauges("snapshot_latest_timestamp", "Time of the newest snapshot.")
	Required       = gauges("snapshot_required", "1 if there is something to save.")
	DeltaRevisions = promauto.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "snapstore_latest_deltas_revisions_total", Help: "Revisions in delta snapshots since the newest full one.",
	})
)

// Since observes the time since start under the outcome err.
func Since(h *prometheus.HistogramVec, start time.Time, err error) {
	h.WithLabelValues(strconv.FormatBool(err == nil)).Observe(time.Since(start).Seconds())
}

func durations(name, help string) *prometheus.HistogramVec {
	return promauto.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help}, []string{"succeeded"})
}

func gauges(name, help string) *prometheus.GaugeVec {
	return promauto.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, []string{"kind"})
}
