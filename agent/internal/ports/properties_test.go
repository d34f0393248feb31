package ports

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Whatever is asked in whatever order: one owner for each port; an owner keeps its port, also when the agent starts again; a freed port
// is given to another mapping only when its deadline has passed and it is confirmed (I2); a Pod gets all it asks for or nothing; of the ports
// that can be given the one free for longest is; and the same calls give the same ports.
func TestAllocatorKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newAccount(t, false).run() })
}

// With joint, all that plus: one number for all protocols of a Pod port, which no other Pod port has.
func TestJointAllocatorKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newAccount(t, true).run() })
}

// account is our own, plain idea of who has what, and the allocators that are held against it.
type account struct {
	t       *rapid.T
	a, twin *Allocator
	joint   bool
	r       Range
	now     time.Time

	owner     map[model.Key]model.ID
	current   map[model.ID]model.Key
	cooling   map[model.Key]cooling
	former    map[model.ID]model.Key
	confirmed map[model.Key]bool
	excluded  map[model.Key]bool
	busy      map[model.Key]bool // by other processes
	held      map[model.Key]bool // by ours
	queue     map[pool][]uint16  // free numbers, the longest free first
}

func newAccount(t *rapid.T, joint bool) *account {
	c := &account{t: t, joint: joint, now: epoch,
		owner: map[model.Key]model.ID{}, current: map[model.ID]model.Key{}, cooling: map[model.Key]cooling{}, former: map[model.ID]model.Key{},
		confirmed: map[model.Key]bool{}, excluded: map[model.Key]bool{}, busy: map[model.Key]bool{}, held: map[model.Key]bool{},
	}
	c.r = Range{61000, 61000 + uint16(rapid.IntRange(0, 5).Draw(t, "size"))}
	c.start()
	return c
}

func (c *account) run() {
	c.t.Repeat(map[string]func(*rapid.T){
		"allocate": c.allocate, "release": c.release, "time": c.time, "confirm": c.confirm, "exclude": c.exclude, "cool": c.cool, "restart": c.restart,
		"settle": c.settle, "busy": c.disturb, "": c.check,
	})
}

// start makes new allocators, in which everything is free.
func (c *account) start() {
	cursor := rapid.Uint16().Draw(c.t, "cursor")
	c.a, c.twin = New(c.r, cursor, c.joint), New(c.r, cursor, c.joint)
	c.queue = map[pool][]uint16{}
	for _, p := range protocols {
		for _, f := range []npl.Family{npl.IPv4, npl.IPv6} {
			for i := range c.r.Size() {
				c.queue[pool{p, f}] = append(c.queue[pool{p, f}], c.r.First+uint16((int(cursor)+i)%c.r.Size()))
			}
		}
	}
}

func (c *account) leave(k model.Key) {
	p := pool{k.Protocol, k.Family}
	c.queue[p] = slices.DeleteFunc(c.queue[p], func(n uint16) bool { return n == k.NodePort })
}

func (c *account) taken(k model.Key, id model.ID) {
	c.owner[k] = id
	if c.former[c.cooling[k].last] == k {
		delete(c.former, c.cooling[k].last)
	}
	delete(c.cooling, k)
	c.leave(k)
	for p, q := range c.queue {
		if i := slices.Index(q, k.NodePort); i >= 0 && p.family == k.Family {
			c.queue[p] = append(slices.Delete(q, i, i+1), k.NodePort)
		}
	}
}

func (c *account) keys() []model.Key {
	var out []model.Key
	for _, p := range protocols {
		for _, f := range []npl.Family{npl.IPv4, npl.IPv6} {
			for n := c.r.First; n <= c.r.Last; n++ {
				out = append(out, model.Key{Protocol: p, Family: f, NodePort: n})
			}
		}
	}
	return out
}

// both does the same with the allocator and its twin, and returns the sockets held after it.
func (c *account) both(do func(*Allocator, Probe) bool) (bool, map[model.Key]bool) {
	held, other := maps.Clone(c.held), maps.Clone(c.held)
	probe := func(held map[model.Key]bool) Probe {
		return Probe{Try: func(k model.Key) bool {
			if !c.busy[k] {
				held[k] = true
			}
			return !c.busy[k]
		}, Undo: func(k model.Key) { delete(held, k) }}
	}
	ok := do(c.a, probe(held))
	if ok != do(c.twin, probe(other)) || !maps.Equal(held, other) {
		c.t.Fatal("not deterministic")
	}
	return ok, held
}

