// Package volume is the vocabulary of etcd-volumes: the part of an Etcd that decides its disks, and the names by which
// the Etcd, its members, their claims and our annotations are known.
//
// It is a leaf: it imports nothing of ours, reads no clock and talks to nobody. Both corridors, the webhook and the
// reconciler, speak it.
//
// [Etcd] is a partial type. It is read and patched, never updated: an update would drop every field that it does not know.
//
//	before, after := volume.Of(oldEtcd), volume.Of(newEtcd)
//	if before.Equal(after) { ... } // no volume change
//
// # Decisions
//
// 2026-12-01: quantities are compared by value and class names by effect, as etcd-druid renders them: no class and the
// empty class both leave storageClassName out of the claim template; no capacity means 16Gi; no template name means the
// Etcd's own name (etcd-druid v0.38, internal/component/statefulset).
// +kubebuilder:object:generate=true
// +groupName=druid.gardener.cloud
package volume
