package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
)

// ClientService sets the service for clients, which also leads to the sidecars.
func ClientService(svc *corev1.Service, etcd *api.Etcd) {
	svc.Labels = labels(etcd, ComponentClientService, etcd.ClientServiceName())
	svc.OwnerReferences = owners(etcd)
	svc.Annotations = nil
	svc.Spec.TrafficDistribution = nil
	svc.Spec.Type = corev1.ServiceTypeClusterIP
	svc.Spec.SessionAffinity = corev1.ServiceAffinityNone
	svc.Spec.Selector = podSelector(etcd)
	svc.Spec.Ports = []corev1.ServicePort{
		port(clientPortName, clientPort(etcd)),
		port(serverPortName, peerPort(etcd)),
		port(backupPortName, BackupPort(etcd)),
	}
	wish := etcd.Spec.Etcd.ClientService
	if wish == nil {
		return
	}
	svc.Labels = merged(svc.Labels, wish.Labels)
	svc.Annotations = wish.Annotations
	svc.Spec.TrafficDistribution = wish.TrafficDistribution
}

// PeerService sets the headless service by which members find each other, ready or not.
func PeerService(svc *corev1.Service, etcd *api.Etcd) {
	svc.Labels = labels(etcd, ComponentPeerService, etcd.PeerServiceName())
	svc.OwnerReferences = owners(etcd)
	svc.Spec.Type = corev1.ServiceTypeClusterIP
	svc.Spec.ClusterIP = corev1.ClusterIPNone
	svc.Spec.SessionAffinity = corev1.ServiceAffinityNone
	svc.Spec.Selector = podSelector(etcd)
	svc.Spec.PublishNotReadyAddresses = true
	svc.Spec.Ports = []corev1.ServicePort{port(peerPortName, peerPort(etcd))}
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number, TargetPort: intstr.FromInt32(number)}
}
