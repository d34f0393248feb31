package haproxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/process"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// Inspection is what one HAProxy has, beside what our file says it should have. Making one changes nothing.
type Inspection struct {
	Socket         string              `json:"socket"`
	Version        string              `json:"version"`
	Worker         int                 `json:"worker"`               // its process id
	OldWorkers     []int               `json:"oldWorkers,omitempty"` // they wait for their last connections
	Reloads        int                 `json:"reloads"`
	FailedReloads  int                 `json:"failedReloads"` // since the last good one
	Generation     string              `json:"generation"`    // that the worker loaded, "" for none
	FileGeneration string              `json:"fileGeneration,omitempty"`
	Owner          string              `json:"owner,omitempty"` // of our file
	Connections    int                 `json:"connections"`
	MaxConnections int                 `json:"maxConnections"`
	Descriptors    int                 `json:"descriptors"`             // that it may open
	SpareBackends  int                 `json:"spareBackends,omitempty"` // that no Service has
	Routes         []InspectedRoute    `json:"routes,omitempty"`
	Backends       []InspectedBackend  `json:"backends"`
	unread         map[string]string   // of what, why; beside the worker itself
	info           map[string]string   // show info
	binds          map[string][]string // of the file, by Service
	file           config.File
	servers        []runtime.Server
}

// InspectedRoute is where connections to an address and port of a Service without a reload go, as our file wants it and as the worker's map has it.
type InspectedRoute struct {
	Route  string `json:"route"`
	Wanted string `json:"wanted"` // the spare backend
	There  string `json:"there"`
}

// InspectedBackend is one backend of ours, or one of the administrator that has members of some lbsync.
type InspectedBackend struct {
	Backend string `json:"backend"`
	// Service is "namespace/service:port/PROTOCOL", or empty where our file does not list it.
	Service string            `json:"service,omitempty"`
	Wanted  bool              `json:"wanted"` // by our file
	There   bool              `json:"there"`  // in the worker
	Servers []InspectedServer `json:"servers"`
}

// InspectedServer is one server, as our file wants it and as the worker has it; "" is not at all. In a backend of the administrator there is
// no file to want anything.
type InspectedServer struct {
	Server  string `json:"server"`
	Wanted  string `json:"wanted"`
	There   string `json:"there"`
	Health  string `json:"health"`
	Blocked bool   `json:"blocked,omitempty"` // by an operator's `state drain`
}

// Difference is one thing that the worker has otherwise than our file.
type Difference struct {
	Object string `json:"object"`
	Wanted string `json:"wanted"`
	There  string `json:"there"`
}

// Inspect reads a worker, its master and our file. The error says that the worker could not be read; what else could not is missing.
func Inspect(ctx context.Context, cfg Config) (Inspection, error) {
	at := cfg.endpoint()
	i := Inspection{Socket: at.String(), unread: map[string]string{}, binds: map[string][]string{}}
	s, err := runtime.Open(ctx, at)
	if err != nil {
		return i, err
	}
	defer s.Close()
	files := process.Files{Admin: cfg.ConfigFiles, Dir: cfg.Dir}
	reads := []runtime.Command{runtime.Ask("show info"), runtime.Ask("show backend"), runtime.Ask("show servers state")}
	for _, name := range config.MapNames {
		reads = append(reads, runtime.Ask("show map "+files.MapPath(name)))
	}
	results, err := s.Run(ctx, reads)
	if err != nil {
		return i, err
	}
	for _, r := range results[:3] {
		if r.Err != nil {
			return i, r.Err
		}
	}
	i.info = runtime.ParseFields(results[0].Text)
	i.Version, i.Worker = i.info["Version"], s.Info().Worker.PID
	for field, into := range map[string]*int{"CurrConns": &i.Connections, "Maxconn": &i.MaxConnections, "Ulimit-n": &i.Descriptors} {
		*into, _ = strconv.Atoi(i.info[field]) // absent is 0
	}
	if i.Generation, err = s.Environment(ctx, config.GenerationVariable); err != nil {
		return i, err
	}
	servers, err := runtime.ParseServers(results[2].Text)
	if err != nil {
		return i, err
	}
	live := liveState{backends: runtime.ParseBackends(results[1].Text), servers: map[string][]runtime.Server{}}
	for _, server := range servers {
		live.servers[server.Backend] = append(live.servers[server.Backend], server)
	}
	i.servers = servers
	if !cfg.Remote() {
		i.file = i.readBeside(ctx, cfg)
		i.routes(results[3:], live)
	}
	i.Backends = compare(i.file, live)
	return i, nil
}

