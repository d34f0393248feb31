package haproxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/process"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// Level says how bad a Finding is.
type Level string

// The levels.
const (
	Good    Level = "good"
	Warning Level = "warning" // it works, and somebody should know
	Failure Level = "failure" // lbsync cannot do its work, or clients are not served
)

// Finding is what Doctor found out about one thing.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// nearlyFull is from which share of its connections on a worker is told to be, in percent.
const nearlyFull = 90

// doctor collects findings.
type doctor struct {
	cfg   Config
	found []Finding
	// version is the program's.
	version string
}

func (d *doctor) say(check string, level Level, advice, format string, args ...any) {
	d.found = append(d.found, Finding{Check: check, Level: level, Found: fmt.Sprintf(format, args...), Advice: advice})
}

// Doctor examines one HAProxy and what lbsync needs of it. It changes nothing and needs no cluster.
func Doctor(ctx context.Context, cfg Config) []Finding {
	d := &doctor{cfg: cfg}
	if !cfg.Remote() {
		d.binary(ctx)
		d.directory()
	}
	i, err := Inspect(ctx, cfg)
	if err != nil {
		d.say("command line", Failure, advise(err), "%s: %v", i.Socket, err)
		return d.found
	}
	d.say("command line", Good, "", "%s: haproxy %s, worker %d", i.Socket, i.Version, i.Worker)
	if d.version != "" && d.version != i.Version {
		d.say("program", Warning, "restart haproxy once, or set haproxy.binary to the program that runs; a reload keeps the old one's master",
			"%s is %s, and %s runs", cfg.Binary, d.version, i.Version)
	}
	for _, what := range slices.Sorted(maps.Keys(i.unread)) {
		d.say(what, Failure, "compare the path with haproxy's -S and -f, and give lbsync's user the rights", "%s", i.unread[what])
	}
	d.commandLine(ctx)
	if !cfg.Remote() {
		d.processes(i)
		d.generation(i)
		d.binds(i)
		d.openPorts(i)
		d.descriptors(i)
	}
	d.limits(i)
	d.members(i)
	return d.found
}

// advise says what helps against an error of the command line.
func advise(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "give lbsync's user the socket's group, or the socket another mode"
	case errors.Is(err, fs.ErrNotExist):
		return "add `stats socket <path> mode 660 level admin` to the global section, or mend haproxy.adminSocket"
	case errors.Is(err, unix.ECONNREFUSED):
		return "the socket is left over from a haproxy that died: start haproxy"
	case errors.Is(err, runtime.ErrVersion):
		return "upgrade haproxy to 2.6 or later"
	case runtime.Untrusted(err):
		return "compare caFile, certFile, keyFile and serverName with those of the frontend"
	}
	return ""
}

func (d *doctor) binary(ctx context.Context) {
	const check = "program"
	if d.cfg.Binary == "" {
		d.say(check, Warning, "set haproxy.binary if there is one beside lbsync", "none; a bad file is found only by loading it")
		return
	}
	out, err := exec.CommandContext(ctx, d.cfg.Binary, "-v").Output()
	if err != nil {
		d.say(check, Failure, "install haproxy here, or set haproxy.binary to nothing", "%s: %v", d.cfg.Binary, err)
		return
	}
	first, _, _ := strings.Cut(string(out), "\n")
	d.say(check, Good, "", "%s", first)
	if words := strings.Fields(first); len(words) > 2 {
		d.version = words[2]
	}
	for _, file := range d.cfg.ConfigFiles {
		if f, err := os.Open(file); err != nil {
			d.say("configuration", Failure, "haproxy -c has to read it with lbsync's rights", "%v", err)
		} else {
			_ = f.Close()
		}
	}
}

func (d *doctor) directory() {
	const check = "directory"
	entries, err := os.ReadDir(d.cfg.Dir)
	if err != nil {
		d.say(check, Failure, "make it and give it to lbsync's user", "%v", err)
		return
	}
	if err := unix.Access(d.cfg.Dir, unix.W_OK); err != nil {
		d.say(check, Failure, "give it to lbsync's user", "%s: not writable: %v", d.cfg.Dir, err)
		return
	}
	d.say(check, Good, "", "%s", d.cfg.Dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".50-npl.") {
			d.say(check, Warning, "remove it once no lbsync runs here", "%s is left over from a write that did not end", filepath.Join(d.cfg.Dir, e.Name()))
		}
	}
}

// commandLine looks who else can give commands.
func (d *doctor) commandLine(ctx context.Context) {
	const check = "command line"
	s, err := runtime.Open(ctx, d.cfg.endpoint())
	if err != nil {
		return // told by Inspect
	}
	defer s.Close()
	results, err := s.Run(ctx, []runtime.Command{runtime.Ask("show cli level"), runtime.Ask("show cli sockets")})
	if err != nil || results[1].Err != nil {
		d.say(check, Failure, "add `level admin` to the stats socket", "it does not say who may use it")
		return
	}
	if !strings.Contains(results[0].Text, "admin") { // answered with the mark of a notice
		d.say(check, Failure, "add `level admin` to the stats socket", "lbsync has the level %q", results[0].Text)
	}
	for line := range strings.Lines(results[1].Text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || !strings.HasPrefix(fields[0], "ipv") || fields[1] != "admin" {
			continue
		}
		d.say(check, Warning, "remove it: haproxy ignores `ssl` there; use a unix socket, and a `mode tcp` frontend with TLS in front of it",
			"%s gives whoever reaches it the rights of an administrator, in clear text", fields[0])
	}
}

