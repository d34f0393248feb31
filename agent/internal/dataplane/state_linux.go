package dataplane

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/nftables"
)

// element is what a set holds under one key.
type element struct {
	data    string    // of a map
	expires time.Time // of the cooling set; to the millisecond
}

// state is one family's table as the kernel has it.
type state struct {
	tableInfo
	// otherLayout is true for a table of ours that an agent of another version made. Only mappings and cooling ports were
	// read of it, as far as they are kept as they are today.
	otherLayout bool
	// wrong lists in words what of the layout is missing, changed or surplus; empty when the layout is right.
	wrong []string
	// badSets and badChains have to go: those of ours with a wrong type or hook, and all that are not ours.
	badSets, badChains []string
	// elements by set; a set without an entry is missing.
	elements map[string]map[string]element
	// pods counts the mappings to each address. It is nil unless the table is as it was last written.
	pods map[string]int
}

// readAttempts bounds how often a read starts again because somebody changes the ruleset meanwhile.
const readAttempts = 20

// read returns what the kernel has, all of one generation: dumps are long enough for others to write in between.
func (n *NFT) read(f *family) (*state, error) {
	var last error
	for range readAttempts {
		before, err := n.kernel.generation()
		if err != nil {
			return nil, err
		}
		s, err := n.readOnce(f)
		if err != nil {
			// A dump that was cut short leaves its rest in the socket: start over with a clean one.
			last = err
			if err := n.kernel.dial(); err != nil {
				return nil, err
			}
			continue
		}
		after, err := n.kernel.generation()
		if err != nil {
			return nil, err
		}
		if before == after {
			return s, n.claim(f, s.tableInfo)
		}
		last = fmt.Errorf("the ruleset changed %d times while it was read", readAttempts)
	}
	return nil, fmt.Errorf("read %s: %w", f, last)
}

// claim refuses a table that is not ours, in this layout or another.
func (n *NFT) claim(f *family, t tableInfo) error {
	if !t.exists || n.cfg.marks(t.comment) {
		return nil
	}
	has := "no comment"
	if t.comment != "" {
		has = fmt.Sprintf("comment %q", t.comment)
	}
	return fmt.Errorf("%s has %s, but ours has %q: %w: if nothing else needs it, remove it with: nft delete %s",
		f, has, n.cfg.mark(), ErrForeignTable, f)
}

func (n *NFT) readOnce(f *family) (*state, error) {
	info, err := n.kernel.tableInfo(f)
	if err != nil {
		return nil, err
	}
	s := &state{tableInfo: info, elements: map[string]map[string]element{}}
	if !info.exists {
		s.wrong = []string{"the table is missing"}
		return s, nil
	}
	if !n.cfg.marks(info.comment) {
		return s, nil
	}
	if info.comment != n.cfg.mark() {
		s.otherLayout = true
		if err := n.readSets(f, s); err != nil {
			return nil, err
		}
		maps.DeleteFunc(s.elements, func(set string, _ map[string]element) bool { return set != setPorts && set != setCooling })
		s.wrong = []string{fmt.Sprintf("the table has mark %q", info.comment)}
		return s, nil
	}
	if info.flags != 0 {
		s.wrong = append(s.wrong, fmt.Sprintf("the table has flags %#x", info.flags))
	}
	if err := n.readSets(f, s); err != nil {
		return nil, err
	}
	return s, n.readChains(f, s)
}

func (n *NFT) readSets(f *family, s *state) error {
	sets, err := n.kernel.GetSets(f.table())
	if err != nil {
		return fmt.Errorf("read the sets of %s: %w", f, err)
	}
	for _, want := range n.layouts[f].sets {
		i := slices.IndexFunc(sets, func(k *nftables.Set) bool { return k.Name == want.name })
		switch {
		case i < 0:
			s.wrong = append(s.wrong, "set "+want.name+" is missing")
			continue
		case !want.same(sets[i]):
			s.wrong = append(s.wrong, "set "+want.name+" has another type")
			s.badSets = append(s.badSets, want.name)
		default:
			elements, err := n.kernel.GetSetElements(&nftables.Set{Table: f.table(), Name: want.name})
			if err != nil {
				return fmt.Errorf("read set %s of %s: %w", want.name, f, err)
			}
			s.elements[want.name] = n.decodeElements(elements)
		}
		sets = slices.Delete(sets, i, i+1)
	}
	for _, k := range sets {
		if !k.Anonymous { // those go with their rule
			s.wrong = append(s.wrong, "set "+k.Name+" is not ours")
			s.badSets = append(s.badSets, k.Name)
		}
	}
	return nil
}

func (n *NFT) decodeElements(in []nftables.SetElement) map[string]element {
	out, now := make(map[string]element, len(in)), n.now()
	for _, e := range in {
		el := element{data: string(e.Val)}
		if e.Timeout != 0 {
			el.expires = now.Add(e.Expires)
		}
		out[string(e.Key)] = el
	}
	return out
}

func (n *NFT) readChains(f *family, s *state) error {
	chains, err := n.kernel.ListChainsOfTableFamily(f.nf)
	if err != nil {
		return fmt.Errorf("read the chains of %s: %w", f, err)
	}
	rules, err := n.kernel.rules(f.nf, TableName, "")
	if err != nil {
		return err
	}
	chains = slices.DeleteFunc(chains, func(k *nftables.Chain) bool { return k.Table == nil || k.Table.Name != TableName })
	for _, want := range n.layouts[f].chains {
		i := slices.IndexFunc(chains, func(k *nftables.Chain) bool { return k.Name == want.name })
		if i < 0 {
			s.wrong = append(s.wrong, "chain "+want.name+" is missing")
			continue
		}
		k := chains[i]
		chains = slices.Delete(chains, i, i+1)
		if !want.same(k) {
			s.wrong = append(s.wrong, "chain "+want.name+" is hooked elsewhere")
			s.badChains = append(s.badChains, want.name)
			continue
		}
		if !slices.EqualFunc(want.rules, rules[want.name], rule.same) {
			s.wrong = append(s.wrong, "chain "+want.name+" has other rules")
		}
	}
	for _, k := range chains {
		s.wrong = append(s.wrong, "chain "+k.Name+" is not ours")
		s.badChains = append(s.badChains, k.Name)
	}
	return nil
}

// mappings decodes the map; what does not decode was not written by us and is left out.
func (s *state) mappings(f *family, into Snapshot) {
	for key, e := range s.elements[setPorts] {
		k, err := f.decodeKey(key)
		if err != nil {
			continue
		}
		if target, err := f.decodeTarget(e.data); err == nil {
			into.Mappings[k] = target
		}
	}
}

// cooling decodes the cooling set.
func (s *state) cooling(f *family, now time.Time, into Snapshot) {
	for key, e := range s.elements[setCooling] {
		if left := e.expires.Sub(now); left > 0 {
			if k, err := f.decodeKey(key); err == nil {
				into.Cooling[k] = left
			}
		}
	}
}
