package node

import (
	"context"
	"runtime"
	"time"

	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaseSeconds is how long the node's lease lives, as with the kubelet.
const leaseSeconds = 40

// capacity is what the node claims to have; nothing is measured.
func capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("8"),
		corev1.ResourceMemory:           resource.MustParse("16Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
}

// register keeps the Node object and its lease until the context ends.
func (n *Node) register(ctx context.Context, port int32) {
	for {
		err := n.keepRegistered(ctx, port)
		if ctx.Err() != nil {
			return
		}
		n.config.Log.Error(err, "Node is not registered, trying again", "node", n.config.Name)
		if !sleep(ctx, time.Second) {
			return
		}
	}
}

func (n *Node) keepRegistered(ctx context.Context, port int32) error {
	ctx, cancel := context.WithCancel(ctx) // what the controller has begun before it failed ends with it
	defer cancel()
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	controller, err := vknode.NewNodeController(vknode.NewNaiveNodeProvider(), n.object(port), n.client.CoreV1().Nodes(),
		vknode.WithNodeEnableLeaseV1(leases, leaseSeconds),
		vknode.WithNodeStatusUpdateInterval(10*time.Second))
	if err != nil {
		return err
	}
	return controller.Run(ctx)
}

// object is the Node as it is registered.
func (n *Node) object(port int32) *corev1.Node {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.config.Name,
			Labels: map[string]string{
				corev1.LabelHostname:       n.config.Name,
				corev1.LabelTopologyZone:   n.config.Zone,
				corev1.LabelTopologyRegion: n.config.Region,
				corev1.LabelOSStable:       runtime.GOOS,
				corev1.LabelArchStable:     runtime.GOARCH,
			},
		},
		Status: corev1.NodeStatus{
			Capacity:        capacity(),
			Allocatable:     capacity(),
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.address}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
				KernelVersion: kernelVersion(), OSImage: "Linux",
				KubeletVersion: "v1.37.2", ContainerRuntimeVersion: "process://1",
			},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
			},
		},
	}
}

// kernelVersion is the release of the kernel; "" if it cannot be told.
func kernelVersion() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}
