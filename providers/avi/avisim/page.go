package avisim

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
)

//go:embed page.html
var pageText string

// pageTemplate is the page at /.
var pageTemplate = template.Must(template.New("page").Parse(pageText))

type pageVirtualService struct {
	Name, VIP, Ports, State string
	Pools                   []PoolStatus
}

// PoolStatus is a pool as the page shows it.
type PoolStatus struct {
	Name, CreatedBy    string
	State              string // OperUp, OperDown or OperDisabled
	Up, Enabled, Total int    // servers
	Servers            []ServerStatus
}

// ServerStatus is a server of a pool as the page shows it.
type ServerStatus struct {
	Address, State string // State is OperUp, OperDown or OperDisabled
	Reason         string
	Enabled        bool
	Ratio          int64
}

// Pools returns the state of every pool, by name.
func (s *Server) Pools() []PoolStatus {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []PoolStatus
	for _, p := range s.store.of("pool") {
		out = append(out, s.poolStatus(p))
	}
	return out
}

// page shows virtual services, pools and servers. It needs no login, changes nothing and shows no secret.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		notAllowed(r.Method, "GET").reply.send(w, false)
		return
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, s.dashboard()); err != nil {
		htmlReply(http.StatusInternalServerError, "Internal Server Error").send(w, false)
		return
	}
	(&reply{http.StatusOK, http.Header{"Content-Type": {"text/html; charset=utf-8"}, "Cache-Control": {"no-store"}}, out.Bytes()}).send(w, false)
}

type dashboard struct {
	Version         string
	VirtualServices []pageVirtualService
	Others          []PoolStatus // pools that no virtual service leads to
}

func (s *Server) dashboard() dashboard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := dashboard{Version: s.version.String()}
	used := map[string]bool{}
	for _, vs := range s.store.of("virtualservice") {
		row := pageVirtualService{Name: vs.name(), State: s.virtualServiceHealth(vs).State}
		if vip := s.store.objects[vs.ref("vsvip_ref")]; vip != nil {
			for _, v := range messages(vip.body, "vip") {
				for _, family := range families {
					if a := addr(v[family.field]); a != "" {
						row.VIP = spaced(row.VIP, a)
					}
				}
			}
		}
		for _, service := range s.servicesOf(vs) {
			row.Ports = spaced(row.Ports, service.String())
		}
		for _, p := range s.poolsBehind(vs) {
			used[p.uuid] = true
			row.Pools = append(row.Pools, s.poolStatus(p))
		}
		out.VirtualServices = append(out.VirtualServices, row)
	}
	for _, p := range s.store.of("pool") {
		if !used[p.uuid] {
			out.Others = append(out.Others, s.poolStatus(p))
		}
	}
	return out
}

func (s *Server) poolStatus(p *object) PoolStatus {
	row := PoolStatus{Name: p.name(), State: s.poolHealth(p).State}
	row.CreatedBy, _ = p.body["created_by"].(string)
	row.Up, row.Enabled = s.count(p)
	for _, server := range messages(p.body, "servers") {
		h := s.serverHealth(p, server)
		ratio, _ := server["ratio"].(int64)
		row.Servers = append(row.Servers, ServerStatus{s.serverAddress(p, server), h.State, h.Reason, server["enabled"] != false, ratio})
	}
	row.Total = len(row.Servers)
	return row
}

func spaced(text, more string) string {
	if text == "" {
		return more
	}
	return text + " " + more
}
