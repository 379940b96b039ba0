package render

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// The containers of a member's pod.
const (
	ContainerEtcd   = "etcd"
	ContainerBackup = "backup-restore"
	containerChown  = "change-backup-bucket-permissions"
)

func defaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("50m"),
		corev1.ResourceMemory: resource.MustParse("128Mi"),
	}}
}

// etcdContainer runs etcd-wrapper, which asks the sidecar for leave to start etcd.
func etcdContainer(etcd *api.Etcd, in Input) corev1.Container {
	return corev1.Container{
		Name:            ContainerEtcd,
		Image:           ptr.Deref(etcd.Spec.Etcd.Image, in.Images.Etcd),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            etcdArgs(etcd),
		ReadinessProbe:  readiness(etcd, in.ReadinessDelay),
		Ports:           []corev1.ContainerPort{containerPort(serverPortName, peerPort(etcd)), containerPort(clientPortName, clientPort(etcd))},
		Resources:       ptr.Deref(etcd.Spec.Etcd.Resources, defaultResources()),
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)},
		Env:             []corev1.EnvVar{},
		VolumeMounts:    append([]corev1.VolumeMount{dataMount(etcd)}, EtcdTLSMounts(etcd)...),
	}
}

func containerPort(name string, number int32) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, Protocol: corev1.ProtocolTCP, ContainerPort: number}
}

func readiness(etcd *api.Etcd, delay time.Duration) *corev1.Probe {
	scheme := corev1.URISchemeHTTP
	if etcd.Spec.Backup.TLS != nil {
		scheme = corev1.URISchemeHTTPS
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path:   wrapperReadyPath,
			Port:   intstr.FromInt32(wrapperPort(etcd)),
			Scheme: scheme,
		}},
		InitialDelaySeconds: int32(delay / time.Second),
		PeriodSeconds:       5,
		FailureThreshold:    5,
	}
}

func etcdArgs(etcd *api.Etcd) []string {
	args := []string{
		"start-etcd",
		fmt.Sprintf("--backup-restore-host-port=%s:%d", localHost(etcd), BackupPort(etcd)),
		"--etcd-server-name=" + localHost(etcd),
	}
	if tls := etcd.Spec.Backup.TLS; tls == nil {
		args = append(args, "--backup-restore-tls-enabled=false")
	} else {
		args = append(args, "--backup-restore-tls-enabled=true", "--backup-restore-ca-cert-bundle-path="+joinPath(backupCAPath, caKey(tls)))
	}
	if etcd.Spec.Etcd.ClientURLTLS != nil {
		args = append(args, "--etcd-client-cert-path="+clientCertPath+"/tls.crt", "--etcd-client-key-path="+clientCertPath+"/tls.key")
	}
	return append(args, fmt.Sprintf("--etcd-client-port=%d", clientPort(etcd)), fmt.Sprintf("--etcd-wrapper-port=%d", wrapperPort(etcd)))
}

