package volume

import (
	"fmt"
	"strconv"
)

// Annotations of ours on an Etcd, and of etcd-druid where we set them for the time of a rollout.
const (
	Group = "volumes.druid.gardener.cloud"

	// ConfirmAnnotation carries the token by which a person says yes to exactly one change.
	ConfirmAnnotation = Group + "/confirm"
	// ConfirmedByAnnotation is the mutating webhook's note of who set the confirmation; nobody else may write it.
	ConfirmedByAnnotation = Group + "/confirmed-by"
	// StampAnnotation is the generation marker, written by the mutating webhook alone.
	StampAnnotation = Group + "/stamp"
	// RecreateAnnotation asks for fresh volumes of unchanged spec: "all" or member names, with an optional "@suffix".
	RecreateAnnotation = Group + "/recreate"
	// ReleaseAnnotation, together with spec.replicas: 0, asks to give the disk of a hibernated single member back.
	ReleaseAnnotation = Group + "/release"
	// RecoverAnnotation asks to restore a cluster that lost quorum for good.
	RecoverAnnotation = Group + "/recover"

	// SuspendAnnotation makes etcd-druid leave the spec alone; its status is still kept up to date.
	SuspendAnnotation = "druid.gardener.cloud/suspend-etcd-spec-reconcile"
	// DisableProtectionAnnotation makes etcd-druid's own webhook let others delete StatefulSets and claims.
	DisableProtectionAnnotation = "druid.gardener.cloud/disable-etcd-component-protection"
)

// Labels and annotations of ours on a retained volume. Together they are the record of a replaced member: a pass finds
// its way by them after a crash.
const (
	EtcdLabel               = Group + "/etcd"
	EtcdNamespaceLabel      = Group + "/namespace"
	MemberLabel             = Group + "/member"
	RolloutLabel            = Group + "/rollout"
	OriginalPolicyLabel     = Group + "/original-policy"
	ClaimUIDAnnotation      = Group + "/claim-uid"
	PodUIDAnnotation        = Group + "/pod-uid"
	MemberIDAnnotation      = Group + "/member-id"      // hex, as in the member lease
	ClusterIDAnnotation     = Group + "/cluster-id"     // hex, as in the member lease
	RetainedUntilAnnotation = Group + "/retained-until" // RFC 3339
)

// Labels that etcd-druid puts on what it renders; claims inherit them from the StatefulSet's selector.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByDruid = "etcd-druid"
	PartOfLabel    = "app.kubernetes.io/part-of"
)

// PodName is the name of member i's pod.
func PodName(etcd string, i int) string { return etcd + "-" + strconv.Itoa(i) }

// ClaimName is the name of member i's claim under the given template.
func ClaimName(template, etcd string, i int) string { return template + "-" + PodName(etcd, i) }

// MemberName is the name by which member i is known to etcd, and the name of its lease.
func MemberName(e *Etcd, i int) string {
	if e.Spec.MemberNamePrefix != nil && *e.Spec.MemberNamePrefix != "" {
		return *e.Spec.MemberNamePrefix + "-" + PodName(e.Name, i)
	}
	return PodName(e.Name, i)
}

// PeerServiceName is the headless Service that gives each member its own DNS name.
func PeerServiceName(etcd string) string { return etcd + "-peer" }

// ClientServiceName is the Service in front of all ready members and their sidecars.
func ClientServiceName(etcd string) string { return etcd + "-client" }

// MemberHost is the DNS name of member i inside the cluster.
func MemberHost(namespace, etcd string, i int) string {
	return fmt.Sprintf("%s.%s.%s.svc", PodName(etcd, i), PeerServiceName(etcd), namespace)
}

// HasStore reports whether backups are taken of this Etcd.
func (e *Etcd) HasStore() bool {
	return e.Spec.Backup.Store != nil && e.Spec.Backup.Store.Provider != nil && *e.Spec.Backup.Store.Provider != ""
}
