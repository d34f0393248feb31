package winnat

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
)

// Any sequence of changes, restarts, crashes and edits by others ends in exactly the wanted mappings, never touches what is somebody
// else's (netNAT watches), and forgets no cooling port. Nothing is done before the file says so.
func TestAnythingInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newProperty(t)
		defer func() { _ = os.RemoveAll(p.dir) }()
		t.Repeat(map[string]func(*rapid.T){
			"change":  p.change,
			"repair":  func(*rapid.T) { p.repair() },
			"restart": func(*rapid.T) { p.start() },
			"tick": func(t *rapid.T) {
				p.now = p.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second)
			},
			"put":      p.put,
			"take":     p.take,
			"flush":    func(*rapid.T) { clear(p.host.mappings) },
			"NAT gone": func(*rapid.T) { clear(p.host.mappings); clear(p.host.nats) },
			"NAT back": func(*rapid.T) { p.host.nats["pods"] = "10.244.1.0/24" },
			"JSON":     func(t *rapid.T) { p.host.quirk = rapid.IntRange(0, 2).Draw(t, "quirk") },
			"":         func(*rapid.T) { p.check() },
		})
		p.host.nats["pods"] = "10.244.1.0/24"
		p.settle()
	})
}

type property struct {
	t    *rapid.T
	host *netNAT
	dir  string
	now  time.Time
	nat  *NAT

	want    targets
	cooling map[dataplane.Key]time.Time // what a finished Apply was told, or what a removal that was done requires
	change_ dataplane.Change            // under way
}

func newProperty(t *rapid.T) *property {
	dir, err := os.MkdirTemp("", "winnat")
	if err != nil {
		t.Fatal(err)
	}
	p := &property{t: t, host: newNetNAT(t), dir: dir, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), want: targets{}, cooling: map[dataplane.Key]time.Time{}}
	p.host.wrote = p.wrote
	p.start()
	return p
}

func (p *property) start() {
	p.host.failIn, p.host.crashIn = 0, 0
	nat, err := Open(Config{ClusterUID: "uid", Dir: p.dir, Runner: p.host, Now: func() time.Time { return p.now }, Probe: func(dataplane.Key) error { return nil }})
	if err != nil {
		p.t.Fatal(err)
	}
	p.nat = nat
}

// wrote holds the file against what is just being done.
func (p *property) wrote(cmdlet string, r row) {
	s, found, err := file{path: filepath.Join(p.dir, stateFile), cluster: "uid"}.read()
	if err != nil || !found || !s.ours[mapping{r.key(), r.addrPort()}] {
		p.t.Fatalf("%s %v before the file says that it is ours: %v", cmdlet, r, err)
	}
	if rest, ok := p.change_.Cool[r.key()]; ok && cmdlet == "Remove" {
		if until, ok := s.cooling[r.key()]; !ok || until.Before(p.now.Add(rest)) {
			p.t.Fatalf("%s is removed before the file says that it cools", r.key())
		}
		p.cooling[r.key()] = p.now.Add(rest)
	}
}

func (p *property) key(t *rapid.T) dataplane.Key {
	port := uint16(rapid.IntRange(40000, 40003).Draw(t, "port"))
	return rapid.SampledFrom([]dataplane.Key{tcp(port), udp(port)}).Draw(t, "key")
}

// change makes one as the loop does: what is not wanted any more cools. It may fail half-way, and the process may die of it.
func (p *property) change(t *rapid.T) {
	c := dataplane.Change{Set: targets{}, Cool: map[dataplane.Key]time.Duration{}}
	for range rapid.IntRange(1, 4).Draw(t, "keys") {
		k := p.key(t)
		if _, wanted := p.want[k]; wanted && rapid.Bool().Draw(t, "delete") {
			c.Delete = append(c.Delete, k)
			c.Cool[k] = time.Duration(rapid.IntRange(1, 300).Draw(t, "rest")) * time.Second
			delete(c.Set, k)
		} else if !slices.Contains(c.Delete, k) {
			c.Set[k] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(rapid.IntRange(1, 3).Draw(t, "Pod"))}), 80)
		}
	}
	for _, k := range c.Delete {
		delete(p.want, k)
	}
	maps.Copy(p.want, c.Set)
	for k := range c.Set {
		delete(p.cooling, k)
	}
	p.host.failIn, p.host.crashIn = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "fails"), rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 4, 5}).Draw(t, "dies")
	p.change_ = c
	err, lived := p.survives(func() error { return p.nat.Apply(c) })
	p.change_ = dataplane.Change{}
	if lived && err == nil {
		for k, rest := range c.Cool {
			p.cooling[k] = p.now.Add(rest)
		}
	}
}

