package reconciler

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-volumes/etcd-volumes/reconciler/plan"
	"github.com/etcd-volumes/etcd-volumes/reconciler/report"
	"github.com/etcd-volumes/etcd-volumes/reconciler/v1alpha1"
)

// measures are the metrics of the reconciler. Gauges are summed over what the last pass of each Etcd saw.
type measures struct {
	steps    *prometheus.CounterVec
	waits    *prometheus.CounterVec
	gates    *prometheus.CounterVec
	rollouts *prometheus.Desc
	out      *prometheus.Desc
	retained *prometheus.Desc

	mu   sync.Mutex
	seen map[types.NamespacedName]counts
}

type counts struct {
	rollouts map[[2]string]int // by operation and phase
	out      int
	retained int
}

func newMeasures() *measures {
	return &measures{
		steps: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_volumes_steps_total", Help: "Steps taken, by action and result (done, conflict, failed, refused).",
		}, []string{"action", "result"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_volumes_wait_seconds_total", Help: "Seconds that rollouts have waited, by reason, counted when the waiting ends.",
		}, []string{"reason"}),
		gates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_volumes_gate_refusals_total", Help: "How often a rollout began to wait at a gate, by gate.",
		}, []string{"gate"}),
		rollouts: prometheus.NewDesc("etcd_volumes_rollouts", "Rollouts, by operation and phase.", []string{"operation", "phase"}, nil),
		out:      prometheus.NewDesc("etcd_volumes_members_out", "Members that are out because of a rollout.", nil, nil),
		retained: prometheus.NewDesc("etcd_volumes_retained_volumes", "Old volumes that are still kept.", nil, nil),
		seen:     map[types.NamespacedName]counts{},
	}
}

// register is content to find itself registered: a second manager in one process, as in tests, is measured by nobody.
func (m *measures) register(registry prometheus.Registerer) error {
	err := registry.Register(m)
	if already := (prometheus.AlreadyRegisteredError{}); errors.As(err, &already) {
		return nil
	}
	return err
}

// Describe tells the metrics.
func (m *measures) Describe(ch chan<- *prometheus.Desc) {
	m.steps.Describe(ch)
	m.waits.Describe(ch)
	m.gates.Describe(ch)
	ch <- m.rollouts
	ch <- m.out
	ch <- m.retained
}

// Collect tells their values.
func (m *measures) Collect(ch chan<- prometheus.Metric) {
	m.steps.Collect(ch)
	m.waits.Collect(ch)
	m.gates.Collect(ch)
	m.mu.Lock()
	defer m.mu.Unlock()
	var out, retained int
	rollouts := map[[2]string]int{}
	for _, c := range m.seen {
		out, retained = out+c.out, retained+c.retained
		for k, n := range c.rollouts {
			rollouts[k] += n
		}
	}
	for k, n := range rollouts {
		ch <- prometheus.MustNewConstMetric(m.rollouts, prometheus.GaugeValue, float64(n), k[0], k[1])
	}
	ch <- prometheus.MustNewConstMetric(m.out, prometheus.GaugeValue, float64(out))
	ch <- prometheus.MustNewConstMetric(m.retained, prometheus.GaugeValue, float64(retained))
}

func (m *measures) refused(a plan.Action) { m.steps.WithLabelValues(string(a), "refused").Inc() }

// pass counts one pass.
func (m *measures) pass(key types.NamespacedName, s plan.Snapshot, step plan.Step, result report.Result, now time.Time) {
	m.step(step, result)
	for _, r := range s.Rollouts {
		if r.Name != step.Rollout || r.Status.Reason == string(step.Reason) {
			continue
		}
		if step.Action == plan.Wait {
			m.gates.WithLabelValues(string(step.Reason)).Inc()
		}
		if r.Status.Since != nil && r.Status.Reason != "" && !r.Final() {
			m.waits.WithLabelValues(r.Status.Reason).Add(max(0, now.Sub(r.Status.Since.Time).Seconds()))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Etcd == nil && len(s.Rollouts) == 0 && len(s.Volumes) == 0 {
		delete(m.seen, key)
		return
	}
	m.seen[key] = count(s, now)
}

func (m *measures) step(step plan.Step, result report.Result) {
	if !step.Action.Writes() {
		return
	}
	outcome := "done"
	switch {
	case result.Conflict:
		outcome = "conflict"
	case result.Err != nil:
		outcome = "failed"
	}
	m.steps.WithLabelValues(string(step.Action), outcome).Inc()
}

func count(s plan.Snapshot, now time.Time) counts {
	c := counts{rollouts: map[[2]string]int{}}
	for _, r := range s.Rollouts {
		c.rollouts[[2]string{string(r.Operation), string(r.Status.Phase)}]++
		if r.Final() {
			continue
		}
		for _, m := range s.Members {
			switch plan.Assess(s, r, m, now).Phase {
			case v1alpha1.MemberLeaving, v1alpha1.MemberProvisioning, v1alpha1.MemberResyncing:
				c.out++
			case v1alpha1.MemberWaiting, v1alpha1.MemberSoaking, v1alpha1.MemberReplaced:
			}
		}
	}
	for _, v := range s.Volumes {
		if !v.ClaimLives {
			c.retained++
		}
	}
	return c
}
