package render

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// DefaultCapacity is the size of each claim where the Etcd names none.
const DefaultCapacity = "16Gi"

// DefaultReadinessDelay is the initial delay of the etcd container's readiness probe.
const DefaultReadinessDelay = 15 * time.Second

// Images are the images of the containers for which the Etcd names none.
type Images struct {
	// Etcd and Backup are the images of the two containers, Init that of the init container.
	Etcd, Backup, Init string
}

// Input is what a StatefulSet is rendered from besides the Etcd.
type Input struct {
	Images         Images
	ReadinessDelay time.Duration
	// Replicas are the StatefulSet's; they need not be the Etcd's.
	Replicas int32
	// ConfigChecksum rolls the pods when it changes; "" leaves the annotation out.
	ConfigChecksum string
	// HostPath is the node's directory for local backups.
	HostPath string
}

// StatefulSet sets the whole StatefulSet, including the fields that the API server refuses to change: with those
// changed, a patch fails, and nothing of it is applied.
func StatefulSet(sts *appsv1.StatefulSet, etcd *api.Etcd, in Input) error {
	if err := MutableStatefulSet(sts, etcd, in); err != nil {
		return err
	}
	sts.Spec.Selector = &metav1.LabelSelector{MatchLabels: etcd.DefaultLabels()}
	sts.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	sts.Spec.ServiceName = etcd.PeerServiceName()
	sts.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claimTemplate(etcd)}
	return nil
}

// MutableStatefulSet sets only what the API server lets change.
func MutableStatefulSet(sts *appsv1.StatefulSet, etcd *api.Etcd, in Input) error {
	provider, err := Provider(etcd)
	if err != nil {
		return err
	}
	backup, err := backupContainer(etcd, in, provider)
	if err != nil {
		return err
	}
	own := labels(etcd, ComponentStatefulSet, etcd.Name)
	sts.ObjectMeta = metav1.ObjectMeta{Name: etcd.Name, Namespace: etcd.Namespace, Labels: own, OwnerReferences: owners(etcd)}
	sts.Spec.Replicas = ptr.To(in.Replicas)
	sts.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType}
	sts.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: merged(etcd.Spec.Labels, own), Annotations: podAnnotations(etcd, in.ConfigChecksum)},
		Spec: corev1.PodSpec{
			HostAliases:               []corev1.HostAlias{{IP: loopback, Hostnames: []string{localHost(etcd)}}},
			ShareProcessNamespace:     ptr.To(true),
			ServiceAccountName:        etcd.Name,
			InitContainers:            initContainers(etcd, in, provider),
			Containers:                []corev1.Container{etcdContainer(etcd, in), backup},
			SecurityContext:           podSecurity(etcd),
			Affinity:                  etcd.Spec.SchedulingConstraints.Affinity,
			TopologySpreadConstraints: etcd.Spec.SchedulingConstraints.TopologySpreadConstraints,
			Volumes:                   volumes(etcd, in, provider),
			PriorityClassName:         ptr.Deref(etcd.Spec.PriorityClassName, ""),
		},
	}
	return nil
}

// claimTemplate has no labels and no annotations; the class is left out where none is named.
func claimTemplate(etcd *api.Etcd) corev1.PersistentVolumeClaim {
	claim := corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: etcd.ClaimTemplateName()},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: ptr.Deref(etcd.Spec.StorageCapacity, resource.MustParse(DefaultCapacity)),
			}},
		},
	}
	if class := ptr.Deref(etcd.Spec.StorageClass, ""); class != "" {
		claim.Spec.StorageClassName = &class
	}
	return claim
}

func podAnnotations(etcd *api.Etcd, checksum string) map[string]string {
	if checksum == "" {
		return etcd.Spec.Annotations
	}
	return merged(etcd.Spec.Annotations, map[string]string{ChecksumAnnotation: checksum})
}

func podSecurity(etcd *api.Etcd) *corev1.PodSecurityContext {
	if ptr.Deref(etcd.Spec.RunAsRoot, false) {
		return &corev1.PodSecurityContext{
			RunAsGroup:   ptr.To(rootUser),
			RunAsNonRoot: ptr.To(false),
			RunAsUser:    ptr.To(rootUser),
			FSGroup:      ptr.To(rootUser),
		}
	}
	return &corev1.PodSecurityContext{
		RunAsGroup:          ptr.To(nonRootUser),
		RunAsNonRoot:        ptr.To(true),
		RunAsUser:           ptr.To(nonRootUser),
		FSGroup:             ptr.To(nonRootUser),
		FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
	}
}