func (d *doctor) processes(i Inspection) {
	if _, failed := i.unread["master socket "+d.cfg.MasterSocket]; failed {
		return
	}
	level, advice := Good, ""
	if len(i.OldWorkers) > 0 {
		level, advice = Warning, "they end with their last connections; `hard-stop-after` in the global section bounds that"
	}
	d.say("processes", level, advice, "%d reloads, %d old workers%s", i.Reloads, len(i.OldWorkers), list(i.OldWorkers))
	if i.FailedReloads > 0 {
		d.say("processes", Failure, "haproxy's log says why; `haproxy -c` with all its files too", "the last %d reloads failed", i.FailedReloads)
	}
}

func list(pids []int) string {
	if len(pids) == 0 {
		return ""
	}
	return fmt.Sprintf(" %v", pids)
}

func (d *doctor) generation(i Inspection) {
	switch {
	case i.FileGeneration == "":
	case i.Generation == i.FileGeneration:
		d.say("generation", Good, "", "%s, in file and worker", i.Generation)
	case i.Generation == "":
		d.say("generation", Failure, "start haproxy with -f "+d.cfg.Dir, "the worker has not loaded our file")
	default:
		d.say("generation", Warning, "lbsync reloads soon; if it does not, its log says why", "the worker has %s, the file %s", i.Generation, i.FileGeneration)
	}
}

// openPorts looks which of the open ports are open.
func (d *doctor) openPorts(i Inspection) {
	const check = "open ports"
	wanted, err := config.ParseOpenPorts(d.cfg.OpenPorts)
	if err != nil || len(wanted) == 0 && len(i.file.Open) == 0 {
		return
	}
	own := map[netip.AddrPort]bool{}
	for _, service := range i.file.Services {
		for _, at := range service.Binds() {
			own[at] = own[at] || service.Spare == ""
		}
	}
	closed := config.Without(wanted, func(at netip.AddrPort) bool { return own[at] || i.file.IsOpen(at) })
	level, advice := Good, ""
	open, shut, twice, known := 0, 0, 0, process.Listeners()
	for _, bind := range closed {
		shut += bind.Ports()
	}
	for _, bind := range i.file.Open {
		open += bind.Ports()
		for port := int(bind.First); port <= int(bind.Last); port++ {
			if known[netip.AddrPortFrom(bind.Addr, uint16(port))] > 1 {
				twice++
			}
		}
	}
	switch {
	case twice > 0:
		level, advice = Failure, "ss -ltnp shows the owners; stop the one that is not this haproxy"
	case len(closed) > 0:
		level, advice = Warning, "another program listens there, or the address is not on this host; the next reload tries them again"
	case i.SpareBackends == 0:
		level, advice = Warning, "the next new Service costs a reload, which makes spare ones; raise haproxy.spareBackends"
	}
	text := fmt.Sprintf("%d are open, %d spare backends", open, i.SpareBackends)
	if shut > 0 {
		text += fmt.Sprintf(", %d are closed, the first is %s", shut, netip.AddrPortFrom(closed[0].Addr, closed[0].First))
	}
	if twice > 0 {
		text += fmt.Sprintf(", on %d somebody else listens too", twice)
	}
	d.say(check, level, advice, "%s", text)
}

// descriptors looks whether the next worker could start.
func (d *doctor) descriptors(i Inspection) {
	globals := process.Files{Admin: d.cfg.ConfigFiles, Dir: d.cfg.Dir}.Globals()
	need := budget(i.Worker, i.info, i.servers, globals, i.file, i.file)
	switch err := need.check(); {
	case err != nil:
		d.say("descriptors", Failure, "", "%v", err)
	case need.Limit > 0:
		d.say("descriptors", Good, "", "a new worker needs %d of %d", need.needed(), need.Limit)
	default:
		d.say("descriptors", Good, "", "a new worker needs %d; how many it may have cannot be seen from here", need.needed())
	}
}

// binds looks whether each address of a Service is listened on, once.
func (d *doctor) binds(i Inspection) {
	served, known := 0, process.Listeners()
	for _, service := range slices.Sorted(maps.Keys(i.binds)) {
		for _, bind := range i.binds[service] {
			switch n := known[netip.MustParseAddrPort(bind)]; {
			case n == 0 && i.Generation == i.FileGeneration:
				d.say("addresses", Warning, "lbsync and haproxy have to be in one network namespace for this to be seen", "nobody listens on %s for %s", bind, service)
			case n > 1:
				d.say("addresses", Failure, "ss -ltnp shows the owners; stop the one that is not this haproxy", "%d sockets listen on %s for %s: another one takes a share of the connections", n, bind, service)
			default:
				served++
			}
		}
	}
	d.say("addresses", Good, "", "%d are listened on", served)
}

func (d *doctor) limits(i Inspection) {
	level, advice := Good, ""
	if i.MaxConnections > 0 && i.Connections*100 >= i.MaxConnections*nearlyFull {
		level, advice = Warning, "raise maxconn and the limit of open files"
	}
	d.say("limits", level, advice, "%d of %d connections, %d open files at most", i.Connections, i.MaxConnections, i.Descriptors)
}

func (d *doctor) members(i Inspection) {
	servers := map[string]int{}
	for _, b := range i.Backends {
		if !b.Wanted && b.There && strings.HasPrefix(b.Backend, config.BackendPrefix) {
			d.say("backends", Warning, "rename it, a Service of that name cannot be served", "%s is called as one of ours and is not", b.Backend)
		}
		for _, s := range b.Servers {
			switch {
			case s.There == "Leaving":
				servers["leaving"]++
			case s.Blocked:
				servers["blocked by an operator"]++
			case s.Health == "Down":
				servers["down"]++
			default:
				servers["up"]++
			}
		}
	}
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(servers)) {
		parts = append(parts, fmt.Sprintf("%d %s", servers[state], state))
	}
	d.say("members", Good, "", "%s", strings.Join(append(parts, fmt.Sprintf("%d differences to the file", len(i.Differences()))), ", "))
}
