package haproxy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPublishedFiles: what the pages tell to install is taken by the programs it is for, and the dashboard asks for metrics that there are.
func TestPublishedFiles(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	stats := netip.AddrPortFrom(b.vips[0], 8404).String()
	health := netip.AddrPortFrom(b.vips[0], 8405).String()
	b.write(b.cfg.ConfigFiles[0], strings.NewReplacer("bind :8404", "bind "+stats, "127.0.0.1:8405", health).Replace(b.published()))
	p := b.open()
	b.start()
	d, one := desk{t, p}, newPod(t, "one")
	b.reached(b.serve(d, testKey("web"), 80, one), one)
	get := func(url string) string {
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", url, answer.Status, err)
		}
		return string(text)
	}
	get("http://" + health + "/")
	if !strings.Contains(get("http://"+stats+"/"), "npl_b_shop_web_80") {
		t.Error("the page of statistics lacks the Service")
	}
	metrics := get("http://" + stats + "/metrics?scope=global&scope=frontend&scope=backend")
	reference, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}

	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(published(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\b(haproxy|lbsync)_[a-z_]+`)
	asked := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, metric := range name.FindAllString(target.Expr, -1) {
				asked++
				known := strings.Contains(metrics, "\n"+metric+"{") || strings.Contains(metrics, "\n"+metric+" ")
				if strings.HasPrefix(metric, "lbsync_") {
					known = strings.Contains(string(reference), "`"+strings.TrimSuffix(metric, "_bucket")+"`")
				}
				if !known {
					t.Errorf("%s: there is no metric %s", panel.Title, metric)
				}
			}
		}
	}
	if asked < 10 {
		t.Errorf("only %d metrics are asked for", asked)
	}

	if _, err := exec.LookPath("systemd-analyze"); err == nil {
		unit := filepath.Join(filepath.Dir(b.cfg.AdminSocket), "lbsync.service")
		b.write(unit, published(t, "lbsync.service", "/usr/local/bin/lbsync run", "/bin/true run"))
		if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil && strings.Contains(string(out), unit) {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if !strings.Contains(published(t, "default"), "-S /run/haproxy-master.sock,mode,660,group,haproxy") {
		t.Error("the master's socket has to be open to lbsync")
	}
}

// TestTrapTable: the tests that the explanation names exist.
func TestTrapTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/explanation/haproxy.md")
	if err != nil {
		t.Fatal(err)
	}
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "internal/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(text)
		}
	}
	names := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 30 {
		t.Errorf("the page names %d tests", len(names))
	}
	for _, name := range names {
		if !strings.Contains(sources.String(), "func "+name[1]+"(t *testing.T)") {
			t.Errorf("there is no %s", name[1])
		}
	}
}