// open reports whether id may be given k, as far as rules go.
func (c *account) open(k model.Key, id model.ID) bool {
	_, owned := c.owner[k]
	rest, cools := c.cooling[k]
	return c.r.Contains(k.NodePort) && !owned && !c.excluded[k] && (!cools || rest.last == id)
}

func (c *account) bundle(id model.ID) model.ID {
	if c.joint {
		id.Protocol = ""
	}
	return id
}

func (c *account) allocate(t *rapid.T) {
	var ids []model.ID
	pod := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "pod")
	for range rapid.IntRange(1, 4).Draw(t, "ports") {
		id := model.ID{PodUID: pod, PodPort: rapid.SampledFrom([]uint16{80, 81}).Draw(t, "podPort"),
			Protocol: rapid.SampledFrom(protocols).Draw(t, "protocol"), Family: rapid.SampledFrom([]npl.Family{npl.IPv4, npl.IPv4, npl.IPv6}).Draw(t, "family")}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	lacking := slices.DeleteFunc(slices.Clone(ids), func(id model.ID) bool { _, has := c.current[id]; return has })
	ok, held := c.both(func(a *Allocator, p Probe) bool { return a.Allocate(ids, p) })
	if !ok {
		if !maps.Equal(held, c.held) {
			t.Fatalf("nothing was given, but %v is held instead of %v", held, c.held)
		}
		c.mustLack(t, lacking)
		return
	}
	before, given := maps.Clone(c.owner), map[model.Key]bool{}
	for _, id := range lacking {
		k, _ := c.a.Current(id)
		c.given(t, k, id, before, given)
		given[model.Key{Family: k.Family, NodePort: k.NodePort}] = true
		if !held[k] || c.held[k] {
			t.Fatalf("%v is given and not held, or was held", k)
		}
		c.held[k] = true
	}
	if !maps.Equal(held, c.held) {
		t.Fatalf("held %v, want %v", held, c.held)
	}
}

// given holds one new port against the promises. before are the owners before the call, numbers those that the call has given already, to
// whatever protocol: they come last, in no order.
func (c *account) given(t *rapid.T, k model.Key, id model.ID, before map[model.Key]model.ID, numbers map[model.Key]bool) {
	if k.Protocol != id.Protocol || k.Family != id.Family || !c.open(k, id) || c.busy[k] {
		t.Fatalf("%v may not have %v: owner %v, cooling %v, excluded %v, busy %v", id, k, c.owner[k], c.cooling[k], c.excluded[k], c.busy[k])
	}
	joins := c.joint && slices.ContainsFunc(protocols, func(p npl.Protocol) bool {
		sibling := id
		sibling.Protocol = p
		return sibling != id && c.current[sibling] == keyOf(sibling, k.NodePort)
	})
	for _, p := range protocols {
		sibling, other := id, k
		sibling.Protocol, other.Protocol = p, p
		if owner, owned := before[other]; c.joint && owned && c.bundle(owner) != c.bundle(id) {
			t.Fatalf("%v is given to %v, and %v to %v", k, id, other, owner)
		}
		if rest, cools := c.cooling[other]; c.joint && cools && rest.last != sibling && !joins {
			t.Fatalf("%v is given to %v while %v cools for %v", k, id, other, rest.last)
		}
		if at, has := c.current[sibling]; c.joint && has && !joins && at != other && c.owner[other] != sibling && c.busy[other] {
			t.Fatalf("%v is given to %v, and %v cannot follow from %v: %v is busy", k, id, sibling, at, other)
		}
	}
	if f, ok := c.former[id]; !c.joint && ok && c.open(f, id) && !c.busy[f] && f != k {
		t.Fatalf("%v gets %v and could have had %v back", id, k, f)
	} else if !c.joint && f != k {
		for _, n := range c.queue[pool{k.Protocol, k.Family}] {
			if longer := (model.Key{Protocol: k.Protocol, Family: k.Family, NodePort: n}); longer == k {
				break
			} else if c.open(longer, id) && !c.busy[longer] && !(numbers[model.Key{Family: k.Family, NodePort: n}] && numbers[model.Key{Family: k.Family, NodePort: k.NodePort}]) {
				t.Fatalf("%v gets %v, and %v has been free for longer", id, k, longer)
			}
		}
	}
	c.current[id] = k
	c.taken(k, id)
}

