package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// certificateLife is longer than any cluster lives.
const certificateLife = 30 * 24 * time.Hour

// pki is the certificate authority of one cluster and where its files are.
type pki struct {
	dir string
	ca  *x509.Certificate
	key crypto.Signer
}

func (p *pki) caFile() string           { return filepath.Join(p.dir, "ca.crt") }
func (p *pki) caKeyFile() string        { return filepath.Join(p.dir, "ca.key") }
func (p *pki) certFile(n string) string { return filepath.Join(p.dir, n+".crt") }
func (p *pki) keyFile(n string) string  { return filepath.Join(p.dir, n+".key") }

// newPKI makes a new authority in dir.
func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the certificates' directory: %w", err)
	}
	p := &pki{dir: dir}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "local-cluster"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	key, der, err := p.write("ca", template)
	if err != nil {
		return nil, err
	}
	p.key = key
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("read the new authority: %w", err)
	}
	return p, nil
}

// server issues a certificate for a server under the given names and addresses.
func (p *pki) server(name string, dns []string, ips ...net.IP) error {
	_, _, err := p.write(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    dns,
		IPAddresses: ips,
	})
	return err
}

// client issues a certificate for a user of the API server and writes a kubeconfig that holds it.
func (p *pki) client(name, user string, groups ...string) (kubeconfig string, err error) {
	_, _, err = p.write(name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return "", err
	}
	kubeconfig = filepath.Join(p.dir, name+".kubeconfig")
	return kubeconfig, p.writeKubeconfig(kubeconfig, name)
}

// writeKubeconfig embeds the files, so that a kubeconfig can be copied elsewhere.
func (p *pki) writeKubeconfig(path, name string) error {
	var content [3][]byte
	for i, file := range []string{p.caFile(), p.certFile(name), p.keyFile(name)} {
		var err error
		if content[i], err = os.ReadFile(file); err != nil {
			return fmt.Errorf("read for the kubeconfig of %s: %w", name, err)
		}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{Server: "https://" + apiServerAddress, CertificateAuthorityData: content[0]}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: content[1], ClientKeyData: content[2]}
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: name}
	config.CurrentContext = "local"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", name, err)
	}
	return nil
}

// signingKey makes the key pair that signs service account tokens.
func (p *pki) signingKey(name string) error {
	key, err := newKey()
	if err != nil {
		return err
	}
	return p.writeKey(name, key)
}

// write makes a key and a certificate for it, signed by the authority or, while there is none, by itself.
func (p *pki) write(name string, template *x509.Certificate) (*ecdsa.PrivateKey, []byte, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	now := time.Now()
	template.SerialNumber = serial
	template.NotBefore = now.Add(-time.Hour)
	template.NotAfter = now.Add(certificateLife)
	parent, signer := template, crypto.Signer(key)
	if p.ca != nil {
		parent, signer = p.ca, p.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("issue certificate %s: %w", name, err)
	}
	if err := writePEM(p.certFile(name), "CERTIFICATE", der); err != nil {
		return nil, nil, err
	}
	return key, der, p.writeKey(name, key)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// writeKey writes the form that the token controller reads too, which knows no PKCS #8 for ECDSA.
func (p *pki) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key %s: %w", name, err)
	}
	return writePEM(p.keyFile(name), "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
