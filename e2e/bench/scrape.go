package bench

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// scrape reads the metrics that a program serves at address on a host of the lab.
func scrape(ctx context.Context, l *lab.Lab, host, address string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: view.View{Lab: l}.DialFrom(host), DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("metrics at %s on %s: %w", address, host, err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, fmt.Errorf("metrics at %s on %s: %w", address, host, err)
	}
	return families, nil
}

// total is what a histogram has seen so far, in all its series together.
type total struct{ sum, count float64 }

func histogram(family *dto.MetricFamily) (t total) {
	for _, m := range family.GetMetric() {
		t.sum += m.GetHistogram().GetSampleSum()
		t.count += float64(m.GetHistogram().GetSampleCount())
	}
	return t
}
