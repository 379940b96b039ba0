package webhook

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
)

// decisions counts what was decided. No label holds a name of an object or a user.
type decisions struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newDecisions(registerer prometheus.Registerer) (*decisions, error) {
	total, err := register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "etcd_volumes_admission_decisions_total",
		Help: "Requests judged: by webhook, operation of the request, decision, first rule that spoke, and whether it was a dry run.",
	}, []string{"webhook", "operation", "decision", "rule", "dry_run"}))
	if err != nil {
		return nil, err
	}
	duration, err := register(registerer, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "etcd_volumes_admission_duration_seconds",
		Help:    "Time to judge a request, look-ups included.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	}, []string{"webhook", "decision"}))
	if err != nil {
		return nil, err
	}
	return &decisions{total: total, duration: duration}, nil
}

// register returns the collector that is registered, which is the first one of its name: both webhooks share it.
func register[T prometheus.Collector](registerer prometheus.Registerer, collector T) (T, error) {
	err := registerer.Register(collector)
	var registered prometheus.AlreadyRegisteredError
	if errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(T); ok {
			return existing, nil
		}
	}
	if err != nil {
		return collector, fmt.Errorf("register metric: %w", err)
	}
	return collector, nil
}

func (d *decisions) count(req admission.Request, v verdict.Verdict, took time.Duration) {
	rule := ""
	if len(v.Refusals) > 0 {
		rule = string(v.Refusals[0].Rule)
	}
	d.total.WithLabelValues(string(v.Side), operationLabel(req.Operation), string(v.Outcome), rule, strconv.FormatBool(dryRun(req))).Inc()
	d.duration.WithLabelValues(string(v.Side), string(v.Outcome)).Observe(took.Seconds())
}

// operationLabel keeps the number of label values small, whoever calls.
func operationLabel(operation admissionv1.Operation) string {
	switch operation {
	case admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect:
		return string(operation)
	default:
		return "other"
	}
}
