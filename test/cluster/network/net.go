package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const bridgeName = "cni0"

// PodNet is the network of one pod.
type PodNet struct {
	// IP is the pod's address.
	IP string
	// NetNS is the path of the pod's network namespace, to be opened and given
	// to setns.
	NetNS string
}

// Net is the network of one cluster. Its methods are safe for concurrent use.
type Net struct {
	dir string
	log logr.Logger

	mu   sync.Mutex
	pool *pool
	pods map[string]podLink
}

// podLink is what exists for one pod.
type podLink struct {
	addr netip.Addr
	veth string
	path string
}

// New makes the bridge and the routes in the current network namespace and
// keeps the namespaces of pods under dir.
func New(dir string, log logr.Logger) (*Net, error) {
	n := &Net{dir: dir, log: log, pool: newPool(), pods: map[string]podLink{}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create directory of network namespaces: %w", err)
	}
	lo, err := linkUp("lo")
	if err != nil {
		return nil, err
	}
	if err := addBridge(); err != nil {
		return nil, err
	}
	if err := routeServices(lo); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close removes all pods' networks and the bridge.
func (n *Net) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for id, pod := range n.pods {
		errs = append(errs, unplug(pod))
		delete(n.pods, id)
	}
	return errors.Join(append(errs, delLink(bridgeName), unrouteServices())...)
}

// AddPod makes the network of a pod. A second call with the same id returns
// the network of the first.
func (n *Net) AddPod(ctx context.Context, id string) (PodNet, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if pod, ok := n.pods[id]; ok {
		return pod.net(), nil
	}
	if err := ctx.Err(); err != nil {
		return PodNet{}, fmt.Errorf("add network of pod %s: %w", id, err)
	}
	addr, err := n.pool.take()
	if err != nil {
		return PodNet{}, fmt.Errorf("add network of pod %s: %w", id, err)
	}
	pod := podLink{addr: addr, veth: vethName(addr), path: filepath.Join(n.dir, addr.String())}
	if err := plug(pod); err != nil {
		n.pool.release(addr)
		return PodNet{}, fmt.Errorf("add network of pod %s: %w", id, errors.Join(err, unplug(pod)))
	}
	n.pods[id] = pod
	n.log.V(1).Info("pod network added", "pod", id, "ip", addr)
	return pod.net(), nil
}

// DelPod removes the network of a pod. A pod that has none is no error.
func (n *Net) DelPod(id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod, ok := n.pods[id]
	if !ok {
		return nil
	}
	if err := unplug(pod); err != nil {
		return fmt.Errorf("remove network of pod %s: %w", id, err)
	}
	n.pool.release(pod.addr)
	delete(n.pods, id)
	n.log.V(1).Info("pod network removed", "pod", id, "ip", pod.addr)
	return nil
}

// Cut takes a pod off the network, as a pulled cable would: its processes, its
// address and its loopback stay, and nothing is told to either side.
func (n *Net) Cut(id string) error {
	return n.forPod(id, cut)
}

// Restore puts a pod back that was cut off.
func (n *Net) Restore(id string) error {
	return n.forPod(id, restore)
}

// CutIP is Cut for the pod with the given address.
func (n *Net) CutIP(ip string) error {
	return n.forIP(ip, cut)
}

// RestoreIP is Restore for the pod with the given address.
func (n *Net) RestoreIP(ip string) error {
	return n.forIP(ip, restore)
}

func (n *Net) forPod(id string, do func(podLink) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod, ok := n.pods[id]
	if !ok {
		return fmt.Errorf("pod %s has no network", id)
	}
	return do(pod)
}

func (n *Net) forIP(ip string, do func(podLink) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pod := range n.pods {
		if pod.addr.String() == ip {
			return do(pod)
		}
	}
	return fmt.Errorf("no pod has the address %s", ip)
}

func (p podLink) net() PodNet {
	return PodNet{IP: p.addr.String(), NetNS: p.path}
}