// routes puts our file's map and the worker's side by side.
func (i *Inspection) routes(answers []runtime.Result, live liveState) {
	wanted, there := i.file.Routes(), map[string]string{}
	for _, answer := range answers {
		if answer.Err == nil {
			there = runtime.ParseMap(answer.Text)
		}
	}
	keys := map[string]bool{}
	for _, entries := range []map[string]string{wanted, there} {
		for key := range entries {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if _, is := config.ParseRouteKey(key); is {
			i.Routes = append(i.Routes, InspectedRoute{key, wanted[key], there[key]})
		}
	}
	for name := range live.backends {
		if _, taken := there[name]; strings.HasPrefix(name, config.SparePrefix) && !taken && len(live.servers[name]) == 0 {
			i.SpareBackends++
		}
	}
}

// readBeside reads what an HAProxy on this host has beside its worker.
func (i *Inspection) readBeside(ctx context.Context, cfg Config) config.File {
	if processes, err := (runtime.Master{Path: cfg.MasterSocket}).Processes(ctx); err != nil {
		i.unread["master socket "+cfg.MasterSocket] = err.Error()
	} else {
		i.OldWorkers, i.Reloads, i.FailedReloads = processes.Old, processes.Reloads, processes.Failed
	}
	path := filepath.Join(cfg.Dir, "50-npl.cfg")
	text, err := os.ReadFile(path)
	var file config.File
	if err == nil {
		file, err = config.Parse(text)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		i.unread[path] = "there is none; lbsync writes it when it starts"
	case err != nil:
		i.unread[path] = err.Error()
	default:
		i.FileGeneration, i.Owner = file.Generation.String(), file.Owner.String()
		for _, service := range file.Services {
			if service.Spare != "" {
				continue // its addresses are open ports
			}
			for _, bind := range service.Binds() {
				i.binds[service.Key.String()] = append(i.binds[service.Key.String()], bind.String())
			}
		}
	}
	return file
}

// compare puts a file and a worker side by side.
func compare(file config.File, live liveState) []InspectedBackend {
	wanted := map[string]config.Service{}
	names := map[string]bool{}
	for _, service := range file.Services {
		wanted[service.Backend()] = service
		names[service.Backend()] = true
	}
	for backend := range live.backends {
		marked := slices.ContainsFunc(live.servers[backend], func(s runtime.Server) bool { return strings.HasPrefix(s.Name, markPrefix) })
		odd := strings.HasPrefix(backend, config.SparePrefix) && len(live.servers[backend]) > 0 // a spare one that is empty is no news
		if strings.HasPrefix(backend, config.BackendPrefix) || marked || odd {
			names[backend] = true
		}
	}
	var out []InspectedBackend
	for _, name := range slices.Sorted(maps.Keys(names)) {
		service, is := wanted[name]
		b := InspectedBackend{Backend: name, Wanted: is, There: live.backends[name], Servers: []InspectedServer{}}
		rows := map[string]*InspectedServer{}
		row := func(server string) *InspectedServer {
			if rows[server] == nil {
				rows[server] = &InspectedServer{Server: server}
			}
			return rows[server]
		}
		if is {
			b.Service = service.Key.String()
			for _, s := range service.Servers {
				state := providers.Enabled
				if s.Drained {
					state = providers.Draining
				}
				row(s.Name).Wanted = describe(state, s.Weight)
			}
		}
		for _, s := range live.servers[name] {
			r := row(s.Name)
			switch {
			case isLeaving(s):
				r.There = "Leaving"
			default:
				r.There = describe(stateOf(s), s.Weight)
			}
			if id, ours := config.ParseServerName(s.Name); ours && isMoved(s, id) {
				r.There += " at " + s.Address.String()
			}
			r.Health, r.Blocked = string(healthOf(s)), isBlocked(s)
		}
		for _, server := range slices.Sorted(maps.Keys(rows)) {
			b.Servers = append(b.Servers, *rows[server])
		}
		out = append(out, b)
	}
	return out
}

func describe(state providers.MemberState, weight int) string {
	if weight == 1 {
		return string(state)
	}
	return fmt.Sprintf("%s, weight %d", state, weight)
}

// Differences returns what the worker has otherwise than our file wants. A server that leaves is none: it waits for its last connection.
func (i Inspection) Differences() []Difference {
	out := []Difference{}
	if i.FileGeneration != "" && i.Generation != i.FileGeneration {
		out = append(out, Difference{"generation", i.FileGeneration, i.Generation})
	}
	for _, r := range i.Routes {
		if r.Wanted != r.There {
			out = append(out, Difference{"route " + r.Route, r.Wanted, r.There})
		}
	}
	for _, b := range i.Backends {
		if b.Wanted != b.There && !strings.HasPrefix(b.Backend, config.SparePrefix) {
			presence := map[bool]string{true: "there"}
			out = append(out, Difference{"backend " + b.Backend, presence[b.Wanted], presence[b.There]})
		}
		if !b.Wanted && !strings.HasPrefix(b.Backend, config.SparePrefix) {
			continue
		}
		for _, s := range b.Servers {
			if s.Wanted != s.There && !(s.Wanted == "" && s.There == "Leaving") {
				out = append(out, Difference{"server " + b.Backend + "/" + s.Server, s.Wanted, s.There})
			}
		}
	}
	return out
}
