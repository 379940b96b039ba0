// Package v1alpha1 is the API of etcd-volumes: the VolumeRollout, the record of one confirmed volume operation.
//
// The spec is written once, by the reconciler, from the stamp on the Etcd; it is immutable (CEL). The status is what the
// reconciler saw and did. A leaf, like webhook/volume.
// +kubebuilder:object:generate=true
// +groupName=volumes.druid.gardener.cloud
package v1alpha1
