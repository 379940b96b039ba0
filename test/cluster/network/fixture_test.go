package network

import (
	"context"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const (
	// soon is how long anything may take that follows a change at once.
	soon = 2 * time.Second
	// tick is how often a test looks.
	tick = 2 * time.Millisecond
)

func newNet(t *testing.T) *Net {
	t.Helper()
	n, err := New(t.TempDir(), testr.New(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// addPod returns the network of a new pod.
func addPod(t *testing.T, n *Net, id string) PodNet {
	t.Helper()
	pod, err := n.AddPod(t.Context(), id)
	require.NoError(t, err)
	return pod
}

// serveWith runs the service network on the given objects until the test ends,
// and returns once it answers.
func serveWith(t *testing.T, n *Net, client *fake.Clientset) {
	t.Helper()
	n.log = logr.Discard() // outlives the test by a moment
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.serve(ctx, client) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	require.Eventually(t, func() bool {
		_, err := dns.Exchange(new(dns.Msg).SetQuestion("cluster.local.", dns.TypeA), dnsAddr)
		return err == nil
	}, soon, tick)
}

// within runs f on a thread in the network namespace of a pod. Sockets opened
// there belong to the pod for good.
func within[T any](t *testing.T, pod PodNet, f func() (T, error)) (T, error) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	require.NoError(t, err)
	defer home.Close()
	ns, err := netns.GetFromPath(pod.NetNS)
	require.NoError(t, err)
	defer ns.Close()
	require.NoError(t, netns.Set(ns))
	value, fErr := f()
	require.NoError(t, netns.Set(home))
	return value, fErr
}

// listenIn listens in a pod and gives each connection to handle.
func listenIn(t *testing.T, pod PodNet, addr string, handle func(*net.TCPConn)) int {
	t.Helper()
	listener, err := within(t, pod, func() (net.Listener, error) { return net.Listen("tcp4", addr) })
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go handle(conn.(*net.TCPConn))
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// dialFrom connects from inside a pod.
func dialFrom(t *testing.T, pod PodNet, addr string, timeout time.Duration) (*net.TCPConn, error) {
	t.Helper()
	conn, err := within(t, pod, func() (net.Conn, error) { return net.DialTimeout("tcp4", addr, timeout) })
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return conn.(*net.TCPConn), nil
}

// ask connects from inside a pod and returns all that the other side says.
func ask(t *testing.T, pod PodNet, addr string) (string, error) {
	t.Helper()
	conn, err := dialFrom(t, pod, addr, soon)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	said, err := io.ReadAll(conn)
	return string(said), err
}

// saying answers each connection with a word.
func saying(word string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, word)
		_ = conn.Close()
	}
}

// echo says all it hears, and that it has ended only after the other side has.
func echo(conn *net.TCPConn) {
	heard, _ := io.ReadAll(conn)
	_, _ = conn.Write(heard)
	_ = conn.Close()
}

func service(name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: ports},
	}
}

func port(name string, number int) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: int32(number), Protocol: corev1.ProtocolTCP}
}

func slice(of string, port discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "garden", Name: of + "-abcde",
			Labels: map[string]string{discoveryv1.LabelServiceName: of},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{port},
		Endpoints:   endpoints,
	}
}

func slicePort(name string, number int) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: new(int32(number)), Protocol: new(corev1.ProtocolTCP)}
}

func ready(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}
}

func unready(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(false)}}
}

func draining(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}}
}

func named(ep discoveryv1.Endpoint, hostname string) discoveryv1.Endpoint {
	ep.Hostname = &hostname
	return ep
}

func setSlice(t *testing.T, client *fake.Clientset, s *discoveryv1.EndpointSlice) {
	t.Helper()
	_, err := client.DiscoveryV1().EndpointSlices(s.Namespace).Update(t.Context(), s, metav1.UpdateOptions{})
	require.NoError(t, err)
}
