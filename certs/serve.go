package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Mode is where the certificate comes from.
type Mode string

// The modes.
const (
	// ModeSelf makes and rotates certificates and injects the bundle.
	ModeSelf Mode = "self"
	// ModeFiles takes tls.crt and tls.key of a directory and leaves caBundle to others, such as cert-manager.
	ModeFiles Mode = "files"
)

// maxBody is the largest request that the webhook server reads: an AdmissionReview with both objects and room to spare.
const maxBody = 3 << 20

// Options say for whom certificates are kept.
type Options struct {
	Mode Mode
	// Dir holds tls.crt and tls.key in ModeFiles.
	Dir string
	// Namespace is the operator's own.
	Namespace string
	// Secret holds the authority, Service is what the API server calls, Configuration is the name of both webhook configurations.
	Secret, Service, Configuration string
	// Port is where the webhook server listens.
	Port   int
	Policy Policy
	// Now is the wall clock.
	Now func() time.Time
}

func (o Options) names() []string { return Names(o.Service, o.Namespace) }

// filesSource is the certificate of ModeFiles.
type filesSource interface {
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	manager.Runnable
}

// New returns a Keeper that has no certificate yet. In ModeFiles the files must exist.
func New(o Options) (*Keeper, error) {
	k := &Keeper{options: o, gauges: newGauges()}
	switch o.Mode {
	case ModeSelf:
		return k, o.Policy.Validate()
	case ModeFiles:
		watcher, err := certwatcher.New(filepath.Join(o.Dir, "tls.crt"), filepath.Join(o.Dir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("read certificate in %s: %w", o.Dir, err)
		}
		k.files = watcher
		return k, nil
	}
	return nil, fmt.Errorf("unknown mode %q: want %s or %s", o.Mode, ModeSelf, ModeFiles)
}

// Server returns the webhook server: TLS 1.3, no HTTP/2 (API servers do not speak it to webhooks), bodies capped.
func (k *Keeper) Server() webhook.Server {
	return cappedServer{webhook.NewServer(webhook.Options{
		Port: k.options.Port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS13
			c.NextProtos = []string{"http/1.1"}
			c.GetCertificate = k.GetCertificate
		}},
	})}
}

// GetCertificate returns the certificate to serve at this moment.
func (k *Keeper) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if k.files != nil {
		return k.files.GetCertificate(hello)
	}
	if c := k.serve.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("no certificate yet")
}

// cappedServer wraps each handler that is registered, since the server's own mux can not be wrapped.
type cappedServer struct{ webhook.Server }

// Register registers a handler that reads no more than [maxBody] bytes of a request.
func (s cappedServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.MaxBytesHandler(hook, maxBody))
}

// A create can not be limited by name.
// +kubebuilder:rbac:namespace=system,groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:namespace=system,groups="",resources=secrets,resourceNames=etcd-volumes-certs,verbs=get;list;watch;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,resourceNames=etcd-volumes,verbs=get;list;watch;patch

// Setup adds the Keeper's duties to the manager, and its metrics to the registry.
func (k *Keeper) Setup(mgr ctrl.Manager) error {
	k.reader, k.writer, k.live = mgr.GetAPIReader(), mgr.GetClient(), mgr.GetCache()
	if k.files != nil {
		return mgr.Add(k.files)
	}
	for _, c := range k.gauges.collectors() {
		if err := metrics.Registry.Register(c); err != nil {
			return fmt.Errorf("register metrics of the certificates: %w", err)
		}
	}
	for _, d := range []*duty{
		{name: "refresh", keeper: k, do: k.Refresh, informers: mgr.GetCache()},
		{name: "lead", keeper: k, do: k.Lead, informers: mgr.GetCache(), leader: true},
	} {
		if err := mgr.Add(d); err != nil {
			return fmt.Errorf("add certificate duty %s: %w", d.name, err)
		}
	}
	return nil
}

