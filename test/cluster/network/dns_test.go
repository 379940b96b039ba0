package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const dnsAddr = "10.96.0.10:53"

// query asks cluster DNS from inside a pod.
func query(t *testing.T, from PodNet, protocol, name, kind string) (*dns.Msg, error) {
	t.Helper()
	conn, err := within(t, from, func() (net.Conn, error) { return net.DialTimeout(protocol+"4", dnsAddr, soon) })
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	request := new(dns.Msg).SetQuestion(name, dns.StringToType[kind])
	reply, _, err := (&dns.Client{Net: protocol, Timeout: soon}).ExchangeWithConn(request, &dns.Conn{Conn: conn})
	return reply, err
}

// answers are the records of a reply as text, without owner, time and class.
func answers(reply *dns.Msg) []string {
	var texts []string
	for _, record := range reply.Answer {
		switch r := record.(type) {
		case *dns.A:
			texts = append(texts, r.A.String())
		case *dns.SRV:
			texts = append(texts, fmt.Sprintf("%s %d", r.Target, r.Port))
		case *dns.PTR:
			texts = append(texts, r.Ptr)
		default:
			texts = append(texts, record.String())
		}
	}
	return texts
}

// peers is a headless service of two members, of which one is ready.
func peers() (*corev1.Service, *discoveryv1.EndpointSlice) {
	svc := service("etcd-main-peer", corev1.ClusterIPNone, port("peer", 2380))
	return svc, slice("etcd-main-peer", slicePort("peer", 2380),
		named(ready("10.244.1.5"), "etcd-main-0"), named(unready("10.244.1.6"), "etcd-main-1"))
}

func TestNamesOfTheClusterAreAnswered(t *testing.T) {
	n := newNet(t)
	pod := addPod(t, n, "pod")
	peer, peerSlice := peers()
	client, clientSlice := etcdService(2379, ready("10.244.1.5"))
	plain := service("plain", corev1.ClusterIPNone)
	asleep := service("asleep", corev1.ClusterIPNone, port("peer", 2380))
	serveWith(t, n, fake.NewClientset(peer, peerSlice, client, clientSlice,
		plain, slice("plain", discoveryv1.EndpointPort{}, ready("10.244.1.8"), ready("10.244.1.7")),
		asleep, slice("asleep", slicePort("peer", 2380), named(unready("10.244.1.9"), "asleep-0")),
	))
	const zone = "garden.svc.cluster.local."
	for _, c := range []struct {
		name, kind string
		rcode      int
		want       []string
	}{
		{"etcd-main-client." + zone, "A", dns.RcodeSuccess, []string{etcdIP}},
		{"ETCD-Main-Client." + zone, "A", dns.RcodeSuccess, []string{etcdIP}},
		{"etcd-main-client." + zone, "AAAA", dns.RcodeSuccess, nil},
		{"etcd-main-client." + zone, "SRV", dns.RcodeSuccess, nil},
		{"etcd-main-client." + zone, "ANY", dns.RcodeSuccess, []string{etcdIP}},
		{"_client._tcp.etcd-main-client." + zone, "SRV", dns.RcodeSuccess, []string{"etcd-main-client." + zone + " 2379"}},
		{"_client._udp.etcd-main-client." + zone, "SRV", dns.RcodeNameError, nil},
		{"_other._tcp.etcd-main-client." + zone, "SRV", dns.RcodeNameError, nil},
		{"_tcp.etcd-main-client." + zone, "SRV", dns.RcodeSuccess, nil},
		{"10-244-1-5.etcd-main-client." + zone, "A", dns.RcodeSuccess, []string{"10.244.1.5"}},

		{"etcd-main-peer." + zone, "A", dns.RcodeSuccess, []string{"10.244.1.5"}},
		{"etcd-main-peer." + zone, "AAAA", dns.RcodeSuccess, nil},
		{"etcd-main-0.etcd-main-peer." + zone, "A", dns.RcodeSuccess, []string{"10.244.1.5"}},
		{"etcd-main-0.etcd-main-peer." + zone, "AAAA", dns.RcodeSuccess, nil},
		{"etcd-main-1.etcd-main-peer." + zone, "A", dns.RcodeNameError, nil},
		{"10-244-1-5.etcd-main-peer." + zone, "A", dns.RcodeNameError, nil},
		{"_peer._tcp.etcd-main-peer." + zone, "SRV", dns.RcodeSuccess, []string{"etcd-main-0.etcd-main-peer." + zone + " 2380"}},

		{"plain." + zone, "A", dns.RcodeSuccess, []string{"10.244.1.7", "10.244.1.8"}},
		{"10-244-1-7.plain." + zone, "A", dns.RcodeSuccess, []string{"10.244.1.7"}},
		{"asleep." + zone, "A", dns.RcodeNameError, nil},
		{"_peer._tcp.asleep." + zone, "SRV", dns.RcodeNameError, nil},

		{"5.1.244.10.in-addr.arpa.", "PTR", dns.RcodeSuccess, []string{"etcd-main-0.etcd-main-peer." + zone}},
		{"7.1.244.10.in-addr.arpa.", "PTR", dns.RcodeSuccess, []string{"10-244-1-7.plain." + zone}},
		{"4.3.96.10.in-addr.arpa.", "PTR", dns.RcodeSuccess, []string{"etcd-main-client." + zone}},
		{"6.1.244.10.in-addr.arpa.", "PTR", dns.RcodeNameError, nil},
		{"1.1.1.1.1.in-addr.arpa.", "PTR", dns.RcodeNameError, nil},

		{"cluster.local.", "A", dns.RcodeSuccess, nil},
		{"svc.cluster.local.", "A", dns.RcodeSuccess, nil},
		{zone, "A", dns.RcodeSuccess, nil},
		{"nobody.svc.cluster.local.", "A", dns.RcodeNameError, nil},
		{"nobody." + zone, "A", dns.RcodeNameError, nil},
		{"nobody.etcd-main-peer." + zone, "A", dns.RcodeNameError, nil},
		{"a.b.etcd-main-peer." + zone, "A", dns.RcodeNameError, nil},
		{"etcd-main-client.garden.svc." + zone, "A", dns.RcodeNameError, nil}, // by way of the search list
		{"pod.cluster.local.", "A", dns.RcodeNameError, nil},
		{"othercluster.local.", "A", dns.RcodeNameError, nil},
		{"example.com.", "A", dns.RcodeNameError, nil},
		{".", "NS", dns.RcodeNameError, nil},
	} {
		for _, protocol := range []string{"udp", "tcp"} {
			t.Run(protocol+" "+c.kind+" "+c.name, func(t *testing.T) {
				reply, err := query(t, pod, protocol, c.name, c.kind)
				require.NoError(t, err)
				assert.Equal(t, dns.RcodeToString[c.rcode], dns.RcodeToString[reply.Rcode])
				assert.Equal(t, c.want, answers(reply))
				for _, record := range reply.Answer {
					assert.Equal(t, c.name, record.Header().Name, "the owner is spelled as in the question")
					assert.Zero(t, record.Header().Ttl)
				}
				assert.Equal(t, len(c.want) == 0, len(reply.Ns) == 1, "an SOA record stands for what is not there")
			})
		}
	}
}

func TestAnswersFollowTheSlicesAtOnce(t *testing.T) {
	n := newNet(t)
	pod := addPod(t, n, "pod")
	svc, eps := peers()
	api := fake.NewClientset(svc, eps)
	serveWith(t, n, api)
	lookup := func(host string) []string {
		reply, err := query(t, pod, "udp", host+".garden.svc.cluster.local.", "A")
		require.NoError(t, err)
		return answers(reply)
	}
	require.Equal(t, []string{"10.244.1.5"}, lookup("etcd-main-peer"))

	for _, step := range []struct {
		name      string
		endpoints []discoveryv1.Endpoint
		want      []string
		member    []string
	}{
		{"a second member is ready", []discoveryv1.Endpoint{named(ready("10.244.1.5"), "etcd-main-0"), named(ready("10.244.1.6"), "etcd-main-1")}, []string{"10.244.1.5", "10.244.1.6"}, []string{"10.244.1.6"}},
		{"it comes back with another address", []discoveryv1.Endpoint{named(ready("10.244.1.5"), "etcd-main-0"), named(ready("10.244.1.7"), "etcd-main-1")}, []string{"10.244.1.5", "10.244.1.7"}, []string{"10.244.1.7"}},
		{"it is gone", []discoveryv1.Endpoint{named(ready("10.244.1.5"), "etcd-main-0")}, []string{"10.244.1.5"}, nil},
		{"all are gone", nil, nil, nil},
	} {
		t.Run(step.name, func(t *testing.T) {
			setSlice(t, api, slice(svc.Name, slicePort("peer", 2380), step.endpoints...))
			start := time.Now()
			require.Eventually(t, func() bool { return slices.Equal(step.want, lookup("etcd-main-peer")) }, soon, tick)
			assert.Equal(t, step.member, lookup("etcd-main-1.etcd-main-peer"))
			assert.Less(t, time.Since(start), soon/2)
		})
	}
}

func TestAnAnswerThatIsTooLongForAPacketIsCutAndComesWholeByTCP(t *testing.T) {
	n := newNet(t)
	pod := addPod(t, n, "pod")
	var many []discoveryv1.Endpoint
	for i := range 100 {
		many = append(many, ready(fmt.Sprintf("10.244.2.%d", i+1)))
	}
	serveWith(t, n, fake.NewClientset(service("many", corev1.ClusterIPNone), slice("many", discoveryv1.EndpointPort{}, many...)))

	reply, err := query(t, pod, "udp", "many.garden.svc.cluster.local.", "A")
	require.NoError(t, err)
	assert.True(t, reply.Truncated)
	assert.Less(t, len(reply.Answer), 100)

	reply, err = query(t, pod, "tcp", "many.garden.svc.cluster.local.", "A")
	require.NoError(t, err)
	assert.False(t, reply.Truncated)
	assert.Len(t, reply.Answer, 100)
}

func TestTheResolverOfGoFindsNamesAndSaysWhatDoesNotExist(t *testing.T) {
	n := newNet(t)
	svc, eps := peers()
	client, clientSlice := etcdService(2379)
	serveWith(t, n, fake.NewClientset(svc, eps, client, clientSlice))
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, dnsAddr)
	}}

	found, err := resolver.LookupNetIP(t.Context(), "ip", "etcd-main-client.garden.svc.cluster.local.")
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr(etcdIP)}, found, "the lack of an IPv6 address is no error")

	names, err := resolver.LookupAddr(t.Context(), "10.244.1.5")
	require.NoError(t, err)
	assert.Equal(t, []string{"etcd-main-0.etcd-main-peer.garden.svc.cluster.local."}, names)

	start := time.Now()
	_, err = resolver.LookupHost(t.Context(), "example.com.")
	var dnsErr *net.DNSError
	require.ErrorAs(t, err, &dnsErr)
	assert.True(t, dnsErr.IsNotFound)
	assert.Less(t, time.Since(start), soon, "nobody is asked for what is outside")
}
