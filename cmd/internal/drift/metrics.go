package drift

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Metrics is a registry that remembers what was registered, so that it can be described before any series exists.
type Metrics struct {
	*prometheus.Registry
	collectors []prometheus.Collector
}

// NewMetrics returns an empty Metrics.
func NewMetrics() *Metrics { return &Metrics{Registry: prometheus.NewRegistry()} }

// Register registers and remembers c.
func (m *Metrics) Register(c prometheus.Collector) error {
	m.collectors = append(m.collectors, c)
	return m.Registry.Register(c)
}

// MustRegister registers and remembers all.
func (m *Metrics) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := m.Register(c); err != nil {
			panic(err)
		}
	}
}

// desc takes prometheus.Desc apart, which has no accessors.
var desc = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "([^"]*)"(?:, unit: "[^"]*")?, constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)

// Reference compares the metrics with their part of the Markdown file, a table sorted by name.
func (m *Metrics) Reference(t *testing.T, file, part string) {
	t.Helper()
	var rows []string
	for _, c := range m.collectors {
		descriptions := make(chan *prometheus.Desc, 64)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			found := desc.FindStringSubmatch(d.String())
			if found == nil {
				t.Fatalf("cannot read %s", d)
			}
			var labels []string
			for label := range strings.SplitSeq(found[3]+","+found[4], ",") {
				if name, _, _ := strings.Cut(label, "="); name != "" { // a constant label has a value as well
					labels = append(labels, "`"+name+"`")
				}
			}
			help := strings.ReplaceAll(strings.TrimSuffix(found[2], "."), "|", `\|`)
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", found[1], kind(c), strings.Join(labels, ", "), help))
		}
	}
	slices.Sort(rows)
	Compare(t, file, part, "| Name | Type | Labels | Meaning |\n|---|---|---|---|\n"+strings.Join(rows, ""))
}

// kind returns the type of what c collects, or what it is itself while it has collected nothing.
func kind(c prometheus.Collector) string {
	series := make(chan prometheus.Metric, 1024)
	c.Collect(series)
	close(series)
	for m := range series {
		var out dto.Metric
		switch err := m.Write(&out); {
		case err != nil:
			return err.Error()
		case out.GetHistogram() != nil:
			return "histogram"
		case out.GetCounter() != nil:
			return "counter"
		default:
			return "gauge"
		}
	}
	switch c.(type) {
	case *prometheus.HistogramVec:
		return "histogram"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.CounterVec:
		return "counter"
	default:
		return ""
	}
}
