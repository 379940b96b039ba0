package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/etcd-volumes/etcd-volumes/certs"
	"github.com/etcd-volumes/etcd-volumes/reconciler"
)

// Names that deploy/ gives to what the operator finds in its cluster.
const (
	namespaceDefault  = "etcd-volumes-system"
	certsSecret       = "etcd-volumes-certs" //nolint:gosec // the name of one, not a secret
	webhookService    = "etcd-volumes-webhook"
	configurationName = "etcd-volumes"
	leaseName         = "etcd-volumes"
)

// managerOptions are the flags of the manager.
type managerOptions struct {
	namespace                     string
	webhookPort                   int
	healthAddress, metricsAddress string
	metricsOpen                   bool
	certMode, certDir             string
	certs                         certs.Policy
	leaderElect                   bool
	leaseDuration, renewDeadline  time.Duration
	retryPeriod                   time.Duration
	drain                         time.Duration
	work                          reconciler.Options
	logLevel, logFormat           string
	kubeconfig                    string
}

func managerDefaults() *managerOptions {
	o := &managerOptions{
		namespace: namespaceDefault, webhookPort: 9443, healthAddress: ":8081", metricsAddress: ":8443",
		certMode: string(certs.ModeSelf), certs: certs.DefaultPolicy(),
		leaderElect: true, leaseDuration: 15 * time.Second, renewDeadline: 10 * time.Second, retryPeriod: 2 * time.Second,
		drain: 10 * time.Second, work: reconciler.DefaultOptions(), logLevel: "info", logFormat: "json",
	}
	o.work.MemberDeadline = 15 * time.Minute // a member of some gigabytes resyncs over a slow network
	return o
}

func (o *managerOptions) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	f.SortFlags = false
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		o.namespace = ns
	}
	f.DurationVar(&o.work.RetainVolumes, "retain-volumes", o.work.RetainVolumes, "how long an old volume is kept after its rollout")
	f.DurationVar(&o.work.MemberDeadline, "member-deadline", o.work.MemberDeadline, "how long one member may be out before the rollout counts as stalled")
	f.DurationVar(&o.work.StepDeadline, "step-deadline", o.work.StepDeadline, "how long a gate may stay closed before the rollout counts as stalled")
	f.DurationVar(&o.work.Soak, "soak", o.work.Soak, "how long a replaced member is watched before the next one is taken")
	f.Uint64Var(&o.work.MaxLag, "max-lag", o.work.MaxLag, "how many raft entries a member may be behind and still count as caught up")
	f.DurationVar(&o.work.SnapshotRetry, "snapshot-retry", o.work.SnapshotRetry, "how long the proof of a snapshot is waited for before another one is taken")
	f.IntVar(&o.work.MaxConcurrentReconciles, "concurrency", o.work.MaxConcurrentReconciles, "how many Etcds are worked on at the same time")

	f.IntVar(&o.webhookPort, "webhook-port", o.webhookPort, "port of the webhook server")
	f.DurationVar(&o.drain, "drain", o.drain, "how long requests are still served after the replica stopped being ready, before it ends")
	f.StringVar(&o.healthAddress, "health-address", o.healthAddress, "address of /healthz and /readyz; 0 for none")
	f.StringVar(&o.metricsAddress, "metrics-address", o.metricsAddress, "address of /metrics; 0 for none")
	f.BoolVar(&o.metricsOpen, "metrics-open", o.metricsOpen, "serve metrics over plain HTTP to everyone, instead of over TLS to those who may get /metrics")

	f.StringVar(&o.certMode, "cert-mode", o.certMode, "self: make and rotate the webhook's certificates; files: take them from --cert-dir")
	f.StringVar(&o.certDir, "cert-dir", o.certDir, "directory with tls.crt and tls.key, with --cert-mode=files")
	f.DurationVar(&o.certs.AuthorityLife, "ca-life", o.certs.AuthorityLife, "life of the certificate authority; rotated at two thirds")
	f.DurationVar(&o.certs.CertificateLife, "cert-life", o.certs.CertificateLife, "life of a serving certificate; renewed at two thirds")
	f.DurationVar(&o.certs.Hold, "ca-hold", o.certs.Hold, "how long a new authority is trusted before it signs")

	f.StringVar(&o.namespace, "namespace", o.namespace, "the operator's own namespace; POD_NAMESPACE where that is set")
	f.BoolVar(&o.leaderElect, "leader-elect", o.leaderElect, "elect a leader among the replicas; off only for a single replica")
	f.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", o.leaseDuration, "how long a leader that is silent is waited for")
	f.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", o.renewDeadline, "how long the leader tries to renew before it gives up")
	f.DurationVar(&o.retryPeriod, "leader-elect-retry-period", o.retryPeriod, "time between two tries for the lease")

	f.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "kubeconfig to use; empty inside of a pod")
	f.StringVar(&o.logLevel, "log-level", o.logLevel, "debug, info, warn or error")
	f.StringVar(&o.logFormat, "log-format", o.logFormat, "json or text")
	return f
}

// validate says what is wrong with the flags, all at once.
func (o *managerOptions) validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.webhookPort < 1 || o.webhookPort > 65535, "--webhook-port=%d is no port", o.webhookPort)
	refuse(o.namespace == "", "--namespace is empty")
	refuse(o.drain < 0, "--drain=%s is negative", o.drain)
	refuse(o.leaseDuration <= o.renewDeadline || o.renewDeadline <= o.retryPeriod || o.retryPeriod <= 0,
		"--leader-elect-lease-duration=%s, --leader-elect-renew-deadline=%s, --leader-elect-retry-period=%s: each must be longer than the next",
		o.leaseDuration, o.renewDeadline, o.retryPeriod)
	_, levelErr := logLevel(o.logLevel)
	for _, err := range []error{o.work.Validate(), o.validateCerts(), levelErr} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	refuse(o.logFormat != "json" && o.logFormat != "text", "--log-format=%q: want json or text", o.logFormat)
	return oneLine(errs)
}

func (o *managerOptions) validateCerts() error {
	switch certs.Mode(o.certMode) {
	case certs.ModeSelf:
		return o.certs.Validate()
	case certs.ModeFiles:
		if o.certDir == "" {
			return errors.New("--cert-mode=files needs --cert-dir")
		}
		return nil
	}
	return fmt.Errorf("--cert-mode=%q: want %s or %s", o.certMode, certs.ModeSelf, certs.ModeFiles)
}

// oneLine joins errors with semicolons: bad flags give one line.
func oneLine(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	err := errs[0]
	for _, e := range errs[1:] {
		err = fmt.Errorf("%w; %w", err, e)
	}
	return err
}
