package network

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Domain is the cluster's DNS domain.
	Domain = "cluster.local"

	zone    = Domain + "."
	reverse = ".in-addr.arpa."
	// ttl of zero: whoever asks again gets what is true then.
	ttl = 0
)

// resolver turns a question into an answer.
type resolver struct{ directory directory }

// records are all that a name has. The type asked for picks from it.
type records struct {
	addrs    []netip.Addr
	services []target
	pointers []string
}

// target is where an SRV record points to.
type target struct {
	host string
	port uint16
	addr netip.Addr
}

// reply never refuses: resolvers take that as a reason to ask the next server,
// of which there is none, and wait.
func (r resolver) reply(request *dns.Msg) *dns.Msg {
	reply := new(dns.Msg)
	if len(request.Question) != 1 {
		return reply.SetRcodeFormatError(request)
	}
	reply.SetReply(request)
	reply.Authoritative = true
	reply.RecursionAvailable = true
	if opt := request.IsEdns0(); opt != nil {
		reply.SetEdns0(opt.UDPSize(), false)
	}
	question := request.Question[0]
	found, ok := r.find(strings.ToLower(question.Name))
	if !ok {
		reply.Rcode = dns.RcodeNameError
	}
	reply.Answer, reply.Extra = render(question, found, reply.Extra)
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{startOfAuthority()}
	}
	return reply
}

// find returns what a name has, and whether it exists; it may exist and have
// nothing.
func (r resolver) find(name string) (records, bool) {
	if addr, ok := strings.CutSuffix(name, reverse); ok {
		return r.findPointers(addr)
	}
	if name == zone {
		return records{}, true
	}
	inner, ok := strings.CutSuffix(name, "."+zone)
	if !ok {
		return records{}, false
	}
	if inner == "svc" {
		return records{}, true
	}
	inner, ok = strings.CutSuffix(inner, ".svc")
	if !ok {
		return records{}, false
	}
	return r.findService(strings.Split(inner, "."))
}

// findService looks below svc.cluster.local; the last label is the namespace.
func (r resolver) findService(labels []string) (records, bool) {
	namespace := labels[len(labels)-1]
	if len(labels) == 1 {
		return records{}, len(r.directory.inNamespace(namespace)) > 0
	}
	service := r.directory.service(types.NamespacedName{Namespace: namespace, Name: labels[len(labels)-2]})
	if service == nil {
		return records{}, false
	}
	switch before := labels[:len(labels)-2]; {
	case len(before) == 0:
		return r.serviceRecords(service)
	case len(before) == 1 && isUnderscored(before[0]):
		return records{}, hasProtocol(service, before[0])
	case len(before) == 1:
		return r.endpointRecords(service, before[0])
	case len(before) == 2 && isUnderscored(before[0]) && isUnderscored(before[1]):
		return r.portRecords(service, before[0][1:], protocolOf(before[1]))
	}
	return records{}, false
}

// serviceRecords of a headless service are its ready endpoints; without one
// the name does not exist, as the DNS specification of Kubernetes has it.
func (r resolver) serviceRecords(service *corev1.Service) (records, bool) {
	if !isHeadless(service) {
		addr, ok := clusterIP(service)
		return records{addrs: []netip.Addr{addr}}, ok
	}
	return addresses(r.ready(service))
}

func (r resolver) endpointRecords(service *corev1.Service, name string) (records, bool) {
	return addresses(slices.DeleteFunc(r.ready(service), func(ep endpoint) bool { return ep.name != name }))
}

func (r resolver) portRecords(service *corev1.Service, name string, protocol corev1.Protocol) (records, bool) {
	host := service.Name + "." + service.Namespace + ".svc." + zone
	var found []target
	if isHeadless(service) {
		for _, ep := range r.ready(service) {
			if number, ok := ep.port(name, protocol); ok {
				found = append(found, target{host: ep.name + "." + host, port: number, addr: ep.addr})
			}
		}
		found = slices.Compact(found)
		return records{services: found}, len(found) > 0
	}
	addr, ok := clusterIP(service)
	if !ok {
		return records{}, false
	}
	for _, port := range service.Spec.Ports {
		if port.Name == name && protocolOrTCP(port.Protocol) == protocol {
			found = append(found, target{host: host, port: uint16(port.Port), addr: addr}) //nolint:gosec // the API admits 1 to 65535
		}
	}
	return records{services: found}, len(found) > 0
}

