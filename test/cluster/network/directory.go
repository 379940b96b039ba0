package network

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Indexes of the endpoint slice cache.
const (
	byService = "service" // namespace/name of the service
	byAddress = "address" // each endpoint's address
)

// directory answers from the informers' caches what services and endpoints
// there are. It keeps nothing, so it cannot be out of step with them.
type directory struct {
	services cache.Indexer // of Service, by namespace
	slices   cache.Indexer // of EndpointSlice, with sliceIndexers
}

// endpoint is one address of one service.
type endpoint struct {
	addr  netip.Addr
	name  string // first label of its DNS name
	named bool   // by its pod, not by its address
	ready bool
	// draining is an endpoint that still serves while it terminates.
	draining bool
	ports    []discoveryv1.EndpointPort
}

func sliceIndexers() cache.Indexers {
	return cache.Indexers{
		byService: func(obj any) ([]string, error) {
			slice, ok := obj.(*discoveryv1.EndpointSlice)
			if !ok {
				return nil, fmt.Errorf("index endpoint slice: unexpected %T", obj)
			}
			return []string{serviceOf(slice).String()}, nil
		},
		byAddress: func(obj any) ([]string, error) {
			slice, ok := obj.(*discoveryv1.EndpointSlice)
			if !ok {
				return nil, fmt.Errorf("index endpoint slice: unexpected %T", obj)
			}
			var addrs []string
			for _, ep := range slice.Endpoints {
				addrs = append(addrs, ep.Addresses...)
			}
			return addrs, nil
		},
	}
}

func serviceOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
}

// service returns nil where there is none.
func (d directory) service(key types.NamespacedName) *corev1.Service {
	obj, ok, err := d.services.GetByKey(key.String())
	if err != nil || !ok {
		return nil
	}
	service, ok := obj.(*corev1.Service)
	if !ok {
		return nil
	}
	return service
}

// inNamespace returns all services of a namespace.
func (d directory) inNamespace(namespace string) []*corev1.Service {
	objs, err := d.services.ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil
	}
	return typed[corev1.Service](objs)
}

// endpoints returns those of a service, ordered by address and name. An
// endpoint may stand in two slices while it moves from one to the other; the
// callers drop what is equal.
func (d directory) endpoints(key types.NamespacedName) []endpoint {
	objs, err := d.slices.ByIndex(byService, key.String())
	if err != nil {
		return nil
	}
	var found []endpoint
	for _, slice := range typed[discoveryv1.EndpointSlice](objs) {
		found = append(found, endpointsOf(slice)...)
	}
	slices.SortStableFunc(found, func(a, b endpoint) int {
		return cmp.Or(a.addr.Compare(b.addr), cmp.Compare(a.name, b.name))
	})
	return found
}

// at returns the slices that name an address.
func (d directory) at(addr netip.Addr) []*discoveryv1.EndpointSlice {
	objs, err := d.slices.ByIndex(byAddress, addr.String())
	if err != nil {
		return nil
	}
	return typed[discoveryv1.EndpointSlice](objs)
}

func endpointsOf(slice *discoveryv1.EndpointSlice) []endpoint {
	if slice.AddressType != discoveryv1.AddressTypeIPv4 {
		return nil
	}
	var found []endpoint
	for _, ep := range slice.Endpoints {
		// The addresses of one endpoint lead to the same place; clients use the first.
		if len(ep.Addresses) == 0 {
			continue
		}
		addr, err := netip.ParseAddr(ep.Addresses[0])
		if err != nil {
			continue
		}
		found = append(found, endpoint{
			addr: addr, name: endpointName(ep, addr), named: hostname(ep) != "", ports: slice.Ports,
			ready:    deref(ep.Conditions.Ready, true),
			draining: deref(ep.Conditions.Serving, false) && deref(ep.Conditions.Terminating, false),
		})
	}
	return found
}

// endpointName is the host name where the pod has one, else the address with
// dashes.
func endpointName(ep discoveryv1.Endpoint, addr netip.Addr) string {
	if name := hostname(ep); name != "" {
		return name
	}
	return strings.ReplaceAll(addr.String(), ".", "-")
}

func hostname(ep discoveryv1.Endpoint) string { return deref(ep.Hostname, "") }

// backends are the addresses that a connection to a service port may go to:
// the ready ones, or those that drain where none is ready.
func backends(port corev1.ServicePort, endpoints []endpoint) []netip.AddrPort {
	var ready, draining []netip.AddrPort
	for _, ep := range endpoints {
		number, ok := ep.port(port.Name, corev1.ProtocolTCP)
		if !ok {
			continue
		}
		target := netip.AddrPortFrom(ep.addr, number)
		switch {
		case ep.ready:
			ready = append(ready, target)
		case ep.draining:
			draining = append(draining, target)
		}
	}
	if len(ready) == 0 {
		return slices.Compact(draining)
	}
	return slices.Compact(ready)
}

func (e endpoint) port(name string, protocol corev1.Protocol) (uint16, bool) {
	for _, port := range e.ports {
		if port.Port == nil || deref(port.Name, "") != name || deref(port.Protocol, corev1.ProtocolTCP) != protocol {
			continue
		}
		return uint16(*port.Port), true //nolint:gosec // the API admits 1 to 65535
	}
	return 0, false
}

// clusterIP returns the service's IPv4 address, if it has one.
func clusterIP(service *corev1.Service) (netip.Addr, bool) {
	for _, ip := range append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...) {
		if addr, err := netip.ParseAddr(ip); err == nil && addr.Is4() {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func isHeadless(service *corev1.Service) bool {
	return service.Spec.ClusterIP == corev1.ClusterIPNone
}

func typed[T any](objs []any) []*T {
	result := make([]*T, 0, len(objs))
	for _, obj := range objs {
		if t, ok := obj.(*T); ok {
			result = append(result, t)
		}
	}
	return result
}

func deref[T any](value *T, missing T) T {
	if value == nil {
		return missing
	}
	return *value
}
