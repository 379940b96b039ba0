package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// The fixed addresses of the cluster; see the packages network and node for the others.
const (
	hostIP           = "10.244.0.1"
	apiServerPort    = "6443"
	apiServerAddress = hostIP + ":" + apiServerPort
	serviceCIDR      = "10.96.0.0/16"
	serviceIP        = "10.96.0.1" // kubernetes.default
	dnsIP            = "10.96.0.10"
	etcdURL          = "http://127.0.0.1:2379"
	issuer           = "https://kubernetes.default.svc.cluster.local"
)

// kubeletClient is who the API server is to the nodes.
const kubeletClient = "kube-apiserver-kubelet-client"

// endGrace is how long a component that is asked to stop may take.
const endGrace = 10 * time.Second

//go:embed audit-policy.yaml
var auditPolicy []byte

// controlPlane is the four processes that make the API, in the order in which they start.
type controlPlane struct {
	etcd, apiServer, controllerManager, scheduler *component
}

// newControlPlane writes all that the processes read and starts none of them.
func newControlPlane(dir, logs string, p *pki) (*controlPlane, error) {
	if err := issue(p); err != nil {
		return nil, err
	}
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, auditPolicy, 0o600); err != nil {
		return nil, fmt.Errorf("write the audit policy: %w", err)
	}
	controllerManager, err := p.client("kube-controller-manager", "system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	scheduler, err := p.client("kube-scheduler", "system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	client := healthClient(p.ca)
	newComponent := func(name, ready string, args []string) *component {
		return &component{name: name, args: args, dir: dir, log: filepath.Join(logs, name+".log"), ready: ready, client: client}
	}
	return &controlPlane{
		etcd:              newComponent("etcd", etcdURL+"/readyz", etcdArgs(filepath.Join(dir, "etcd"))),
		apiServer:         newComponent("kube-apiserver", "https://127.0.0.1:"+apiServerPort+"/readyz", apiServerArgs(p, policy, auditLog(logs))),
		controllerManager: newComponent("kube-controller-manager", "https://127.0.0.1:10257/healthz", controllerManagerArgs(p, controllerManager)),
		scheduler:         newComponent("kube-scheduler", "https://127.0.0.1:10259/readyz", schedulerArgs(p, scheduler)),
	}, nil
}

func auditLog(logs string) string { return filepath.Join(logs, "audit.log") }

// issue makes the certificates and keys of the servers.
func issue(p *pki) error {
	dns := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	ips := []net.IP{net.ParseIP(hostIP), net.ParseIP(serviceIP), net.IPv4(127, 0, 0, 1)}
	if err := p.server("server", dns, ips...); err != nil {
		return err
	}
	if _, err := p.client(kubeletClient, kubeletClient); err != nil {
		return err
	}
	return p.signingKey("service-account")
}

func etcdArgs(dir string) []string {
	const peer = "http://127.0.0.1:2380"
	return []string{
		"--name=control-plane",
		"--data-dir=" + dir,
		"--listen-client-urls=" + etcdURL,
		"--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=control-plane=" + peer,
		"--unsafe-no-fsync",
	}
}

func apiServerArgs(p *pki, policy, audit string) []string {
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=0.0.0.0",
		"--secure-port=" + apiServerPort,
		"--advertise-address=" + hostIP,
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--enable-aggregator-routing=true",
		"--allow-privileged=true",
		"--client-ca-file=" + p.caFile(),
		"--tls-cert-file=" + p.certFile("server"),
		"--tls-private-key-file=" + p.keyFile("server"),
		"--kubelet-certificate-authority=" + p.caFile(),
		"--kubelet-client-certificate=" + p.certFile(kubeletClient),
		"--kubelet-client-key=" + p.keyFile(kubeletClient),
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + p.keyFile("service-account"),
		"--service-account-signing-key-file=" + p.keyFile("service-account"),
		"--audit-policy-file=" + policy,
		"--audit-log-path=" + audit,
		"--profiling=false",
	}
}

func controllerManagerArgs(p *pki, kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--tls-cert-file=" + p.certFile("server"),
		"--tls-private-key-file=" + p.keyFile("server"),
		"--root-ca-file=" + p.caFile(),
		"--cluster-signing-cert-file=" + p.caFile(),
		"--cluster-signing-key-file=" + p.caKeyFile(),
		"--service-account-private-key-file=" + p.keyFile("service-account"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		"--kube-api-qps=200",
		"--kube-api-burst=400",
		"--profiling=false",
	}
}

func schedulerArgs(p *pki, kubeconfig string) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		"--tls-cert-file=" + p.certFile("server"),
		"--tls-private-key-file=" + p.keyFile("server"),
		"--leader-elect=false",
		"--profiling=false",
	}
}

// healthClient trusts the cluster's own authority only.
func healthClient(ca *x509.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
	}
}

// startAPI returns when the API server is ready.
func (p *controlPlane) startAPI(ctx context.Context) error {
	for _, c := range []*component{p.etcd, p.apiServer} {
		if err := startReady(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// startControllers returns when those that act on the API are ready.
func (p *controlPlane) startControllers(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range []*component{p.controllerManager, p.scheduler} {
		group.Go(func() error { return startReady(ctx, c) })
	}
	return group.Wait()
}

func startReady(ctx context.Context, c *component) error {
	if err := c.start(); err != nil {
		return err
	}
	return c.waitReady(ctx)
}

func restart(ctx context.Context, c *component) error {
	grace, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	if err := c.end(grace, syscall.SIGTERM); err != nil && grace.Err() == nil {
		return err
	}
	return startReady(ctx, c)
}

// kill ends all of it, what depends on others first.
func (p *controlPlane) kill(ctx context.Context) error {
	for _, c := range []*component{p.scheduler, p.controllerManager, p.apiServer, p.etcd} {
		if err := c.end(ctx, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return nil
}
