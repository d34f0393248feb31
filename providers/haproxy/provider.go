// Package haproxy is the provider for an HAProxy, 2.6 or later, that runs beside lbsync. Structure (frontends, binds,
// backends) goes through one generated file and a reload; members go through the Runtime API without one, and the
// file follows, so that a restart by anyone restores the truth. docs/explanation/haproxy.md tells why it is so.
package haproxy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/process"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// maxMembers is HAProxy's limit of active servers in a roundrobin backend (configuration manual 4.2, "balance").
const maxMembers = 4095

// tableSync is how long a worker needs to be able to hand over its tables of clients, with some room.
const tableSync = 11 * time.Second

// emptyState is a server state file that restores nothing. HAProxy warns about a missing one.
const emptyState = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight " +
	"srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state " +
	"bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr " +
	"srv_agent_addr srv_agent_port\n"

// Provider drives one HAProxy. It implements providers.Provider.
type Provider struct {
	cfg      Config
	owner    providers.Owner
	log      *zap.Logger
	settings config.Settings
	files    process.Files
	admin    runtime.Endpoint
	master   runtime.Master
	reloader process.Reloader

	stop    context.CancelFunc // ends the keeper
	kept    sync.WaitGroup
	poke    chan struct{} // wakes the keeper
	changed chan struct{} // see Changed
	closed  sync.Once

	mu sync.Mutex // held by every call and by the keeper; guards what follows
	// model is the file as it should be: the structure that the worker loaded, with the members it has now. It
	// counts only while known is true.
	model config.File
	known bool
	// inForce is true when the worker runs exactly the structure that model has under the settings of today.
	inForce    bool
	generation string // what the worker reports; "" for none
	// worker is the one that the caller knows: it was observed or applied to last. Zero is none.
	worker runtime.Worker
	told   runtime.Worker // the stranger of which Changed has told
	silent int            // looks of the keeper in a row that nobody answered
	// held are the addresses that the worker may listen on for us, as far as our files tell.
	held     map[netip.AddrPort]bool
	heldOpen []config.Bind
	spares   spares
	leaving  map[ref]time.Time // removed servers: when each was first seen without a connection, or zero
	// parked are the servers that lbsync itself put into maintenance in the worker recalled. See maintenance.go.
	parked   map[ref]bool
	recalled runtime.Worker
	noted    map[ref]bool     // what the list of drains on the disk says of that worker; nil is no list
	replaced map[ref]bool     // drained in files that were replaced since a worker was seen: another one may have begun with them
	features runtime.Features // of the worker asked
	asked    runtime.Worker
	alone    runtime.Worker // the worker that was seen without older ones beside it; zero is none
	// carried are our servers in backends of others, by backend, that the worker before our last reload had.
	carried    map[string][]runtime.Server
	lastReload time.Time
	tableSync  time.Duration // see reloadInterval
	dirty      bool          // the file may differ from model
	lastRead   []parsed      // spares parsing files that did not change; the latest first
}

var (
	_ providers.Provider = (*Provider)(nil)
	_ providers.Notifier = (*Provider)(nil)
)

// ref names a server of the worker.
type ref struct{ backend, server string }

