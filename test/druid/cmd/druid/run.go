package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/etcd-volumes/etcd-volumes/test/druid/api"
	"github.com/etcd-volumes/etcd-volumes/test/druid/controller"
	"github.com/etcd-volumes/etcd-volumes/test/druid/protect"
)

const (
	exitFailed = 1
	exitUsage  = 2
	qps        = 100
	burst      = 150
	// syncCheck is how long a readiness check waits for the caches; it only has to look, not to wait.
	syncCheck = 10 * time.Millisecond
)

var errNotSynced = errors.New("the caches have not synced yet")

// options are the command line.
type options struct {
	controller controller.Config

	protection    bool
	exempt        []string
	account       string
	webhookPort   int
	service       string
	namespace     string
	configuration string

	healthAddress  string
	metricsAddress string
}

func (o *options) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("druid", pflag.ContinueOnError)
	c := &o.controller
	*c = controller.DefaultConfig()
	f.BoolVar(&c.AutoReconcile, "enable-auto-reconcile", c.AutoReconcile, "reconcile a spec whenever it changes; otherwise only when it is new or an operation annotation asks for it")
	f.DurationVar(&c.StatusSyncPeriod, "etcd-status-sync-period", c.StatusSyncPeriod, "time between two passes over an Etcd, and longest back-off")
	f.DurationVar(&c.RetryInterval, "sync-retry-interval", c.RetryInterval, "time after which a component that is not finished is synced again")
	f.DurationVar(&c.CleanupInterval, "cleanup-interval", c.CleanupInterval, "time after which a deletion is looked at again")
	f.IntVar(&c.Workers, "etcd-workers", c.Workers, "number of Etcds that are reconciled at once")
	f.DurationVar(&c.Thresholds.Unknown, "etcd-member-unknown-threshold", c.Thresholds.Unknown, "age of a lease from which on its member is doubted")
	f.DurationVar(&c.Thresholds.NotReady, "etcd-member-notready-threshold", c.Thresholds.NotReady, "time after that from which on it is not ready")
	f.StringVar(&c.Images.Etcd, "etcd-wrapper-image", c.Images.Etcd, "image of the etcd container where the Etcd names none")
	f.StringVar(&c.Images.Backup, "backup-restore-image", c.Images.Backup, "image of the sidecar where the Etcd names none")
	f.StringVar(&c.Images.Init, "init-container-image", c.Images.Init, "image of the init container that hands a local backup directory to the members' user")
	f.DurationVar(&c.ReadinessDelay, "readiness-initial-delay", c.ReadinessDelay, "initial delay of the etcd container's readiness probe, in whole seconds")
	f.BoolVar(&o.protection, "enable-protection-webhook", false, "guard the components of Etcds against everybody else")
	f.StringSliceVar(&o.exempt, "exempt-service-accounts", []string{"system:serviceaccount:kube-system:generic-garbage-collector"}, "user names that the protection lets through")
	f.StringVar(&o.account, "reconciler-service-account", "system:serviceaccount:druid-system:etcd-druid", "user name of this process itself")
	f.IntVar(&o.webhookPort, "webhook-port", 9443, "port of the webhook")
	f.StringVar(&o.service, "webhook-service", "etcd-druid", "name of the Service that leads to the webhook")
	f.StringVar(&o.namespace, "webhook-namespace", "druid-system", "namespace of that Service")
	f.StringVar(&o.configuration, "webhook-configuration", "etcd-druid", "name of the ValidatingWebhookConfiguration that gets the CA")
	f.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", "0", "address of /metrics; 0 for none")
	return f
}

// run is the whole command; it returns the exit code.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	o := &options{}
	flags := o.flags()
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		_, _ = fmt.Fprintf(stderr, "druid: %v\n", err)
		return exitUsage
	}
	if flags.NArg() > 0 {
		_, _ = fmt.Fprintf(stderr, "druid: unexpected argument %q\n", flags.Arg(0))
		return exitUsage
	}
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(stderr))))
	if err := serve(ctx, o); err != nil {
		_, _ = fmt.Fprintf(stderr, "druid: %v\n", err)
		return exitFailed
	}
	return 0
}

func serve(ctx context.Context, o *options) error {
	mgr, cert, err := newManager(o)
	if err != nil {
		return err
	}
	if err := controller.SetUp(mgr, o.controller); err != nil {
		return err
	}
	if err := addChecks(mgr, o); err != nil {
		return err
	}
	if o.protection {
		if err := addProtection(mgr, o, cert); err != nil {
			return err
		}
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	return nil
}

func newManager(o *options) (ctrl.Manager, *protect.Certificate, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), api.AddToScheme(scheme)); err != nil {
		return nil, nil, fmt.Errorf("build scheme: %w", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("find the API server: %w", err)
	}
	config.QPS, config.Burst = qps, burst
	cert, err := protect.SelfSigned(o.service, o.namespace, time.Now())
	if err != nil {
		return nil, nil, err
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.healthAddress,
		Client:                 client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Event{}}}},
		Controller:             ctrlconfig.Controller{RecoverPanic: ptr.To(true)},
		WebhookServer: webhook.NewServer(webhook.Options{
			Port: o.webhookPort,
			TLSOpts: []func(*tls.Config){func(c *tls.Config) {
				c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &cert.TLS, nil }
			}},
		}),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("build manager: %w", err)
	}
	return mgr, cert, nil
}

// addChecks makes the pod ready once the caches, and the webhook if there is one, are.
func addChecks(mgr ctrl.Manager, o *options) error {
	synced := func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), syncCheck)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errNotSynced
		}
		return nil
	}
	err := errors.Join(
		mgr.AddHealthzCheck("ping", func(*http.Request) error { return nil }),
		mgr.AddReadyzCheck("informer-sync", synced),
	)
	if o.protection {
		err = errors.Join(err, mgr.AddReadyzCheck("webhook-server", mgr.GetWebhookServer().StartedChecker()))
	}
	if err != nil {
		return fmt.Errorf("add checks: %w", err)
	}
	return nil
}

func addProtection(mgr ctrl.Manager, o *options, cert *protect.Certificate) error {
	mgr.GetWebhookServer().Register(protect.Path, &webhook.Admission{
		Handler:      &protect.Handler{Reader: mgr.GetClient(), Druid: o.account, Exempt: o.exempt},
		RecoverPanic: ptr.To(true),
	})
	keeper := &protect.BundleKeeper{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Configuration: o.configuration, Bundle: cert.Bundle}
	if err := mgr.Add(keeper); err != nil {
		return fmt.Errorf("keep the CA of the webhook: %w", err)
	}
	return nil
}
