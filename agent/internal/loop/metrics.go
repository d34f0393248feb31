package loop

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/publish"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Metrics are the agent's own. Every label has a fixed set of values, and every series exists from the start.
type Metrics struct {
	InUse     *prometheus.GaugeVec // protocol, family
	Cooling   *prometheus.GaugeVec // protocol, family
	RangeSize prometheus.Gauge
	Sync      *prometheus.HistogramVec // result
	Repairs   prometheus.Counter
	Patches   *prometheus.CounterVec // result
	Refusals  *prometheus.GaugeVec   // reason
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		InUse:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "npl_agent_ports_in_use", Help: "Node ports that belong to a Pod."}, []string{"protocol", "family"}),
		Cooling:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "npl_agent_ports_cooling", Help: "Freed node ports that no other Pod may have yet."}, []string{"protocol", "family"}),
		RangeSize: prometheus.NewGauge(prometheus.GaugeOpts{Name: "npl_agent_port_range_size", Help: "Node ports there are for each protocol and family."}),
		Sync: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "npl_agent_sync_duration_seconds", Help: "How long a pass over the Node took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14)}, []string{"result"}),
		Repairs:  prometheus.NewCounter(prometheus.CounterOpts{Name: "npl_agent_repairs_total", Help: "Parts of our nftables tables that somebody changed and that were restored."}),
		Patches:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "npl_agent_annotation_patches_total", Help: "Annotations written, by result."}, []string{"result"}),
		Refusals: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "npl_agent_refusals", Help: "What is wanted and cannot be, by reason."}, []string{"reason"}),
	}
	for _, c := range []prometheus.Collector{m.InUse, m.Cooling, m.RangeSize, m.Sync, m.Repairs, m.Patches, m.Refusals} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering the agent's metrics: %w", err)
		}
	}
	for _, r := range publish.Results() {
		m.Patches.WithLabelValues(string(r))
	}
	for _, r := range []string{"success", "error"} {
		m.Sync.WithLabelValues(r)
	}
	m.state(nil, nil, nil)
	return m, nil
}

func (m *Metrics) observe(took time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.Sync.WithLabelValues(result).Observe(took.Seconds())
}

func (m *Metrics) state(owners map[model.Key]model.ID, cooling map[model.Key]time.Time, refusals map[model.Refusal]bool) {
	type pool struct {
		p npl.Protocol
		f npl.Family
	}
	inUse, resting := map[pool]int{}, map[pool]int{}
	for k := range owners {
		inUse[pool{k.Protocol, k.Family}]++
	}
	for k := range cooling {
		resting[pool{k.Protocol, k.Family}]++
	}
	for _, p := range []npl.Protocol{npl.TCP, npl.UDP, npl.SCTP} {
		for _, f := range []npl.Family{npl.IPv4, npl.IPv6} {
			m.InUse.WithLabelValues(string(p), string(f)).Set(float64(inUse[pool{p, f}]))
			m.Cooling.WithLabelValues(string(p), string(f)).Set(float64(resting[pool{p, f}]))
		}
	}
	byReason := map[model.Reason]int{}
	for r := range refusals {
		byReason[r.Reason]++
	}
	for _, r := range Reasons() {
		m.Refusals.WithLabelValues(string(r)).Set(float64(byReason[r]))
	}
}