// Ready reports why the API server could not call us; nil if it could. It does what the API server will do: a TLS
// handshake under the live caBundle with the Service's DNS name.
func (k *Keeper) Ready(req *http.Request) error {
	if k.live == nil {
		return errors.New("not set up yet")
	}
	all, err := configurations(req.Context(), k.live, k.options.Configuration)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("webhook configurations %s do not exist", k.options.Configuration)
	}
	var last []byte
	for _, c := range all {
		for _, e := range c.entries {
			if last != nil && bytes.Equal(last, e.bundle) {
				continue // most often they are all the same
			}
			if err := k.dial(req.Context(), e.bundle); err != nil {
				return fmt.Errorf("webhook %s: %w", e.name, err)
			}
			last = e.bundle
		}
	}
	return nil
}

func (k *Keeper) dial(ctx context.Context, bundle []byte) error {
	config := &tls.Config{ServerName: k.options.names()[0], MinVersion: tls.VersionTLS13}
	switch {
	case len(bundle) > 0:
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return errors.New("caBundle holds no certificate")
		}
	case k.options.Mode == ModeSelf: // in ModeFiles an empty bundle stands for the system's authorities
		return errors.New("caBundle is not injected yet")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	dialer := &tls.Dialer{Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(k.options.Port)))
	if err != nil {
		return fmt.Errorf("dial ourselves: %w", err)
	}
	return conn.Close()
}

// duty is one of the Keeper's two loops.
type duty struct {
	name      string
	keeper    *Keeper
	do        func(context.Context) error
	informers cache.Informers
	leader    bool
}

// NeedLeaderElection reports whether only the leader has this duty.
func (d *duty) NeedLeaderElection() bool { return d.leader }

// Start does the duty whenever the Secret or a configuration changes, and once in a while, until the context is done.
func (d *duty) Start(ctx context.Context) error {
	wake, err := d.watch(ctx)
	if err != nil {
		return fmt.Errorf("watch for certificate duty %s: %w", d.name, err)
	}
	for ctx.Err() == nil {
		pause := d.pauseAfter(d.do(ctx))
		select {
		case <-ctx.Done():
		case <-wake:
		case <-time.After(pause):
		}
	}
	return nil
}

// pauseAfter is how long to sleep after a pass that ended so.
func (d *duty) pauseAfter(err error) time.Duration {
	pause := d.keeper.pause()
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return pause
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return 50 * time.Millisecond // someone was faster: look again
	}
	ctrl.Log.WithName("certs").Error(err, "certificates are not in order", "duty", d.name)
	d.keeper.gauges.errors.WithLabelValues(d.name).Inc()
	return min(pause, 2*time.Second)
}

// watch returns a channel that is written to when the Secret or a configuration changes.
func (d *duty) watch(ctx context.Context) (<-chan struct{}, error) {
	wake := make(chan struct{}, 1)
	poke := func(any) {
		select {
		case wake <- struct{}{}:
		default: // already awake
		}
	}
	o := d.keeper.options
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Secret}},
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.Configuration}},
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: o.Configuration}},
	} {
		informer, err := d.informers.GetInformer(ctx, object)
		if err != nil {
			return nil, err
		}
		_, err = informer.AddEventHandler(toolscache.FilteringResourceEventHandler{
			FilterFunc: named(object),
			Handler: toolscache.ResourceEventHandlerFuncs{
				AddFunc: poke, UpdateFunc: func(_, obj any) { poke(obj) }, DeleteFunc: poke,
			},
		})
		if err != nil {
			return nil, err
		}
	}
	return wake, nil
}

// named passes events of the one object on, also where the cache holds others.
func named(object client.Object) func(any) bool {
	return func(event any) bool {
		if gone, ok := event.(toolscache.DeletedFinalStateUnknown); ok {
			event = gone.Obj
		}
		got, ok := event.(client.Object)
		return ok && got.GetName() == object.GetName() && got.GetNamespace() == object.GetNamespace()
	}
}
