package gate

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the gates'. They outlive a Controller, because each term as leader has a new one.
type Metrics struct{ opened *prometheus.CounterVec }

// NewMetrics registers the metrics; every label value is there from the start.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{opened: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lbsync_gates_opened_total",
		Help: "Readiness gates of Pods opened, by reason: Confirmed by every load balancer, NotApplicable to the Pod, or GateTimedOut."}, []string{"reason"})}
	for _, reason := range Reasons() {
		m.opened.WithLabelValues(reason)
	}
	if err := reg.Register(m.opened); err != nil {
		return nil, fmt.Errorf("register the metric of readiness gates: %w", err)
	}
	return m, nil
}