// mustLack fails the test if there were ports for ids.
func (c *account) mustLack(t *rapid.T, ids []model.ID) {
	lack := map[pool]int{}
	for _, id := range ids {
		if f, ok := c.former[id]; !ok || !c.open(f, id) || c.busy[f] {
			lack[pool{id.Protocol, id.Family}]++
		}
		if c.joint && c.bundle(id) != c.bundle(ids[0]) {
			return // which of several bundles lacks a number depends on what the first ones got
		}
	}
	if c.joint {
		for n := c.r.First; n <= c.r.Last; n++ {
			if c.suits(n, ids) {
				t.Fatalf("%v get nothing, and number %d was free for them", ids, n)
			}
		}
		return
	}
	for p, n := range lack {
		if n > len(slices.DeleteFunc(slices.Clone(c.queue[p]), func(port uint16) bool {
			k := model.Key{Protocol: p.protocol, Family: p.family, NodePort: port}
			return !c.open(k, model.ID{}) || c.busy[k]
		})) {
			return
		}
	}
	t.Fatalf("%v get nothing, and there were ports", ids)
}

// suits reports whether the whole bundle of ids could have number n.
func (c *account) suits(n uint16, ids []model.ID) bool {
	for _, p := range protocols {
		member := ids[0]
		member.Protocol = p
		k := keyOf(member, n)
		_, exists := c.current[member]
		needed := exists || slices.Contains(ids, member)
		if c.owner[k] != member && (!c.open(k, member) || needed && c.busy[k]) || c.owner[k] == member && slices.Contains(ids, member) {
			return false
		}
	}
	return true
}

func (c *account) release(t *rapid.T) {
	if len(c.owner) == 0 {
		t.Skip("nobody has a port")
	}
	c.free(rapid.SampledFrom(slices.SortedFunc(maps.Keys(c.owner), model.Key.Compare)).Draw(t, "port"))
}

func (c *account) free(k model.Key) {
	id, until := c.owner[k], c.now.Add(cool)
	delete(c.owner, k)
	delete(c.held, k)
	if c.current[id] == k {
		delete(c.current, id)
	}
	c.cooling[k], c.former[id], c.confirmed[k] = cooling{until, id}, k, false
	c.a.Release(k, until)
	c.twin.Release(k, until)
}

func (c *account) time(t *rapid.T) {
	c.now = c.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
	confirmed := func(k model.Key) bool { return c.confirmed[k] }
	freed := c.a.Expire(c.now, confirmed)
	if !slices.Equal(freed, c.twin.Expire(c.now, confirmed)) {
		t.Fatal("not deterministic")
	}
	for _, k := range freed {
		rest, cools := c.cooling[k]
		if !cools || c.now.Before(rest.until) || !c.confirmed[k] {
			t.Fatalf("%v is free too early: cooling until %v, confirmed %v", k, rest.until, c.confirmed[k])
		}
		if c.former[rest.last] == k {
			delete(c.former, rest.last)
		}
		delete(c.cooling, k)
		c.queue[pool{k.Protocol, k.Family}] = append(c.queue[pool{k.Protocol, k.Family}], k.NodePort)
	}
	for k, rest := range c.cooling {
		if !c.now.Before(rest.until) && c.confirmed[k] {
			t.Fatalf("%v still cools", k)
		}
	}
}

func (c *account) confirm(t *rapid.T) {
	for _, k := range slices.SortedFunc(maps.Keys(c.cooling), model.Key.Compare) {
		c.confirmed[k] = rapid.Bool().Draw(t, "confirmed")
	}
}

func (c *account) exclude(t *rapid.T) {
	before, until := c.excluded, c.now.Add(cool)
	c.excluded = map[model.Key]bool{}
	for range rapid.IntRange(0, 4).Draw(t, "host ports") {
		c.excluded[rapid.SampledFrom(c.keys()).Draw(t, "host port")] = true
	}
	var want []model.Key
	for _, k := range slices.SortedFunc(maps.Keys(before), model.Key.Compare) {
		if _, owned := c.owner[k]; !owned && !c.excluded[k] { // its Pod may still be published there, whoever had it before
			c.rest(k, until)
			if c.former[c.cooling[k].last] == k {
				delete(c.former, c.cooling[k].last)
			}
			c.cooling[k] = cooling{until: c.cooling[k].until}
			want = append(want, k)
		}
	}
	keys := slices.Collect(maps.Keys(c.excluded))
	if got := c.a.Exclude(keys, until); !slices.Equal(got, want) || !slices.Equal(c.twin.Exclude(keys, until), want) {
		t.Fatalf("%v begin to cool, want %v", got, want)
	}
}

