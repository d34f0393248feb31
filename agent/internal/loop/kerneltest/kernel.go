// Package kerneltest is a kernel in memory with the rules of the real one, and stricter where the loop should never come near:
// it refuses to remove what is not there. What a process holds (sockets) and what outlives it (tables) are kept apart, so that
// tests can kill and restart the agent.
package kerneltest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Kernel is safe for concurrent use.
type Kernel struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	tables  bool
	rules   map[dataplane.Key]netip.AddrPort
	cooling map[dataplane.Key]time.Time
	sockets map[dataplane.Key]bool
	// What the process knows to be there, and restores with its next write when the tables were flushed.
	knownRules   map[dataplane.Key]netip.AddrPort
	knownCooling map[dataplane.Key]time.Time
	busy         map[dataplane.Key]bool
	applied      int
	watch        chan struct{}

	// Before, if set, is called with the name of each operation that writes, and may refuse it or panic. Committed is called after
	// each change that was made. Both are called without the lock.
	Before    func(op string) error
	Committed func(dataplane.Change)
}

// New returns a kernel without tables.
func New(c clock.PassiveClock) *Kernel {
	k := &Kernel{clock: c, busy: map[dataplane.Key]bool{}, watch: make(chan struct{}, 1)}
	k.Flush()
	k.Restart()
	return k
}

// Flush loses all tables, as a reboot or "nft flush ruleset" does.
func (k *Kernel) Flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tables, k.rules, k.cooling = false, map[dataplane.Key]netip.AddrPort{}, map[dataplane.Key]time.Time{}
	k.notify()
}

// Remove takes one rule away, as somebody else might.
func (k *Kernel) Remove(key dataplane.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.rules, key)
	k.notify()
}

func (k *Kernel) notify() {
	select {
	case k.watch <- struct{}{}:
	default:
	}
}

// Restart loses what the agent's process held.
func (k *Kernel) Restart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sockets = map[dataplane.Key]bool{}
	k.knownRules, k.knownCooling = map[dataplane.Key]netip.AddrPort{}, map[dataplane.Key]time.Time{}
}

// SetBusy makes another process hold a port, or let go of it.
func (k *Kernel) SetBusy(key dataplane.Key, busy bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy[key] = busy
}

// Rules returns a copy of the map from node ports to Pods.
func (k *Kernel) Rules() map[dataplane.Key]netip.AddrPort {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.rules)
}

// Sockets returns the ports that the agent holds, in order.
func (k *Kernel) Sockets() []dataplane.Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.SortedFunc(maps.Keys(k.sockets), dataplane.Key.Compare)
}

// HasTables reports whether our tables exist.
func (k *Kernel) HasTables() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tables
}

// Writes is how many changes have been made, by Apply or by Repair.
func (k *Kernel) Writes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.applied
}

func (k *Kernel) before(op string) error {
	if k.Before == nil {
		return nil
	}
	return k.Before(op)
}

// Families implements the dataplane: both.
func (*Kernel) Families() []npl.Family { return []npl.Family{npl.IPv4, npl.IPv6} }

// Load implements the dataplane.
func (k *Kernel) Load() (dataplane.Snapshot, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := dataplane.Snapshot{Mappings: maps.Clone(k.rules), Cooling: map[dataplane.Key]time.Duration{}, Fresh: !k.tables}
	for key, until := range k.cooling {
		if left := until.Sub(k.clock.Now()); left > 0 {
			s.Cooling[key] = left
		}
	}
	k.knownRules, k.knownCooling = maps.Clone(k.rules), maps.Clone(k.cooling)
	return s, nil
}

// Apply implements the dataplane. Unlike the real one it refuses empty changes, removing what is not there, and a target of the
// wrong family.
func (k *Kernel) Apply(c dataplane.Change) error {
	if err := k.before("apply"); err != nil {
		return err
	}
	if err := k.apply(c); err != nil {
		return err
	}
	if k.Committed != nil {
		k.Committed(c)
	}
	return k.before("applied")
}

func (k *Kernel) apply(c dataplane.Change) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.Empty() {
		return errors.New("empty change")
	}
	rules := k.rules
	if !k.tables {
		rules = maps.Clone(k.knownRules)
	}
	for _, key := range c.Delete {
		if _, ok := rules[key]; !ok {
			return fmt.Errorf("%s is not there to be removed", key)
		}
	}
	for key, target := range c.Set {
		if !target.IsValid() || npl.FamilyOf(target.Addr()) != key.Family {
			return fmt.Errorf("%s cannot lead to %s", key, target)
		}
	}
	for key, d := range c.Cool {
		if d < time.Millisecond {
			return fmt.Errorf("%s cannot cool for %s", key, d)
		}
	}
	for _, key := range c.Delete {
		delete(rules, key)
	}
	for key, d := range c.Cool {
		k.knownCooling[key] = k.clock.Now().Add(d)
	}
	for key, target := range c.Set {
		rules[key] = target
		delete(k.knownCooling, key)
	}
	k.write(rules)
	return nil
}

func (k *Kernel) write(rules map[dataplane.Key]netip.AddrPort) {
	k.tables, k.rules, k.cooling = true, rules, maps.Clone(k.knownCooling)
	k.knownRules = maps.Clone(rules)
	k.applied++
}

// Repair implements the dataplane.
func (k *Kernel) Repair(want map[dataplane.Key]netip.AddrPort) (int, error) {
	if err := k.before("repair"); err != nil {
		return 0, err
	}
	c := k.repair(want)
	if k.Committed != nil && !c.Empty() {
		k.Committed(c)
	}
	return len(c.Set) + len(c.Delete), nil
}

// repair returns what was damaged, as the change that mended it.
func (k *Kernel) repair(want map[dataplane.Key]netip.AddrPort) dataplane.Change {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := dataplane.Change{Set: map[dataplane.Key]netip.AddrPort{}}
	for key, target := range want {
		if k.rules[key] != target {
			c.Set[key] = target
		}
	}
	for key := range k.rules {
		if _, ok := want[key]; !ok {
			c.Delete = append(c.Delete, key)
		}
	}
	if !c.Empty() || !k.tables {
		k.write(maps.Clone(want))
	}
	return c
}

// Reserve implements the dataplane.
func (k *Kernel) Reserve(key dataplane.Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.busy[key] {
		return fmt.Errorf("reserve %s: %w", key, dataplane.ErrPortBusy)
	}
	k.sockets[key] = true
	return nil
}

// Release implements the dataplane.
func (k *Kernel) Release(key dataplane.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sockets, key)
}

// Watch implements the dataplane: it fires after Flush and Remove.
func (k *Kernel) Watch(ctx context.Context) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		for {
			select {
			case <-ctx.Done():
				return
			case <-k.watch:
			}
			select {
			case <-ctx.Done():
				return
			case out <- struct{}{}:
			}
		}
	}()
	return out
}

// Close implements the dataplane.
func (k *Kernel) Close() error {
	k.Restart()
	return nil
}

// Cleanup implements the dataplane.
func (k *Kernel) Cleanup() error {
	if err := k.before("cleanup"); err != nil {
		return err
	}
	k.Flush()
	return nil
}
