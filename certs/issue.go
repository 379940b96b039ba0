package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// skew is how far back a certificate begins, for API servers whose clocks are behind ours.
const skew = time.Hour

// Authority is a certificate authority with its key.
type Authority struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// NewAuthority makes an authority that ends at now+life.
func NewAuthority(now time.Time, life time.Duration) (*Authority, error) {
	key, serial, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// The serial is part of the name: two authorities in one bundle must not be taken for each other.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("etcd-volumes webhook CA %x", serial.Bytes()[:4])},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse authority: %w", err)
	}
	return &Authority{Certificate: cert, Key: key}, nil
}

// Issue signs a serving certificate for the names. It ends at now+life, or with its authority if that is sooner.
func Issue(ca *Authority, names []string, now time.Time, life time.Duration) (*tls.Certificate, error) {
	if !now.Before(ca.Certificate.NotAfter) {
		return nil, fmt.Errorf("issue certificate: authority ended at %s", ca.Certificate.NotAfter.Format(time.RFC3339))
	}
	key, serial, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: names[0]},
		DNSNames:              names,
		NotBefore:             later(now.Add(-skew), ca.Certificate.NotBefore),
		NotAfter:              sooner(now.Add(life), ca.Certificate.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Certificate, key.Public(), ca.Key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Due reports whether two thirds of the certificate's life are over.
func Due(cert *x509.Certificate, now time.Time) bool {
	born := cert.NotBefore.Add(skew)
	return !now.Before(born.Add(cert.NotAfter.Sub(born) * 2 / 3))
}

// Names are the DNS names under which a Service is called.
func Names(service, namespace string) []string {
	return []string{
		service + "." + namespace + ".svc", // what the API server uses
		service,
		service + "." + namespace,
		service + "." + namespace + ".svc.cluster.local",
	}
}

// Verify reports why the certificate would not be accepted for the name under the bundle; nil if it would.
// A bundle with anything in it that is not a certificate authority is refused: the API server takes any bytes.
func Verify(bundle []byte, leaf *x509.Certificate, name string, now time.Time) error {
	roots := x509.NewCertPool()
	authorities, err := parseAll(bundle)
	if err != nil {
		return err
	}
	for _, c := range authorities {
		if !c.IsCA {
			return fmt.Errorf("bundle holds %q, which is no authority", c.Subject.CommonName)
		}
		roots.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{
		Roots: roots, DNSName: name, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("verify certificate under the bundle: %w", err)
	}
	return nil
}

func newKey() (*ecdsa.PrivateKey, *big.Int, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, nil, fmt.Errorf("generate serial number: %w", err)
	}
	b[0] = b[0]&0x7f | 0x40 // positive, and always 16 bytes long
	return key, new(big.Int).SetBytes(b), nil
}

func encodeCertificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// parseAll reads a non-empty series of PEM certificates, and nothing else.
func parseAll(text []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		all, text = append(all, c), rest
	}
	if len(all) == 0 {
		return nil, errors.New("no certificate found")
	}
	return all, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func sooner(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
