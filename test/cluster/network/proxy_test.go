package network

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const etcdIP = "10.96.3.4"

// etcdService is a service with the address etcdIP and the client port 2379,
// with the given endpoints at a port of the pods.
func etcdService(podPort int, endpoints ...discoveryv1.Endpoint) (*corev1.Service, *discoveryv1.EndpointSlice) {
	return service("etcd-main-client", etcdIP, port("client", 2379)),
		slice("etcd-main-client", slicePort("client", podPort), endpoints...)
}

// eventuallySays waits until a service answers with a word.
func eventuallySays(t *testing.T, from PodNet, addr, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		said, err := ask(t, from, addr)
		return err == nil && said == want
	}, soon, tick)
}

// eventuallyRefuses waits until connections to an address are refused, as they
// are where nobody listens.
func eventuallyRefuses(t *testing.T, from PodNet, addr string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := dialFrom(t, from, addr, soon)
		return errors.Is(err, unix.ECONNREFUSED)
	}, soon, tick)
}

func TestAPodReachesAServiceByItsClusterIP(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	// The pod's port differs from the service's, as with a named target port.
	svc, eps := etcdService(listenIn(t, server, ":0", saying("etcd")), ready(server.IP))
	serveWith(t, n, fake.NewClientset(svc, eps))

	eventuallySays(t, client, etcdIP+":2379", "etcd")
	t.Run("also the pod behind it", func(t *testing.T) {
		eventuallySays(t, server, etcdIP+":2379", "etcd")
	})
	t.Run("and the host end", func(t *testing.T) {
		conn, err := net.DialTimeout("tcp4", etcdIP+":2379", soon)
		require.NoError(t, err)
		defer conn.Close()
		said, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Equal(t, "etcd", string(said))
		assert.Equal(t, HostAddr.String(), conn.LocalAddr().(*net.TCPAddr).IP.String())
	})
	t.Run("but at no other port", func(t *testing.T) {
		eventuallyRefuses(t, client, etcdIP+":2380")
	})
}

func TestTheAPIServerIsReachedThroughItsService(t *testing.T) {
	n := newNet(t)
	client := addPod(t, n, "client")
	server, err := net.Listen("tcp4", net.JoinHostPort(HostAddr.String(), "6443"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			saying("api")(conn.(*net.TCPConn))
		}
	}()
	svc := service("kubernetes", "10.96.0.1", port("https", 443))
	serveWith(t, n, fake.NewClientset(svc, slice("kubernetes", slicePort("https", 6443), ready(HostAddr.String()))))

	eventuallySays(t, client, "10.96.0.1:443", "api")
}

func TestConnectionsGoToReadyEndpointsOnly(t *testing.T) {
	n := newNet(t)
	a, b, client := addPod(t, n, "a"), addPod(t, n, "b"), addPod(t, n, "client")
	listenIn(t, a, ":2379", saying("a"))
	listenIn(t, b, ":2379", saying("b"))
	svc, eps := etcdService(2379, ready(a.IP), unready(b.IP))
	api := fake.NewClientset(svc, eps)
	serveWith(t, n, api)
	eventuallySays(t, client, etcdIP+":2379", "a")

	for _, step := range []struct {
		name      string
		endpoints []discoveryv1.Endpoint
		want      []string
	}{
		{"both ready", []discoveryv1.Endpoint{ready(a.IP), ready(b.IP)}, []string{"a", "b"}},
		{"the other one ready", []discoveryv1.Endpoint{unready(a.IP), ready(b.IP)}, []string{"b"}},
		{"one draining beside a ready one", []discoveryv1.Endpoint{draining(b.IP), ready(a.IP)}, []string{"a"}},
		{"none but draining", []discoveryv1.Endpoint{unready(a.IP), draining(b.IP)}, []string{"b"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			_, eps := etcdService(2379, step.endpoints...)
			setSlice(t, api, eps)
			for _, word := range step.want {
				eventuallySays(t, client, etcdIP+":2379", word)
			}
			heard := map[string]bool{}
			for range 40 {
				said, err := ask(t, client, etcdIP+":2379")
				require.NoError(t, err)
				heard[said] = true
			}
			for _, word := range step.want {
				assert.True(t, heard[word], "%s was never asked", word)
			}
			assert.Len(t, heard, len(step.want))
		})
	}
}

func TestAServiceWithoutAReadyEndpointRefusesUntilThereIsOne(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	listenIn(t, server, ":2379", saying("etcd"))
	svc, eps := etcdService(2379, unready(server.IP))
	api := fake.NewClientset(svc, eps)
	serveWith(t, n, api)
	eventuallyRefuses(t, client, etcdIP+":2379")

	_, eps = etcdService(2379, ready(server.IP))
	setSlice(t, api, eps)
	eventuallySays(t, client, etcdIP+":2379", "etcd")

	_, eps = etcdService(2379)
	setSlice(t, api, eps)
	eventuallyRefuses(t, client, etcdIP+":2379")
}

func TestADeletedServiceRefuses(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	listenIn(t, server, ":2379", saying("etcd"))
	svc, eps := etcdService(2379, ready(server.IP))
	api := fake.NewClientset(svc, eps)
	serveWith(t, n, api)
	eventuallySays(t, client, etcdIP+":2379", "etcd")

	require.NoError(t, api.CoreV1().Services(svc.Namespace).Delete(t.Context(), svc.Name, metav1.DeleteOptions{}))
	eventuallyRefuses(t, client, etcdIP+":2379")
}

