package bigipsim

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
)

//go:embed page.html
var pageText string

// pageTemplate is the page at /.
var pageTemplate = template.Must(template.New("page").Parse(pageText))

// VirtualStatus is a virtual server as the page shows it.
type VirtualStatus struct {
	Name, Destination, Protocol string
	Enabled                     bool
	Pool                        *PoolStatus // nil: it leads nowhere
}

// PoolStatus is a pool as the page shows it.
type PoolStatus struct {
	Name, Description, Monitor string
	Up                         int // members that are available, or unmonitored, and enabled
	Members                    []MemberStatus
}

// MemberStatus is a member of a pool as the page shows it: Session and State are what a GET reads back.
type MemberStatus struct {
	Name, Address, Session, State, Reason string
	Port                                  uint16
	Connections                           int
}

type dashboard struct {
	Hostname, Version, State string
	Unsaved                  bool
	VirtualServers           []VirtualStatus
	Others                   []PoolStatus // pools that no virtual server leads to
}

// Pools returns the state of every pool, by path.
func (s *Sim) Pools() []PoolStatus {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []PoolStatus
	for _, p := range s.config.List("ltm/pool") {
		out = append(out, s.poolStatus(p))
	}
	return out
}

// VirtualServers returns the state of every virtual server, by path.
func (s *Sim) VirtualServers() []VirtualStatus {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.virtualServers()
}

func (s *Sim) virtualServers() []VirtualStatus {
	var out []VirtualStatus
	for _, o := range s.config.List("ltm/virtual") {
		row := VirtualStatus{Name: o.FullPath(), Destination: o.Text("destination"), Protocol: o.Text("ipProtocol"), Enabled: o.Properties["enabled"] == true}
		if p := s.config.Find("ltm/pool", o.Text("pool")); p != nil {
			status := s.poolStatus(p)
			row.Pool = &status
		}
		out = append(out, row)
	}
	return out
}

func (s *Sim) poolStatus(p *mcp.Object) PoolStatus {
	out := PoolStatus{Name: p.FullPath(), Description: p.Text("description"), Monitor: p.Text("monitor")}
	for _, m := range p.Children {
		r := s.runtimeOf(p, m)
		row := MemberStatus{Name: m.FullPath(), Address: m.Text("address"), Port: mcp.PortOf(m), Reason: r.reason, Connections: r.connections}
		row.Session, row.State = s.readBack(p, m)
		if available, enabled := s.availability(p, m); available != "offline" && row.State != string(Checking) && enabled == "enabled" {
			out.Up++
		}
		out.Members = append(out.Members, row)
	}
	return out
}

// page shows virtual servers, pools and members. It needs no login, changes nothing and shows no secret.
func (s *Sim) page(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		htmlReply(http.StatusMethodNotAllowed, "Method Not Allowed", "Only GET is.").send(w, false)
		return
	}
	status := "active"
	if s.cluster.standby(s) {
		status = "standby"
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, s.dashboard(status)); err != nil {
		htmlReply(http.StatusInternalServerError, "Internal Server Error", "").send(w, false)
		return
	}
	(&reply{http.StatusOK, http.Header{"Content-Type": {"text/html; charset=utf-8"}, "Cache-Control": {"no-store"}}, out.Bytes()}).send(w, false)
}

func (s *Sim) dashboard(status string) dashboard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := dashboard{Hostname: s.cfg.Hostname, Version: s.cfg.Version, State: status, Unsaved: s.config.Generation() != s.savedAt, VirtualServers: s.virtualServers()}
	used := map[string]bool{}
	for _, v := range out.VirtualServers {
		if v.Pool != nil {
			used[v.Pool.Name] = true
		}
	}
	for _, p := range s.config.List("ltm/pool") {
		if !used[p.FullPath()] {
			out.Others = append(out.Others, s.poolStatus(p))
		}
	}
	return out
}
