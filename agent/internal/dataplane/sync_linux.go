package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// Apply writes a change: one transaction per IP family that holds only what differs, then the conntrack entries. After an
// error in one family the other is still written; applying the same change again is safe. Missing tables are made.
func (n *NFT) Apply(c Change) error {
	if err := c.validate(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.checkFamilies(sortedKeys(c.Set)); err != nil {
		return err
	}
	if n.self == nil {
		if err := n.refreshSelf(); err != nil {
			return err
		}
	}
	var errs []error
	var written []*family
	for _, f := range n.families {
		if err := n.applyFamily(f, c); err != nil {
			errs = append(errs, err)
			continue
		}
		written = append(written, f)
	}
	for _, f := range written { // after all transactions: a walk takes many times as long
		n.forget(f, c.flows(f))
	}
	if n.cfg.ForwardAccept && n.opened == nil && len(c.Set) > 0 { // nothing is to be published before its packets can pass
		_, err := n.look(c.Set, true)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (n *NFT) applyFamily(f *family, c Change) error {
	s := n.known[f]
	if s == nil {
		var err error
		if s, err = n.read(f); err != nil {
			return err
		}
		n.known[f] = s
	}
	if s.pods != nil && !n.stale[f] {
		d := s.step(f, c, n.now())
		if d.empty() {
			return nil
		}
		if err := n.write(f, s, d); err == nil {
			s.advance(f, d)
			return nil
		} else if err := n.lost(f, err); err != nil {
			return err
		}
	}
	_, _, err := n.sync(f, n.afterwards(f, s, c))
	return err
}

// afterwards is what f's table shall hold after a change.
func (n *NFT) afterwards(f *family, s *state, c Change) wanted {
	ports, cooling := maps.Clone(s.elements[setPorts]), n.stillCooling(f)
	if ports == nil {
		ports = map[string]element{}
	}
	for _, k := range c.Delete {
		if k.Family == f.ip {
			delete(ports, encodeKey(k))
		}
	}
	for k, d := range c.Cool {
		if k.Family == f.ip {
			cooling[encodeKey(k)] = element{expires: n.now().Add(d)}
		}
	}
	for k, target := range c.Set {
		if k.Family == f.ip {
			ports[encodeKey(k)] = element{data: encodeTarget(target)}
		}
	}
	return n.want(f, ports, cooling)
}

// lost is called when a transaction on f's table failed. It returns nil when a fresh read may help.
func (n *NFT) lost(f *family, failure error) error {
	n.stale[f] = true
	// Acknowledgements of the failed transaction may still be waiting in the socket.
	if err := n.kernel.dial(); err != nil {
		return err
	}
	if !transient(failure) {
		return failure
	}
	return nil
}

// Repair makes the tables equal to want, whatever was done to them: tables, chains, rules, sets and elements that are
// missing, changed or surplus. It follows the Node's addresses too. It returns how many things were not as they should be;
// a table made for the first time, and changes of addresses, do not count. With nothing to do it writes nothing.
func (n *NFT) Repair(want map[Key]netip.AddrPort) (repaired int, err error) {
	if err := (Change{Set: want}).validate(); err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.checkFamilies(sortedKeys(want)); err != nil {
		return 0, err
	}
	if err := n.refreshSelf(); err != nil {
		return 0, err
	}
	repaired, err = n.look(want, n.cfg.ForwardAccept)
	errs := []error{err}
	for _, f := range n.families {
		count, err := n.repairFamily(f, want)
		repaired += count
		if err != nil {
			errs = append(errs, err)
		}
	}
	return repaired, errors.Join(errs...)
}

func (n *NFT) repairFamily(f *family, mappings map[Key]netip.AddrPort) (int, error) {
	ports := map[string]element{}
	for k, target := range mappings {
		if k.Family == f.ip {
			ports[encodeKey(k)] = element{data: encodeTarget(target)}
		}
	}
	before := n.known[f]
	n.stale[f] = true
	had, d, err := n.sync(f, n.want(f, ports, n.stillCooling(f)))
	walk := n.walkDue[f]
	if err != nil || d.empty() && !walk {
		return 0, err
	}
	n.walkDue[f] = false
	flows := map[flow]netip.AddrPort{}
	for _, key := range d.keys(setPorts) {
		if k, err := f.decodeKey(key); err == nil && k.Protocol == npl.UDP {
			flows[k.flow()] = mappings[k]
		}
	}
	if d.rebuild || d.create || walk {
		for k, target := range mappings {
			if k.Family == f.ip && k.Protocol == npl.UDP {
				flows[k.flow()] = target
			}
		}
	}
	n.forget(f, flows)
	if d.empty() {
		return 0, nil
	}
	if before == nil {
		before = had
	}
	if !before.exists {
		return 0, nil
	}
	count := len(had.wrong)
	for _, set := range n.layouts[f].sets {
		followed := set.name == setSelf || set.name == setUturn
		if !followed || !maps.Equal(had.elements[set.name], before.elements[set.name]) {
			count += len(d.keys(set.name))
		}
	}
	if count > 0 {
		n.cfg.Log.Warn("repaired an nftables table that was not as it should be", zap.Stringer("table", f),
			zap.Int("things", count), zap.Strings("wrong", had.wrong))
	}
	return count, nil
}

// want completes ports and cooling to all sets of f. A port that is in use does not cool.
func (n *NFT) want(f *family, ports, cooling map[string]element) wanted {
	maps.DeleteFunc(cooling, func(key string, _ element) bool { _, used := ports[key]; return used })
	self, uturn := map[string]element{}, map[string]element{}
	for _, a := range n.self {
		if npl.FamilyOf(a) == f.ip {
			self[encodeAddr(a)] = element{}
		}
	}
	for _, index := range interfaces(n.links, f.ip) {
		uturn[encodePair(encodeInterface(index))] = element{}
	}
	w := wanted{
		setPorts: ports, setSelf: self, setCooling: cooling,
		setHairpin: f.hairpins(ports), setUturn: uturn,
	}
	for _, p := range protocols {
		w[setOf(p)] = map[string]element{}
	}
	for key := range ports {
		if set, port, known := portSet(key); known {
			w[set][port] = element{}
		}
	}
	return w
}

// stillCooling returns what this process knows to be cooling, so that a flushed table gets it back.
func (n *NFT) stillCooling(f *family) map[string]element {
	out := map[string]element{}
	if s := n.known[f]; s != nil {
		for key, e := range s.elements[setCooling] {
			if e.expires.After(n.now()) {
				out[key] = e
			}
		}
	}
	return out
}

// syncAttempts bounds how often a transaction is tried when others write at the same time.
const syncAttempts = 4

// sync writes what separates f's table from want, and returns what was there and what differed. A transaction that fails
// because the table was not as known is computed again from a fresh read.
func (n *NFT) sync(f *family, want wanted) (*state, difference, error) {
	var last error
	for range syncAttempts {
		s := n.known[f]
		if s == nil || n.stale[f] {
			var err error
			if s, err = n.read(f); err != nil {
				return nil, difference{}, err
			}
		}
		if s.otherLayout { // what cools there would be gone with it
			for key, e := range s.elements[setCooling] {
				_, mapped := want[setPorts][key]
				if _, again := want[setCooling][key]; !again && !mapped && e.expires.After(n.now()) {
					want[setCooling][key] = e
				}
			}
		}
		d := compare(s, want, n.now())
		if !d.empty() {
			if last = n.write(f, s, d); last != nil {
				if err := n.lost(f, last); err != nil {
					return nil, d, err
				}
				continue
			}
		}
		n.remember(f, s, want)
		return s, d, nil
	}
	return nil, difference{}, fmt.Errorf("gave up after %d attempts: %w", syncAttempts, last)
}

// transient reports whether a fresh read may help: somebody changed the table meanwhile, or messages were lost.
func transient(err error) bool {
	for _, e := range []error{unix.ENOENT, unix.EEXIST, unix.EBUSY, unix.EINTR, unix.ENOBUFS, unix.EAGAIN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (n *NFT) remember(f *family, had *state, want wanted) {
	cooling := maps.Clone(want[setCooling])
	for key, e := range had.elements[setCooling] {
		_, again := cooling[key]
		_, mapped := want[setPorts][key]
		if !again && !mapped && e.expires.After(n.now()) {
			cooling[key] = e
		}
	}
	elements := maps.Clone(want)
	elements[setCooling] = cooling
	s := &state{tableInfo: tableInfo{exists: true, comment: n.cfg.mark()}, elements: elements, pods: map[string]int{}}
	for _, e := range s.elements[setPorts] {
		s.count(f, e, +1)
	}
	n.known[f], n.stale[f] = s, false
}