// findPointers names who has an address. etcd asks this to check a peer's
// certificate that has only wildcards.
func (r resolver) findPointers(reversed string) (records, bool) {
	labels := strings.Split(reversed, ".")
	slices.Reverse(labels)
	addr, err := netip.ParseAddr(strings.Join(labels, "."))
	if err != nil {
		return records{}, false
	}
	names := r.endpointNames(addr)
	if ServiceRange.Contains(addr) {
		names = append(names, r.serviceNames(addr)...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return records{pointers: names}, len(names) > 0
}

// endpointNames leaves out endpoints that have no name of their own in a
// service that is not headless: nobody knows them by it.
func (r resolver) endpointNames(addr netip.Addr) []string {
	var names []string
	for _, slice := range r.directory.at(addr) {
		service := r.directory.service(serviceOf(slice))
		if service == nil {
			continue
		}
		for _, ep := range endpointsOf(slice) {
			if ep.addr == addr && ep.ready && (ep.named || isHeadless(service)) {
				names = append(names, ep.name+"."+service.Name+"."+service.Namespace+".svc."+zone)
			}
		}
	}
	return names
}

func (r resolver) serviceNames(addr netip.Addr) []string {
	var names []string
	for _, service := range typed[corev1.Service](r.directory.services.List()) {
		if own, ok := clusterIP(service); ok && own == addr {
			names = append(names, service.Name+"."+service.Namespace+".svc."+zone)
		}
	}
	return names
}

func (r resolver) ready(service *corev1.Service) []endpoint {
	all := r.directory.endpoints(types.NamespacedName{Namespace: service.Namespace, Name: service.Name})
	return slices.DeleteFunc(all, func(ep endpoint) bool { return !ep.ready })
}

func addresses(endpoints []endpoint) (records, bool) {
	var addrs []netip.Addr
	for _, ep := range endpoints {
		addrs = append(addrs, ep.addr)
	}
	addrs = slices.Compact(addrs)
	return records{addrs: addrs}, len(addrs) > 0
}

// render picks what was asked for. The owner keeps the spelling of the
// question, which some resolvers compare.
func render(question dns.Question, found records, extra []dns.RR) (answer, additional []dns.RR) {
	all := question.Qtype == dns.TypeANY
	if all || question.Qtype == dns.TypeA {
		for _, addr := range found.addrs {
			answer = append(answer, addressRecord(question.Name, addr))
		}
	}
	if all || question.Qtype == dns.TypeSRV {
		for _, t := range found.services {
			answer = append(answer, &dns.SRV{Hdr: header(question.Name, dns.TypeSRV), Weight: 100, Port: t.port, Target: t.host})
			extra = append(extra, addressRecord(t.host, t.addr))
		}
	}
	if all || question.Qtype == dns.TypePTR {
		for _, name := range found.pointers {
			answer = append(answer, &dns.PTR{Hdr: header(question.Name, dns.TypePTR), Ptr: name})
		}
	}
	return answer, extra
}

func addressRecord(name string, addr netip.Addr) dns.RR {
	return &dns.A{Hdr: header(name, dns.TypeA), A: addr.AsSlice()}
}

// startOfAuthority tells how long the absence of a record may be remembered:
// not at all.
func startOfAuthority() dns.RR {
	return &dns.SOA{
		Hdr: header(zone, dns.TypeSOA), Ns: "ns.dns." + zone, Mbox: "hostmaster." + zone,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}

func header(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
}

func isUnderscored(label string) bool {
	return len(label) > 1 && label[0] == '_'
}

func protocolOf(label string) corev1.Protocol {
	return corev1.Protocol(strings.ToUpper(strings.TrimPrefix(label, "_")))
}

func protocolOrTCP(protocol corev1.Protocol) corev1.Protocol {
	if protocol == "" {
		return corev1.ProtocolTCP
	}
	return protocol
}

func hasProtocol(service *corev1.Service, label string) bool {
	return slices.ContainsFunc(service.Spec.Ports, func(port corev1.ServicePort) bool {
		return protocolOrTCP(port.Protocol) == protocolOf(label)
	})
}
