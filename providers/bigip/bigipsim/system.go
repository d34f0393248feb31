package bigipsim

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
)

// system answers what is no object of the configuration; nil if the path is not of that kind.
func (s *Sim) system(r *request, path []string) *reply {
	at := strings.Join(path, "/")
	switch {
	case at == "sys/config":
		return s.saving(r)
	case at == "sys/version":
		return s.version(r)
	case at == "sys/global-settings":
		return readOnly(r, map[string]any{"kind": "tm:sys:global-settings:global-settingsstate", "selfLink": s.view(nil).url(at), "hostname": s.cfg.Hostname, "guiSetup": "disabled"})
	case at == "sys/ready":
		return readOnly(r, s.nestedOne(at, "tm:sys:ready:ready", map[string]any{"configReady": description("yes"), "licenseReady": description("yes"), "provisionReady": description("yes")}))
	case at == "cm" || at == "cm/config-sync":
		return s.cluster.run(s, r)
	case at == "cm/device":
		return s.cluster.devices(s, r)
	case at == "cm/sync-status":
		return readOnly(r, s.nestedOne(at, "tm:cm:sync-status:sync-status", s.cluster.syncStatus()))
	case at == "cm/failover-status":
		return readOnly(r, s.nestedOne(at, "tm:cm:failover-status:failover-status", s.cluster.failoverStatus(s)))
	case len(path) == 4 && at == "cm/traffic-group/"+path[2]+"/stats":
		return s.cluster.trafficGroup(s, r, fullPath(mcp.Lookup("cm/traffic-group"), path[2]))
	case strings.HasPrefix(at, "task/sys/config"), strings.HasPrefix(at, "task/cm/config-sync"):
		return s.task(r, path)
	}
	return nil
}

func readOnly(r *request, answer map[string]any) *reply {
	if r.Method != http.MethodGet {
		return icrd(http.StatusBadRequest, mcp.APINotFound, "Operation %s is not supported on this resource.", r.Method)
	}
	return ok(answer)
}

// nestedOne wraps the entries of a thing that there is one of.
func (s *Sim) nestedOne(path, kind string, entries map[string]any) map[string]any {
	v := s.view(nil)
	return map[string]any{
		"kind": kind + "stats", "selfLink": v.url(path),
		"entries": map[string]any{v.link(path + "/0"): map[string]any{"nestedStats": map[string]any{"entries": entries}}},
	}
}

func (s *Sim) version(r *request) *reply {
	return readOnly(r, s.nestedOne("sys/version", "tm:sys:version:version", map[string]any{
		"Product": description("BIG-IP"), "Version": description(s.cfg.Version), "Build": description("0.0.1"), "Edition": description("Simulated"), "Title": description("Main Package"),
	}))
}

// saving answers POST /mgmt/tm/sys/config.
func (s *Sim) saving(r *request) *reply {
	if r.Method != http.MethodPost {
		return icrd(http.StatusBadRequest, mcp.APINotFound, "Operation %s is not supported on this resource.", r.Method)
	}
	body, bad := r.object()
	if bad != nil {
		return bad
	}
	command, _ := body["command"].(string)
	if answer := s.saveOrLoad(command); answer != nil {
		return answer
	}
	return ok(map[string]any{"kind": "tm:sys:config:" + command + "state", "command": command})
}

// saveOrLoad keeps the running configuration, or goes back to the one that was kept.
func (s *Sim) saveOrLoad(command string) *reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch command {
	case "save":
		s.keep()
	case "load":
		s.config.Restore(s.saved, true)
		s.settle()
		s.changed()
	default:
		return icrd(http.StatusBadRequest, mcp.APIInvalid, "invalid property value \"command\":%q", command)
	}
	return nil
}

// keep saves the running configuration. The caller holds the lock.
func (s *Sim) keep() { s.saved, s.savedAt = s.config.Snapshot(), s.config.Generation() }

// Reboot restarts the device: what was not saved is gone, and so are transactions, tasks, what monitors found, and tokens unless
// Rules.TokensSurviveRestart. The other one of a pair becomes active.
func (s *Sim) Reboot() {
	s.mu.Lock()
	s.config.Restore(s.saved, true)
	s.runtime, s.transactions, s.tasks = map[string]poolRuntime{}, newTransactions(), newTasks()
	s.settle()
	s.changed()
	s.mu.Unlock()
	if !s.cfg.Rules.TokensSurviveRestart {
		s.EndTokens()
	}
	s.cluster.yield(s)
}

// task is one of /mgmt/tm/task: made, then started by a PUT, then polled.
type task struct {
	command map[string]any
	state   string // STARTED, VALIDATING, COMPLETED or FAILED
}

type tasks struct {
	byID map[int64]*task
	last int64
}

func newTasks() *tasks { return &tasks{byID: map[int64]*task{}} }

// task answers /mgmt/tm/task/sys/config and /mgmt/tm/task/cm/config-sync.
func (s *Sim) task(r *request, path []string) *reply {
	kind := "tm:task:" + strings.Join(path[1:3], ":") + ":" + path[2] + "state"
	show := func(id int64, t *task) *reply {
		out := map[string]any{"kind": kind, "_taskId": id, "_taskState": t.state, "selfLink": s.view(nil).url(strings.Join(path[:3], "/") + "/" + strconv.FormatInt(id, 10))}
		maps.Copy(out, t.command)
		return ok(out)
	}
	if len(path) == 3 && r.Method == http.MethodPost {
		body, bad := r.object()
		if bad != nil {
			return bad
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tasks.last = max(s.tasks.last+1, s.cfg.Clock.Now().UnixMicro())
		made := &task{body, "STARTED"}
		s.tasks.byID[s.tasks.last] = made
		return show(s.tasks.last, made)
	}
	if len(path) != 4 || (r.Method != http.MethodPut && r.Method != http.MethodGet) {
		return unregistered(r)
	}
	id, _ := strconv.ParseInt(path[3], 10, 64) // 0 is no task
	s.mu.Lock()
	t := s.tasks.byID[id]
	s.mu.Unlock()
	if t == nil {
		return icrd(http.StatusNotFound, mcp.APINotFound, "Task not found - %s", path[3])
	}
	if r.Method == http.MethodGet {
		s.mu.Lock()
		defer s.mu.Unlock()
		return show(id, t)
	}
	body, bad := r.object()
	switch {
	case bad != nil:
		return bad
	case body["_taskState"] != "VALIDATING" || t.state != "STARTED":
		return icrd(http.StatusBadRequest, 0, `invalid property value "_taskState":%q`, fmt.Sprint(body["_taskState"]))
	}
	var failed *reply
	if path[1] == "sys" {
		command, _ := t.command["command"].(string)
		failed = s.saveOrLoad(command)
	} else {
		failed = s.cluster.sync(s, t.command)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.state = "COMPLETED"
	if failed != nil {
		t.state = "FAILED"
	}
	return show(id, &task{t.command, "VALIDATING"})
}
