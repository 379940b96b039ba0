package api

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Etcd is one etcd cluster.
//
// +kubebuilder:object:root=true
type Etcd struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EtcdSpec   `json:"spec,omitempty"`
	Status EtcdStatus `json:"status,omitempty"`
}

// EtcdList is a list of Etcds.
//
// +kubebuilder:object:root=true
type EtcdList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Etcd `json:"items"`
}

// EtcdSpec is the wanted state of an Etcd.
type EtcdSpec struct {
	// MemberNamePrefix is put before each member's name, with a dash.
	MemberNamePrefix *string `json:"memberNamePrefix,omitempty"`
	// Selector is deprecated and ignored, as in the real resource.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Labels are put on the members' pods.
	Labels map[string]string `json:"labels"`
	// Annotations are put on the members' pods.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Etcd configures the etcd process.
	Etcd EtcdConfig `json:"etcd"`
	// Backup configures the backup sidecar.
	Backup BackupSpec `json:"backup"`
	// Common is shared by both containers.
	Common SharedConfig `json:"sharedConfig,omitempty"`
	// SchedulingConstraints are handed on to the pods.
	SchedulingConstraints SchedulingConstraints `json:"schedulingConstraints,omitempty"`
	// Replicas is the number of members; 0 hibernates the cluster and keeps its claims.
	Replicas int32 `json:"replicas"`
	// PriorityClassName is handed on to the pods.
	PriorityClassName *string `json:"priorityClassName,omitempty"`
	// StorageClass of the claims; nil and "" leave storageClassName out of the claim template.
	StorageClass *string `json:"storageClass,omitempty"`
	// StorageCapacity of each claim; nil means 16Gi.
	StorageCapacity *resource.Quantity `json:"storageCapacity,omitempty"`
	// VolumeClaimTemplate names the claim template; nil means the Etcd's name.
	VolumeClaimTemplate *string `json:"volumeClaimTemplate,omitempty"`
	// RunAsRoot lets the containers run as root instead of user 65532.
	RunAsRoot *bool `json:"runAsRoot,omitempty"`
}

// EtcdConfig configures the etcd process.
type EtcdConfig struct {
	Quota                   *resource.Quantity           `json:"quota,omitempty"`
	SnapshotCount           *int64                       `json:"snapshotCount,omitempty"`
	EnableGRPCGateway       *bool                        `json:"enableGRPCGateway,omitempty"`
	DefragmentationSchedule *string                      `json:"defragmentationSchedule,omitempty"`
	ServerPort              *int32                       `json:"serverPort,omitempty"`
	ClientPort              *int32                       `json:"clientPort,omitempty"`
	WrapperPort             *int32                       `json:"wrapperPort,omitempty"`
	Image                   *string                      `json:"image,omitempty"`
	Metrics                 *string                      `json:"metrics,omitempty"`
	Resources               *corev1.ResourceRequirements `json:"resources,omitempty"`
	ClientURLTLS            *TLSConfig                   `json:"clientUrlTls,omitempty"`
	PeerURLTLS              *PeerTLSConfig               `json:"peerUrlTls,omitempty"`
	EtcdDefragTimeout       *metav1.Duration             `json:"etcdDefragTimeout,omitempty"`
	HeartbeatDuration       *metav1.Duration             `json:"heartbeatDuration,omitempty"`
	ClientService           *ClientService               `json:"clientService,omitempty"`
}

// ClientService adjusts the client service.
type ClientService struct {
	Annotations         map[string]string `json:"annotations,omitempty"`
	Labels              map[string]string `json:"labels,omitempty"`
	TrafficDistribution *string           `json:"trafficDistribution,omitempty"`
}

// TLSConfig names the secrets of one TLS endpoint.
type TLSConfig struct {
	TLSCASecretRef     SecretReference        `json:"tlsCASecretRef"`
	ServerTLSSecretRef corev1.SecretReference `json:"serverTLSSecretRef"`
	ClientTLSSecretRef corev1.SecretReference `json:"clientTLSSecretRef,omitempty"`
}

