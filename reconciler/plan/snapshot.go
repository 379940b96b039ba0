package plan

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/confirm"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// Options are the times and limits by which is planned.
type Options struct {
	// RetainVolumes is how long an old volume is kept after its rollout ended.
	RetainVolumes time.Duration
	// MemberDeadline is how long one member may be out before the rollout counts as stalled.
	MemberDeadline time.Duration
	// StepDeadline is how long a gate may stay closed before the rollout counts as stalled.
	StepDeadline time.Duration
	// Soak is how long a replaced member must have been ready before the next one is taken.
	Soak time.Duration
	// MaxLag is how many raft entries a member may be behind the leader and still count as caught up.
	MaxLag uint64
	// SnapshotRetry is how long is waited for the proof of a snapshot, or after a failed one, before it is asked for again.
	SnapshotRetry time.Duration
}

// Snapshot is everything that was seen of one Etcd in one pass. All lists are sorted.
type Snapshot struct {
	Namespace, Name string
	Options         Options

	Etcd       *Etcd          // nil: there is none
	Stamp      *confirm.Stamp // nil: none, or not readable
	StampError string         // why the stamp can not be read
	Rollouts   []Rollout      // by volume generation, then name
	Door       Door
	// StatefulSet is the live one; Records are the manifests that rollouts kept of it.
	StatefulSet *StatefulSet
	Records     []Record // by name
	Members     []Member // by ordinal; 0 <= len <= replicas
	Volumes     []Volume // those that carry our labels for this Etcd, by name
	Cluster     Cluster
	Class       Class
	Backup      Backup
	Answers     Answers
}

// Etcd is the custom resource.
type Etcd struct {
	UID, ResourceVersion string
	Deleting             bool
	Replicas             int
	Wanted               volume.Spec
	Suspended            bool // druid leaves the spec alone
	Unprotected          bool // druid's webhook lets us delete
	LastOperation        string
	HasStore             bool
	Conditions           []volume.Condition
}

// Rollout is one VolumeRollout.
type Rollout struct {
	Name, UID, ResourceVersion string
	Created                    time.Time
	ObjectGeneration           int64
	Deleting, Finalizer        bool
	EtcdUID                    string
	Generation                 int64
	Operation                  confirm.Operation
	Replicas                   int
	From, To                   volume.Spec
	Claims                     []confirm.Claim // by ordinal
	Token                      string
	Held                       confirm.Held
	Status                     v1alpha1.VolumeRolloutStatus
}

// Final reports whether the rollout has ended.
func (r Rollout) Final() bool {
	switch r.Status.Phase {
	case v1alpha1.Complete, v1alpha1.Superseded, v1alpha1.Aborted:
		return true
	case v1alpha1.Pending, v1alpha1.Preparing, v1alpha1.Replacing, v1alpha1.Finishing, v1alpha1.Stalled:
		return false
	}
	return false
}

// Destroys reports whether the claim is one of those that were confirmed to be destroyed.
func (r Rollout) Destroys(claimUID string) bool {
	return slices.ContainsFunc(r.Claims, func(c confirm.Claim) bool { return c.UID == claimUID })
}

// Door is our validating webhook configuration.
type Door struct {
	Stands bool
	Fault  string // what is wrong with it
}

// StatefulSet is the live StatefulSet.
type StatefulSet struct {
	Name, UID, ResourceVersion      string
	Deleting                        bool
	Generation, ObservedGeneration  int64
	Replicas, StatusReplicas        int
	CurrentRevision, UpdateRevision string
	Templates                       []volume.Spec // of its claim templates, in their order
}

// Settled reports whether the StatefulSet controller has seen the latest spec and is not rolling.
func (t StatefulSet) Settled() bool {
	return !t.Deleting && t.ObservedGeneration >= t.Generation && t.StatusReplicas == t.Replicas && t.CurrentRevision == t.UpdateRevision
}

// Has reports whether the only claim template is as the spec says.
func (t StatefulSet) Has(s volume.Spec) bool { return len(t.Templates) == 1 && t.Templates[0].Equal(s) }

