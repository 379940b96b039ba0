package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

const (
	volumeConfig       = "etcd-config-file"
	volumeClientCA     = "etcd-ca"
	volumeServerTLS    = "etcd-server-tls"
	volumeClientTLS    = "etcd-client-tls"
	volumePeerCA       = "etcd-peer-ca"
	volumePeerTLS      = "etcd-peer-server-tls"
	volumeBackupServer = "backup-restore-server-tls"
	volumeBackupClient = "backup-restore-client-tls"
	volumeLocalBackup  = "local-backup"
	volumeBackupSecret = "etcd-backup-secret"
)

// VolumeBackupCA is the volume with the CA of the sidecar's server.
const VolumeBackupCA = "backup-restore-ca"

// volumes are the pod's volumes, except the claim, which the StatefulSet adds.
func volumes(etcd *api.Etcd, in Input, provider string) []corev1.Volume {
	all := []corev1.Volume{{Name: volumeConfig, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: etcd.ConfigMapName()},
		Items:                []corev1.KeyToPath{{Key: ConfigFile, Path: ConfigFile}},
		DefaultMode:          ptr.To(secretMode),
	}}}}
	if tls := etcd.Spec.Etcd.ClientURLTLS; tls != nil {
		all = append(
			all,
			secretVolume(volumeClientCA, tls.TLSCASecretRef.Name),
			secretVolume(volumeServerTLS, tls.ServerTLSSecretRef.Name),
			secretVolume(volumeClientTLS, tls.ClientTLSSecretRef.Name),
		)
	}
	if tls := peerTLS(etcd); tls != nil {
		all = append(all, secretVolume(volumePeerCA, tls.TLSCASecretRef.Name), secretVolume(volumePeerTLS, tls.ServerTLSSecretRef.Name))
	}
	if tls := etcd.Spec.Backup.TLS; tls != nil {
		all = append(
			all,
			secretVolume(VolumeBackupCA, tls.TLSCASecretRef.Name),
			secretVolume(volumeBackupServer, tls.ServerTLSSecretRef.Name),
			secretVolume(volumeBackupClient, tls.ClientTLSSecretRef.Name),
		)
	}
	if v := storeVolume(etcd, provider, in.HostPath); v != nil {
		all = append(all, *v)
	}
	return all
}

func secretVolume(name, secret string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: ptr.To(secretMode)},
	}}
}

func dataMount(etcd *api.Etcd) corev1.VolumeMount {
	return corev1.VolumeMount{Name: etcd.ClaimTemplateName(), MountPath: dataPath}
}

// EtcdTLSMounts are the certificates that the etcd container sees.
func EtcdTLSMounts(etcd *api.Etcd) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	if etcd.Spec.Etcd.ClientURLTLS != nil {
		mounts = append(
			mounts,
			corev1.VolumeMount{Name: volumeClientCA, MountPath: clientCAPath},
			corev1.VolumeMount{Name: volumeServerTLS, MountPath: serverCertPath},
			corev1.VolumeMount{Name: volumeClientTLS, MountPath: clientCertPath},
		)
	}
	mounts = append(mounts, PeerTLSMounts(etcd)...)
	if etcd.Spec.Backup.TLS != nil {
		mounts = append(mounts, corev1.VolumeMount{Name: VolumeBackupCA, MountPath: backupCAPath})
	}
	return mounts
}

// PeerTLSMounts are the certificates for the traffic between members.
func PeerTLSMounts(etcd *api.Etcd) []corev1.VolumeMount {
	if etcd.Spec.Etcd.PeerURLTLS == nil {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumePeerCA, MountPath: peerCAPath}, {Name: volumePeerTLS, MountPath: peerCertPath}}
}

// BackupTLSMounts are the certificates that the sidecar sees.
func BackupTLSMounts(etcd *api.Etcd) []corev1.VolumeMount {
	var mounts []corev1.VolumeMount
	if etcd.Spec.Backup.TLS != nil {
		mounts = append(mounts, corev1.VolumeMount{Name: volumeBackupServer, MountPath: backupCertPath})
	}
	if etcd.Spec.Etcd.ClientURLTLS != nil {
		mounts = append(
			mounts,
			corev1.VolumeMount{Name: volumeClientCA, MountPath: clientCAPath},
			corev1.VolumeMount{Name: volumeClientTLS, MountPath: clientCertPath},
		)
	}
	return mounts
}

// IsTLSVolume says whether a volume of that name has certificates; IsPeerTLSVolume, whether they are the members' own.
func IsTLSVolume(name string) bool {
	switch name {
	case volumeClientCA, volumeServerTLS, volumeClientTLS, VolumeBackupCA, volumeBackupServer:
		return true
	}
	return IsPeerTLSVolume(name)
}

// IsPeerTLSVolume says whether a volume of that name has certificates for the traffic between members.
func IsPeerTLSVolume(name string) bool { return name == volumePeerCA || name == volumePeerTLS }
