package watermarks

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Metrics are those of one load balancer's watermark. They outlive a Publisher.
type Metrics struct {
	since   atomic.Int64 // when what there is to tell was due, in nanoseconds; 0 is nothing
	behind  prometheus.Collector
	written prometheus.Gauge
	held    prometheus.Gauge
	failure prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer, clk clock.PassiveClock) (*Metrics, error) {
	m := &Metrics{
		written: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_watermark_written_timestamp_seconds",
			Help: "When this process wrote the watermark last; 0 before. It is written only when there is something to tell."}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbsync_watermark_held_node_ports",
			Help: "Node ports that the last watermark names as held."}),
		failure: prometheus.NewCounter(prometheus.CounterOpts{Name: "lbsync_watermark_failures_total",
			Help: "Attempts to read or write the watermark that failed."}),
	}
	m.behind = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "lbsync_watermark_behind_seconds",
		Help: "For how long a watermark with what there is to tell has been due; 0 while it lacks nothing, or is not due at its pace. npl-agents wait for it."},
		func() float64 {
			since := m.since.Load()
			if since == 0 {
				return 0
			}
			return max(clk.Now().Sub(time.Unix(0, since)).Seconds(), 0)
		})
	for _, c := range []prometheus.Collector{m.written, m.held, m.failure, m.behind} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// news notes when what there is to tell is due; the zero time is nothing.
func (m *Metrics) news(since time.Time) {
	if since.IsZero() {
		m.since.Store(0)
		return
	}
	m.since.Store(since.UnixNano())
}

func (m *Metrics) wrote(at time.Time, held int) {
	m.since.Store(0)
	m.written.Set(float64(at.UnixMilli()) / 1000)
	m.held.Set(float64(held))
}

func (m *Metrics) failed() { m.failure.Inc() }
