package winnat

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// none is the goal of a key that is to have no mapping of ours.
var none netip.AddrPort

// removal is the goals that leave none of our mappings.
func (n *NAT) removal() map[dataplane.Key]netip.AddrPort {
	goals := map[dataplane.Key]netip.AddrPort{}
	for _, s := range n.host.mappings {
		if n.ours(s) {
			goals[s.key] = none
		}
	}
	return goals
}

// bring makes our mappings of the goals' keys what the goals say, and returns of how many keys that changed the host.
func (n *NAT) bring(goals map[dataplane.Key]netip.AddrPort, cooling map[dataplane.Key]time.Time) (changed int, err error) {
	var errs []error
	var steps []step
	planned := state{ours: maps.Clone(n.state.ours), cooling: alive(cooling, n.cfg.Now())}
	for _, k := range sorted(goals) {
		plan, err := n.plan(k, goals[k])
		if err != nil {
			errs = append(errs, err)
			delete(goals, k)
			continue
		}
		steps = append(steps, plan...)
		if goals[k] != none {
			planned.ours[mapping{k, goals[k]}] = true
		}
	}
	if err := n.remember(planned); err != nil { // before anything is done
		return 0, err
	}
	if len(steps) > 0 {
		if err := n.look(steps); err != nil {
			return 0, errors.Join(append(errs, err)...)
		}
	}
	for _, k := range sorted(goals) {
		if err := n.reached(k, goals[k]); err != nil {
			errs = append(errs, err)
			continue
		}
		if slices.ContainsFunc(steps, func(s step) bool { return s.key == k }) {
			changed++
		}
		maps.DeleteFunc(planned.ours, func(m mapping, _ bool) bool { return m.key == k && m.target != goals[k] })
	}
	return changed, errors.Join(append(errs, n.remember(planned))...)
}

// plan returns the commands that lead from what the host has at k to the goal.
func (n *NAT) plan(k dataplane.Key, goal netip.AddrPort) (steps []step, err error) {
	there := false
	for _, s := range n.host.at(k) {
		switch {
		case s.everywhere && s.target == goal:
			there = true
		case n.ours(s):
			steps = append(steps, remove(s.mapping))
		case goal != none:
			return nil, fmt.Errorf("node port %s: %w: somebody's static mapping leads %s to %s: remove it, or keep portRange clear of it",
				k, dataplane.ErrPortBusy, s.external, s.target)
		}
	}
	if goal == none || there {
		return steps, nil
	}
	nat, err := n.host.natOf(goal.Addr())
	if err != nil {
		return nil, fmt.Errorf("node port %s: %w", k, err)
	}
	return append(steps, add(nat, mapping{k, goal})), nil
}

// reached returns an error if the host does not have at k what it should.
func (n *NAT) reached(k dataplane.Key, goal netip.AddrPort) error {
	there := false
	for _, s := range n.host.at(k) {
		switch {
		case s.everywhere && s.target == goal:
			there = true
		case n.ours(s):
			return fmt.Errorf("node port %s: removing the static mapping to %s: %w", k, s.target, n.host.failure(k))
		}
	}
	if goal != none && !there {
		return fmt.Errorf("node port %s: adding a static mapping to %s: %w", k, goal, n.host.failure(k))
	}
	return nil
}

// remember writes the file if it says something else.
func (n *NAT) remember(s state) error {
	if n.state.equal(s) {
		return nil
	}
	s = state{ours: maps.Clone(s.ours), cooling: s.cooling}
	if err := n.file.write(s); err != nil {
		return err
	}
	n.state = &s
	return nil
}

func validate(mappings map[dataplane.Key]netip.AddrPort) error {
	for _, k := range sorted(mappings) {
		if err := validateKey(k); err != nil {
			return err
		}
		target := mappings[k]
		a := target.Addr()
		if !a.Is4() || target.Port() == 0 || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() {
			return fmt.Errorf("node port %s: target %s: must be a unicast IPv4 address that is not loopback, and a port from 1 to 65535", k, target)
		}
	}
	return nil
}

func validateKey(k dataplane.Key) error {
	switch {
	case k.NodePort == 0:
		return fmt.Errorf("node port %s: must be 1 to 65535", k)
	case k.Protocol != npl.TCP && k.Protocol != npl.UDP:
		return fmt.Errorf("node port %s: %w: the NAT of Windows maps tcp and udp only: take the %s port out of the Service", k, dataplane.ErrUnsupported, k.Protocol)
	case k.Family != npl.IPv4:
		return fmt.Errorf("node port %s: %w: the NAT of Windows maps IPv4 only", k, dataplane.ErrUnsupported)
	}
	return nil
}

func sorted[V any](m map[dataplane.Key]V) []dataplane.Key {
	return slices.SortedFunc(maps.Keys(m), dataplane.Key.Compare)
}

func alive(cooling map[dataplane.Key]time.Time, now time.Time) map[dataplane.Key]time.Time {
	out := maps.Clone(cooling)
	maps.DeleteFunc(out, func(_ dataplane.Key, until time.Time) bool { return !until.After(now) })
	return out
}