// rest makes a port that nobody owns cool.
func (c *account) rest(k model.Key, until time.Time) {
	if had, cools := c.cooling[k]; !cools || until.After(had.until) {
		c.cooling[k] = cooling{until, had.last}
	}
	c.confirmed[k] = false
	c.leave(k)
}

func (c *account) cool(t *rapid.T) {
	k, until := rapid.SampledFrom(c.keys()).Draw(t, "port"), c.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds"))*time.Second)
	c.a.Cool(k, until)
	c.twin.Cool(k, until)
	if _, owned := c.owner[k]; !owned {
		c.rest(k, until)
	}
}

// settle moves whoever needs it, as the loop does, and then lets go of what was left.
func (c *account) settle(t *rapid.T) {
	stuck := false
	for range 4 {
		for _, id := range slices.SortedFunc(maps.Keys(c.current), model.ID.Compare) {
			if c.a.Settled(id) {
				continue
			}
			before := maps.Clone(c.owner)
			had := c.current[id]
			ok, held := c.both(func(a *Allocator, p Probe) bool { return a.Move(id, p) })
			k, _ := c.a.Current(id)
			if !ok {
				if stuck = true; k != had || !maps.Equal(held, c.held) {
					t.Fatalf("%v could not move, but has %v instead of %v", id, k, had)
				}
				continue
			}
			delete(c.current, id)
			c.given(t, k, id, before, nil)
			c.held[k] = true
			c.free(had)
			delete(held, had)
			if !maps.Equal(held, c.held) {
				t.Fatalf("after a move %v is held, want %v", held, c.held)
			}
		}
	}
	for id, k := range c.current {
		if !stuck && !c.a.Settled(id) {
			t.Fatalf("%v never settles at %v", id, k)
		}
		for other, at := range c.current {
			if !stuck && c.joint && c.bundle(id) == c.bundle(other) && at.NodePort != k.NodePort {
				t.Fatalf("%v has %v, and %v has %v", id, k, other, at)
			}
		}
	}
}

// restart makes allocators that know only what kernel and annotations tell: who had a cooling port is forgotten.
func (c *account) restart(t *rapid.T) {
	excluded := slices.Collect(maps.Keys(c.excluded))
	clear(c.former)
	owners, cooled := c.owner, c.cooling
	c.owner, c.cooling = map[model.Key]model.ID{}, map[model.Key]cooling{}
	c.start()
	for _, a := range []*Allocator{c.a, c.twin} {
		if cooled := a.Exclude(excluded, c.now.Add(cool)); len(cooled) > 0 {
			t.Fatalf("%v begin to cool", cooled)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(cooled), model.Key.Compare) {
		c.a.Cool(k, cooled[k].until)
		c.twin.Cool(k, cooled[k].until)
		c.cooling[k] = cooling{until: cooled[k].until}
		c.leave(k)
	}
	adopt := func(k model.Key, id model.ID) {
		if err := c.a.Adopt(k, id); err != nil {
			t.Fatal(err)
		}
		if err := c.twin.Adopt(k, id); err != nil {
			t.Fatal(err)
		}
		c.taken(k, id)
	}
	for _, id := range slices.SortedFunc(maps.Keys(c.current), model.ID.Compare) {
		adopt(c.current[id], id)
	}
	for _, k := range slices.SortedFunc(maps.Keys(owners), model.Key.Compare) {
		if _, adopted := c.owner[k]; !adopted {
			adopt(k, owners[k])
		}
	}
}

// disturb lets other processes take and leave ports.
func (c *account) disturb(t *rapid.T) {
	clear(c.busy)
	for range rapid.IntRange(0, 3).Draw(t, "busy ports") {
		if k := rapid.SampledFrom(c.keys()).Draw(t, "busy"); !c.held[k] {
			c.busy[k] = true
		}
	}
}

// check compares the books.
func (c *account) check(t *rapid.T) {
	until := map[model.Key]time.Time{}
	for k, rest := range c.cooling {
		until[k] = rest.until
	}
	for _, a := range []*Allocator{c.a, c.twin} {
		if diff := cmp.Diff(c.owner, a.Owners()); diff != "" {
			t.Fatalf("owners (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(until, a.Cooling()); diff != "" {
			t.Fatalf("cooling (-want +got):\n%s", diff)
		}
		for id, k := range c.current {
			if got, ok := a.Current(id); !ok || got != k {
				t.Fatalf("%v has %v, had %v", id, got, k)
			}
		}
	}
}
