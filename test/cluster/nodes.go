package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"

	"github.com/etcd-volumes/etcd-volumes/test/cluster/network"
	"github.com/etcd-volumes/etcd-volumes/test/cluster/node"
)

// topology is the nodes by name and the zone of each.
var topology = []struct{ name, zone string }{
	{"node-1", "zone-a"},
	{"node-2", "zone-b"},
	{"node-3", "zone-c"},
}

// clusterNode is a node of this cluster.
type clusterNode struct {
	*node.Node
	name string
}

// newNodes prepares the nodes. Each is a user of its own, whom the Node authorizer and the NodeRestriction
// admission plugin confine to what belongs to its pods, as on a real cluster.
func (c *Cluster) newNodes() error {
	serverTLS, err := c.kubeletTLS()
	if err != nil {
		return err
	}
	for _, t := range topology {
		kubeconfig, err := c.pki.client(t.name, "system:node:"+t.name, "system:nodes")
		if err != nil {
			return err
		}
		rest, err := restConfig(kubeconfig)
		if err != nil {
			return err
		}
		log, err := c.logger(t.name)
		if err != nil {
			return err
		}
		made, err := node.New(node.Config{
			Name:      t.name,
			Zone:      t.zone,
			REST:      rest,
			Dir:       filepath.Join(c.Dir, "nodes", t.name),
			LogDir:    c.podLogs(),
			Images:    c.images.resolve,
			Network:   podNetwork{c.net},
			DNS:       dnsIP,
			APIServer: serviceIP + ":443",
			Address:   hostIP,
			Self:      "/proc/self/exe",
			ServerTLS: serverTLS,
			Log:       log,

			BackOff: c.options.RestartBackOff, MaxBackOff: c.options.RestartBackOff,
		})
		if err != nil {
			return fmt.Errorf("prepare %s: %w", t.name, err)
		}
		c.nodes = append(c.nodes, clusterNode{Node: made, name: t.name})
	}
	return nil
}

// kubeletTLS serves logs and exec to those who hold a certificate of the cluster.
func (c *Cluster) kubeletTLS() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.pki.certFile("server"), c.pki.keyFile("server"))
	if err != nil {
		return nil, fmt.Errorf("load the certificate of the nodes: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c.pki.ca)
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		MinVersion:   tls.VersionTLS12,
	}, nil
}

// podNetwork fits the network to what a node wants.
type podNetwork struct{ *network.Net }

// AddPod makes the network of a pod.
func (n podNetwork) AddPod(ctx context.Context, id string) (node.PodNet, error) {
	made, err := n.Net.AddPod(ctx, id)
	return node.PodNet{IP: made.IP, NetNS: made.NetNS}, err
}

// ContainerPID is the process id of a running container, as the caller of Enter sees it: for faults that
// the API cannot express, such as SIGKILL.
func (c *Cluster) ContainerPID(namespace, pod, container string) (int, error) {
	var err error
	for _, n := range c.nodes {
		var pid int
		if pid, err = n.ContainerPID(namespace, pod, container); err == nil {
			return pid, nil
		}
	}
	return 0, err
}
