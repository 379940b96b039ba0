package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/etcd-volumes/etcd-volumes/certs"
	"github.com/etcd-volumes/etcd-volumes/reconciler"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook"
	"github.com/etcd-volumes/etcd-volumes/webhook/volume"
)

// manage runs the operator until the context is done, then drains it.
func manage(ctx context.Context, o *managerOptions, logs io.Writer) error {
	log, err := newLogger(o, logs)
	if err != nil {
		return err
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	api, err := restConfig(o.kubeconfig, "")
	if err != nil {
		return err
	}
	mgr, drain, err := build(api, o, log) //nolint:contextcheck // nothing is waited for before the manager runs
	if err != nil {
		return err
	}
	log.Info("starting", "version", version())
	return drain.run(ctx, mgr)
}

// build wires the operator: the webhook server with its certificates on each replica, the reconciler on the leader.
func build(api *rest.Config, o *managerOptions, log logr.Logger) (manager.Manager, *drain, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, nil, err
	}
	keeper, err := certs.New(certs.Options{
		Mode: certs.Mode(o.certMode), Dir: o.certDir, Namespace: o.namespace, Secret: certsSecret, Service: webhookService,
		Configuration: configurationName, Port: o.webhookPort, Policy: o.certs, Now: time.Now,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("set up certificates: %w", err)
	}
	mgr, err := ctrl.NewManager(api, ctrl.Options{
		Scheme: scheme, Logger: log, Cache: cacheOptions(o.namespace), Client: clientOptions(), WebhookServer: keeper.Server(),
		Metrics: metricsOptions(o), HealthProbeBindAddress: o.healthAddress,
		LeaderElection: o.leaderElect, LeaderElectionID: leaseName, LeaderElectionNamespace: o.namespace,
		LeaseDuration: &o.leaseDuration, RenewDeadline: &o.renewDeadline, RetryPeriod: &o.retryPeriod,
		LeaderElectionReleaseOnCancel: true, // the process ends right after the manager
	})
	if err != nil {
		return nil, nil, fmt.Errorf("create manager: %w", err)
	}
	drain := &drain{wait: o.drain}
	if err := errors.Join(
		keeper.Setup(mgr),
		webhook.Register(mgr, webhook.Options{RetainVolumes: o.work.RetainVolumes}),
		reconciler.Setup(mgr, o.work),
		mgr.AddHealthzCheck("process", healthz.Ping),
		mgr.AddReadyzCheck("drain", drain.check),
		mgr.AddReadyzCheck("webhook", keeper.Ready),
	); err != nil {
		return nil, nil, fmt.Errorf("set up operator: %w", err)
	}
	return mgr, drain, nil
}

// restConfig finds the API server: by the kubeconfig where one is named, else as kubectl does, else by the pod's account.
func restConfig(kubeconfig, context string) (*rest.Config, error) {
	var api *rest.Config
	var err error
	if kubeconfig == "" {
		api, err = config.GetConfigWithContext(context)
	} else {
		api, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, &clientcmd.ConfigOverrides{CurrentContext: context},
		).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	api.QPS = -1 // the API server's own fairness limits us; a limit of ours would eat the deadlines of webhook calls
	api.UserAgent = "etcd-volumes/" + version()
	return api, nil
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(clientscheme.AddToScheme(scheme), volume.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
	if err != nil {
		return nil, fmt.Errorf("build scheme: %w", err)
	}
	return scheme, nil
}

// newLogger logs to out; client-go's own words included.
func newLogger(o *managerOptions, out io.Writer) (logr.Logger, error) {
	level, err := logLevel(o.logLevel)
	if err != nil {
		return logr.Logger{}, err
	}
	options := &slog.HandlerOptions{Level: level}
	var handler slog.Handler = slog.NewJSONHandler(out, options)
	if o.logFormat == "text" {
		handler = slog.NewTextHandler(out, options)
	}
	return logr.FromSlogHandler(handler), nil
}

func logLevel(name string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return 0, fmt.Errorf("--log-level=%q: want debug, info, warn or error", name)
	}
	return level, nil
}

// Who reads the metrics is asked for, and what they may do.
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

func metricsOptions(o *managerOptions) metricsserver.Options {
	m := metricsserver.Options{BindAddress: o.metricsAddress}
	if !o.metricsOpen {
		m.SecureServing = true
		m.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return m
}

// drain ends the operator in order: first not ready, then, when no new requests can come, stopped.
type drain struct {
	wait     time.Duration
	draining atomic.Bool
}

// check is the readiness check that fails once the operator is about to end.
func (d *drain) check(*http.Request) error {
	if d.draining.Load() {
		return errors.New("about to end")
	}
	return nil
}

type starter interface {
	Start(ctx context.Context) error
}

// run runs the manager. When the context is done it waits before it stops it: meanwhile the replica is taken out of
// the Service and goes on serving.
func (d *drain) run(ctx context.Context, mgr starter) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	select {
	case err := <-ended:
		return wrapped(err)
	case <-ctx.Done():
	}
	d.draining.Store(true)
	select {
	case err := <-ended:
		return wrapped(err)
	case <-time.After(d.wait):
	}
	stop()
	return wrapped(<-ended)
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("run manager: %w", err)
}