func TestAnAddressGoesOverToTheNextServiceThatGetsIt(t *testing.T) {
	n := newNet(t)
	a, b, client := addPod(t, n, "a"), addPod(t, n, "b"), addPod(t, n, "client")
	listenIn(t, a, ":2379", saying("a"))
	listenIn(t, b, ":2379", saying("b"))
	svc, eps := etcdService(2379, ready(a.IP))
	api := fake.NewClientset(svc, eps)
	serveWith(t, n, api)
	eventuallySays(t, client, etcdIP+":2379", "a")

	// The new one is seen first, as events of different services may be.
	next := service("next", etcdIP, port("client", 2379))
	_, err := api.DiscoveryV1().EndpointSlices("garden").Create(t.Context(), slice("next", slicePort("client", 2379), ready(b.IP)), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = api.CoreV1().Services("garden").Create(t.Context(), next, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, api.CoreV1().Services("garden").Delete(t.Context(), svc.Name, metav1.DeleteOptions{}))

	eventuallySays(t, client, etcdIP+":2379", "b")
}

func TestAConnectionOutlivesTheRemovalOfItsEndpoint(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	listenIn(t, server, ":2379", echo)
	svc, eps := etcdService(2379, ready(server.IP))
	api := fake.NewClientset(svc, eps)
	serveWith(t, n, api)
	var conn *net.TCPConn
	require.Eventually(t, func() bool {
		var err error
		conn, err = dialFrom(t, client, etcdIP+":2379", soon)
		return err == nil
	}, soon, tick)
	_, err := io.WriteString(conn, "before ")
	require.NoError(t, err)

	_, eps = etcdService(2379)
	setSlice(t, api, eps)
	eventuallyRefuses(t, client, etcdIP+":2379")

	_, err = io.WriteString(conn, "after")
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite(), "the other direction stays open")
	heard, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "before after", string(heard))
}

func TestMuchDataPassesUnchanged(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	svc, eps := etcdService(listenIn(t, server, ":0", echo), ready(server.IP))
	serveWith(t, n, fake.NewClientset(svc, eps))
	var conn *net.TCPConn
	require.Eventually(t, func() bool {
		var err error
		conn, err = dialFrom(t, client, etcdIP+":2379", soon)
		return err == nil
	}, soon, tick)
	sent := make([]byte, 16<<20)
	for i := range sent {
		sent[i] = byte(i * 7 / 3)
	}
	_, err := conn.Write(sent)
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	heard, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Truef(t, bytes.Equal(sent, heard), "%d bytes sent, %d heard", len(sent), len(heard))
}

func TestAResetOfTheEndpointResetsTheClient(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	podPort := listenIn(t, server, ":0", func(conn *net.TCPConn) {
		_, _ = io.ReadFull(conn, make([]byte, 4))
		reset(conn)
	})
	svc, eps := etcdService(podPort, ready(server.IP))
	serveWith(t, n, fake.NewClientset(svc, eps))
	require.Eventually(t, func() bool {
		conn, err := dialFrom(t, client, etcdIP+":2379", soon)
		if err != nil {
			return false
		}
		_, err = io.WriteString(conn, "ping")
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, unix.ECONNRESET)
		return true
	}, soon, tick)
}

func TestAnEndpointThatRefusesResetsTheClientAtOnce(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	svc, eps := etcdService(2379, ready(server.IP)) // where nobody listens
	serveWith(t, n, fake.NewClientset(svc, eps))
	require.Eventually(t, func() bool {
		conn, err := dialFrom(t, client, etcdIP+":2379", soon)
		if err != nil {
			return false
		}
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err)
		return true
	}, soon, tick)
}

func TestTheEndOfTheNetworkEndsConnections(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	svc, eps := etcdService(listenIn(t, server, ":0", echo), ready(server.IP))
	var conn *net.TCPConn
	t.Run("while it serves", func(t *testing.T) {
		serveWith(t, n, fake.NewClientset(svc, eps))
		require.Eventually(t, func() bool {
			var err error
			conn, err = within(t, client, func() (*net.TCPConn, error) {
				c, err := net.DialTimeout("tcp4", etcdIP+":2379", soon)
				if err != nil {
					return nil, err
				}
				return c.(*net.TCPConn), nil
			})
			return err == nil
		}, soon, tick)
	})
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(soon)))
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, unix.ECONNRESET)
}

func TestServicesWithSeveralPortsAreReachedAtEach(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	ports := map[string]int{"client": 2379, "peer": 2380, "backuprestore": 8080}
	svc := service("etcd-main-client", etcdIP)
	eps := slice("etcd-main-client", discoveryv1.EndpointPort{}, ready(server.IP))
	eps.Ports = nil
	for name, number := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, port(name, number))
		eps.Ports = append(eps.Ports, slicePort(name, listenIn(t, server, ":0", saying(name))))
	}
	serveWith(t, n, fake.NewClientset(svc, eps))

	for name, number := range ports {
		eventuallySays(t, client, net.JoinHostPort(etcdIP, strconv.Itoa(number)), name)
	}
}
