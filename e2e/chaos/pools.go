package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// member is what a load balancer lists for a Service.
type member struct {
	provider string
	service  string
	at       netip.AddrPort
	protocol npl.Protocol
	uid      string // of the Pod that it stands for
	enabled  bool   // gets new connections
}

// String is the member as people read it.
func (m member) String() string {
	return fmt.Sprintf("%v/%s for Pod %s in %s of %s", m.at, m.protocol, m.uid, m.service, m.provider)
}

// pools are all members of all load balancers.
func (s *site) pools(ctx context.Context) (all []member, err error) {
	for _, read := range []func(context.Context) ([]member, error){s.haproxyMembers, s.aviMembers, s.bigipMembers} {
		some, err := read(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	slices.SortFunc(all, func(x, y member) int {
		return cmp.Or(cmp.Compare(x.provider, y.provider), cmp.Compare(x.service, y.service), x.at.Compare(y.at))
	})
	return all, nil
}

// runtime asks a HAProxy itself, not through the relay.
func runtime(ctx context.Context, b *lab.LoadBalancer, command string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", b.AdminSocket())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	return string(out), err
}

// The columns of "show servers state", HAProxy management guide, section 9.3.
const (
	columnBackend = 1
	columnServer  = 3
	columnAddress = 4
	columnState   = 5
	columnAdmin   = 6
	columnWeight  = 7
	columnPort    = 18

	running           = "2"
	forcedMaintenance = 1
	// fromConfiguration stays of a server that its worker's file lists as disabled, also when it was made ready.
	fromConfiguration = 4
)

// removed reports whether a server, a line of "show servers state" in fields, is one that lbsync removed and HAProxy has yet to delete.
func removed(f []string) bool {
	admin, err := strconv.Atoi(f[columnAdmin])
	return err == nil && admin&forcedMaintenance != 0 && f[columnWeight] == "0"
}

// server is one of HAProxy's, a line of "show servers state" in fields.
type server struct {
	service string // of the run
	fields  []string
}

// servers are those of our Services in a HAProxy. Which backend a Service took that came without a reload is in the worker's map.
func (s *site) servers(ctx context.Context, b *lab.LoadBalancer) (out []server, err error) {
	const spare = "npl_s_"
	path := filepath.Join(dirOf(b), "npl.d", "50-npl.map.")
	text, err := runtime(ctx, b, "show servers state;show map "+path+"a;show map "+path+"b")
	if err != nil {
		return nil, fmt.Errorf("pools of HAProxy on %s: %w", b.Place(), err)
	}
	services := map[string]string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(f[1], spare) {
			services[f[1]], _, _ = strings.Cut(strings.TrimPrefix(f[2], namespace+"/"), ":")
		}
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) <= columnPort {
			continue
		}
		name, ours := strings.CutPrefix(f[columnBackend], "npl_b_"+namespace+"_")
		service, _, _ := strings.Cut(name, "_")
		if strings.HasPrefix(f[columnBackend], spare) {
			service, ours = services[f[columnBackend]], true
		}
		if ours && service != foreignName {
			out = append(out, server{service, f})
		}
	}
	return out, nil
}

// haproxyOn is what members call the HAProxy of a place.
func haproxyOn(place string) string { return viaHAProxy + "@" + place }

// writtenTo are the load balancers that have the members of a provider.
func (s *site) writtenTo(provider string) (out []string) {
	if provider != viaHAProxy {
		return []string{provider}
	}
	for _, b := range s.Lab.LoadBalancers() {
		out = append(out, haproxyOn(b.Place()))
	}
	return out
}

// haproxyMembers leaves out servers of weight 0 in maintenance: they are removed, and only wait to be deleted.
func (s *site) haproxyMembers(ctx context.Context) (out []member, err error) {
	for _, b := range s.Lab.LoadBalancers() {
		servers, err := s.servers(ctx, b)
		if err != nil {
			return nil, err
		}
		for _, of := range servers {
			f := of.fields
			admin, errAdmin := strconv.Atoi(f[columnAdmin])
			at, errAt := netip.ParseAddrPort(net.JoinHostPort(f[columnAddress], f[columnPort]))
			if errAdmin != nil || errAt != nil || removed(f) {
				continue
			}
			uid := f[columnServer][strings.LastIndexByte(f[columnServer], '_')+1:]
			out = append(out, member{haproxyOn(b.Place()), of.service, at, npl.TCP, uid, admin&^fromConfiguration == 0})
		}
	}
	return out, nil
}

