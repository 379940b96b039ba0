package snapshots

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-volumes/etcd-volumes/test/sidecar/store"
)

// Fields of a cron expression.
const (
	hourField       = 1
	dayOfMonthField = 2
	dayOfWeekField  = 4
	fields          = 5
)

const day = 24 * time.Hour

// window returns how old the newest full snapshot may be under a schedule: a day, a week if
// the schedule names days of the week, or the step of an hour field such as */6.
func window(schedule string) time.Duration {
	parts := strings.Fields(schedule)
	if len(parts) < fields {
		return day
	}
	if parts[dayOfWeekField] != "*" {
		return 7 * day
	}
	_, step, stepped := strings.Cut(parts[hourField], "/")
	hours, err := strconv.ParseFloat(step, 64)
	if parts[dayOfMonthField] == "*" && stepped && err == nil {
		return time.Duration(hours * float64(time.Hour))
	}
	return day
}

// surplus returns what a store in order has beyond its newest keep full snapshots.
func surplus(list []*store.Snapshot, keep int) []*store.Snapshot {
	seen := 0
	for i, snapshot := range slices.Backward(list) {
		if snapshot.Kind != store.Full {
			continue
		}
		seen++
		if seen == keep {
			return list[:i]
		}
	}
	return nil
}