// Record is the kept manifest of a StatefulSet.
type Record struct {
	Name, UID, ResourceVersion string
	StatefulSetUID             string
	Generation                 int64
	PodUIDs                    []string // by ordinal; "" where there was no pod
}

// Kept is the content of a record: the manifest as the API server gave it, and who the pods were, by ordinal.
type Kept struct {
	StatefulSet json.RawMessage `json:"statefulSet"`
	PodUIDs     []string        `json:"podUIDs"`
}

// Member is one member with all that belongs to it. What does not exist is nil.
type Member struct {
	Ordinal int
	Name    string // as etcd knows it
	PodName string
	Claim   *Claim
	Volume  *Volume // of the live claim
	Pod     *Pod
	Lease   *Lease
	View    View
}

// Claim is the live claim under the member's name.
type Claim struct {
	Name, UID, ResourceVersion string
	Created                    time.Time
	Deleting                   bool
	DeletedAt                  time.Time
	Bound                      bool
	VolumeName                 string
	Spec                       volume.Spec
	Warning                    string // the newest words of the provisioner
}

// Is reports whether the claim is as the spec says; a spec without class is content with any.
func (c Claim) Is(s volume.Spec) bool {
	return (s.Class == "" || c.Spec.Class == s.Class) && c.Spec.Capacity.Cmp(s.Capacity) == 0 && c.Spec.Template == s.Template
}

// Volume is a persistent volume.
type Volume struct {
	Name, UID, ResourceVersion string
	Policy                     string
	Deleting                   bool
	ClaimNamespace, ClaimName  string // of the claim that it is bound to
	BoundClaimUID              string
	ClaimLives                 bool // the marked claim is there and not being deleted
	Mark                       Mark
}

// Mark is what our labels and annotations on a volume say: the record of the member that lived on it.
type Mark struct {
	Namespace, Etcd, Member, Rollout, OriginalPolicy string
	ClaimUID, PodUID, MemberID, ClusterID            string
	RetainedUntil                                    time.Time // zero: not decided
}

// Marked reports whether the volume is ours to put back.
func (m Mark) Marked() bool {
	return m.Etcd != "" && m.Member != "" && m.Rollout != "" && m.OriginalPolicy != ""
}

// Pod is a member's pod.
type Pod struct {
	Name, UID, ResourceVersion string
	ControllerUID              string
	ClaimName                  string
	Deleting, Running, Ready   bool
	StartedAt, ReadySince      time.Time
	Message                    string // why it does not run: the scheduler's or kubelet's words
}

// Lease is a member's lease; IDs in hex.
type Lease struct {
	MemberID, ClusterID string
	Renewed             time.Time
}

// View is what one member answers about itself.
type View struct {
	Reached             bool
	Error               string
	MemberID, ClusterID uint64
	Leader              uint64
	Learner             bool
	Applied, Index      uint64
	DBSize              int64
	Reads               bool // a linearizable read succeeded
	Errors              []string
}

// Leads reports whether the member says of itself that it leads.
func (v View) Leads() bool { return v.Reached && v.Leader != 0 && v.Leader == v.MemberID }

// Cluster is the cluster as its members tell it.
type Cluster struct {
	Asked   bool
	Listed  []Listed // by ID
	Alarms  []string // "NOSPACE on etcd-main-0", sorted
	Trouble string   // why list or alarms are not known
}

// Listed is an entry of etcd's member list.
type Listed struct {
	ID      uint64
	Name    string
	Learner bool
}

// Class is the storage class that new claims will have.
type Class struct {
	Name        string // after the default was looked up
	Exists      bool
	Deleting    bool
	Provisioner string
}

// Backup is what the lease of the full snapshots says.
type Backup struct {
	FullAt   time.Time
	Revision int64
}

// Answers are the API server's answers to the questions of Wants.
type Answers struct {
	ClaimRefused    string // why a new claim would be refused; "": it would not, or was not asked
	ClaimAsked      bool
	EvictionRefused string
	EvictionAsked   string // UID of the pod that was asked about
}
