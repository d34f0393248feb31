package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// missing returns the metrics in an expression that the reference does not list.
func missing(t *testing.T, expression string) []string {
	t.Helper()
	reference := read(t, "docs/reference/metrics.md")
	names := regexp.MustCompile(`\b(lbsync|npl_agent)_[a-z_]+`).FindAllString(expression, -1)
	if len(names) == 0 {
		return []string{"no metric at all in " + expression}
	}
	var out []string
	for _, name := range names {
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
		if !strings.Contains(reference, "`"+name+"`") && !strings.HasSuffix(name, "_config_last_reload_successful") {
			out = append(out, name)
		}
	}
	return out
}

// alerts are the groups of the chart's file.
type alerts struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For string
			Annotations      map[string]string
		}
	}
}

// The chart's alerts are those of the page, and name metrics that there are.
func TestAlerts(t *testing.T) {
	file := read(t, "charts/nplbridge/files/alerts.yaml")
	_, rest, _ := strings.Cut(read(t, "docs/how-to/alerts.md"), "<!-- begin alerts -->\n```yaml\n")
	page, _, found := strings.Cut(rest, "```\n<!-- end alerts -->")
	if !found {
		t.Fatal("docs/how-to/alerts.md has no alerts")
	}
	if diff := cmp.Diff(file, page); diff != "" {
		t.Errorf("-charts/nplbridge/files/alerts.yaml +docs/how-to/alerts.md:\n%s", diff)
	}
	rule := custom(t, render(t, "monitoring.prometheusRule.enabled=true", "monitoring.prometheusRule.labels.release=prom"), "PrometheusRule")
	if rule.GetLabels()["release"] != "prom" {
		t.Errorf("labels %v", rule.GetLabels())
	}
	spec, err := yaml.Marshal(rule.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	var got, want alerts
	if err := yaml.UnmarshalStrict(spec, &got); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(file), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got.Groups) == 0 {
		t.Errorf("-file +PrometheusRule:\n%s", diff)
	}
	for _, r := range want.Groups[0].Rules {
		if lacking := missing(t, r.Expr); lacking != nil {
			t.Errorf("%s: %q", r.Alert, lacking)
		}
	}
}

// Every panel of the dashboard asks for metrics that there are.
func TestDashboard(t *testing.T) {
	config := named[*corev1.ConfigMap](t, render(t, "monitoring.dashboard.enabled=true"), "nplbridge-dashboard")
	if config.Labels["grafana_dashboard"] != "1" {
		t.Errorf("labels %v", config.Labels)
	}
	var dashboard struct {
		Title  string
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(config.Data["nplbridge.json"]), &dashboard); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for i, p := range dashboard.Panels {
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is wider than the page", p.Title)
		}
		for _, q := range dashboard.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if p.ID == q.ID || a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies on %s", p.Title, q.Title)
			}
		}
		for _, target := range p.Targets {
			asked++
			if lacking := missing(t, target.Expr); lacking != nil {
				t.Errorf("%s: %q", p.Title, lacking)
			}
		}
	}
	if asked < 10 {
		t.Errorf("%d queries", asked)
	}
}

// The PodMonitor finds the Pods of every mode by labels that they have, and the port by its name.
func TestPodMonitor(t *testing.T) {
	for name, set := range combinations {
		objects := render(t, append([]string{"monitoring.podMonitor.enabled=true"}, set...)...)
		monitor := custom(t, objects, "PodMonitor")
		var spec struct {
			JobLabel            string
			Selector            metav1.LabelSelector
			PodMetricsEndpoints []struct{ Port, Path, Interval string }
		}
		text, err := yaml.Marshal(monitor.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, &spec); err != nil {
			t.Fatal(err)
		}
		selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		for _, template := range templates(objects) {
			ports := map[string]bool{}
			for _, c := range template.Spec.Containers {
				for _, p := range c.Ports {
					ports[p.Name] = true
				}
			}
			if !selector.Matches(labels.Set(template.Labels)) || !ports[spec.PodMetricsEndpoints[0].Port] {
				t.Errorf("%s: Pods with labels %v and ports %v are not scraped", name, template.Labels, ports)
			}
		}
	}
}

// templates are the Pods of DaemonSets and Deployments.
func templates(objects []runtime.Object) []corev1.PodTemplateSpec {
	var out []corev1.PodTemplateSpec
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.DaemonSet:
			out = append(out, o.Spec.Template)
		case *appsv1.Deployment:
			out = append(out, o.Spec.Template)
		}
	}
	return out
}

// custom returns the one object of a kind that is not Kubernetes' own.
func custom(t *testing.T, objects []runtime.Object, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() == kind {
			return u
		}
	}
	t.Fatalf("no %s", kind)
	return nil
}
