package webhook

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
)

// Paths under which the webhooks are served.
const (
	ValidatingPath = "/validate-etcds"
	MutatingPath   = "/mutate-etcds"
)

// Defaults of Options. The deadlines are shorter than the timeoutSeconds of the webhook configurations (5 and 2), so that a look-up that takes
// too long yields our refusal and not the API server's.
const (
	DefaultValidatingDeadline = 4 * time.Second
	DefaultMutatingDeadline   = 1500 * time.Millisecond
	DefaultRetainVolumes      = 24 * time.Hour
)

// largestReview bounds the body of a request: two Etcds at the API server's limit of 1.5 MiB each.
const largestReview = 3 << 20

// Options configure the door. The zero value is good.
type Options struct {
	// ValidatingDeadline and MutatingDeadline bound the time for one request; 0 = the defaults.
	ValidatingDeadline, MutatingDeadline time.Duration
	// RetainVolumes is how long replaced volumes are kept; the explanation says so. 0 = the default.
	RetainVolumes time.Duration
	// Now is the clock; nil = time.Now.
	Now func() time.Time
	// Registerer takes the metrics; nil = controller-runtime's registry.
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() Options {
	o.ValidatingDeadline = cmp.Or(o.ValidatingDeadline, DefaultValidatingDeadline)
	o.MutatingDeadline = cmp.Or(o.MutatingDeadline, DefaultMutatingDeadline)
	o.RetainVolumes = cmp.Or(o.RetainVolumes, DefaultRetainVolumes)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Registerer == nil {
		o.Registerer = metrics.Registry
	}
	return o
}

// Register serves both webhooks on the manager's webhook server. The manager's scheme must know VolumeRollouts and the built-in types. Its
// client may read claims and volumes with or without a cache; a cache of them must not leave out what bears no label.
func Register(mgr ctrl.Manager, o Options) error {
	ctx := context.Background() //nolint:forbidigo // the manager is not running yet: nothing is waited for
	if err := startInformers(ctx, mgr.GetCache()); err != nil {
		return err
	}
	for path, side := range map[string]verdict.Side{ValidatingPath: verdict.Validating, MutatingPath: verdict.Mutating} {
		h, err := NewHandler(side, mgr.GetClient(), mgr.GetAPIReader(), o)
		if err != nil {
			return err
		}
		mgr.GetWebhookServer().Register(path, http.MaxBytesHandler(&admission.Webhook{Handler: h}, largestReview))
	}
	return nil
}

// NewHandler is one of the two webhooks: cached serves explanations, live (uncached) what is allowed.
func NewHandler(side verdict.Side, cached, live client.Reader, o Options) (*Handler, error) {
	o = o.withDefaults()
	counts, err := newDecisions(o.Registerer)
	if err != nil {
		return nil, err
	}
	deadline := o.ValidatingDeadline
	if side == verdict.Mutating {
		deadline = o.MutatingDeadline
	}
	return &Handler{
		side: side, cached: cached, live: live, deadline: deadline, retain: o.RetainVolumes, now: o.Now, metrics: counts,
	}, nil
}

// startInformers makes the informers start with the manager, not with the first request, whose deadline they would use up.
func startInformers(ctx context.Context, informers cache.Informers) error {
	for _, of := range []client.Object{
		&appsv1.StatefulSet{}, &storagev1.StorageClass{}, &v1alpha1.VolumeRollout{},
	} {
		if _, err := informers.GetInformer(ctx, of, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("start informer of %T: %w", of, err)
		}
	}
	return nil
}
