package bench

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/nplbridge/nplbridge/e2e/view"
)

// total is what a histogram has seen so far.
type total struct{ sum, count float64 }

// propagation reads lbsync_propagation_seconds from the lbsync beside HAProxy.
func propagation(ctx context.Context, v view.View) (total, error) {
	const name = "lbsync_propagation_seconds"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10362/metrics", nil)
	if err != nil {
		return total{}, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: v.DialFrom("lb"), DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return total{}, fmt.Errorf("metrics of lbsync: %w", err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return total{}, fmt.Errorf("metrics of lbsync: %w", err)
	}
	var t total
	for _, m := range families[name].GetMetric() {
		add(&t, m.GetHistogram())
	}
	return t, nil
}

func add(t *total, h *dto.Histogram) {
	t.sum += h.GetSampleSum()
	t.count += float64(h.GetSampleCount())
}
