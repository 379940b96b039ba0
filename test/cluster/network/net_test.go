package network

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
)

func TestAPodReachesTheWebServerOfAnotherPodByItsAddress(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	listener, err := within(t, server, func() (net.Listener, error) { return net.Listen("tcp4", ":8080") })
	require.NoError(t, err)
	peer := make(chan string, 1)
	web := &http.Server{ReadHeaderTimeout: soon, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		peer <- r.RemoteAddr
	})}
	go func() { _ = web.Serve(listener) }()
	t.Cleanup(func() { require.NoError(t, web.Close()) })

	status, err := within(t, client, func() (string, error) {
		conn, err := net.DialTimeout("tcp4", net.JoinHostPort(server.IP, "8080"), soon)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		_, err = io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
		if err != nil {
			return "", err
		}
		said, err := io.ReadAll(conn)
		return string(said[:15]), err
	})

	require.NoError(t, err)
	assert.Equal(t, "HTTP/1.0 200 OK", status)
	host, _, err := net.SplitHostPort(<-peer)
	require.NoError(t, err)
	assert.Equal(t, client.IP, host, "between pods the client's address is kept")
}

func TestThePodsAndTheHostEndReachEachOther(t *testing.T) {
	n := newNet(t)
	pod := addPod(t, n, "a")
	inPod := listenIn(t, pod, ":0", saying("pod"))
	onHost, err := net.Listen("tcp4", netip.AddrPortFrom(HostAddr, 0).String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = onHost.Close() })
	go func() {
		if conn, err := onHost.Accept(); err == nil {
			saying("host")(conn.(*net.TCPConn))
		}
	}()

	conn, err := net.DialTimeout("tcp4", net.JoinHostPort(pod.IP, strconv.Itoa(inPod)), soon)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	said, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "pod", string(said))

	heard, err := ask(t, pod, onHost.Addr().String())
	require.NoError(t, err)
	assert.Equal(t, "host", heard)
}

func TestEachPodHasALoopbackOfItsOwn(t *testing.T) {
	n := newNet(t)
	a, b := addPod(t, n, "a"), addPod(t, n, "b")
	listenIn(t, a, "127.0.0.1:7000", saying("a"))
	listenIn(t, b, "127.0.0.1:7000", saying("b"))

	for want, pod := range map[string]PodNet{"a": a, "b": b} {
		said, err := ask(t, pod, "127.0.0.1:7000")
		require.NoError(t, err)
		assert.Equal(t, want, said)
	}
}

func TestAddingAPodTwiceGivesTheSameNetwork(t *testing.T) {
	n := newNet(t)
	first := addPod(t, n, "a")
	assert.Equal(t, first, addPod(t, n, "a"))
	assert.NotEqual(t, first, addPod(t, n, "b"))
}

func TestADeletedPodLeavesNothingBehind(t *testing.T) {
	n := newNet(t)
	pod := addPod(t, n, "a")
	veth := vethName(netip.MustParseAddr(pod.IP))

	require.NoError(t, n.DelPod("a"))
	require.NoError(t, n.DelPod("a"), "a second time is no error")

	assert.NoFileExists(t, pod.NetNS)
	_, err := netlink.LinkByName(veth)
	require.ErrorAs(t, err, &netlink.LinkNotFoundError{})
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	require.NoError(t, err)
	assert.NotContains(t, string(mounts), pod.NetNS)
	assert.NotEqual(t, pod.IP, addPod(t, n, "a").IP, "the address is not used again")
}

func TestTheTestsOwnThreadsStayInTheirNamespace(t *testing.T) {
	n := newNet(t)
	before, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	for range 8 {
		addPod(t, n, t.Name())
		require.NoError(t, n.DelPod(t.Name()))
	}
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	for _, thread := range threads {
		now, err := os.Readlink("/proc/self/task/" + thread.Name() + "/ns/net")
		require.NoError(t, err)
		assert.Equal(t, before, now, "thread %s", thread.Name())
	}
}

func TestAPodThatIsCutOffIsNotReachedUntilItIsRestored(t *testing.T) {
	n := newNet(t)
	server, client := addPod(t, n, "server"), addPod(t, n, "client")
	addr := net.JoinHostPort(server.IP, strconv.Itoa(listenIn(t, server, ":0", saying("here"))))
	for name, pod := range map[string]struct{ cut, restore func() error }{
		"by id": {
			cut:     func() error { return n.Cut("server") },
			restore: func() error { return n.Restore("server") },
		},
		"by address": {
			cut:     func() error { return n.CutIP(server.IP) },
			restore: func() error { return n.RestoreIP(server.IP) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			said, err := ask(t, client, addr)
			require.NoError(t, err)
			require.Equal(t, "here", said)

			require.NoError(t, pod.cut())
			_, err = dialFrom(t, client, addr, 200*time.Millisecond)
			require.Error(t, err)

			require.NoError(t, pod.restore())
			require.Eventually(t, func() bool {
				said, err := ask(t, client, addr)
				return err == nil && said == "here"
			}, 5*time.Second, tick)
		})
	}
	require.EqualError(t, n.Cut("other"), "pod other has no network")
	assert.EqualError(t, n.RestoreIP("10.244.9.9"), "no pod has the address 10.244.9.9")
}

func TestAnAddressIsUsedAgainOnlyAfterAllOthers(t *testing.T) {
	p := newPool()
	first, err := p.take()
	require.NoError(t, err)
	p.release(first)
	seen := map[netip.Addr]bool{first: true}
	for {
		addr, err := p.take()
		require.NoError(t, err)
		p.release(addr)
		if seen[addr] {
			assert.Equal(t, first, addr)
			break
		}
		assert.True(t, PodRange.Contains(addr))
		seen[addr] = true
	}
	assert.Len(t, seen, 255*254)
}

func TestAPoolWithoutAFreeAddressSaysSo(t *testing.T) {
	p := newPool()
	for range 255 * 254 {
		_, err := p.take()
		require.NoError(t, err)
	}
	_, err := p.take()
	require.ErrorIs(t, err, errPoolEmpty)

	free := netip.MustParseAddr("10.244.7.7")
	p.release(free)
	addr, err := p.take()
	require.NoError(t, err)
	assert.Equal(t, free, addr)
}

func TestAddressesThatSomeSoftwareRefusesAreSkipped(t *testing.T) {
	for after, want := range map[string]string{
		"10.244.1.1":     "10.244.1.2",
		"10.244.1.254":   "10.244.2.1",
		"10.244.255.254": "10.244.1.1",
	} {
		assert.Equal(t, want, following(netip.MustParseAddr(after)).String())
	}
}
