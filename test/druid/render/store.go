package render

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// DefaultHostPath is the node's directory for local backups where the store's secret names none.
const DefaultHostPath = "/etc/gardener/local-backupbuckets"

// HostPathKey is the key of the store's secret that names the node's directory for local backups.
const HostPathKey = "hostPath"

const (
	providerS3    = "S3"
	providerABS   = "ABS"
	providerGCS   = "GCS"
	providerOSS   = "OSS"
	providerSwift = "Swift"
	providerLocal = "Local"
	providerECS   = "ECS"
	providerOCS   = "OCS"
)

// providers maps what an Etcd may say, in lower case where both spellings are known, to the kind of store.
var providers = map[string]string{
	"aws": providerS3, "S3": providerS3, "s3": providerS3, "stackit": providerS3,
	"azure": providerABS, "ABS": providerABS, "abs": providerABS,
	"gcp": providerGCS, "GCS": providerGCS, "gcs": providerGCS,
	"alicloud": providerOSS, "OSS": providerOSS, "oss": providerOSS,
	"openstack": providerSwift, "Swift": providerSwift, "swift": providerSwift,
	"dell": providerECS, "ECS": providerECS, "ecs": providerECS,
	"openshift": providerOCS, "OCS": providerOCS, "ocs": providerOCS,
	"Local": providerLocal, "local": providerLocal,
	"": "",
}

var errECSWithoutSecret = errors.New("a store of provider ECS needs a secretRef")

// Provider is the kind of the backup store; "" where there is none or none is named.
func Provider(etcd *api.Etcd) (string, error) {
	if !etcd.HasStore() {
		return "", nil
	}
	wanted := ptr.Deref(etcd.Spec.Backup.Store.Provider, "")
	provider, known := providers[wanted]
	if !known {
		return "", fmt.Errorf("storage provider %q of %s/%s is not supported", wanted, etcd.Namespace, etcd.Name)
	}
	return provider, nil
}

// IsLocal says whether backups are kept in a directory of the node.
func IsLocal(etcd *api.Etcd) bool {
	provider, err := Provider(etcd)
	return err == nil && provider == providerLocal
}

// storeMountPath is where a container sees the local backups.
func storeMountPath(etcd *api.Etcd) string {
	home := homeOfNonRoot
	if ptr.Deref(etcd.Spec.RunAsRoot, false) {
		home = homeOfRoot
	}
	container := etcd.Spec.Backup.Store.Container
	if container == nil {
		return home
	}
	return home + "/" + *container
}

// storeMount is where the sidecar finds the backups, or the credentials for them; nil where it needs no mount.
func storeMount(etcd *api.Etcd, provider string) *corev1.VolumeMount {
	if !etcd.HasStore() {
		return nil
	}
	store := etcd.Spec.Backup.Store
	switch provider {
	case providerLocal:
		if store.Container == nil {
			return nil
		}
		return &corev1.VolumeMount{Name: volumeLocalBackup, MountPath: storeMountPath(etcd)}
	case providerGCS, providerS3, providerABS, providerOSS, providerSwift, providerOCS:
		if store.SecretRef == nil {
			return nil
		}
		path := backupSecretPath
		if provider == providerGCS {
			path = gcsSecretPath
		}
		return &corev1.VolumeMount{Name: volumeBackupSecret, MountPath: path}
	}
	return nil
}

// storeVolume is the volume behind storeMount; hostPath is the node's directory for local backups.
func storeVolume(etcd *api.Etcd, provider, hostPath string) *corev1.Volume {
	if !etcd.HasStore() {
		return nil
	}
	store := etcd.Spec.Backup.Store
	switch provider {
	case providerLocal:
		return &corev1.Volume{Name: volumeLocalBackup, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: hostPath + "/" + ptr.Deref(store.Container, ""),
			Type: ptr.To(corev1.HostPathDirectoryOrCreate),
		}}}
	case providerGCS, providerS3, providerABS, providerOSS, providerSwift, providerOCS:
		if store.SecretRef == nil {
			return nil
		}
		return ptr.To(secretVolume(volumeBackupSecret, store.SecretRef.Name))
	}
	return nil
}

