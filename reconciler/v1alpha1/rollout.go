package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// GroupVersion is the API group and version of the VolumeRollout.
var GroupVersion = schema.GroupVersion{Group: "volumes.druid.gardener.cloud", Version: "v1alpha1"}

// AddToScheme registers the VolumeRollout.
var AddToScheme = (&runtime.SchemeBuilder{addTypes}).AddToScheme

func addTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &VolumeRollout{}, &VolumeRolloutList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Finalizer keeps a rollout until everything that it set on foreign objects is put back.
const Finalizer = "volumes.druid.gardener.cloud/put-back"

// Operation is what the rollout does.
// +kubebuilder:validation:Enum=Expand;Replace;Recreate;Release;Recover
type Operation string

// Phase is where the rollout stands, in one word.
// +kubebuilder:validation:Enum=Pending;Preparing;Replacing;Finishing;Complete;Stalled;Superseded;Aborted
type Phase string

// Phases. Complete, Superseded and Aborted are final.
const (
	// Pending: nothing done yet, a gate is closed.
	Pending Phase = "Pending"
	// Preparing: backup and StatefulSet; no member has been touched.
	Preparing Phase = "Preparing"
	// Replacing: member by member.
	Replacing Phase = "Replacing"
	// Finishing: what was set on foreign objects is being put back.
	Finishing Phase = "Finishing"
	// Complete: every live claim is as wanted.
	Complete Phase = "Complete"
	// Stalled: past a deadline; nothing more is destroyed, work resumes by itself.
	Stalled Phase = "Stalled"
	// Superseded: a newer confirmed change took over.
	Superseded Phase = "Superseded"
	// Aborted: the Etcd is gone or its spec was changed back; what was set was put back.
	Aborted Phase = "Aborted"
)

// Condition types of a rollout.
const (
	ConditionProgressing = "Progressing"
	ConditionStalled     = "Stalled"
	ConditionComplete    = "Complete"
)

// VolumeRollout is the record of one confirmed volume operation on one Etcd.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vr
// +kubebuilder:printcolumn:name="Etcd",type=string,JSONPath=`.spec.etcd.name`
// +kubebuilder:printcolumn:name="Operation",type=string,JSONPath=`.spec.operation`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="Waiting for",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeRollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what was confirmed. It never changes.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of a VolumeRollout is the record of what was confirmed; it never changes"
	Spec VolumeRolloutSpec `json:"spec"`
	// +optional
	Status VolumeRolloutStatus `json:"status,omitempty"`
}

// VolumeRolloutList is a list of VolumeRollout.
// +kubebuilder:object:root=true
type VolumeRolloutList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumeRollout `json:"items"`
}

// VolumeRolloutSpec is the content of the stamp.
type VolumeRolloutSpec struct {
	// etcd is the Etcd in the same namespace; another one of the same name has another UID.
	Etcd ObjectReference `json:"etcd"`
	// volumeGeneration counts the confirmed changes of this Etcd.
	// +kubebuilder:validation:Minimum=1
	VolumeGeneration int64     `json:"volumeGeneration"`
	Operation        Operation `json:"operation"`
	// replicas is the number of members when the change was confirmed.
	// +kubebuilder:validation:Minimum=0
	Replicas int32      `json:"replicas"`
	From     VolumeSpec `json:"from"`
	To       VolumeSpec `json:"to"`
	// claims are those that may be destroyed, and no others.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	// +listType=map
	// +listMapKey=name
	Claims []ClaimReference `json:"claims,omitempty"`
	// confirmedBy set the confirmation, requestedBy made the change.
	// +kubebuilder:validation:MaxLength=1024
	ConfirmedBy string `json:"confirmedBy"`
	// +kubebuilder:validation:MaxLength=1024
	RequestedBy string `json:"requestedBy"`
	// token is the confirmation that was given.
	// +kubebuilder:validation:MaxLength=64
	Token string `json:"token"`
	// held says which of etcd-druid's annotations were set for the rollout, and are taken away after it.
	Held Held `json:"held"`
}

// ObjectReference names one object, not its successor of the same name.
type ObjectReference struct {
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
}

// VolumeSpec is a volume spec with defaults spelled out.
type VolumeSpec struct {
	// storageClassName is empty where the cluster chooses.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	StorageClassName string            `json:"storageClassName,omitempty"`
	Capacity         resource.Quantity `json:"capacity"`
	// +kubebuilder:validation:MaxLength=253
	ClaimTemplate string `json:"claimTemplate"`
}