// serversUp says which server HAProxy has yet to find alive again, after a time in which it could not reach it.
func (s *site) serversUp(ctx context.Context) error {
	for _, b := range s.Lab.LoadBalancers() {
		servers, err := s.servers(ctx, b)
		if err != nil {
			return err
		}
		for _, of := range servers {
			if f := of.fields; !removed(f) && f[columnState] != running {
				return fmt.Errorf("HAProxy on %s does not count %s/%s as up", b.Place(), f[columnBackend], f[columnServer])
			}
		}
	}
	return nil
}

func (s *site) aviMembers(ctx context.Context) (out []member, err error) {
	var answer struct {
		Results []struct {
			Markers []struct {
				Key    string
				Values []string
			}
			Servers []struct {
				IP           struct{ Addr netip.Addr }
				Port         uint16
				Enabled      *bool
				ExternalUUID string `json:"external_uuid"`
			}
		}
	}
	content, err := s.avi.Administer(ctx, http.MethodGet, "/api/pool?page_size=200", nil)
	if err == nil {
		err = json.Unmarshal(content, &answer)
	}
	if err != nil {
		return nil, fmt.Errorf("pools of Avi: %w", err)
	}
	for _, p := range answer.Results {
		for _, m := range p.Markers {
			service, ours := strings.CutPrefix(strings.Join(m.Values, ""), namespace+"/")
			if m.Key != "nplbridge-service" || !ours || service == foreignName {
				continue
			}
			for _, server := range p.Servers {
				out = append(out, member{viaAvi, service, netip.AddrPortFrom(server.IP.Addr, server.Port), npl.UDP, server.ExternalUUID[strings.LastIndexByte(server.ExternalUUID, ':')+1:], server.Enabled == nil || *server.Enabled})
			}
		}
	}
	return out, nil
}

func (s *site) bigipMembers(ctx context.Context) (out []member, err error) {
	var answer struct {
		Items []struct {
			Metadata         []struct{ Name, Value string }
			MembersReference struct {
				Items []struct {
					Name, Address, Session string
					Metadata               []struct{ Name, Value string }
				}
			}
		}
	}
	content, err := s.bigip.Administer(ctx, http.MethodGet, "/mgmt/tm/ltm/pool?expandSubcollections=true", nil)
	if err == nil {
		err = json.Unmarshal(content, &answer)
	}
	if err != nil {
		return nil, fmt.Errorf("pools of BIG-IP: %w", err)
	}
	for _, p := range answer.Items {
		for _, m := range p.Metadata {
			key, ours := strings.CutPrefix(m.Value, namespace+"/")
			service, port, _ := strings.Cut(key, ":") // 53/UDP
			if m.Name != "nplbridge-key" || !ours || service == foreignName {
				continue
			}
			for _, item := range p.MembersReference.Items {
				at, err := netip.ParseAddrPort(net.JoinHostPort(item.Address, item.Name[strings.LastIndexAny(item.Name, ":.")+1:]))
				if err != nil {
					return nil, fmt.Errorf("member %s of BIG-IP: %w", item.Name, err)
				}
				enabled := item.Session == "monitor-enabled" || item.Session == "user-enabled"
				of := member{viaBigIP, service, at, npl.Protocol(strings.ToLower(port[strings.LastIndexByte(port, '/')+1:])), "", enabled}
				for _, mark := range item.Metadata {
					if mark.Name == "nplbridge-member" {
						of.uid = mark.Value[strings.LastIndexByte(mark.Value, ':')+1:]
					}
				}
				out = append(out, of)
			}
		}
	}
	return out, nil
}
