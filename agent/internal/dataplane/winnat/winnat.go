// Package winnat keeps node ports on a Windows Node: as static mappings of the host's own NAT (WinNAT), which it drives through the
// NetNat cmdlets of PowerShell. It is package dataplane's promise by other means; see docs/how-to/windows.md for what differs.
//
// A static mapping has no comment, so nothing on the host says whose it is. The proof is a file that lists every mapping of ours, written
// before the mapping is made: what is not in it is somebody else's and is never removed. The file also remembers the ports that cool.
//
// Nothing here needs Windows but the two files that start PowerShell and probe ports.
package winnat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Runner runs PowerShell.
type Runner interface {
	// Run runs a script, of which every line is a whole statement, and returns what it wrote to its standard output. It returns that
	// with an error, too.
	Run(ctx context.Context, script string) (string, error)
}

// Config is what Open needs.
type Config struct {
	// ClusterUID is the UID of Namespace kube-system; required.
	ClusterUID string
	// Dir is the directory for the file that says what is ours; required. It is made when first written.
	Dir string
	// Runner runs PowerShell; required.
	Runner Runner
	// Probe returns dataplane.ErrPortBusy for a port that no process could bind; required.
	Probe func(dataplane.Key) error
	// Now is the wall clock; nil is time.Now. A cooling port keeps its deadline through a reboot.
	Now func() time.Time
	// Log receives warnings and what was repaired; nil discards them.
	Log *zap.Logger
}

// NAT is the dataplane of a Windows Node. Its methods may be called from several goroutines.
type NAT struct {
	cfg  Config
	file file

	mu    sync.Mutex
	state *state // what the file says or, when it could not be written, should say; nil until read
	host  *host  // what the host was last seen to have; nil when that is not known
}

// Open reads whose mappings are on this Node: those of another cluster are dataplane.ErrForeignTable. It writes nothing and does not start
// PowerShell.
func Open(cfg Config) (*NAT, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	n := &NAT{cfg: cfg, file: file{path: filepath.Join(cfg.Dir, stateFile), cluster: cfg.ClusterUID}}
	if _, _, err := n.file.read(); err != nil && !errors.Is(err, errDamaged) {
		return nil, err
	}
	return n, nil
}

// Families returns IPv4 alone: WinNAT has no static mappings for IPv6.
func (*NAT) Families() []npl.Family { return []npl.Family{npl.IPv4} }

// Load reads which of our mappings the host has. It writes nothing.
func (n *NAT) Load() (dataplane.Snapshot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found, err := n.load()
	if err != nil {
		return dataplane.Snapshot{}, err
	}
	if err := n.look(nil); err != nil {
		return dataplane.Snapshot{}, err
	}
	if len(n.host.nats) == 0 {
		return dataplane.Snapshot{}, fmt.Errorf("this Node has no NAT: %w: create one with %s", dataplane.ErrUnsupported, newNAT)
	}
	out := dataplane.Snapshot{Mappings: map[dataplane.Key]netip.AddrPort{}, Cooling: map[dataplane.Key]time.Duration{}, Fresh: !found}
	for _, s := range n.host.mappings {
		if n.ours(s) {
			out.Mappings[s.key] = s.target
		}
	}
	for k, until := range n.state.cooling {
		if left := until.Sub(n.cfg.Now()); left > 0 && !out.Mappings[k].IsValid() {
			out.Cooling[k] = left
		}
	}
	if foreign := len(n.host.mappings) - len(out.Mappings); !found && foreign > 0 {
		n.cfg.Log.Warn("nothing says which static NAT mappings of this Node are ours; they stay as somebody else's",
			zap.String("file", n.file.path), zap.Int("mappings", foreign))
	}
	return out, nil
}

// load makes sure that the state is known, and reports whether its file is there.
func (n *NAT) load() (found bool, err error) {
	s, found, err := n.file.read()
	if errors.Is(err, errDamaged) {
		n.cfg.Log.Warn("the file that says which static NAT mappings are ours cannot be read; it counts as missing", zap.Error(err))
		err = nil
	}
	if err != nil {
		return false, err
	}
	if n.state == nil {
		n.state = &s
	}
	return found, nil
}