// backupContainer runs the sidecar: initialisation, snapshots, heartbeats.
func backupContainer(etcd *api.Etcd, in Input, provider string) (corev1.Container, error) {
	env, err := storeEnv(etcd, provider)
	if err != nil {
		return corev1.Container{}, err
	}
	mounts := append([]corev1.VolumeMount{dataMount(etcd), {Name: volumeConfig, MountPath: configPath}}, BackupTLSMounts(etcd)...)
	if m := storeMount(etcd, provider); m != nil {
		mounts = append(mounts, *m)
	}
	return corev1.Container{
		Name:            ContainerBackup,
		Image:           ptr.Deref(etcd.Spec.Backup.Image, in.Images.Backup),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            backupArgs(etcd, provider),
		Ports:           []corev1.ContainerPort{containerPort(serverPortName, BackupPort(etcd))},
		Env:             append([]corev1.EnvVar{fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace")}, env...),
		Resources:       ptr.Deref(etcd.Spec.Backup.Resources, defaultResources()),
		SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false)},
		VolumeMounts:    mounts,
	}, nil
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func backupArgs(etcd *api.Etcd, provider string) []string {
	spec := etcd.Spec
	args := []string{"server", fmt.Sprintf("--server-port=%d", BackupPort(etcd))}
	args = append(args, storeArgs(etcd, provider)...)
	args = appendString(args, "--defragmentation-schedule=", spec.Etcd.DefragmentationSchedule)
	args = append(
		args,
		"--etcd-defrag-timeout="+durationOr(spec.Etcd.EtcdDefragTimeout, defragTimeout),
		"--auto-compaction-mode="+ptr.Deref(spec.Common.AutoCompactionMode, defaultCompactionMode),
		"--auto-compaction-retention="+ptr.Deref(spec.Common.AutoCompactionRetention, defaultCompactionRetention),
	)
	args = append(args, connectionArgs(etcd)...)
	args = append(
		args,
		"--data-dir="+dataDir,
		"--restoration-temp-snapshots-dir="+dataPath+"/restoration.temp",
		"--snapstore-temp-directory="+dataPath+"/temp",
		"--etcd-connection-timeout="+connectionTimeout,
		"--use-etcd-wrapper=true",
		"--enable-member-lease-renewal=true",
		"--k8s-heartbeat-duration="+durationOr(spec.Etcd.HeartbeatDuration, heartbeat),
		fmt.Sprintf("--embedded-etcd-quota-bytes=%d", quota(etcd)),
	)
	if ptr.Deref(spec.Backup.EnableProfiling, false) {
		args = append(args, "--enable-profiling=true")
	}
	if election := spec.Backup.LeaderElection; election != nil {
		args = appendDuration(args, "--etcd-connection-timeout-leader-election=", election.EtcdConnectionTimeout)
		args = appendDuration(args, "--reelection-period=", election.ReelectionPeriod)
	}
	return args
}

// connectionArgs say how the sidecar reaches etcd, and with which certificate it serves.
func connectionArgs(etcd *api.Etcd) []string {
	var args []string
	insecure := true
	if tls := etcd.Spec.Etcd.ClientURLTLS; tls != nil {
		insecure = false
		args = append(args, "--cacert="+joinPath(clientCAPath, caKey(tls)), "--cert="+clientCertPath+"/tls.crt", "--key="+clientCertPath+"/tls.key")
	}
	args = append(
		args,
		fmt.Sprintf("--insecure-transport=%t", insecure),
		fmt.Sprintf("--insecure-skip-tls-verify=%t", insecure),
		fmt.Sprintf("--endpoints=%s://%s:%d", clientScheme(etcd), localHost(etcd), clientPort(etcd)),
		fmt.Sprintf("--service-endpoints=%s://%s:%d", clientScheme(etcd), etcd.ClientServiceName(), clientPort(etcd)),
	)
	if etcd.Spec.Backup.TLS != nil {
		args = append(args, "--server-cert="+backupCertPath+"/tls.crt", "--server-key="+backupCertPath+"/tls.key")
	}
	return args
}

// initContainers hand a local backup directory to the user that the containers run as; none are needed for root. Where
// the machine does not know that user, the pod runs as whoever owns the directory, and it may stay as it is.
func initContainers(etcd *api.Etcd, in Input, provider string) []corev1.Container {
	mount := storeMount(etcd, provider)
	if mount == nil || provider != providerLocal || ptr.Deref(etcd.Spec.RunAsRoot, false) {
		return nil
	}
	return []corev1.Container{{
		Name:            containerChown,
		Image:           in.Images.Init,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{"/bin/sh", "-c", fmt.Sprintf("chown -R %d:%d %s || echo left as it is", nonRootUser, nonRootUser, storeMountPath(etcd))},
		VolumeMounts:    []corev1.VolumeMount{*mount},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			RunAsGroup:               ptr.To(rootUser),
			RunAsNonRoot:             ptr.To(false),
			RunAsUser:                ptr.To(rootUser),
		},
	}}
}

// localHost is the name under which a pod's containers reach each other, by a host alias.
func localHost(etcd *api.Etcd) string { return etcd.Name + localHostSuffix }

func appendString(args []string, flag string, value *string) []string {
	if value == nil {
		return args
	}
	return append(args, flag+*value)
}

func appendDuration(args []string, flag string, value *metav1.Duration) []string {
	if value == nil {
		return args
	}
	return append(args, flag+value.Duration.String())
}

func durationOr(value *metav1.Duration, fallback string) string {
	if value == nil {
		return fallback
	}
	return value.Duration.String()
}