// PeerTLSConfig is TLSConfig for the traffic between members.
type PeerTLSConfig struct {
	TLSConfig                 `json:",inline"`
	SkipClientSANVerification *bool `json:"skipClientSANVerification,omitempty"`
}

// SecretReference names a secret and, if it is not the usual one, the key in it.
type SecretReference struct {
	corev1.SecretReference `json:",inline"`
	DataKey                *string `json:"dataKey,omitempty"`
}

// BackupSpec configures the backup sidecar.
type BackupSpec struct {
	Port                         *int32                       `json:"port,omitempty"`
	TLS                          *TLSConfig                   `json:"tls,omitempty"`
	Image                        *string                      `json:"image,omitempty"`
	Store                        *StoreSpec                   `json:"store,omitempty"`
	Resources                    *corev1.ResourceRequirements `json:"resources,omitempty"`
	FullSnapshotSchedule         *string                      `json:"fullSnapshotSchedule,omitempty"`
	GarbageCollectionPolicy      *string                      `json:"garbageCollectionPolicy,omitempty"`
	MaxBackupsLimitBasedGC       *int32                       `json:"maxBackupsLimitBasedGC,omitempty"`
	GarbageCollectionPeriod      *metav1.Duration             `json:"garbageCollectionPeriod,omitempty"`
	DeltaSnapshotPeriod          *metav1.Duration             `json:"deltaSnapshotPeriod,omitempty"`
	DeltaSnapshotMemoryLimit     *resource.Quantity           `json:"deltaSnapshotMemoryLimit,omitempty"`
	DeltaSnapshotRetentionPeriod *metav1.Duration             `json:"deltaSnapshotRetentionPeriod,omitempty"`
	SnapshotCompression          *CompressionSpec             `json:"compression,omitempty"`
	EnableProfiling              *bool                        `json:"enableProfiling,omitempty"`
	EtcdSnapshotTimeout          *metav1.Duration             `json:"etcdSnapshotTimeout,omitempty"`
	LeaderElection               *LeaderElectionSpec          `json:"leaderElection,omitempty"`
}

// StoreSpec says where snapshots are kept. A nil StoreSpec means that there are none.
type StoreSpec struct {
	Container        *string                 `json:"container,omitempty"`
	EndpointOverride *string                 `json:"endpointOverride,omitempty"`
	Prefix           string                  `json:"prefix"`
	Provider         *string                 `json:"provider,omitempty"`
	SecretRef        *corev1.SecretReference `json:"secretRef,omitempty"`
}

// CompressionSpec says whether and how snapshots are compressed.
type CompressionSpec struct {
	Enabled *bool   `json:"enabled,omitempty"`
	Policy  *string `json:"policy,omitempty"`
}

// LeaderElectionSpec configures the sidecars' choice of the one that takes snapshots.
type LeaderElectionSpec struct {
	ReelectionPeriod      *metav1.Duration `json:"reelectionPeriod,omitempty"`
	EtcdConnectionTimeout *metav1.Duration `json:"etcdConnectionTimeout,omitempty"`
}

// SharedConfig is shared by etcd and the sidecar.
type SharedConfig struct {
	AutoCompactionMode      *string `json:"autoCompactionMode,omitempty"`
	AutoCompactionRetention *string `json:"autoCompactionRetention,omitempty"`
}

// SchedulingConstraints are handed on to the pods.
type SchedulingConstraints struct {
	Affinity                  *corev1.Affinity                  `json:"affinity,omitempty"`
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
}