// ClaimReference is one claim that may be destroyed.
type ClaimReference struct {
	// +kubebuilder:validation:Minimum=0
	Ordinal int32 `json:"ordinal"`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	UID types.UID `json:"uid"`
}

// Held says which annotations of etcd-druid we set.
type Held struct {
	Suspend    bool `json:"suspend"`
	Protection bool `json:"protection"`
}

// VolumeRolloutStatus is what the reconciler saw and did.
type VolumeRolloutStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// progress is "done/all" members.
	// +optional
	Progress string `json:"progress,omitempty"`
	// reason is the CamelCase name of the present step or gate; message says it in a sentence.
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// since is when the rollout began to wait for what the message says.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// clusterID is etcd's own, in hex; it must not change.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
	// +optional
	StatefulSet *StatefulSetStatus `json:"statefulSet,omitempty"`
	// snapshot is the full snapshot that was taken before the first member was touched.
	// +optional
	Snapshot *SnapshotStatus `json:"snapshot,omitempty"`
	// members are sorted by ordinal.
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []MemberStatus `json:"members,omitempty"`
	// retainedVolumes are the old disks that are still kept.
	// +optional
	// +listType=map
	// +listMapKey=name
	RetainedVolumes []RetainedVolume `json:"retainedVolumes,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StatefulSetStatus is the evidence that the StatefulSet was recreated without touching a pod.
type StatefulSetStatus struct {
	// +optional
	OldUID types.UID `json:"oldUID,omitempty"`
	// +optional
	NewUID types.UID `json:"newUID,omitempty"`
	// podUIDs are the pods' UIDs before the recreation, by ordinal.
	// +optional
	// +listType=atomic
	PodUIDs []types.UID `json:"podUIDs,omitempty"`
}

// SnapshotStatus is a full snapshot in the backup store.
type SnapshotStatus struct {
	// revision is etcd's revision that the snapshot contains.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// time is when the snapshot was taken, as the backup sidecar's lease says; unset while that is not proven.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// attemptTime is when a snapshot was asked for last.
	// +optional
	AttemptTime *metav1.Time `json:"attemptTime,omitempty"`
	// error is why the last attempt failed; empty if it did not.
	// +optional
	Error string `json:"error,omitempty"`
}

// MemberPhase is where one member stands.
// +kubebuilder:validation:Enum=Waiting;Leaving;Provisioning;Resyncing;Soaking;Replaced
type MemberPhase string

// Member phases, in their order.
const (
	// MemberWaiting: untouched.
	MemberWaiting MemberPhase = "Waiting"
	// MemberLeaving: its claim is being deleted and its pod evicted.
	MemberLeaving MemberPhase = "Leaving"
	// MemberProvisioning: the new claim and pod are on their way.
	MemberProvisioning MemberPhase = "Provisioning"
	// MemberResyncing: it runs on the new volume and is not yet a caught-up voter.
	MemberResyncing MemberPhase = "Resyncing"
	// MemberSoaking: resynced, watched for a moment before the next one.
	MemberSoaking MemberPhase = "Soaking"
	// MemberReplaced: done, with evidence.
	MemberReplaced MemberPhase = "Replaced"
)

// MemberStatus is one member's replacement, and the evidence of its resync.
type MemberStatus struct {
	Ordinal int32       `json:"ordinal"`
	Name    string      `json:"name"`
	Phase   MemberPhase `json:"phase"`
	// old and new are the two sides of the replacement.
	// +optional
	Old *MemberSide `json:"old,omitempty"`
	// +optional
	New *MemberSide `json:"new,omitempty"`
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// +optional
	ReplacedTime *metav1.Time `json:"replacedTime,omitempty"`
	// evidence says in a sentence by what the resync is proven.
	// +optional
	Evidence string `json:"evidence,omitempty"`
}

// MemberSide is a member before or after its replacement.
type MemberSide struct {
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty"`
	// +optional
	VolumeName string `json:"volumeName,omitempty"`
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`
	// memberID and clusterID are etcd's own, in hex.
	// +optional
	MemberID string `json:"memberID,omitempty"`
	// +optional
	ClusterID string `json:"clusterID,omitempty"`
}

// RetainedVolume is an old disk that is kept for a while.
type RetainedVolume struct {
	Name   string `json:"name"`
	Member string `json:"member"`
	// originalPolicy is given back when the time is over.
	OriginalPolicy string `json:"originalPolicy"`
	// until is unset while the rollout is not finished.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}
