package haproxy

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/process"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// globals adds lines to the administrator's global section and returns what takes them back.
func (b *balancer) globals(lines string) (back func()) {
	b.t.Helper()
	text, err := os.ReadFile(b.cfg.ConfigFiles[0])
	if err != nil {
		b.t.Fatal(err)
	}
	b.write(b.cfg.ConfigFiles[0], string(text)+"global\n"+lines)
	return func() { b.write(b.cfg.ConfigFiles[0], string(text)) }
}

// reloads returns how often the master was asked for a new worker, and how many of these did not start.
func (b *balancer) reloads() runtime.Processes {
	b.t.Helper()
	p, err := (runtime.Master{Path: b.cfg.MasterSocket}).Processes(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// TestTrapDescriptors: `haproxy -c` accepts what needs more descriptors than there are. It is found before a reload, the old worker goes on, and what
// can only be found by trying is taken back.
func TestTrapDescriptors(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	p := b.open()
	b.start()
	d, one := desk{t, p}, newPod(t, "one")
	address := b.serve(d, testKey("web"), 80, one)
	worker, key := b.worker(), testKey("late")
	for name, c := range map[string]struct {
		lines string
		kind  providers.Kind
		words []string
		tried int
	}{
		"before": {"    maxconn 600000000\n", providers.Misconfigured, []string{"not enough descriptors", "maxconn 600000000", "LimitNOFILE", "openPorts"}, 0},
		"tried":  {"    .if defined(HOME)\n    maxconn 600000000\n    .endif\n", providers.Rejected, []string{"taken back", "log says why"}, 1},
	} {
		back, asked := b.globals(c.lines), b.reloads().Reloads
		refuse(t, p, providertest.Diff(providers.State{}, service(key, b.vips[0], 81, one)), key, c.kind, c.words...)
		if b.worker() != worker {
			t.Errorf("%s: the worker is another one", name)
		}
		b.reached(address, one)
		if file, err := p.files.Current(); err != nil || strings.Contains(string(file), key.Service) {
			t.Errorf("%s: the next restart would fail on this file, %v:\n%s", name, err, file)
		}
		if now := b.reloads().Reloads; now != asked+c.tried {
			t.Errorf("%s: %d reloads, want %d", name, now-asked, c.tried)
		}
		back()
	}
	back := b.globals("    maxconn 15000\n    no strict-limits\n") // HAProxy goes on with what it gets
	d.must(providertest.Diff(providers.State{}, service(testKey("unlimited"), b.vips[0], 82, one)))
	back()
	d.must(providertest.Diff(providers.State{}, service(key, b.vips[0], 81, one)))
}

// TestDescriptorsArePredicted: a new worker wants as many descriptors as was worked out before it started.
func TestDescriptorsArePredicted(t *testing.T) {
	t.Parallel()
	b := openBalancer(t, "8000-8099")
	b.globals("    maxconn 1000\n")
	p := b.open()
	b.start()
	d := desk{t, p}
	var pods []*pod
	for n := range 5 {
		pods = append(pods, newPod(t, fmt.Sprint("pod-", n)))
		_, _, state := b.numbered(t, n, pods...)
		state.VirtualServers[0].Settings.IdleTimeout = time.Minute // so that each costs a reload
		d.must(providertest.Diff(providers.State{}, state))
		fields := runtime.ParseFields(b.run("show info")[0])
		servers, err := runtime.ParseServers(b.run("show servers state")[0])
		if err != nil {
			t.Fatal(err)
		}
		now := budget(b.worker(), fields, servers, p.files.Globals(), p.model, p.model)
		if fields["Maxsock"] != strconv.Itoa(now.needed()) || now.Connections != 1000 || now.Limit == 0 {
			t.Errorf("after %d Services haproxy says %s, worked out are %+v, %d", n+1, fields["Maxsock"], now, now.needed())
		}
		more := p.model.Clone()
		more.Set(config.Service{Key: testKey("z"), VIPs: b.vips[:1], Port: 9999, Servers: make([]config.Server, 7)})
		if then := budget(b.worker(), fields, servers, p.files.Globals(), p.model, more); then.needed() != now.needed()+8 {
			t.Errorf("a listener and seven servers need %d more", then.needed()-now.needed())
		}
	}
}

// TestTooManyOpenPorts: open ports that the limit does not allow are refused before a reload; fewer are fine.
func TestTooManyOpenPorts(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	p := b.open()
	b.start()
	d, one := desk{t, p}, newPod(t, "one")
	address := b.serve(d, testKey("web"), 80, one)
	want := d.observe().State
	const limit = 400
	for _, pid := range []int{b.cmd.Process.Pid, b.worker()} {
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}, nil); err != nil {
			t.Fatal(err)
		}
	}
	worker, asked := b.worker(), b.reloads().Reloads
	reopen := func(ports string) {
		if err := d.p.Close(); err != nil {
			t.Fatal(err)
		}
		b.cfg.OpenPorts = []string{b.vips[0].String() + ":" + ports}
		d.p = b.open()
	}
	reopen("8000-8299")
	key := testKey("late")
	refuse(t, d.p, providertest.Diff(d.observe().State, both(service(key, b.vips[0], 8000, one), want)), key, providers.Misconfigured,
		"not enough descriptors", "may open 400", "openPorts")
	if b.worker() != worker || b.reloads().Reloads != asked {
		t.Error("haproxy was reloaded")
	}
	b.reached(address, one)
	reopen("8000-8049")
	d.must(providertest.Diff(d.observe().State, both(service(key, b.vips[0], 8000, one), want)))
	b.reached(netip.AddrPortFrom(b.vips[0], 8000), one)
	b.reached(address, one)
}

