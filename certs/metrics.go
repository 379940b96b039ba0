package certs

import (
	"crypto/x509"

	"github.com/prometheus/client_golang/prometheus"
)

type gauges struct {
	authority   *prometheus.GaugeVec
	certificate prometheus.Gauge
	phase       *prometheus.GaugeVec
	injections  *prometheus.CounterVec
	errors      *prometheus.CounterVec
}

func newGauges() *gauges {
	return &gauges{
		authority: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "etcd_volumes_webhook_ca_expiration_timestamp_seconds",
			Help: "When a certificate authority in the bundle ends, in seconds since 1970; by its role: current, next or previous.",
		}, []string{"role"}),
		certificate: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "etcd_volumes_webhook_certificate_expiration_timestamp_seconds",
			Help: "When this replica's serving certificate ends, in seconds since 1970.",
		}),
		phase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "etcd_volumes_webhook_ca_rotation_phase",
			Help: "1 for the phase that the rotation of the certificate authority is in, 0 for the others.",
		}, []string{"phase"}),
		injections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_volumes_webhook_ca_bundle_writes_total",
			Help: "Writes of caBundle by kind of webhook configuration. Outside of rotations, a growing count names a fight over it.",
		}, []string{"kind"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_volumes_webhook_certificate_errors_total",
			Help: "Passes over the certificates that ended in an error; by duty: refresh (each replica) or lead (the leader).",
		}, []string{"duty"}),
	}
}

func (g *gauges) collectors() []prometheus.Collector {
	return []prometheus.Collector{g.authority, g.certificate, g.phase, g.injections, g.errors}
}

func (g *gauges) observe(s *State, leaf *x509.Certificate) {
	g.certificate.Set(float64(leaf.NotAfter.Unix()))
	for _, p := range Phases {
		g.phase.WithLabelValues(string(p)).Set(0)
	}
	g.phase.WithLabelValues(string(s.Phase)).Set(1)
	g.authority.Reset()
	g.authority.WithLabelValues("current").Set(float64(s.Current.Certificate.NotAfter.Unix()))
	if s.Next != nil {
		g.authority.WithLabelValues("next").Set(float64(s.Next.Certificate.NotAfter.Unix()))
	}
	if s.Previous != nil {
		g.authority.WithLabelValues("previous").Set(float64(s.Previous.NotAfter.Unix()))
	}
}
