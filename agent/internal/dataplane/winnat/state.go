package winnat

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// stateFile is the name of the file that says what is ours.
const stateFile = "npl-agent-state.json"

// stateVersion names the layout of the file.
const stateVersion = 1

// errDamaged is a file that is no state at all: it counts as missing.
var errDamaged = errors.New("not a state file of npl-agent")

// mapping is one static mapping of ours: a port on all addresses of the Node, and where it leads.
type mapping struct {
	key    dataplane.Key
	target netip.AddrPort
}

// state is what must not be forgotten. ours may list mappings that the host does not have: they are written here first.
type state struct {
	ours    map[mapping]bool
	cooling map[dataplane.Key]time.Time
}

func (s state) equal(o state) bool {
	return maps.Equal(s.ours, o.ours) && maps.EqualFunc(s.cooling, o.cooling, time.Time.Equal)
}

// file is where the state is kept for one cluster.
type file struct{ path, cluster string }

// document is the file's content.
type document struct {
	Version int           `json:"version"`
	Cluster string        `json:"cluster"`
	Ours    []ourPort     `json:"ours"`
	Cooling []coolingPort `json:"cooling"`
}

type port struct {
	Protocol npl.Protocol `json:"protocol"`
	NodePort uint16       `json:"nodePort"`
}

type ourPort struct {
	port
	Target netip.AddrPort `json:"target"`
}

type coolingPort struct {
	port
	Until time.Time `json:"until"`
}

func (p port) key() dataplane.Key {
	return dataplane.Key{Protocol: p.Protocol, Family: npl.IPv4, NodePort: p.NodePort}
}

// read returns what the file says, and whether there is one. A file of another cluster is dataplane.ErrForeignTable.
func (f file) read() (s state, found bool, err error) {
	s = state{ours: map[mapping]bool{}, cooling: map[dataplane.Key]time.Time{}}
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("reading which static NAT mappings are ours: %w", err)
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return s, false, fmt.Errorf("%s: %w: %w", f.path, errDamaged, err)
	}
	switch {
	case d.Version != stateVersion:
		return s, false, fmt.Errorf("%s: version %d: this npl-agent reads version %d: run the version that wrote it, or delete the file and its static mappings", f.path, d.Version, stateVersion)
	case d.Cluster != f.cluster:
		return s, false, fmt.Errorf("%s: %w: it is of cluster %q: run npl-agent cleanup there, or delete the file and its static mappings", f.path, dataplane.ErrForeignTable, d.Cluster)
	}
	for _, o := range d.Ours {
		s.ours[mapping{o.key(), o.Target}] = true
	}
	for _, c := range d.Cooling {
		s.cooling[c.key()] = c.Until
	}
	return s, true, nil
}

// write replaces the file in one step, so that a crash leaves the old one or the new one.
func (f file) write(s state) error {
	d := document{Version: stateVersion, Cluster: f.cluster, Ours: []ourPort{}, Cooling: []coolingPort{}}
	for m := range s.ours {
		d.Ours = append(d.Ours, ourPort{port{m.key.Protocol, m.key.NodePort}, m.target})
	}
	for k, until := range s.cooling {
		d.Cooling = append(d.Cooling, coolingPort{port{k.Protocol, k.NodePort}, until})
	}
	slices.SortFunc(d.Ours, func(a, b ourPort) int {
		return cmp.Or(a.key().Compare(b.key()), a.Target.Compare(b.Target))
	})
	slices.SortFunc(d.Cooling, func(a, b coolingPort) int { return a.key().Compare(b.key()) })
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", f.path, err)
	}
	if err := f.replace(b); err != nil {
		return fmt.Errorf("writing which static NAT mappings are ours: %w", err)
	}
	return nil
}

func (f file) replace(content []byte) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	t, err := os.CreateTemp(filepath.Dir(f.path), stateFile+".*")
	if err != nil {
		return err
	}
	_, err = t.Write(content)
	if err == nil {
		err = t.Sync()
	}
	if err = errors.Join(err, t.Close()); err == nil {
		err = os.Rename(t.Name(), f.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(t.Name()))
	}
	return nil
}

func (f file) remove() error {
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the file that says which static NAT mappings were ours: %w", err)
	}
	return nil
}