// Apply writes a change with one start of PowerShell, after the file that says what is ours. Where the host refuses some of it, the
// rest is done; applying the same change again is safe. A mapping that somebody else has made for the same port stays, and is an
// error unless it is the very one that is wanted. Connections are not touched: see the limits in docs/how-to/windows.md.
func (n *NAT) Apply(c dataplane.Change) error {
	if err := validate(c.Set); err != nil {
		return err
	}
	goals := map[dataplane.Key]netip.AddrPort{}
	for _, k := range c.Delete {
		if err := validateKey(k); err != nil {
			return err
		}
		goals[k] = none
	}
	maps.Copy(goals, c.Set)
	for _, k := range sorted(c.Cool) {
		if err := validateKey(k); err != nil {
			return err
		}
		if d := c.Cool[k]; d < time.Millisecond {
			return fmt.Errorf("node port %s: cooling time %s: must be at least 1ms", k, d)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.ready(); err != nil {
		return err
	}
	cooling := maps.Clone(n.state.cooling)
	for k, d := range c.Cool {
		cooling[k] = n.cfg.Now().Add(d)
	}
	for k := range c.Set {
		delete(cooling, k)
	}
	_, err := n.bring(goals, cooling)
	return err
}

// Repair compares the host's mappings, read anew, with want, and makes ours equal to it. It returns how many were not as they should be.
// With nothing to do it writes nothing.
func (n *NAT) Repair(want map[dataplane.Key]netip.AddrPort) (repaired int, err error) {
	if err := validate(want); err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.look(nil); err != nil {
		return 0, err
	}
	found, err := n.load()
	if err != nil {
		return 0, err
	}
	if !found && (len(n.state.ours) > 0 || len(n.state.cooling) > 0) {
		if err := n.file.write(*n.state); err != nil {
			return 0, err
		}
		repaired++
	}
	goals := n.removal()
	maps.Copy(goals, want)
	changed, err := n.bring(goals, n.state.cooling)
	repaired += changed
	if repaired > 0 {
		n.cfg.Log.Warn("repaired static NAT mappings that were not as they should be", zap.Int("things", repaired))
	}
	return repaired, err
}

// ready makes sure that state and host are known.
func (n *NAT) ready() error {
	if n.state == nil {
		if _, err := n.load(); err != nil {
			return err
		}
	}
	if n.host == nil {
		return n.look(nil)
	}
	return nil
}

// ours reports whether the file says that we made s.
func (n *NAT) ours(s static) bool { return s.everywhere && n.state.ours[s.mapping] }

// Reserve reports whether a port can be had, with dataplane.ErrPortBusy when another process listens there, Windows has excluded the
// port, or somebody else has mapped it. It holds no socket: with one, WinNAT would refuse the mapping.
func (n *NAT) Reserve(k dataplane.Key) error {
	if err := validateKey(k); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.ready(); err != nil {
		return err
	}
	mapped := n.host.at(k)
	for _, s := range mapped {
		if !n.ours(s) {
			return fmt.Errorf("reserve node port %s: %w: a static mapping leads %s to %s", k, dataplane.ErrPortBusy, s.external, s.target)
		}
	}
	if len(mapped) > 0 {
		return nil // WinNAT holds the port for us
	}
	if err := n.cfg.Probe(k); err != nil {
		return fmt.Errorf("reserve node port %s: %w", k, err)
	}
	return nil
}

// Release does nothing: Reserve holds nothing.
func (*NAT) Release(dataplane.Key) {}

// Watch returns a channel that is closed when ctx ends and never fires: WinNAT tells nobody of changes, Repair finds them.
func (*NAT) Watch(ctx context.Context) <-chan struct{} {
	out := make(chan struct{})
	context.AfterFunc(ctx, func() { close(out) })
	return out
}

// Close does nothing: no process and no handle stays open between calls. Mappings stay as they are.
func (*NAT) Close() error { return nil }

// Cleanup removes our mappings and then the file that says which they are.
func (n *NAT) Cleanup() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, err := n.load(); err != nil {
		return err
	}
	if err := n.look(nil); err != nil {
		return err
	}
	if _, err := n.bring(n.removal(), n.state.cooling); err != nil {
		return err
	}
	n.state = nil
	return n.file.remove()
}
