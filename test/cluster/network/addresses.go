package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Fixed addresses of the cluster. They can be fixed because each cluster has a
// network namespace of its own.
var (
	// HostAddr is the host end of the bridge, where the API server listens and
	// which is the default gateway of each pod.
	HostAddr = netip.MustParseAddr("10.244.0.1")
	// PodRange holds the addresses of all pods and of the host end.
	PodRange = netip.MustParsePrefix("10.244.0.0/16")
	// ServiceRange holds the addresses of all services.
	ServiceRange = netip.MustParsePrefix("10.96.0.0/16")
	// DNSAddr is where cluster DNS listens.
	DNSAddr = netip.MustParseAddr("10.96.0.10")
)

var (
	firstPodAddr = netip.MustParseAddr("10.244.1.1")
	lastPodAddr  = netip.MustParseAddr("10.244.255.254")

	errPoolEmpty = errors.New("no pod address is left")
)

// pool hands out pod addresses in ascending order and starts over only at the
// end. It is not safe for concurrent use.
type pool struct {
	next netip.Addr
	used map[netip.Addr]bool
}

func newPool() *pool {
	return &pool{next: firstPodAddr, used: map[netip.Addr]bool{}}
}

func (p *pool) take() (netip.Addr, error) {
	start := p.next
	for {
		addr := p.next
		p.next = following(addr)
		if !p.used[addr] {
			p.used[addr] = true
			return addr, nil
		}
		if p.next == start {
			return netip.Addr{}, errPoolEmpty
		}
	}
}

func (p *pool) release(addr netip.Addr) {
	delete(p.used, addr)
}

// following skips addresses that end in 0 or 255: they are valid in a /16, but
// there is software that thinks otherwise.
func following(addr netip.Addr) netip.Addr {
	if addr == lastPodAddr {
		return firstPodAddr
	}
	for {
		addr = addr.Next()
		if last := addr.As4()[3]; last != 0 && last != 255 {
			return addr
		}
	}
}

// hardwareAddr derives the MAC from the address, so that captures are readable
// and the one of the bridge does not change when a port joins.
func hardwareAddr(addr netip.Addr) net.HardwareAddr {
	b := addr.As4()
	return net.HardwareAddr{0x0a, 0x58, b[0], b[1], b[2], b[3]}
}

// vethName names the host end of a pod's link: unique because addresses are,
// and within the 15 characters of an interface name.
func vethName(addr netip.Addr) string {
	b := addr.As4()
	return fmt.Sprintf("veth-%d-%d", b[2], b[3])
}

func ipNet(addr netip.Addr, bits int) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(bits, addr.BitLen())}
}
