package haproxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/process"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// descriptors is what decides whether a new worker may open as many files as it wants before it serves anybody; if not, it does not start. `haproxy -c`
// does not look. The sum is HAProxy's own (global.maxsock), tried with 2.6.12: two for each connection, one for each listener and each
// checked server, and some for itself.
type descriptors struct {
	Connections int // maxconn
	Listeners   int
	Checks      int
	Own         int // of the worker itself
	Limit       int // that it may open; 0 is unknown
	Computed    bool
	Free        int // that all processes of the host may open yet; -1 is unknown
}

const (
	// leastConnections is the least maxconn that HAProxy computes where none is set.
	leastConnections = 100
	// ownDescriptors and ownPerThread are what a worker wants for itself at least.
	ownDescriptors, ownPerThread = 31, 3
)

// needed is what the worker asks for when it starts.
func (d descriptors) needed() int { return 2*d.Connections + d.Listeners + d.Checks + d.Own }

// check reports why a worker cannot start, or nil.
func (d descriptors) check() error {
	if d.Limit > 0 && d.needed() > d.Limit {
		connections := fmt.Sprintf("maxconn %d", d.Connections)
		if d.Computed {
			connections = fmt.Sprintf("at least %d connections", d.Connections)
		}
		return fmt.Errorf("not enough descriptors: a new worker needs %d (two each for %s, %d listeners, %d checked servers) and may open %d; raise "+
			"haproxy's limit of open files (LimitNOFILE=, ulimit -n) and restart it, lower maxconn, or have fewer openPorts",
			d.needed(), connections, d.Listeners, d.Checks, d.Limit)
	}
	if d.Free >= 0 && d.Listeners+d.Own > d.Free { // the old worker goes on beside it
		return fmt.Errorf("not enough descriptors: beside the old worker a new one opens %d at once, and this host has %d left (fs.file-max)",
			d.Listeners+d.Own, d.Free)
	}
	return nil
}

// descriptorsOf returns what a worker with next instead of now would want, from what the worker that runs now says and from the administrator's files.
func descriptorsOf(info map[string]string, servers []runtime.Server, globals process.Globals, limit int, now, next config.File) descriptors {
	number := func(name string) int { n, _ := strconv.Atoi(info[name]); return n } // absent is 0
	d := descriptors{Free: -1, Limit: limit, Listeners: number("Listeners"), Connections: globals.MaxConn}
	for _, s := range servers {
		if s.Check&runtime.CheckConfigured != 0 {
			d.Checks++
		}
	}
	// What the running one wanted beside: an estimate from below, as servers that came at run time were not counted when it started.
	d.Own = max(number("Maxsock")-2*number("Maxconn")-d.Listeners-d.Checks, ownDescriptors+ownPerThread*max(number("Nbthread"), 1))
	d.Listeners += listeners(next) - listeners(now)
	d.Checks += checks(next) - checks(now)
	if globals.HardLimit > 0 && (limit == 0 || globals.HardLimit < limit) {
		d.Limit = globals.HardLimit
	}
	switch {
	case d.Connections > 0:
	case number("Maxsock") >= d.Limit-1: // it took all there is
		d.Connections, d.Computed = leastConnections, true
	default:
		d.Connections = number("Maxconn") // set where we cannot read it, or with haproxy -n
	}
	if globals.Unenforced || globals.Uncertain && globals.MaxConn > 0 {
		d.Limit = 0 // it may start all the same
	}
	return d
}

func listeners(f config.File) int {
	n := 0
	for _, b := range f.Open {
		n += b.Ports()
	}
	for _, s := range f.Services {
		if s.Spare == "" {
			n += len(s.Binds())
		}
	}
	if f.Persistent() {
		n++
	}
	return n
}

func checks(f config.File) int {
	n := 0
	for _, s := range f.Services {
		if s.Pool.Monitor.Type != providers.MonitorNone {
			n += len(s.Servers)
		}
	}
	return n
}

// enough reports why haproxy could not start with next, or nil. What cannot be found out is no reason.
func (p *Provider) enough(ctx context.Context, next config.File) error {
	var d descriptors
	err := p.withReads(ctx, []runtime.Command{runtime.Ask("show info"), runtime.Ask("show servers state")},
		func(s *runtime.Session, answers []runtime.Result) error {
			if err := errors.Join(answers[0].Err, answers[1].Err); err != nil {
				return err
			}
			servers, err := runtime.ParseServers(answers[1].Text)
			if err != nil {
				return err
			}
			d = budget(s.Info().Worker.PID, runtime.ParseFields(answers[0].Text), servers, p.files.Globals(), p.model, next)
			return nil
		})
	if err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return fail(providers.Misconfigured, "reload", err)
	}
	return nil
}

// budget is descriptorsOf with the limits of the process and of the host.
func budget(pid int, info map[string]string, servers []runtime.Server, globals process.Globals, now, next config.File) descriptors {
	limit, ok := process.OpenFiles(pid)
	if !ok {
		limit = 0
	}
	d := descriptorsOf(info, servers, globals, min(limit, math.MaxInt32), now, next)
	if free, ok := process.FreeFiles(); ok {
		d.Free = free
	}
	return d
}
