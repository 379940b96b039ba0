package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// sandbox are the namespaces that the containers of a pod share. They live as long as the files are open.
type sandbox struct {
	ip         string
	namespaces []*os.File // in the order of sandboxNamespaces
}

var sandboxNamespaces = []string{"net", "uts", "ipc"}

// newSandbox makes the namespaces of a pod. A pod of the host's network uses the network of the node.
func (n *Node) newSandbox(ctx context.Context, pod *corev1.Pod) (*sandbox, error) {
	path, ip, name := "/proc/thread-self/ns/net", n.address, n.config.Name
	if !pod.Spec.HostNetwork {
		network, err := n.config.Network.AddPod(ctx, string(pod.UID))
		if err != nil {
			return nil, fmt.Errorf("set up network: %w", err)
		}
		path, ip, name = network.NetNS, network.IP, hostname(pod)
		if pod.Spec.SetHostnameAsFQDN != nil && *pod.Spec.SetHostnameAsFQDN {
			name = fullHostname(pod)
		}
	}
	network, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open network namespace: %w", err)
	}
	uts, ipc, err := newHost(name)
	if err != nil {
		return nil, errors.Join(err, network.Close())
	}
	return &sandbox{ip: ip, namespaces: []*os.File{network, uts, ipc}}, nil
}

// newHost makes a UTS namespace with the given host name, and an IPC namespace.
func newHost(name string) (uts, ipc *os.File, err error) {
	err = onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWUTS | unix.CLONE_NEWIPC); err != nil {
			return fmt.Errorf("unshare host name: %w", err)
		}
		if err := unix.Sethostname([]byte(name)); err != nil {
			return fmt.Errorf("set host name %q: %w", name, err)
		}
		if uts, err = os.Open("/proc/thread-self/ns/uts"); err != nil {
			return fmt.Errorf("open host name: %w", err)
		}
		if ipc, err = os.Open("/proc/thread-self/ns/ipc"); err != nil {
			return errors.Join(fmt.Errorf("open ipc: %w", err), uts.Close())
		}
		return nil
	})
	return uts, ipc, err
}

func (s *sandbox) close() {
	closeAll(s.namespaces)
}
