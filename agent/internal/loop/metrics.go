package loop

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/ports"
	"github.com/nplbridge/nplbridge/agent/internal/publish"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Metrics are the agent's own. Every label has a fixed set of values, and every series exists from the start.
type Metrics struct {
	InUse        *prometheus.GaugeVec // protocol, family
	Free         *prometheus.GaugeVec // protocol, family
	Cooling      *prometheus.GaugeVec // protocol, family
	Unconfirmed  *prometheus.GaugeVec // protocol, family
	Missing      *prometheus.GaugeVec // protocol, family
	RangeSize    prometheus.Gauge
	Sync         *prometheus.HistogramVec // result
	Propagation  prometheus.Histogram
	Transactions *prometheus.CounterVec // result
	Repairs      prometheus.Counter
	Patches      *prometheus.CounterVec // result
	Errors       *prometheus.CounterVec // class
	Refusals     *prometheus.GaugeVec   // reason
}

// The classes of errors that happen on the Node itself; those of the API server are in package publish.
const (
	ErrorKernelRead  = "KernelRead"
	ErrorKernelWrite = "KernelWrite"
	ErrorSocket      = "Socket"
)

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "npl_agent_" + name, Help: help}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "npl_agent_" + name, Help: help}, labels)
	}
	m := &Metrics{
		InUse:       gauge("ports_in_use", "Node ports that belong to a Pod.", "protocol", "family"),
		Free:        gauge("ports_free", "Node ports of portRange that a Pod could have at once, as far as no other process holds them; with sameNodePortPerProtocol those that are free for all protocols.", "protocol", "family"),
		Cooling:     gauge("ports_cooling", "Freed node ports that no other Pod may have yet.", "protocol", "family"),
		Unconfirmed: gauge("ports_unconfirmed", "Cooling node ports whose time is over and that wait for the watermark of a load balancer.", "protocol", "family"),
		Missing:     gauge("ports_missing", "Node ports that Pods wait for.", "protocol", "family"),
		RangeSize:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "npl_agent_port_range_size", Help: "Node ports there are for each protocol and family."}),
		Sync: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "npl_agent_sync_duration_seconds", Help: "How long a pass over the Node took.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14)}, []string{"result"}),
		Propagation: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "npl_agent_propagation_seconds",
			Help: "Time from the event of a Pod to the API server's answer that its annotation lists all its node ports, with the time it waited for a free port.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 18)}),
		Transactions: counter("kernel_transactions_total", "Changes of node ports written to the kernel, by result.", "result"),
		Repairs:      prometheus.NewCounter(prometheus.CounterOpts{Name: "npl_agent_repairs_total", Help: "Parts of our nftables tables that somebody changed and that were restored."}),
		Patches:      counter("annotation_patches_total", "Annotations written, by result.", "result"),
		Errors:       counter("errors_total", "Errors, each tried again, by class.", "class"),
		Refusals:     gauge("refusals", "What is wanted and cannot be, by reason.", "reason"),
	}
	for _, c := range []prometheus.Collector{m.InUse, m.Free, m.Cooling, m.Unconfirmed, m.Missing, m.RangeSize, m.Sync, m.Propagation, m.Transactions, m.Repairs, m.Patches, m.Errors, m.Refusals} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering the agent's metrics: %w", err)
		}
	}
	for _, r := range publish.Results() {
		m.Patches.WithLabelValues(string(r))
	}
	for _, r := range []string{"success", "error"} {
		m.Sync.WithLabelValues(r)
		m.Transactions.WithLabelValues(r)
	}
	for _, c := range publish.Classes() {
		m.Errors.WithLabelValues(string(c))
	}
	for _, c := range []string{ErrorKernelRead, ErrorKernelWrite, ErrorSocket} {
		m.Errors.WithLabelValues(c)
	}
	m.ports(ports.Range{First: 1}, census{}, time.Time{}) // of size 0
	m.refusals(nil)
	return m, nil
}

func result(err error) string {
	if err != nil {
		return "error"
	}
	return "success"
}

func (m *Metrics) observe(took time.Duration, err error) {
	m.Sync.WithLabelValues(result(err)).Observe(took.Seconds())
}

func (m *Metrics) transaction(err error) {
	m.Transactions.WithLabelValues(result(err)).Inc()
	if err != nil {
		m.Errors.WithLabelValues(ErrorKernelWrite).Inc()
	}
}

// Patched counts one patch.
func (m *Metrics) Patched(o publish.Outcome) {
	m.Patches.WithLabelValues(string(o.Result)).Inc()
	switch {
	case o.Result == publish.Failed:
		m.Errors.WithLabelValues(string(o.Class)).Inc()
	case o.Result == publish.Success && o.Complete && !o.Since.IsZero():
		m.Propagation.Observe(time.Since(o.Since).Seconds())
	}
}

// census is who has which node port.
type census struct {
	owners    map[model.Key]model.ID
	cooling   map[model.Key]time.Time
	hostPorts map[model.Key]string
	missing   []model.ID
	joint     bool // a number is given for all protocols
}

// pool is where node ports are given independently of other pools.
type pool struct {
	protocol npl.Protocol
	family   npl.Family
}

func (m *Metrics) ports(r ports.Range, c census, now time.Time) {
	inUse, cooling, unconfirmed, missing := map[pool]int{}, map[pool]int{}, map[pool]int{}, map[pool]int{}
	protocols, taken := []npl.Protocol{npl.TCP, npl.UDP, npl.SCTP}, map[model.Key]bool{}
	take := func(k model.Key) {
		for _, p := range protocols {
			if r.Contains(k.NodePort) && (c.joint || p == k.Protocol) {
				taken[model.Key{Protocol: p, Family: k.Family, NodePort: k.NodePort}] = true
			}
		}
	}
	for k := range c.owners {
		inUse[pool{k.Protocol, k.Family}]++
		take(k)
	}
	for k, until := range c.cooling {
		cooling[pool{k.Protocol, k.Family}]++
		if !now.Before(until) {
			unconfirmed[pool{k.Protocol, k.Family}]++
		}
		take(k)
	}
	for k := range c.hostPorts {
		take(k)
	}
	for _, id := range c.missing {
		missing[pool{id.Protocol, id.Family}]++
	}
	free := map[pool]int{}
	for k := range taken {
		free[pool{k.Protocol, k.Family}]--
	}
	for _, p := range protocols {
		for _, f := range []npl.Family{npl.IPv4, npl.IPv6} {
			at := pool{p, f}
			m.InUse.WithLabelValues(string(p), string(f)).Set(float64(inUse[at]))
			m.Free.WithLabelValues(string(p), string(f)).Set(float64(r.Size() + free[at]))
			m.Cooling.WithLabelValues(string(p), string(f)).Set(float64(cooling[at]))
			m.Unconfirmed.WithLabelValues(string(p), string(f)).Set(float64(unconfirmed[at]))
			m.Missing.WithLabelValues(string(p), string(f)).Set(float64(missing[at]))
		}
	}
}

func (m *Metrics) refusals(refusals []model.Refusal) {
	byReason := map[model.Reason]int{}
	for _, r := range refusals {
		byReason[r.Reason]++
	}
	for _, r := range Reasons() {
		m.Refusals.WithLabelValues(string(r)).Set(float64(byReason[r]))
	}
}
