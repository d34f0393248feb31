package avi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// ipAddr is an IpAddr of the API.
type ipAddr struct {
	Addr string `json:"addr"`
	Type string `json:"type"` // V4, V6 or DNS
}

func ipAddrOf(a netip.Addr) *ipAddr {
	if a.Is4() {
		return &ipAddr{a.String(), "V4"}
	}
	return &ipAddr{a.String(), "V6"}
}

// addr reads an address; it is not valid for a name.
func (a *ipAddr) addr() netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	out, err := netip.ParseAddr(a.Addr)
	if err != nil {
		return netip.Addr{}
	}
	return out.Unmap()
}

// server is a member as a pool has it. What we do not know stays in raw.
type server struct {
	IP           ipAddr `json:"ip"`
	Port         uint16 `json:"port,omitempty"`
	Enabled      *bool  `json:"enabled,omitempty"`
	Ratio        uint8  `json:"ratio,omitempty"`
	Description  string `json:"description,omitempty"`
	ExternalUUID string `json:"external_uuid,omitempty"`
	raw          json.RawMessage
}

// UnmarshalJSON keeps the whole text beside the fields.
func (s *server) UnmarshalJSON(text []byte) error {
	type plain server
	if err := json.Unmarshal(text, (*plain)(s)); err != nil {
		return err
	}
	s.raw = bytes.Clone(text)
	return nil
}

// MarshalJSON writes what was read with the fields as they are now.
func (s server) MarshalJSON() ([]byte, error) {
	type plain server
	fields, err := json.Marshal(plain(s))
	if err != nil || s.raw == nil {
		return fields, err
	}
	var all, known map[string]json.RawMessage
	if err := json.Unmarshal(s.raw, &all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(fields, &known); err != nil {
		return nil, err
	}
	maps.Copy(all, known)
	return json.Marshal(all)
}

func (s server) enabled() bool { return s.Enabled == nil || *s.Enabled }

// address returns where the server is; not valid for one that is a name.
func (s server) address() netip.AddrPort {
	a := s.IP.addr()
	if !a.IsValid() {
		return netip.AddrPort{}
	}
	port := s.Port
	if port == 0 {
		port = 80 // default_server_port, which we leave as it is
	}
	return netip.AddrPortFrom(a, port)
}

// drainNote ends the description of a server that we disabled. One that is disabled without it was disabled by an operator.
const drainNote = " (draining)"

func (s server) draining() bool { return !s.enabled() && strings.HasSuffix(s.Description, drainNote) }
func (s server) blocked() bool  { return !s.enabled() && !s.draining() }

// view reads servers as the members of one key.
type view struct {
	mark string // memberMark
	// own is true for a pool of ours: every server in it counts, those without our mark with an empty UID, so that they are seen and removed.
	own bool
	// takeOver counts servers as AKO writes them, too.
	takeOver bool
}

// uid returns whose member a server is; ok is false for one that is none of ours.
func (v view) uid(s server) (uid string, ok bool) {
	if uid, ok := strings.CutPrefix(s.ExternalUUID, v.mark); ok && uid != "" {
		return uid, true
	}
	return "", v.own || (v.takeOver && s.ExternalUUID == s.address().String())
}

// members reads a pool's servers. What cannot be a member, such as a DNS name, is left out.
func (v view) members(servers []server) (members []providers.Member, blocked map[providers.MemberID]bool) {
	blocked = map[providers.MemberID]bool{}
	for _, s := range servers {
		uid, ok := v.uid(s)
		if !ok || !s.address().IsValid() {
			continue
		}
		m := providers.Member{UID: uid, Address: s.address(), State: providers.Enabled}
		if s.draining() {
			m.State = providers.Draining
		}
		if s.Ratio > 1 {
			m.Weight = s.Ratio
		}
		if uid != "" {
			m.Name = strings.TrimSuffix(s.Description, drainNote)
		}
		members = append(members, m)
		blocked[m.ID()] = s.blocked()
	}
	return members, blocked
}

// serverEdit is what has to happen to a pool's servers.
type serverEdit struct {
	add, change, remove []server // remove as they were read
	whole               []server // all of them afterwards
	taken               []string // addresses that stay with somebody else
}

func (e serverEdit) empty() bool { return len(e.add)+len(e.change)+len(e.remove) == 0 }

// edit compares a pool's servers with the members wanted. It keeps servers of others, a foreign one at a wanted address too, and the
// block that an operator put on a member.
func (v view) edit(actual []server, wanted []providers.Member) (serverEdit, error) {
	want := make(map[netip.AddrPort]providers.Member, len(wanted))
	for _, m := range wanted {
		if _, twice := want[m.Address]; twice {
			return serverEdit{}, fmt.Errorf("two members at %s; a pool has one server per address and port", m.Address)
		}
		want[m.Address] = m
	}
	var e serverEdit
	for _, s := range actual {
		uid, ours := v.uid(s)
		m, wished := want[s.address()]
		switch {
		case !s.address().IsValid(), !ours && !wished:
			e.whole = append(e.whole, s)
		case !ours:
			delete(want, s.address())
			e.taken = append(e.taken, s.address().String())
			e.whole = append(e.whole, s)
		case !wished:
			e.remove = append(e.remove, s)
		default:
			delete(want, s.address())
			now, same := v.changed(s, uid, m)
			if !same {
				e.change = append(e.change, now)
			}
			e.whole = append(e.whole, now)
		}
	}
	for _, m := range wanted { // in their order
		if _, missing := want[m.Address]; missing {
			s := v.server(m)
			e.add, e.whole = append(e.add, s), append(e.whole, s)
		}
	}
	return e, nil
}

// changed returns the server as the member wants it, and whether that is how it is.
func (v view) changed(s server, uid string, m providers.Member) (server, bool) {
	want := v.server(m)
	if m.Name == "" {
		want.Description = strings.TrimSuffix(s.Description, drainNote)
		if m.State == providers.Draining {
			want.Description += drainNote
		}
	}
	if s.blocked() && m.State == providers.Enabled && uid == m.UID {
		want.Enabled = s.Enabled
	}
	same := uid == m.UID && s.enabled() == *want.Enabled && s.draining() == (m.State == providers.Draining) && max(s.Ratio, 1) == want.Ratio
	want.raw = s.raw
	if uid != m.UID {
		want.raw = nil
	}
	return want, same
}

// server is a new server for a member.
func (v view) server(m providers.Member) server {
	enabled := m.State == providers.Enabled
	s := server{
		IP: *ipAddrOf(m.Address.Addr()), Port: m.Address.Port(), Enabled: &enabled, Ratio: max(m.Weight, 1), ExternalUUID: v.mark + m.UID,
	}
	s.Description = m.Name
	if !enabled {
		s.Description += drainNote
	}
	return s
}
