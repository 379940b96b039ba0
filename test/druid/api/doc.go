// Package api has the Go types of the Etcd resource (druid.gardener.cloud/v1alpha1) as the stand-in for etcd-druid
// reads and writes it, and the names, labels and annotations that belong to it.
//
// It covers the fields that decide what the stand-in renders and reports. A field that the real resource has and this
// package does not know survives nevertheless: the CRD keeps unknown fields, and the stand-in writes by merge patch
// only, computed between two values of these types, so that what they do not know is never part of a patch.
//
// Modelled after etcd-druid v0.38.0-dev (July 2026). Not modelled: additionalAdvertisePeerURLs,
// bootstrapWithExistingCluster, snapshotCompaction, authSecretRef, and the annotation that disables the runtime
// components.
//
// The product has a partial Etcd type of its own; this package is for the tests' world only.
//
// +kubebuilder:object:generate=true
// +groupName=druid.gardener.cloud
package api
