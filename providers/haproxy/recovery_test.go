package haproxy

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// spy relays the admin socket and writes down the commands that pass.
type spy struct {
	mu       sync.Mutex
	commands []string
}

// spyOn puts a spy between the Providers that the balancer opens from now on and its haproxy.
func spyOn(t *testing.T, b *balancer) *spy {
	t.Helper()
	s, real := &spy{}, b.cfg.AdminSocket
	b.cfg.AdminSocket = filepath.Join(filepath.Dir(real), "spy.sock")
	l, err := net.Listen("unix", b.cfg.AdminSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			haproxy, err := net.Dial("unix", real)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = bufio.NewReader(haproxy).WriteTo(client); _ = client.Close() }()
			go func() {
				defer haproxy.Close()
				lines := bufio.NewScanner(client)
				for lines.Scan() {
					s.mu.Lock()
					s.commands = append(s.commands, lines.Text())
					s.mu.Unlock()
					if _, err := fmt.Fprintln(haproxy, lines.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	return s
}

// writes returns the commands that change something.
func (s *spy) writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.commands), func(c string) bool {
		return strings.HasPrefix(c, "show ") || c == "prompt" || strings.HasPrefix(c, "set severity-output")
	})
}

// identityOf says whether a file was written again: every write makes a new one.
func identityOf(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestRestartIsNothing(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
	address := b.serve(d, key, 80, one, two)
	d.must(change(key, members(one, two), []providers.Member{one.draining(), two.Member, three.Member}, nil))
	want := providertest.Render(d.observe().State)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	file, worker := identityOf(t, p.files.Path()), b.worker()
	stop := load(t, address)

	spy := spyOn(t, b)
	again := b.open()
	if got := providertest.Render((desk{t, again}).observe().State); got != want {
		t.Errorf("after the restart\n%swant\n%s", got, want)
	}
	if err := again.Close(); err != nil { // flushes what it thinks has changed
		t.Fatal(err)
	}
	if writes := spy.writes(); len(writes) > 0 {
		t.Errorf("the restart wrote %q", writes)
	}
	if !os.SameFile(file, identityOf(t, p.files.Path())) {
		t.Error("the restart wrote the file")
	}
	if now := b.worker(); now != worker {
		t.Error("the restart reloaded haproxy")
	}
	stop()

	// The spy does see writes.
	last := b.open()
	(desk{t, last}).must(change(key, []providers.Member{one.draining(), two.Member, three.Member}, members(one, two, three), nil))
	if writes := spy.writes(); len(writes) != 1 || !strings.HasSuffix(writes[0], "state ready") {
		t.Errorf("enabling one member wrote %q, want one command", writes)
	}
}

func TestCrashOfHAProxy(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
	address := b.serve(d, key, 80, one)
	now := []providers.Member{one.draining(), two.Member, three.Member}
	d.must(change(key, members(one), now, nil)) // at run time only
	want := providertest.Render(d.observe().State)
	b.eventually("the file follows", func() error {
		text, err := os.ReadFile(p.files.Path())
		if err == nil && (!strings.Contains(string(text), "uid-three") || !strings.Contains(string(text), "disabled")) {
			err = errors.New("not yet")
		}
		return err
	})
	b.kill()
	if _, err := p.Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Unavailable || err == nil {
		t.Errorf("haproxy is dead and Observe says %v", err)
	}
	b.start()
	b.reached(address, two, three)
	if got := providertest.Render(d.observe().State); got != want {
		t.Errorf("after the crash\n%swant\n%s", got, want)
	}
	d.must(change(key, now, members(one, two), nil))
	b.reached(address, one, two)
}

func TestCrashOfLbsync(t *testing.T) {
	t.Parallel()
	b := newBalancer(t)
	b.cfg.WriteDelay = time.Minute // it dies before it writes the file
	p := b.open()
	b.start()
	d, key := desk{t, p}, testKey("web")
	one, two := newPod(t, "one"), newPod(t, "two")
	address := b.serve(d, key, 80, one)
	d.must(change(key, members(one), members(one, two), nil))
	d.must(change(key, members(one, two), members(two), nil))
	p.stop() // and never Close

	b.cfg.WriteDelay = 0
	again := b.open()
	if got := (desk{t, again}).pool(key); len(got) != 1 || got[0].ID() != two.ID() || got[0].State != providers.Enabled {
		t.Errorf("observed %v, want only two", got)
	}
	b.eventually("the file is mended", func() error {
		text, err := os.ReadFile(again.files.Path())
		if err == nil && (strings.Contains(string(text), "uid-one") || !strings.Contains(string(text), "uid-two")) {
			err = errors.New("not yet")
		}
		return err
	})
	b.eventually("the removed server is deleted", func() error {
		if servers := b.servers(key); len(servers) != 1 {
			return fmt.Errorf("%v", servers)
		}
		return nil
	})
	b.reached(address, two)
}

func TestCrashBetweenFileAndReload(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d := desk{t, p}
	one := newPod(t, "one")
	kept, dropped := b.serve(d, testKey("kept"), 80, one), b.serve(d, testKey("dropped"), 81, one)
	want := providertest.Render(d.observe().State)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	// What switchTo leaves behind when it dies before the reload: a Service less in the file, the backup as it was.
	before, err := os.ReadFile(p.files.Path())
	if err != nil {
		t.Fatal(err)
	}
	next, err := config.Parse(before)
	if err != nil {
		t.Fatal(err)
	}
	next.Delete(testKey("dropped"))
	next.Generation = config.Generation{Number: next.Generation.Number + 1, Hash: config.Hash(next, p.settings)}
	b.write(p.files.BackupPath(), string(before))
	b.write(p.files.Path(), string(config.Render(next, p.settings)))

	d = desk{t, b.open()}
	if got := providertest.Render(d.observe().State); got != want {
		t.Errorf("observed\n%swant what the worker serves\n%s", got, want)
	}
	d.must(providers.Changes{
		Pools:          []providers.PoolChange{{Key: testKey("dropped")}},
		VirtualServers: []providers.VirtualServerChange{{Key: testKey("dropped")}},
	})
	b.reached(kept, one)
	if _, err := call(dropped); err == nil {
		t.Error("the dropped Service still answers")
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two, three := newPod(t, "one"), newPod(t, "two"), newPod(t, "three")
	stranger := newPod(t, "stranger")
	address := b.serve(d, key, 80, one, two, three)
	backend := config.BackendName(key)
	name := func(p *pod) string {
		n, err := config.ServerName(p.ID())
		if err != nil {
			t.Fatal(err)
		}
		return backend + "/" + n
	}
	for _, answer := range b.run(
		"set server "+name(one)+" weight 20",
		"set server "+name(two)+" addr 127.0.0.7 port 7",
		"set server "+name(three)+" state maint",
	) {
		if strings.HasPrefix(answer, "[3]") {
			t.Fatal(answer)
		}
	}
	b.eventually("one server is deleted by hand", func() error {
		if answer := b.run("del server " + name(three))[0]; !strings.Contains(answer, "Server deleted") {
			return errors.New(answer)
		}
		return nil
	})
	b.run("add server "+backend+"/byhand "+stranger.Address.String()+" id 7", "set server "+backend+"/byhand state ready")

	seen := d.pool(key)
	heavy := one.Member
	heavy.Weight = 20
	want := []providers.Member{
		heavy, {Address: netip.MustParseAddrPort("127.0.0.7:7"), State: providers.Enabled}, {Address: stranger.Address, State: providers.Enabled},
	}
	slices.SortFunc(want, providers.CompareMembers)
	if got := providertest.Render(providers.Pool{Key: key, Members: seen}); got != providertest.Render(providers.Pool{Key: key, Members: want}) {
		t.Errorf("after the operator's work\n%s", got)
	}
	d.must(change(key, seen, members(one, two, three), nil))
	b.reached(address, one, two, three)
}

func TestForeignGeneration(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one := newPod(t, "one")
	address := b.serve(d, key, 80, one)
	b.serve(d, testKey("other"), 81, one)
	want := d.observe().State
	// Somebody empties our directory and restarts haproxy while lbsync is away.
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p.files.Path(), p.files.BackupPath()} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	b.kill()
	b.start()
	d.p = b.open()
	if got := d.observe().State; len(got.Pools)+len(got.VirtualServers) > 0 {
		t.Errorf("observed %s, and haproxy has nothing", providertest.Render(got))
	}
	d.must(providertest.Diff(providers.State{}, want))
	b.reached(address, one)
	if got := providertest.Render(d.observe().State); got != providertest.Render(want) {
		t.Errorf("repaired to\n%s", got)
	}
}

func TestEditedFile(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one := newPod(t, "one")
	address := b.serve(d, key, 80, one)
	want := d.observe().State
	text, err := os.ReadFile(p.files.Path())
	if err != nil {
		t.Fatal(err)
	}
	b.write(p.files.Path(), strings.Replace(string(text), address.String(), netip.AddrPortFrom(b.vips[1], 80).String(), 1))
	if err := p.master.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("the edited file is loaded", func() error {
		_, err := call(netip.AddrPortFrom(b.vips[1], 80))
		return err
	})
	seen := d.observe().State
	if len(seen.VirtualServers) != 0 {
		t.Errorf("observed %s: the virtual server is not where we put it", providertest.Render(seen))
	}
	d.must(providertest.Diff(seen, want))
	b.reached(address, one)
}

func TestChangedSettings(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one := newPod(t, "one")
	address := b.serve(d, key, 80, one)
	want := d.observe().State
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	b.cfg.IdleTimeout = 7 * time.Minute
	d = desk{t, b.open()}
	seen := d.observe().State
	if len(seen.VirtualServers) != 0 || len(seen.Pools) != 1 {
		t.Errorf("observed %s, and the new timeout is not in force", providertest.Render(seen))
	}
	d.must(providertest.Diff(seen, want))
	b.reached(address, one)
	if got := providertest.Render(d.observe().State); got != providertest.Render(want) {
		t.Errorf("observed\n%s", got)
	}
}

func TestStateSurvivesReload(t *testing.T) {
	t.Parallel()
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, dead := newPod(t, "one"), newPod(t, "dead")
	b.serve(d, key, 80, one, dead)
	_ = dead.listener.Close()
	down := func() bool { // srv_op_state 0 of the dead one
		for line := range strings.Lines(b.run("show servers state " + config.BackendName(key))[0]) {
			if f := strings.Fields(line); len(f) > 5 && strings.HasSuffix(f[3], "uid-dead") {
				return f[5] == "0"
			}
		}
		return false
	}
	b.eventually("the checks find the dead member", func() error {
		if !down() {
			_, _ = call(netip.AddrPortFrom(b.vips[0], 80))
			return errors.New("up")
		}
		return nil
	})
	worker := b.worker()
	b.serve(d, testKey("other"), 81, one)
	if b.worker() == worker || !down() {
		t.Error("the reload forgot that a member is down")
	}
	if text, err := os.ReadFile(p.files.State); err != nil || string(text) != emptyState {
		t.Errorf("the state file is not emptied after the reload, a later restart would restore it: %v\n%s", err, text)
	}
	if _, err := runtime.ParseServers(emptyState); err != nil {
		t.Errorf("the empty state: %v", err)
	}
}

// A master that does not answer while members drain is an error like any other.
func TestMasterIsAwayWhileMembersDrain(t *testing.T) {
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	one, two := newPod(t, "one"), newPod(t, "two")
	b.serve(d, key, 80, one, two)
	b.eventually("the other's health is known", func() error {
		if s := d.observe().Members[key][two.ID()]; s.Health != providers.HealthUp {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	d.must(change(key, members(one, two), []providers.Member{one.draining(), two.Member}, nil))
	hidden := b.cfg.MasterSocket + ".away"
	if err := os.Rename(b.cfg.MasterSocket, hidden); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Observe(t.Context(), providers.Scope{}); providers.KindOf(err) != providers.Unavailable || !strings.Contains(err.Error(), "master socket") {
		t.Errorf("without the master: %v", err)
	}
	if err := os.Rename(hidden, b.cfg.MasterSocket); err != nil {
		t.Fatal(err)
	}
	if members := d.pool(key); len(members) != 2 {
		t.Errorf("with it again: %v", members)
	}
}

// The backup, when it is new, drives the file out of what is remembered of files: what that says stays true.
func TestNewBackupBesideAFileThatIsKnown(t *testing.T) {
	b, p := running(t)
	d, key := desk{t, p}, testKey("web")
	b.serve(d, key, 80, newPod(t, "one"))
	d.observe()
	p.mu.Lock()
	current, err := p.files.Current()
	if len(p.lastRead) == keptFiles && p.lastRead[0].sum == sha256.Sum256(current) {
		slices.Reverse(p.lastRead) // so that it is the next to be forgotten
	}
	p.mu.Unlock()
	backup, read := os.ReadFile(p.files.BackupPath())
	if err = errors.Join(err, read); err != nil {
		t.Fatal(err)
	}
	b.write(p.files.BackupPath(), string(backup)+"# touched\n")
	if state := d.observe().State; len(state.VirtualServers) != 1 {
		t.Errorf("the virtual server is not seen any more: %+v", state)
	}
}
