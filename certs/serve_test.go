package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"
)

// serve runs the keeper's webhook server on a free port until the test ends.
func serve(t *testing.T, w *world, k *Keeper) {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0") //nolint:noctx // only to find a free port
	require.NoError(t, err)
	k.options.Port = listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	require.NoError(t, k.Refresh(t.Context()))

	server := k.Server()
	server.Register("/echo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	}))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool { return server.StartedChecker()(nil) == nil }, 10*time.Second, 5*time.Millisecond)
	w.trusted(t, k)
}

func request(t *testing.T) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
}

// realWorld is a world whose clock is the real one: TLS looks at it.
func realWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.clock.now = time.Now()
	return w
}

func TestAReplicaIsReadyWhenItIsTrustedAndNotBefore(t *testing.T) {
	w := realWorld(t)
	k := w.keeper(t)
	require.ErrorContains(t, k.Ready(request(t)), "not injected yet")
	serve(t, w, k)
	require.NoError(t, k.Ready(request(t)))

	for name, bundle := range map[string][]byte{
		"garbage": []byte("garbage"), "a stranger": encodeCertificate(authority(t, w.clock.now, time.Hour).Certificate), "nothing": nil,
	} {
		live := w.validating(t)
		live.Webhooks[1].ClientConfig.CABundle = bundle
		require.NoError(t, w.Update(t.Context(), live))
		require.ErrorContains(t, k.Ready(request(t)), "b.test", name)
	}
	require.NoError(t, k.Lead(t.Context()))
	assert.NoError(t, k.Ready(request(t)), "repaired")
}

func TestAReplicaIsNotReadyWithoutAServerOrConfigurations(t *testing.T) {
	w := realWorld(t)
	k := w.keeper(t)
	k.options.Port = 1 // nobody listens
	require.NoError(t, k.Refresh(t.Context()))
	require.ErrorContains(t, k.Ready(request(t)), "dial ourselves")

	none := w.keeper(t)
	none.options.Configuration = "other"
	require.ErrorContains(t, none.Ready(request(t)), "do not exist")
	assert.ErrorContains(t, (&Keeper{}).Ready(request(t)), "not set up")
}

func TestTheServerSpeaksTLS13AndHTTP1AndReadsNoEndlessBody(t *testing.T) {
	w := realWorld(t)
	k := w.keeper(t)
	serve(t, w, k)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(w.bundles(t)[0]))
	config := &tls.Config{RootCAs: roots, ServerName: "hook.ns.svc", MinVersion: tls.VersionTLS12}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	post := func(size int) http.Response {
		url := "https://localhost:" + strconv.Itoa(k.options.Port) + "/echo"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(make([]byte, size)))
		require.NoError(t, err)
		response, err := transport.RoundTrip(req)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return http.Response{StatusCode: response.StatusCode, ProtoMajor: response.ProtoMajor, TLS: response.TLS}
	}
	small := post(1 << 20)
	assert.Equal(t, http.StatusOK, small.StatusCode)
	assert.Equal(t, 1, small.ProtoMajor)
	assert.Equal(t, uint16(tls.VersionTLS13), small.TLS.Version)
	assert.Equal(t, http.StatusRequestEntityTooLarge, post(maxBody+1).StatusCode)

	old := config.Clone()
	old.MaxVersion = tls.VersionTLS12
	dialer := &tls.Dialer{Config: old}
	_, err := dialer.DialContext(t.Context(), "tcp", "localhost:"+strconv.Itoa(k.options.Port))
	assert.Error(t, err, "TLS 1.2 is refused")
}

func TestANewCertificateIsServedWithoutARestart(t *testing.T) {
	w := realWorld(t)
	k := w.keeper(t)
	serve(t, w, k)
	seen := func() *x509.Certificate {
		dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // looked at, not trusted
		conn, err := dialer.DialContext(t.Context(), "tcp", "localhost:"+strconv.Itoa(k.options.Port))
		require.NoError(t, err)
		defer func() { assert.NoError(t, conn.Close()) }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0]
	}
	before := seen()
	w.clock.now = w.clock.now.Add(4 * time.Hour)
	require.NoError(t, k.Refresh(t.Context()))
	assert.NotEqual(t, before.SerialNumber, seen().SerialNumber)
}

func TestWithoutACertificateAHandshakeFails(t *testing.T) {
	_, err := newWorld(t).keeper(t).GetCertificate(nil)
	assert.ErrorContains(t, err, "no certificate yet")
}

func TestAModeThatIsNotKnownOrCanNotWorkIsRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"unknown": {Mode: "magic"}, "no files": {Mode: ModeFiles, Dir: t.TempDir()}, "no lifetimes": {Mode: ModeSelf},
	} {
		_, err := New(o)
		assert.Error(t, err, name)
	}
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
