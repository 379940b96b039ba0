package volume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the Etcd resource, owned by etcd-druid.
var GroupVersion = schema.GroupVersion{Group: "druid.gardener.cloud", Version: "v1alpha1"}

// AddToScheme registers the partial Etcd type.
var AddToScheme = (&runtime.SchemeBuilder{addTypes}).AddToScheme

func addTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Etcd{}, &EtcdList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Etcd is the part of etcd-druid's Etcd that decides its disks, and what we need to reach and judge its members.
// It is partial: patch it, never Update it.
// +kubebuilder:object:root=true
type Etcd struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   EtcdSpec   `json:"spec,omitempty"`
	Status EtcdStatus `json:"status,omitempty"`
}

// EtcdList is a list of Etcd.
// +kubebuilder:object:root=true
type EtcdList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Etcd `json:"items"`
}

// EtcdSpec holds the fields of an Etcd's spec that we read.
type EtcdSpec struct {
	Replicas            int32              `json:"replicas,omitempty"`
	StorageClass        *string            `json:"storageClass,omitempty"`
	StorageCapacity     *resource.Quantity `json:"storageCapacity,omitempty"`
	VolumeClaimTemplate *string            `json:"volumeClaimTemplate,omitempty"`
	MemberNamePrefix    *string            `json:"memberNamePrefix,omitempty"`
	Etcd                EtcdConfig         `json:"etcd,omitempty"`
	Backup              BackupSpec         `json:"backup,omitempty"`
}

// EtcdConfig holds what is needed to reach the members.
type EtcdConfig struct {
	ClientPort        *int32             `json:"clientPort,omitempty"` // nil = 2379
	Quota             *resource.Quantity `json:"quota,omitempty"`      // nil = 8Gi, etcd-druid's default
	ClientURLTLS      *TLSConfig         `json:"clientUrlTls,omitempty"`
	HeartbeatDuration *metav1.Duration   `json:"heartbeatDuration,omitempty"` // nil = 10s
}

// BackupSpec holds what is needed to judge and take backups.
type BackupSpec struct {
	Port  *int32     `json:"port,omitempty"` // nil = 8080
	TLS   *TLSConfig `json:"tls,omitempty"`
	Store *StoreSpec `json:"store,omitempty"` // nil, or without a provider = no backups
}

// StoreSpec names the backup store. Its credentials are none of our business.
type StoreSpec struct {
	Container *string `json:"container,omitempty"`
	Prefix    string  `json:"prefix,omitempty"`
	Provider  *string `json:"provider,omitempty"`
}

// TLSConfig names the Secrets by which a server is verified and a client proves itself.
type TLSConfig struct {
	TLSCASecretRef     SecretReference        `json:"tlsCASecretRef,omitempty"`
	ServerTLSSecretRef corev1.SecretReference `json:"serverTLSSecretRef,omitempty"`
	ClientTLSSecretRef corev1.SecretReference `json:"clientTLSSecretRef,omitempty"`
}

// SecretReference names a Secret and the key in it; an empty key means bundle.crt.
type SecretReference struct {
	corev1.SecretReference `json:",inline"`
	DataKey                *string `json:"dataKey,omitempty"`
}

// EtcdStatus holds the fields of an Etcd's status that we read.
type EtcdStatus struct {
	ObservedGeneration *int64         `json:"observedGeneration,omitempty"`
	Conditions         []Condition    `json:"conditions,omitempty"`
	LastOperation      *LastOperation `json:"lastOperation,omitempty"`
	Replicas           int32          `json:"replicas,omitempty"`
	ReadyReplicas      int32          `json:"readyReplicas,omitempty"`
	Members            []MemberStatus `json:"members,omitempty"`
}

// Condition is etcd-druid's condition; it has a lastUpdateTime that metav1.Condition lacks.
type Condition struct {
	Type               string                 `json:"type"`
	Status             metav1.ConditionStatus `json:"status"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime"`
	LastUpdateTime     metav1.Time            `json:"lastUpdateTime"`
	Reason             string                 `json:"reason"`
	Message            string                 `json:"message"`
}

// LastOperation is what etcd-druid did last: Create, Reconcile or Delete, in state Processing, Succeeded, Error or Requeue.
type LastOperation struct {
	Type  string `json:"type"`
	State string `json:"state"`
}

// MemberStatus is one member as etcd-druid sees it.
type MemberStatus struct {
	Name   string  `json:"name"`
	ID     *string `json:"id,omitempty"`
	Role   *string `json:"role,omitempty"`
	Status string  `json:"status"`
}
