package verdict

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-volumes/etcd-volumes/webhook/change"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Fact is something that was looked up, or the reason why it is not known.
type Fact[T any] struct {
	Value T
	// Unknown says why Value could not be looked up; "" = Value is known.
	Unknown string
}

// Known is a fact.
func Known[T any](value T) Fact[T] { return Fact[T]{Value: value} }

// Unknown is a fact that could not be looked up.
func Unknown[T any](err error) Fact[T] { return Fact[T]{Unknown: err.Error()} }

// OK reports whether the fact is known.
func (f Fact[T]) OK() bool { return f.Unknown == "" }

// Facts is what was looked up about one Etcd. The zero Facts says that nothing is live.
type Facts struct {
	Now time.Time
	// Retain is how long replaced volumes are kept.
	Retain time.Duration
	// StatefulSet is nil where there is none.
	StatefulSet Fact[*StatefulSet]
	// Claims are the claims of the Etcd's members under the live template, sorted by ordinal.
	Claims Fact[[]Claim]
	// Class is the class that the Etcd asks for: by name, or the cluster's default where the name is empty; nil = missing.
	Class Fact[*Class]
	// Members are sorted by ordinal, one for each replica.
	Members Fact[[]Member]
	// Leases are what the members say of themselves, sorted by ordinal; a member may be missing.
	Leases Fact[[]Lease]
	Backup Fact[Backup]
	// Rollout is the newest of this Etcd, finished or not; nil = none.
	Rollout Fact[*Rollout]
	// Freezes are the CRD's rules that forbid volume changes; looked up by the mutating webhook only.
	Freezes Fact[[]Freeze]
}

// StatefulSet is the Etcd's StatefulSet.
type StatefulSet struct {
	UID      string
	Replicas int32
	// Template is its claim template; an empty class means that the template names none.
	Template volume.Spec
	Deleting bool
}

// Claim is one member's claim, and the volume behind it.
type Claim struct {
	Ordinal  int
	Name     string
	UID      string
	Class    string
	Capacity resource.Quantity // requested
	// Volume is the name of the bound volume, "" = not bound; Policy its reclaim policy, "" = unknown.
	Volume, Policy string
	Deleting       bool
}

// Class is a storage class.
type Class struct {
	Name        string
	Provisioner string
	// Immediate: it binds before a pod is scheduled.
	Immediate bool
	// Expandable: volumes of it can grow in place.
	Expandable bool
	Deleting   bool
}

// Member is one member's pod.
type Member struct {
	Ordinal int
	Name    string // the pod's
	Ready   bool
}

// Lease is what a member says of itself in its lease.
type Lease struct {
	Ordinal int
	Leader  bool
	Renewed time.Time
}

// Backup is the age of the newest backups; nil = never seen.
type Backup struct {
	Store       bool // a store is configured
	Full, Delta *time.Time
}

// Rollout is the newest rollout of the Etcd.
type Rollout struct {
	Name       string
	Generation int64
	Phase      string
	Progress   string
	Final      bool
}

// Freeze is one CEL rule of the Etcd CRD that keeps a field of the volume spec as it is.
type Freeze struct {
	Field change.Field
	// At is the path that carries the rule: the field itself (compares values) or one of its parents (compares presence).
	At   string
	Rule string
}
