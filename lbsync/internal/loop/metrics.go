package loop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// Metrics are the loop's. They outlive a loop, because each term as leader has a new one.
type Metrics struct {
	cycle       prometheus.Histogram
	apply       *prometheus.HistogramVec
	observe     *prometheus.HistogramVec
	changes     *prometheus.CounterVec
	members     *prometheus.GaugeVec
	refusals    *prometheus.GaugeVec
	unsupported prometheus.Gauge
	propagation prometheus.Histogram
	drift       *prometheus.CounterVec
	held        prometheus.Gauge
	guarded     prometheus.Gauge
	guards      prometheus.Counter
	heldPorts   prometheus.Gauge
	dark        prometheus.Gauge
}

const success = "Success"

// Causes of drift.
const (
	causeEdited    = "Edited"    // by a person or another program
	causeRestarted = "Restarted" // the load balancer was, before it had kept the last changes
)

// NewMetrics registers the metrics; every label value is there from the start.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	seconds := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := &Metrics{
		cycle: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lbsync_sync_duration_seconds", Buckets: seconds,
			Help: "Time from taking up changed Services to having their results."}),
		apply: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "lbsync_provider_apply_duration_seconds", Buckets: seconds,
			Help: "Duration of one Apply of the provider, by the first error kind in it or Success."}, []string{"result"}),
		observe: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "lbsync_provider_observe_duration_seconds", Buckets: seconds,
			Help: "Duration of one Observe of the provider, by error kind or Success."}, []string{"result"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lbsync_provider_changes_total",
			Help: "Service ports changed on the load balancer, by error kind or Success."}, []string{"result"}),
		members: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lbsync_members",
			Help: "Members on the load balancer, by state."}, []string{"state"}),
		refusals: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lbsync_refusals",
			Help: "Pods that are not members of a pool that selects them, by reason."}, []string{"reason"}),
		unsupported: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_unsupported_ports",
			Help: "Service ports that are not served because the load balancer cannot do what they ask for."}),
		propagation: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "lbsync_propagation_seconds", Buckets: seconds,
			Help: "Time from the first event about a Service or its Pods to the load balancer's acknowledgement of what follows from it."}),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lbsync_drift_total",
			Help: "Services whose objects on the load balancer were found changed, by cause: Edited by somebody else, or Restarted."}, []string{"cause"}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_removals_held",
			Help: "1 while removals wait because the API server's answer cannot be believed, else 0."}),
		guarded: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_guard_members",
			Help: "Members that the guard holds because no event explains their loss."}),
		guards: prometheus.NewCounter(prometheus.CounterOpts{Name: "lbsync_guard_holds_total",
			Help: "Times that the guard began to hold members of a pool."}),
		heldPorts: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_held_node_ports",
			Help: "Node ports that the load balancer lists, or may list, without a Pod that is certain to have them: no npl-agent gives them away."}),
		dark: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_members_without_node",
			Help: "Members of which nobody knows on which Node they are; while there are any, no watermark is published."}),
	}
	for _, result := range []string{success, string(providers.Unavailable), string(providers.Throttled),
		string(providers.Conflict), string(providers.Rejected), string(providers.Misconfigured)} {
		m.apply.WithLabelValues(result)
		m.observe.WithLabelValues(result)
		m.changes.WithLabelValues(result)
	}
	for _, cause := range []string{causeEdited, causeRestarted} {
		m.drift.WithLabelValues(cause)
	}
	for _, c := range []prometheus.Collector{m.cycle, m.apply, m.observe, m.changes, m.members, m.refusals, m.unsupported,
		m.propagation, m.drift, m.held, m.guarded, m.guards, m.heldPorts, m.dark} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	m.Reset()
	return m, nil
}

// Reset clears what speaks of the present. A loop that ends no longer knows.
func (m *Metrics) Reset() {
	for _, state := range []providers.MemberState{providers.Enabled, providers.Draining} {
		m.members.WithLabelValues(string(state)).Set(0)
	}
	for _, reason := range model.Reasons() {
		m.refusals.WithLabelValues(string(reason)).Set(0)
	}
	m.unsupported.Set(0)
	m.held.Set(0)
	m.guarded.Set(0)
	m.ports(0, 0)
}

func (m *Metrics) ports(held, dark int) {
	m.heldPorts.Set(float64(held))
	m.dark.Set(float64(dark))
}

// replace moves the gauges from one report of a Service to the next.
func (m *Metrics) replace(before, after Report) {
	m.add(before, -1)
	m.add(after, 1)
}

func (m *Metrics) add(r Report, sign float64) {
	for _, pool := range r.Pools {
		for _, member := range pool.Members {
			m.members.WithLabelValues(string(member.State)).Add(sign)
		}
	}
	for _, refusal := range r.Refusals {
		m.refusals.WithLabelValues(string(refusal.Reason)).Add(sign)
	}
	for _, port := range r.Ports {
		if port.Unsupported {
			m.unsupported.Add(sign)
		}
		m.guarded.Add(sign * float64(port.Guarded))
	}
}

func (m *Metrics) hold(held bool) {
	m.held.Set(0)
	if held {
		m.held.Set(1)
	}
}

func (m *Metrics) observed(took time.Duration, err error) {
	m.observe.WithLabelValues(resultOf(err)).Observe(took.Seconds())
}

func (m *Metrics) applied(took time.Duration, keys []providers.Key, results providers.Results) {
	worst := success
	for _, key := range keys {
		err, attempted := results[key]
		if !attempted {
			continue
		}
		result := resultOf(err)
		m.changes.WithLabelValues(result).Inc()
		if worst == success {
			worst = result
		}
	}
	m.apply.WithLabelValues(worst).Observe(took.Seconds())
}

func resultOf(err error) string {
	if err == nil {
		return success
	}
	return string(providers.KindOf(err))
}
