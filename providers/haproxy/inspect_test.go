package haproxy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
)

// finds demands a finding of a level that has these words.
func finds(t *testing.T, found []Finding, level Level, words ...string) {
	t.Helper()
	has := slices.ContainsFunc(found, func(f Finding) bool {
		return f.Level == level && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(f.Check+": "+f.Found+"; "+f.Advice, w) })
	})
	if !has {
		t.Errorf("no %s with %q among\n%+v", level, words, found)
	}
}

func TestInspectShowsWantedBesideThere(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
	b.serve(d, key, 80, one, two)
	d.must(change(key, members(one, two), []providers.Member{one.Member, two.draining(), three.Member}, nil))
	inspect := func() Inspection {
		t.Helper()
		i, err := Inspect(t.Context(), b.cfg)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	b.eventually("the file follows", func() error {
		if diff := inspect().Differences(); len(diff) > 1 {
			return fmt.Errorf("%+v", diff)
		}
		return nil
	})
	i := inspect()
	at := slices.IndexFunc(i.Backends, func(b InspectedBackend) bool { return b.Service == key.String() })
	if at < 0 || len(i.Backends[at].Servers) != 3 || i.Worker != b.worker() || i.Generation == "" || i.Owner != testOwner.String() {
		t.Fatalf("%+v", i)
	}
	// The administrator's backend that is called as ours would be is told apart; it is the only difference.
	if diff := i.Differences(); len(diff) != 1 || diff[0] != (Difference{"backend npl_b_shop_foreign_80", "", "there"}) {
		t.Errorf("differences %+v", diff)
	}
	server := func(p *pod) string {
		name, err := config.ServerName(p.ID())
		if err != nil {
			t.Fatal(err)
		}
		return config.BackendName(key) + "/" + name
	}
	b.run("set server "+server(one)+" state maint", "set server "+server(two)+" state ready", "set server "+server(three)+" weight 9",
		"add server "+config.BackendName(key)+"/byhand 127.0.0.3:3 id 7")
	want := map[string]Difference{
		"server " + server(one):                         {"", "Enabled", "Draining"},
		"server " + server(two):                         {"", "Draining", "Enabled"},
		"server " + server(three):                       {"", "Enabled", "Enabled, weight 9"},
		"server " + config.BackendName(key) + "/byhand": {"", "", "Draining"},
	}
	diff := inspect().Differences()
	for _, got := range diff[1:] {
		if w := want[got.Object]; got.Wanted != w.Wanted || got.There != w.There {
			t.Errorf("%+v, want %+v", got, w)
		}
		delete(want, got.Object)
	}
	if len(want) > 0 {
		t.Errorf("not told: %+v", want)
	}
}

func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key, one := desk{t, p}, testKey("web"), newPod(t, "one")
	address := b.serve(d, key, 80, one)
	for _, f := range Doctor(t.Context(), b.cfg) {
		foreign := strings.Contains(f.Found, "npl_b_shop_foreign_80")
		old := f.Check == "processes" && f.Level == Warning // the worker before the Service may still be ending
		if f.Level != Good && !foreign && !old {
			t.Errorf("of a good one it says %+v", f)
		}
	}

	// Another haproxy is left over on the same address: both listen, without an error.
	left := filepath.Join(filepath.Dir(b.cfg.AdminSocket), "left.cfg")
	b.write(left, "defaults\n    timeout connect 1s\n    timeout client 1s\n    timeout server 1s\nlisten l\n    bind "+address.String()+"\n")
	other := exec.Command("haproxy", "-db", "-f", left)
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Signal(syscall.SIGKILL); _ = other.Wait() })
	b.eventually("the left over haproxy is told", func() error {
		for _, f := range Doctor(t.Context(), b.cfg) {
			if f.Level == Failure && strings.Contains(f.Found, "2 sockets listen on "+address.String()) {
				return nil
			}
		}
		return os.ErrNotExist
	})

	b.write(filepath.Join(b.cfg.Dir, ".50-npl.cfg.123"), "half a file")
	text, err := os.ReadFile(p.files.Path())
	if err != nil {
		t.Fatal(err)
	}
	b.write(p.files.Path(), strings.Replace(string(text), `"generation":"`, `"generation":"9`, 1))
	found := Doctor(t.Context(), b.cfg)
	finds(t, found, Warning, ".50-npl.cfg.123", "left over")
	finds(t, found, Warning, "generation", "the file 9")
	finds(t, found, Good, "command line", "haproxy 2.")
	b.write(p.files.Path(), "somebody's own file\n")
	finds(t, Doctor(t.Context(), b.cfg), Failure, "50-npl.cfg", "not a file of nplbridge")

	b.kill()
	finds(t, Doctor(t.Context(), b.cfg), Failure, "command line", "connection refused", "start haproxy")
	away := b.cfg
	away.AdminSocket, away.Dir, away.Binary, away.ConfigFiles = "/nonexistent/s", "/nonexistent", "", nil
	found = Doctor(t.Context(), away)
	finds(t, found, Failure, "/nonexistent/s", "stats socket")
	finds(t, found, Failure, "directory", "make it")
	finds(t, found, Warning, "program", "none")
}

// TestDoctorFindsOpenCommandLine: who can reach it is an administrator, whatever the line says of ssl.
func TestDoctorFindsOpenCommandLine(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	local := a.cfg
	local.AdminSocket = filepath.Join(filepath.Dir(a.ca.file), "admin.sock")
	local.MasterSocket, local.Dir, local.Binary = filepath.Join(filepath.Dir(a.ca.file), "master.sock"), filepath.Join(filepath.Dir(a.ca.file), "npl.d"), "haproxy"
	found := Doctor(t.Context(), local)
	finds(t, found, Warning, a.trap, "in clear text", "mode tcp")
	finds(t, found, Failure, "50-npl.cfg", "there is none")
	finds(t, Doctor(t.Context(), a.cfg), Good, "command line", a.cfg.AdminSocket)
}
