package members

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// defaultCAKey is the key of a CA bundle in its Secret where the reference names none.
const defaultCAKey = "bundle.crt"

func (c Client) tlsConfig(ctx context.Context, etcd *volume.Etcd) (*tls.Config, error) {
	return TLS(ctx, c.Reader, etcd.Namespace, etcd.Spec.Etcd.ClientURLTLS)
}

// TLS is the client configuration that the references stand for; nil where there are none. A reference without a namespace
// means the given one.
func TLS(ctx context.Context, reader client.Reader, namespace string, refs *volume.TLSConfig) (*tls.Config, error) {
	if refs == nil {
		return nil, nil
	}
	ca, err := secret(ctx, reader, namespace, refs.TLSCASecretRef.SecretReference)
	if err != nil {
		return nil, err
	}
	key := defaultCAKey
	if refs.TLSCASecretRef.DataKey != nil && *refs.TLSCASecretRef.DataKey != "" {
		key = *refs.TLSCASecretRef.DataKey
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !conf.RootCAs.AppendCertsFromPEM(ca.Data[key]) {
		return nil, fmt.Errorf("secret %s/%s has no certificate under %q", ca.Namespace, ca.Name, key)
	}
	if refs.ClientTLSSecretRef.Name == "" {
		return conf, nil
	}
	pair, err := secret(ctx, reader, namespace, refs.ClientTLSSecretRef)
	if err != nil {
		return nil, err
	}
	cert, err := tls.X509KeyPair(pair.Data[corev1.TLSCertKey], pair.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("read certificate of secret %s/%s: %w", pair.Namespace, pair.Name, err)
	}
	conf.Certificates = []tls.Certificate{cert}
	return conf, nil
}

func secret(ctx context.Context, reader client.Reader, namespace string, ref corev1.SecretReference) (*corev1.Secret, error) {
	if ref.Namespace != "" {
		namespace = ref.Namespace
	}
	var s corev1.Secret
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &s); err != nil {
		return nil, fmt.Errorf("get secret %s/%s: %w", namespace, ref.Name, err)
	}
	return &s, nil
}