// EtcdStatus is the observed state of an Etcd.
type EtcdStatus struct {
	ObservedGeneration *int64                       `json:"observedGeneration,omitempty"`
	Etcd               *CrossVersionObjectReference `json:"etcd,omitempty"`
	Conditions         []Condition                  `json:"conditions,omitempty"`
	LastErrors         []LastError                  `json:"lastErrors,omitempty"`
	LastOperation      *LastOperation               `json:"lastOperation,omitempty"`
	CurrentReplicas    int32                        `json:"currentReplicas,omitempty"`
	Replicas           int32                        `json:"replicas,omitempty"`
	ReadyReplicas      int32                        `json:"readyReplicas,omitempty"`
	Ready              *bool                        `json:"ready,omitempty"`
	LabelSelector      *metav1.LabelSelector        `json:"labelSelector,omitempty"`
	Members            []MemberStatus               `json:"members,omitempty"`
	PeerURLTLSEnabled  *bool                        `json:"peerUrlTLSEnabled,omitempty"`
	Selector           *string                      `json:"selector,omitempty"`
}

// CrossVersionObjectReference points at the StatefulSet.
type CrossVersionObjectReference struct {
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
}

// ConditionType is the type of a condition.
type ConditionType string

// ConditionStatus is True, False or Unknown.
type ConditionStatus string

// The statuses of a condition.
const (
	ConditionTrue    ConditionStatus = "True"
	ConditionFalse   ConditionStatus = "False"
	ConditionUnknown ConditionStatus = "Unknown"
)

// The condition types that druid keeps. All others in the list belong to somebody else.
const (
	ConditionReady             ConditionType = "Ready"
	ConditionAllMembersReady   ConditionType = "AllMembersReady"
	ConditionAllMembersUpdated ConditionType = "AllMembersUpdated"
	ConditionBackupReady       ConditionType = "BackupReady"
	ConditionDataVolumesReady  ConditionType = "DataVolumesReady"
	ConditionClusterIDMismatch ConditionType = "ClusterIDMismatch"
)

// Condition is druid's own kind of condition: it has lastUpdateTime, which metav1.Condition has not.
type Condition struct {
	Type               ConditionType   `json:"type"`
	Status             ConditionStatus `json:"status"`
	LastTransitionTime metav1.Time     `json:"lastTransitionTime"`
	LastUpdateTime     metav1.Time     `json:"lastUpdateTime"`
	Reason             string          `json:"reason"`
	Message            string          `json:"message"`
}

// MemberState is Ready, NotReady or Unknown.
type MemberState string

// The states of a member.
const (
	MemberReady    MemberState = "Ready"
	MemberNotReady MemberState = "NotReady"
	MemberUnknown  MemberState = "Unknown"
)

// Role is Leader or Member. A learner says Member, too.
type Role string

// The roles of a member.
const (
	RoleLeader Role = "Leader"
	RoleMember Role = "Member"
)

// MemberStatus is what is known of one member.
type MemberStatus struct {
	Name               string      `json:"name"`
	ID                 *string     `json:"id,omitempty"`
	Role               *Role       `json:"role,omitempty"`
	Status             MemberState `json:"status"`
	Reason             string      `json:"reason"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// OperationType is Reconcile or Delete.
type OperationType string

// The types of an operation.
const (
	OperationReconcile OperationType = "Reconcile"
	OperationDelete    OperationType = "Delete"
)

// OperationState is Processing, Succeeded, Error or Requeue.
type OperationState string

// The states of an operation.
const (
	OperationProcessing OperationState = "Processing"
	OperationSucceeded  OperationState = "Succeeded"
	OperationError      OperationState = "Error"
	OperationRequeue    OperationState = "Requeue"
)

// LastOperation is the newest spec reconciliation or deletion.
type LastOperation struct {
	Type           OperationType  `json:"type"`
	State          OperationState `json:"state"`
	Description    string         `json:"description"`
	RunID          string         `json:"runID"`
	LastUpdateTime metav1.Time    `json:"lastUpdateTime"`
}

// LastError is an error of the newest operation.
type LastError struct {
	Code        string      `json:"code"`
	Description string      `json:"description"`
	ObservedAt  metav1.Time `json:"observedAt"`
}