func cut(pod podLink) error {
	link, err := netlink.LinkByName(pod.veth)
	if err != nil {
		return fmt.Errorf("find link %s: %w", pod.veth, err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("set link %s down: %w", pod.veth, err)
	}
	return nil
}

func restore(pod podLink) error {
	_, err := linkUp(pod.veth)
	return err
}

func plug(pod podLink) error {
	if err := createNetNS(pod.path); err != nil {
		return err
	}
	ns, err := netns.GetFromPath(pod.path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", pod.path, err)
	}
	defer ns.Close()
	if err := addVeth(pod, ns); err != nil {
		return err
	}
	return configureInside(pod, ns)
}

func unplug(pod podLink) error {
	return errors.Join(delLink(pod.veth), removeNetNS(pod.path))
}

// addVeth makes the link with its far end already in the pod's namespace.
func addVeth(pod podLink, ns netns.NsHandle) error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", bridgeName, err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = pod.veth
	attrs.MasterIndex = bridge.Attrs().Index
	veth := netlink.NewVeth(attrs)
	veth.PeerName = "eth0"
	veth.PeerHardwareAddr = hardwareAddr(pod.addr)
	veth.PeerNamespace = netlink.NsFd(ns)
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add link %s: %w", pod.veth, err)
	}
	_, err = linkUp(pod.veth)
	return err
}

func configureInside(pod podLink, ns netns.NsHandle) error {
	inside, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("open netlink in %s: %w", pod.path, err)
	}
	defer inside.Close()
	if _, err := linkUpAt(inside, "lo"); err != nil {
		return err
	}
	eth0, err := linkUpAt(inside, "eth0")
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: ipNet(pod.addr, PodRange.Bits())}
	if err := inside.AddrAdd(eth0, addr); err != nil {
		return fmt.Errorf("add address %s: %w", pod.addr, err)
	}
	route := &netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: HostAddr.AsSlice()}
	if err := inside.RouteAdd(route); err != nil {
		return fmt.Errorf("add default route of %s: %w", pod.addr, err)
	}
	return nil
}

func addBridge() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeName
	attrs.HardwareAddr = hardwareAddr(HostAddr)
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("add bridge %s: %w", bridgeName, err)
	}
	link, err := linkUp(bridgeName)
	if err != nil {
		return errors.Join(err, delLink(bridgeName))
	}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(HostAddr, PodRange.Bits())}); err != nil {
		return errors.Join(fmt.Errorf("add address of bridge %s: %w", bridgeName, err), delLink(bridgeName))
	}
	return nil
}

// serviceRoute makes each service address one of our own. The source is given
// because without it a connection from here would come from the service's own
// address.
func serviceRoute(lo netlink.Link) *netlink.Route {
	return &netlink.Route{
		LinkIndex: lo.Attrs().Index,
		Table:     unix.RT_TABLE_LOCAL,
		Type:      unix.RTN_LOCAL,
		Scope:     netlink.SCOPE_HOST,
		Dst:       ipNet(ServiceRange.Addr(), ServiceRange.Bits()),
		Src:       HostAddr.AsSlice(),
	}
}

func routeServices(lo netlink.Link) error {
	if err := netlink.RouteAdd(serviceRoute(lo)); err != nil {
		return fmt.Errorf("add route of services: %w", err)
	}
	return nil
}

// unrouteServices finds the route gone where the bridge took its source
// address, and with that the route, along.
func unrouteServices() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find link lo: %w", err)
	}
	route := serviceRoute(lo)
	route.Src = nil
	if err := netlink.RouteDel(route); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route of services: %w", err)
	}
	return nil
}

// linkFinder is netlink in this namespace or in that of a pod.
type linkFinder interface {
	LinkByName(name string) (netlink.Link, error)
	LinkSetUp(link netlink.Link) error
}

func linkUp(name string) (netlink.Link, error) {
	here, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer here.Close()
	return linkUpAt(here, name)
}

func linkUpAt(at linkFinder, name string) (netlink.Link, error) {
	link, err := at.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	if err := at.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("set link %s up: %w", name, err)
	}
	return link, nil
}

// delLink removes a link; one that is gone already is no error.
func delLink(name string) error {
	link, err := netlink.LinkByName(name)
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove link %s: %w", name, err)
	}
	return nil
}