// survives runs a part of the process's life; when it dies of it, the next one is started.
func (p *property) survives(f func() error) (err error, lived bool) {
	defer func() {
		if r := recover(); r != nil {
			if r != any(crashed{}) {
				panic(r)
			}
			p.start()
		}
		p.host.failIn, p.host.crashIn = 0, 0
	}()
	return f(), true
}

func (p *property) repair() {
	_, _ = p.survives(func() error { _, err := p.nat.Repair(p.want); return err })
}

// put is somebody else's mapping, on the Node's addresses or one of them.
func (p *property) put(t *rapid.T) {
	k := p.key(t)
	if len(p.host.nats) == 0 || p.host.occupied(k) {
		return
	}
	p.host.take(k)
	protocol := map[dataplane.Key]string{tcp(k.NodePort): "TCP", udp(k.NodePort): "UDP"}[k]
	p.host.put(row{nat: "pods", protocol: protocol, external: rapid.SampledFrom([]string{"0.0.0.0", "192.0.2.7"}).Draw(t, "address"), port: k.NodePort, target: "10.244.1.99", targetPort: 80})
}

func (p *property) take(t *rapid.T) { p.host.take(p.key(t)) }

// check holds what is true after every step: freed ports are remembered, by this process and by the next.
func (p *property) check() {
	if len(p.host.nats) == 0 {
		return
	}
	if rapid.Bool().Draw(p.t, "next process") {
		p.start()
	}
	s, err := p.nat.Load()
	if err != nil {
		p.t.Fatal(err)
	}
	for k, until := range p.cooling {
		if left := until.Sub(p.now); left > 0 && s.Cooling[k] < left && !s.Mappings[k].IsValid() {
			p.t.Fatalf("%s should cool for %s, and cools for %s", k, left, s.Cooling[k])
		}
	}
	if ours := p.host.ours(); !maps.Equal(s.Mappings, ours) {
		p.t.Fatalf("loaded %v, the host has %v", s.Mappings, ours)
	}
}

// settle repairs, and then everything is as wanted, but where somebody else has the port, and stays so without a write.
func (p *property) settle() {
	others := p.host.foreign()
	expected := maps.Clone(p.want)
	maps.DeleteFunc(expected, func(k dataplane.Key, _ netip.AddrPort) bool { return p.host.occupied(k) })
	for range 2 {
		_, err := p.nat.Repair(p.want)
		if failed := err != nil; failed != (len(expected) < len(p.want)) {
			p.t.Fatalf("repair: %v; %v of %v can be had", err, expected, p.want)
		}
	}
	if ours := p.host.ours(); !maps.Equal(ours, expected) {
		p.t.Fatalf("the host has %v of ours, want %v", ours, expected)
	}
	if now := p.host.foreign(); !slices.Equal(now, others) {
		p.t.Fatalf("others had %v, have %v", others, now)
	}
	before := fmt.Sprint(p.host.writes, p.disk())
	if n, _ := p.nat.Repair(p.want); n != 0 || fmt.Sprint(p.host.writes, p.disk()) != before {
		p.t.Fatalf("I4: a Repair of nothing counted %d, or wrote", n)
	}
}

func (p *property) disk() (out []string) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			p.t.Fatal(err)
		}
		out = append(out, fmt.Sprint(e.Name(), info.ModTime(), info.Size()))
	}
	return out
}
