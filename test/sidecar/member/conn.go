package member

import (
	"crypto/tls"
	"fmt"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Conn says how the sidecar reaches etcd: its own member by Endpoints, any ready member by ServiceEndpoints.
type Conn struct {
	Endpoints          []string
	ServiceEndpoints   []string
	CertFile           string
	KeyFile            string
	CAFile             string
	InsecureTransport  bool
	InsecureSkipVerify bool
	Timeout            time.Duration
	SnapshotTimeout    time.Duration
}

// Local returns a client of the pod's own member.
func (c Conn) Local() (*clientv3.Client, error) {
	if len(c.Endpoints) == 0 {
		return nil, fmt.Errorf("connect to own member: no endpoints given")
	}
	return c.dial(c.Endpoints)
}

// Service returns a client of whichever members are ready; without service endpoints it is that of the own member.
func (c Conn) Service() (*clientv3.Client, error) {
	if len(c.ServiceEndpoints) == 0 {
		return c.Local()
	}
	return c.dial(c.ServiceEndpoints)
}

func (c Conn) dial(endpoints []string) (*clientv3.Client, error) {
	tlsConfig, err := c.tls()
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tlsConfig, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect to %v: %w", endpoints, err)
	}
	return client, nil
}

func (c Conn) tls() (*tls.Config, error) {
	if c.InsecureTransport {
		return nil, nil //nolint:nilnil // no TLS is what clientv3 wants as nil
	}
	info := transport.TLSInfo{CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.CAFile, InsecureSkipVerify: c.InsecureSkipVerify}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load client certificates: %w", err)
	}
	return config, nil
}
