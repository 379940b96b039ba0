package sidecar_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// withTLS serves etcd's clients, its peers and the sidecar with TLS; one certificate is good for all.
func withTLS(c *cluster) { c.certs = filepath.Join(c.dir, "certs") }

func (c *cluster) scheme() string {
	if c.certs == "" {
		return "http"
	}
	return "https"
}

func (c *cluster) file(name string) string { return filepath.Join(c.certs, name) }

func (c *cluster) security() string {
	if c.certs == "" {
		return ""
	}
	block := fmt.Sprintf("  cert-file: %s\n  key-file: %s\n  client-cert-auth: true\n  trusted-ca-file: %s\n  auto-tls: false\n",
		c.file("tls.crt"), c.file("tls.key"), c.file("ca.crt"))
	return "client-transport-security:\n" + block + "peer-transport-security:\n" + block
}

func (c *cluster) wrapperTLS() []string {
	if c.certs == "" {
		return nil
	}
	return []string{
		"--backup-restore-ca-cert-bundle-path=" + c.file("ca.crt"),
		"--etcd-client-cert-path=" + c.file("tls.crt"), "--etcd-client-key-path=" + c.file("tls.key"),
	}
}

func (c *cluster) serverTLS() []string {
	if c.certs == "" {
		return []string{"--insecure-transport=true", "--insecure-skip-tls-verify=true"}
	}
	return []string{
		"--insecure-transport=false", "--insecure-skip-tls-verify=false",
		"--cacert=" + c.file("ca.crt"), "--cert=" + c.file("tls.crt"), "--key=" + c.file("tls.key"),
		"--server-cert=" + c.file("tls.crt"), "--server-key=" + c.file("tls.key"),
	}
}

func (c *cluster) clientTLS() *tls.Config {
	if c.certs == "" {
		return nil
	}
	config, err := transport.TLSInfo{TrustedCAFile: c.file("ca.crt"), CertFile: c.file("tls.crt"), KeyFile: c.file("tls.key")}.ClientConfig()
	require.NoError(c.t, err)
	return config
}

// http is a client as a kubelet's probe: it does not verify.
func (*cluster) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as the kubelet
}

// issue writes a CA and a certificate for the addresses of all pods and the service.
func (c *cluster) issue() {
	c.t.Helper()
	require.NoError(c.t, os.MkdirAll(c.certs, 0o700))
	template := func(serial int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(c.t, err)
	ca := template(1)
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	require.NoError(c.t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(c.t, err)
	leaf := template(2)
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	host, _, err := net.SplitHostPort(c.svc)
	require.NoError(c.t, err)
	// etcd checks a peer's address too, and on the loopback all come from 127.0.0.1.
	leaf.IPAddresses = []net.IP{net.ParseIP(host), net.IPv4(127, 0, 0, 1)}
	for _, p := range c.pods {
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(p.ip))
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	require.NoError(c.t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	require.NoError(c.t, err)
	for name, block := range map[string]*pem.Block{
		"ca.crt":  {Type: "CERTIFICATE", Bytes: caDER},
		"tls.crt": {Type: "CERTIFICATE", Bytes: der},
		"tls.key": {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		require.NoError(c.t, os.WriteFile(c.file(name), pem.EncodeToMemory(block), 0o600))
	}
}

func TestThreeMembersWorkWithTLSEverywhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, withStore, withTLS)
	c.issue()
	c.start()
	c.awaitReady()
	put(t, c.client(), "key", 5)
	f := c.follower()
	f.awaitSnapshots()
	f.awaitFull()
	require.Eventually(t, func() bool { return c.holder(f.member()) != "" }, patience, poll)
	assert.Equal(t, "true", c.lease(f.member()).Annotations["member.etcd.gardener.cloud/tls-enabled"])

	f.terminate()
	f.wipe()
	f.start()
	f.awaitReady()

	assert.Zero(t, c.learners())
	keys, _ := content(t, c.connect(f.url(c.ports.client)))
	assert.Len(t, keys, 5)
}