// New checks cfg and prepares the directory: where 50-npl.cfg is missing it writes one without Services, so that
// haproxy can be started with the directory before the first Service exists. It needs no running haproxy. The error of
// a file that belongs to someone else is Misconfigured.
func New(cfg Config, owner providers.Owner, log *zap.Logger) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fail(providers.Misconfigured, "configuration", err)
	}
	if owner.ClusterUID == "" || owner.Instance == "" {
		return nil, fail(providers.Misconfigured, "owner", fmt.Errorf("cluster UID %q and instance %q must not be empty", owner.ClusterUID, owner.Instance))
	}
	if cfg.Binary != "" && !cfg.Remote() {
		if _, err := exec.LookPath(cfg.Binary); err != nil {
			return nil, fail(providers.Misconfigured, fmt.Sprintf("binary %q (install haproxy here, or set binary to \"\" to skip its check)", cfg.Binary), err)
		}
	}
	openPorts, _ := config.ParseOpenPorts(cfg.OpenPorts) // Validate has looked at them
	p := &Provider{
		cfg: cfg, owner: owner, log: log.Named("haproxy"),
		settings: config.Settings{
			StateFile: cfg.stateFile(), StartDown: cfg.StartDown, CheckInterval: cfg.CheckInterval,
			ConnectTimeout: cfg.ConnectTimeout, IdleTimeout: cfg.IdleTimeout, Peers: cfg.peers(), OpenPorts: openPorts,
		},
		admin:   cfg.endpoint(),
		files:   process.Files{Admin: cfg.ConfigFiles, Dir: cfg.Dir, State: cfg.stateFile()},
		master:  runtime.Master{Path: cfg.MasterSocket},
		poke:    make(chan struct{}, 1),
		changed: make(chan struct{}, 1),
		leaving: map[ref]time.Time{}, parked: map[ref]bool{}, tableSync: tableSync,
	}
	p.settings.MapFile = p.files.MapPath("")
	p.reloader = process.Reloader{Master: p.master, Admin: cfg.AdminSocket}
	if !cfg.Remote() {
		if err := p.prepare(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	p.kept.Go(func() { p.keep(ctx) })
	return p, nil
}

// prepare makes sure that our directory, our file and the state file exist, and that the file is ours.
func (p *Provider) prepare() error {
	if err := os.MkdirAll(p.cfg.Dir, 0o755); err != nil {
		return fail(providers.Misconfigured, "dir "+p.cfg.Dir, err)
	}
	text, current, err := p.readFile(p.files.Current)
	if err != nil {
		return err
	}
	if current.Map != "" { // without it haproxy would not start
		if err := p.files.RestoreMap(current.Map, config.MapText(current.Routes())); err != nil {
			return fail(providers.Misconfigured, "writing "+p.files.MapPath(current.Map), err)
		}
	}
	if text == nil {
		empty := config.File{Owner: p.owner}
		empty.Generation.Hash = config.Hash(empty, p.settings)
		if err := p.files.WriteCurrent(config.Render(empty, p.settings)); err != nil {
			return fail(providers.Misconfigured, "writing "+p.files.Path(), err)
		}
	}
	if _, err := os.Stat(p.files.State); errors.Is(err, fs.ErrNotExist) {
		if err := p.files.WriteState(emptyState); err != nil {
			return fail(providers.Misconfigured, "writing "+p.files.State, err)
		}
	}
	return nil
}

// parsed is a file as it was read.
type parsed struct {
	sum  [sha256.Size]byte // of its text, which may be large
	file config.File
	// current is true when the text has exactly the structure that the file's model has under the settings of today.
	current bool
}

// keptFiles is how many files are kept parsed: the current one and the backup.
const keptFiles = 2

// readFile reads one of our two files; text is nil when it is not there. A file with another mark is an error.
func (p *Provider) readFile(read func() ([]byte, error)) (text []byte, f config.File, err error) {
	name := p.files.Path()
	text, err = read()
	if err != nil {
		return nil, f, fail(providers.Misconfigured, "reading "+name, err)
	}
	if text == nil {
		return nil, f, nil
	}
	sum := sha256.Sum256(text)
	for _, read := range p.lastRead {
		if read.sum == sum {
			return text, read.file, nil
		}
	}
	f, err = config.Parse(text)
	if err != nil {
		return nil, f, fail(providers.Misconfigured, name+" (move it away if it is not needed)", err)
	}
	if f.Owner != p.owner {
		return nil, f, fail(providers.Misconfigured, name, fmt.Errorf("it belongs to %s, we are %s; give each lbsync a "+
			"directory of its own, or remove the file if that one is gone", f.Owner, p.owner))
	}
	p.lastRead = append([]parsed{{sum, f, p.isCurrent(text, f)}}, p.lastRead[:min(len(p.lastRead), keptFiles-1)]...)
	return text, f, nil
}

// isCurrent reports whether text, which f was read from, is what we would write today. Of one that was read lately that is known; the other
// file may have driven it out since.
func (p *Provider) isCurrent(text []byte, f config.File) bool {
	sum := sha256.Sum256(text)
	for _, read := range p.lastRead {
		if read.sum == sum {
			return read.current
		}
	}
	return config.Hash(f, p.settings) == f.Generation.Hash && config.HasStructure(text, f, p.settings)
}

// Capabilities implements providers.Provider.
func (p *Provider) Capabilities() providers.Capabilities {
	return providers.Capabilities{
		Name: "haproxy", Protocols: []providers.Protocol{providers.TCP}, Local: !p.cfg.Remote(), MaxMembers: maxMembers,
		Algorithms:     []providers.Algorithm{providers.LeastConnections, providers.SourceHash},
		Persistence:    []providers.PersistenceKind{providers.SourceAddress},
		Monitors:       []providers.MonitorType{providers.MonitorNone, providers.MonitorTCP, providers.MonitorHTTP, providers.MonitorHTTPS},
		ProxyProtocols: []providers.ProxyProtocol{providers.ProxyV1, providers.ProxyV2},
		Features: []providers.Feature{
			providers.Weights, providers.SlowStart, providers.MemberConnections, providers.SourceRanges, providers.IdleTimeout,
			providers.AcceptProxyProtocol, providers.SharedVIPs, providers.AttachedPools, providers.MemberHealth,
		},
	}
}

// Close writes the file if members changed since it was written, and stops. HAProxy goes on as it is.
func (p *Provider) Close() error {
	var err error
	p.closed.Do(func() {
		p.stop()
		p.kept.Wait()
		err = p.flush()
	})
	return err
}

// Changed implements providers.Notifier: it receives within about a second after another worker than the one that was
// observed or applied to last serves.
func (p *Provider) Changed() <-chan struct{} { return p.changed }

func (p *Provider) tell() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// errLevel says that we may look and not change anything.
var errLevel = errors.New("lbsync may not give commands there")

// allowed reads the answer to `show cli level`.
func allowed(answer runtime.Result) error {
	words := strings.Fields(answer.Text) // behind the mark of a notice
	if len(words) == 0 || len(words) > 2 {
		return nil
	}
	if level := words[len(words)-1]; level == "operator" || level == "user" {
		return fmt.Errorf("%w, it has the level %s; add `level admin` to that stats socket", errLevel, level)
	}
	return nil
}

// classify gives an error of the sockets its kind.
func (p *Provider) classify(what string, err error) error {
	var refused *runtime.RefusedError
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fail(providers.Misconfigured, what+" ("+advise(err)+")", err)
	case errors.Is(err, errLevel), errors.Is(err, runtime.ErrVersion), errors.Is(err, runtime.ErrClear), runtime.Untrusted(err):
		return fail(providers.Misconfigured, what, err)
	case errors.As(err, &refused):
		return fail(providers.Misconfigured, what+" (does it have level admin?)", err)
	case errors.Is(err, runtime.ErrStale):
		return fail(providers.Conflict, what, err)
	}
	return fail(providers.Unavailable, what, err)
}

func fail(kind providers.Kind, what string, err error) error {
	return &providers.Error{Kind: kind, What: "haproxy: " + what, Err: err}
}
