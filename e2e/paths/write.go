package paths

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed page.md.tmpl
var pageText string

// Write writes the page that is called page, and beside it a directory of the same name with the figures as CSV and the plots.
func (r *Report) Write(page string) error {
	dir := strings.TrimSuffix(page, filepath.Ext(page))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := r.page(filepath.Base(dir))
	if err != nil {
		return err
	}
	files := map[string][]byte{page: text}
	for name, rows := range map[string][][]string{"shares.csv": r.sharesCSV(), "rates.csv": r.ratesCSV()} {
		var b bytes.Buffer
		if err := csv.NewWriter(&b).WriteAll(rows); err != nil {
			return err
		}
		files[filepath.Join(dir, name)] = b.Bytes()
	}
	plots, err := r.plots()
	if err != nil {
		return err
	}
	for name, svg := range plots {
		files[filepath.Join(dir, name)] = svg
	}
	for name, content := range files {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *Report) page(dir string) ([]byte, error) {
	t, err := template.New("page").Funcs(template.FuncMap{
		"percent": func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) },
		"ports":   r.portsText,
		"packets": packetsText,
		"ratio":   ratioText,
		"number":  numberText,
	}).Parse(pageText)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{"R": r, "Dir": dir, "Settings": r.settings(), "Pods": pods, "Sources": sources, "Held": held, "Clients": clients, "Rolled": rolled})
	return b.Bytes(), err
}

// setting is the rows of one table.
type setting struct {
	Title string
	Rows  []row
}

type row struct {
	Path            Path
	Connections     Interval // a second
	P50, P99, P999  Interval // milliseconds
	Requests, Bulk  Interval
	OfDirect, OfNPL Interval // ratio of new connections a second, round by round
	LatencyOfDirect Interval // ratio of the 99th percentiles
	Failed          int
}

func (r *Report) settings() []setting {
	var out []setting
	for chunk := range slices.Chunk(r.Rates, len(Paths())) {
		s := setting{Title: fmt.Sprintf("kube-proxy in mode %s, %d other Services", chunk[0].Mode, chunk[0].Others)}
		direct, npl := chunk[slices.Index(Paths(), Direct)], chunk[slices.Index(Paths(), NPL)]
		for _, c := range chunk {
			s.Rows = append(s.Rows, row{
				Path: c.Path, Connections: interval(c.Connections), P50: interval(c.P50), P99: interval(c.P99), P999: interval(c.P999),
				Requests: interval(c.Requests), Bulk: interval(c.Bulk),
				OfDirect: interval(ratios(c.Connections, direct.Connections)), OfNPL: interval(ratios(npl.Connections, c.Connections)),
				LatencyOfDirect: interval(ratios(c.P99, direct.P99)), Failed: c.Failed,
			})
		}
		out = append(out, s)
	}
	return out
}

// ratioText is a ratio with its interval.
func ratioText(i Interval) string { return fmt.Sprintf("%.2f (%.2f to %.2f)", i.Center, i.Lo, i.Hi) }

func numberText(digits int, i Interval) string { return fmt.Sprintf("%.*f", digits, i.Center) }

func (r *Report) portsText(s Shares) string {
	if len(s.Ports) == 0 {
		return "none"
	}
	var parts []string
	for _, node := range r.nodes() {
		parts = append(parts, strconv.Itoa(s.Ports[node]))
	}
	return strings.Join(parts, ", ")
}

func (r *Report) nodes() []string {
	var out []string
	for _, s := range r.Shares {
		for node := range s.Packets {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func packetsText(s Shares) string {
	var parts []string
	sum := 0.0
	for _, node := range slices.Sorted(maps.Keys(s.Packets)) {
		parts = append(parts, fmt.Sprintf("%.1f", s.Packets[node]))
		sum += s.Packets[node]
	}
	return fmt.Sprintf("%.1f (%s)", sum, strings.Join(parts, ", "))
}

func (r *Report) sharesCSV() [][]string {
	rows := [][]string{{"path", "requests", "failed", "max_over_min", "coefficient_of_variation", "hops", "persistence_kept", "least_connections_max_over_min", "peer", "peer_with_proxy_protocol", "node", "packets_per_request", "node_ports"}}
	for _, s := range r.Shares {
		for _, node := range r.nodes() {
			rows = append(rows, []string{string(s.Path), strconv.Itoa(s.Total), strconv.Itoa(s.Failed), float(s.Ratio), float(s.Spread), float(s.Hops), float(s.Kept), float(s.Least),
				s.Peer, s.Proxied, node, float(s.Packets[node]), strconv.Itoa(s.Ports[node])})
		}
	}
	return rows
}

func (r *Report) ratesCSV() [][]string {
	rows := [][]string{{"kube_proxy", "other_services", "path", "round", "connections_per_second", "p50_ms", "p99_ms", "p999_ms", "requests_per_second", "bulk_mb_per_second"}}
	for _, c := range r.Rates {
		for i := range c.Connections {
			rows = append(rows, []string{string(c.Mode), strconv.Itoa(c.Others), string(c.Path), strconv.Itoa(i + 1), float(c.Connections[i]), float(c.P50[i]), float(c.P99[i]), float(c.P999[i]),
				float(c.Requests[i]), float(c.Bulk[i])})
		}
	}
	return rows
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }
