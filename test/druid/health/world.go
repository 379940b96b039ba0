package health

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// Found is the result of one look at the cluster. Neither value nor error: it is not there.
type Found[T any] struct {
	Value *T
	Err   error
}

// World is all that the status is made from.
type World struct {
	Now time.Time
	// Leases are the members' leases and the two snapshot leases, by name.
	Leases map[string]Found[coordinationv1.Lease]
	// ContainersReady says, by pod name, whether a member's containers are ready. Not in the map: the pod is not there.
	// It is needed only for members with an old lease.
	ContainersReady map[string]Found[bool]
	// StatefulSet is the one that the Etcd controls.
	StatefulSet Found[appsv1.StatefulSet]
	// VolumeWarnings is what the warning events of claims that are not bound say; "" if there are none.
	VolumeWarnings Found[string]
}

// Thresholds are the ages of a lease from which on its member is doubted, and given up.
type Thresholds struct {
	// Unknown is the age from which on a member may be Unknown.
	Unknown time.Duration
	// NotReady is the time after Unknown from which on it is NotReady.
	NotReady time.Duration
}

// DefaultThresholds are the real ones.
var DefaultThresholds = Thresholds{Unknown: time.Minute, NotReady: 5 * time.Minute}
