package paths

import (
	"bytes"
	"fmt"

	"github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"
)

// colours are those of the paths, readable beside each other for people who see colours differently (Okabe and Ito).
var colours = map[Path]string{Cluster: "D55E00", Local: "E69F00", NPL: "0072B2", Direct: "999999"}

// plots are the SVG files by name.
func (r *Report) plots() (map[string][]byte, error) {
	out := map[string][]byte{}
	var shares []chart.Value
	for _, s := range r.Shares {
		shares = append(shares, bar(s.Path, s.Ratio, fmt.Sprintf("%s %.2f", s.Path, s.Ratio)))
	}
	var err error
	if out["shares.svg"], err = draw(fmt.Sprintf("Busiest Pod over idlest Pod, %d Pods placed 8-1-1 (1 is even)", pods), shares); err != nil {
		return nil, err
	}
	var rates, tails []chart.Value
	for _, s := range r.settings() {
		for _, line := range s.Rows {
			rates = append(rates, bar(line.Path, line.OfDirect.Center, ""))
			tails = append(tails, bar(line.Path, line.LatencyOfDirect.Center, ""))
		}
	}
	label(rates, r)
	label(tails, r)
	if out["connections.svg"], err = draw("New connections a second, as a share of Pods addressed directly", rates); err != nil {
		return nil, err
	}
	out["latency.svg"], err = draw("99th percentile of a request on a new connection, Pods addressed directly are 1", tails)
	return out, err
}

// label names the middle of each setting.
func label(bars []chart.Value, r *Report) {
	for i, c := range r.Rates {
		if i%len(Paths()) == 1 {
			bars[i].Label = fmt.Sprintf("%s %d", c.Mode, c.Others)
		}
	}
}

func bar(p Path, value float64, label string) chart.Value {
	colour := drawing.ColorFromHex(colours[p])
	return chart.Value{Value: value, Label: label, Style: chart.Style{FillColor: colour, StrokeColor: colour, StrokeWidth: 1}}
}

func draw(title string, bars []chart.Value) ([]byte, error) {
	most := 1.0
	for _, b := range bars {
		most = max(most, b.Value)
	}
	width := max(12, 480/max(1, len(bars)))
	c := chart.BarChart{
		Title: title, TitleStyle: chart.Style{FontSize: 12}, Width: 120 + len(bars)*(width+8), Height: 360, BarWidth: width, BarSpacing: 8,
		Background: chart.Style{Padding: chart.Box{Top: 50, Bottom: 10, Left: 10, Right: 10}},
		XAxis:      chart.Style{FontSize: 8},
		YAxis:      chart.YAxis{Range: &chart.ContinuousRange{Min: 0, Max: most * 1.1}, ValueFormatter: func(v any) string { return fmt.Sprintf("%.1f", v) }},
		Bars:       bars,
	}
	var b bytes.Buffer
	if err := c.Render(chart.SVG, &b); err != nil {
		return nil, fmt.Errorf("plot %q: %w", title, err)
	}
	return b.Bytes(), nil
}