func TestDescriptorsOf(t *testing.T) {
	t.Parallel()
	info := func(maxsock, maxconn int) map[string]string {
		return map[string]string{"Maxsock": strconv.Itoa(maxsock), "Maxconn": strconv.Itoa(maxconn), "Listeners": "12", "Nbthread": "2"}
	}
	servers := make([]runtime.Server, 10)
	for i := range servers {
		servers[i].Check = runtime.CheckConfigured
	}
	for name, c := range map[string]struct {
		info    map[string]string
		globals process.Globals
		limit   int
		needed  int
		refused bool
	}{
		// The sums of haproxy 2.6.12 itself, with two threads.
		"set, fits":                 {info(2059, 1000), process.Globals{MaxConn: 1000}, 2059, 2059, false},
		"set, one too many":         {info(2059, 1000), process.Globals{MaxConn: 1000}, 2058, 2059, true},
		"set higher meanwhile":      {info(2059, 1000), process.Globals{MaxConn: 2000}, 4000, 4059, true},
		"set on the command line":   {info(2059, 1000), process.Globals{}, 20000, 2059, false},
		"computed":                  {info(19999, 9970), process.Globals{}, 20000, 259, false},
		"computed, few":             {info(258, 100), process.Globals{}, 258, 259, true},
		"limit of its own":          {info(2059, 1000), process.Globals{MaxConn: 1000, HardLimit: 1500}, 20000, 2059, true},
		"not enforced":              {info(2059, 1000), process.Globals{MaxConn: 1000, Unenforced: true}, 1000, 2059, false},
		"unknown limit":             {info(2059, 1000), process.Globals{MaxConn: 100000}, 0, 200059, false},
		"conditions":                {info(2059, 1000), process.Globals{MaxConn: 100000, Uncertain: true}, 20000, 200059, false},
		"servers that came at once": {info(2049, 1000), process.Globals{MaxConn: 1000}, 20000, 2059, false},
	} {
		d := descriptorsOf(c.info, servers, c.globals, c.limit, config.File{}, config.File{})
		if err := d.check(); d.needed() != c.needed || (err != nil) != c.refused {
			t.Errorf("%s: %+v needs %d, %v", name, d, d.needed(), err)
		}
	}
	full := descriptors{Connections: 100, Listeners: 50, Own: 39, Free: 80}
	if err := full.check(); err == nil || !strings.Contains(err.Error(), "fs.file-max") {
		t.Errorf("a full host: %v", err)
	}
}