// credentialsVariables name the variable that points each provider's client at the mounted credentials.
var credentialsVariables = map[string]string{
	providerS3:    "AWS_APPLICATION_CREDENTIALS",
	providerABS:   "AZURE_APPLICATION_CREDENTIALS",
	providerSwift: "OPENSTACK_APPLICATION_CREDENTIALS",
	providerOSS:   "ALICLOUD_APPLICATION_CREDENTIALS",
	providerOCS:   "OPENSHIFT_APPLICATION_CREDENTIALS",
}

// storeEnv is what the sidecar's environment says of the store.
func storeEnv(etcd *api.Etcd, provider string) ([]corev1.EnvVar, error) {
	if !etcd.HasStore() {
		return nil, nil
	}
	store := etcd.Spec.Backup.Store
	env := []corev1.EnvVar{{Name: "STORAGE_CONTAINER", Value: ptr.Deref(store.Container, "")}}
	if name, ok := credentialsVariables[provider]; ok {
		return append(env, corev1.EnvVar{Name: name, Value: backupSecretPath}), nil
	}
	switch provider {
	case providerGCS:
		return append(env, corev1.EnvVar{Name: "GOOGLE_APPLICATION_CREDENTIALS", Value: gcsSecretPath + "serviceaccount.json"}), nil
	case providerECS:
		if store.SecretRef == nil {
			return nil, errECSWithoutSecret
		}
		for _, key := range []struct{ variable, key string }{{"ECS_ENDPOINT", "endpoint"}, {"ECS_ACCESS_KEY_ID", "accessKeyID"}, {"ECS_SECRET_ACCESS_KEY", "secretAccessKey"}} {
			env = append(env, secretEnv(key.variable, store.SecretRef.Name, key.key))
		}
	}
	return env, nil
}

func secretEnv(name, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret},
		Key:                  key,
		Optional:             ptr.To(false),
	}}}
}

// storeArgs are the sidecar's arguments about the store and the snapshots; none where there is no store.
func storeArgs(etcd *api.Etcd, provider string) []string {
	if !etcd.HasStore() {
		return nil
	}
	backup := etcd.Spec.Backup
	args := []string{
		"--enable-snapshot-lease-renewal=true",
		"--full-snapshot-lease-name=" + etcd.FullSnapshotLeaseName(),
		"--delta-snapshot-lease-name=" + etcd.DeltaSnapshotLeaseName(),
		"--storage-provider=" + provider,
		"--store-prefix=" + backup.Store.Prefix,
	}
	args = appendString(args, "--store-endpoint-override=", backup.Store.EndpointOverride)
	args = appendString(args, "--schedule=", backup.FullSnapshotSchedule)
	args = appendDuration(args, "--delta-snapshot-period=", backup.DeltaSnapshotPeriod)
	args = appendDuration(args, "--delta-snapshot-retention-period=", backup.DeltaSnapshotRetentionPeriod)
	limit := deltaMemoryLimit
	if backup.DeltaSnapshotMemoryLimit != nil {
		limit = backup.DeltaSnapshotMemoryLimit.Value()
	}
	args = append(args, fmt.Sprintf("--delta-snapshot-memory-limit=%d", limit))
	args = append(args, collectionArgs(backup)...)
	return append(args, compressionArgs(backup)...)
}

func collectionArgs(backup api.BackupSpec) []string {
	policy := ptr.Deref(backup.GarbageCollectionPolicy, policyLimitBased)
	args := []string{"--garbage-collection-policy=" + policy}
	if policy == policyLimitBased {
		args = append(args, fmt.Sprintf("--max-backups=%d", ptr.Deref(backup.MaxBackupsLimitBasedGC, maxBackups)))
	}
	return appendDuration(args, "--garbage-collection-period=", backup.GarbageCollectionPeriod)
}

func compressionArgs(backup api.BackupSpec) []string {
	wish := ptr.Deref(backup.SnapshotCompression, api.CompressionSpec{})
	return []string{
		fmt.Sprintf("--compress-snapshots=%t", ptr.Deref(wish.Enabled, true)),
		"--compression-policy=" + ptr.Deref(wish.Policy, compressionPolicy),
		"--etcd-snapshot-timeout=" + durationOr(backup.EtcdSnapshotTimeout, snapshotTimeout),
	}
}

// clientScheme is http or https, as clients talk to etcd.
func clientScheme(etcd *api.Etcd) string { return scheme(etcd.Spec.Etcd.ClientURLTLS) }

// joinPath puts a file name behind a directory, without cleaning either: the arguments are what the real ones are.
func joinPath(parts ...string) string { return strings.Join(parts, "/") }
