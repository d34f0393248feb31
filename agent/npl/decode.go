package npl

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A FieldError says what is wrong with one entry of an annotation, and what would be right.
type FieldError struct {
	Index int    // of the entry in the array, from 0
	Field string // as the annotation spells it; empty when the entry as a whole is wrong
	Value string // as found, shortened to 64 bytes
	Fix   string
}

func (e *FieldError) Error() string {
	where := fmt.Sprintf("entry %d", e.Index)
	if e.Field != "" {
		where += ", " + e.Field
	}
	if e.Value != "" {
		where += " " + e.Value
	}
	return where + ": " + e.Fix
}

// DecodeError lists every bad entry of an annotation in order; errors.As finds each *FieldError.
type DecodeError struct{ Entries []*FieldError }

// shownEntries bounds the message: an annotation may hold thousands of bad entries.
const shownEntries = 3

func (e *DecodeError) Error() string {
	var b strings.Builder
	b.WriteString("annotation " + Annotation + ": ")
	for i, entry := range e.Entries {
		if i == shownEntries {
			fmt.Fprintf(&b, "; and %d more", len(e.Entries)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(entry.Error())
	}
	return b.String()
}

// Unwrap returns the bad entries.
func (e *DecodeError) Unwrap() []error {
	errs := make([]error, len(e.Entries))
	for i, entry := range e.Entries {
		errs[i] = entry
	}
	return errs
}

// Decode reads the value of Annotation in any form Antrea has written since v0.13:
//
//   - a `protocols` array instead of `protocol` (v1.4 to v1.6) gives one mapping per protocol; beside `protocol` it is ignored;
//   - without either, the mapping is TCP (v0.13 to v1.3);
//   - without `ipFamily` the family is that of nodeIP (before v2.6);
//   - ports may be strings, field names any case, protocols and families any case; unknown fields are ignored.
//
// The result is in the order of Compare, without duplicates. Bad entries are left out and reported together as a *DecodeError
// beside the good ones, so a caller may use those; any other error means that nothing could be read.
func Decode(s string) ([]Mapping, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(s), &raw); err != nil {
		return nil, fmt.Errorf("annotation %s %s is not a JSON array of mappings: %w", Annotation, shorten(s), err)
	}
	if raw == nil {
		return nil, fmt.Errorf("annotation %s is null: write a JSON array, or remove the key", Annotation)
	}
	type identity struct {
		port     uint16
		protocol Protocol
		family   Family
	}
	var (
		out  []Mapping
		bad  []*FieldError
		seen = map[identity]Mapping{}
	)
	for i, r := range raw {
		ms, err := decodeEntry(i, r)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		for _, m := range ms {
			id := identity{m.PodPort, m.Protocol, m.Family}
			first, dup := seen[id]
			switch {
			case !dup:
				seen[id] = m
				out = append(out, m)
			case first != m:
				bad = append(bad, &FieldError{i, "podPort", strconv.Itoa(int(m.PodPort)), fmt.Sprintf(
					"%s over %s is already mapped to %s by an earlier entry; keep one of the two", m.Protocol, m.Family, netip.AddrPortFrom(first.NodeIP, first.NodePort))})
			}
		}
	}
	if len(bad) > 0 {
		return Canonical(out), &DecodeError{bad}
	}
	return Canonical(out), nil
}

// anyEntry has the fields of every version. encoding/json matches their names without regard to case.
type anyEntry struct {
	PodPort   json.RawMessage `json:"podPort"`
	NodeIP    json.RawMessage `json:"nodeIP"`
	NodePort  json.RawMessage `json:"nodePort"`
	Protocol  json.RawMessage `json:"protocol"`
	Protocols json.RawMessage `json:"protocols"`
	IPFamily  json.RawMessage `json:"ipFamily"`
}

func decodeEntry(index int, raw json.RawMessage) ([]Mapping, *FieldError) {
	var e anyEntry
	if err := json.Unmarshal(raw, &e); err != nil || absent(raw) {
		return nil, &FieldError{index, "", shorten(string(raw)), `write an object such as {"podPort":80,"nodeIP":"192.0.2.1","nodePort":61000,"protocol":"tcp","ipFamily":"IPv4"}`}
	}
	fail := func(field string, value json.RawMessage, fix string) ([]Mapping, *FieldError) {
		if absent(value) {
			return nil, &FieldError{index, field, "", "is missing; " + fix}
		}
		return nil, &FieldError{index, field, shorten(string(value)), fix}
	}
	const portFix = "write a port from 1 to 65535"
	podPort, err := decodePort(e.PodPort)
	if err != nil {
		return fail("podPort", e.PodPort, portFix)
	}
	nodePort, err := decodePort(e.NodePort)
	if err != nil {
		return fail("nodePort", e.NodePort, portFix)
	}
	ip, err := netip.ParseAddr(text(e.NodeIP))
	if err != nil || ip.Zone() != "" || ip.IsUnspecified() {
		return fail("nodeIP", e.NodeIP, "write the Node's IPv4 or IPv6 address, without zone")
	}
	ip = ip.Unmap()
	family := FamilyOf(ip)
	if !absent(e.IPFamily) && !strings.EqualFold(text(e.IPFamily), string(family)) {
		return fail("ipFamily", e.IPFamily, fmt.Sprintf("nodeIP %s makes it %q", ip, family))
	}
	protocols, field, value := decodeProtocols(e)
	if protocols == nil {
		return fail(field, value, `write "tcp", "udp" or "sctp"`)
	}
	ms := make([]Mapping, 0, len(protocols))
	for _, p := range protocols {
		ms = append(ms, Mapping{PodPort: podPort, NodeIP: ip, NodePort: nodePort, Protocol: p, Family: family})
	}
	return ms, nil
}

// decodeProtocols returns the entry's protocols, or nil and the field and value that spoil them.
func decodeProtocols(e anyEntry) (ps []Protocol, field string, value json.RawMessage) {
	switch {
	case !absent(e.Protocol):
		if p, ok := parseProtocol(e.Protocol); ok {
			return []Protocol{p}, "", nil
		}
		return nil, "protocol", e.Protocol
	case !absent(e.Protocols):
		var list []json.RawMessage
		if err := json.Unmarshal(e.Protocols, &list); err != nil || len(list) == 0 {
			return nil, "protocols", e.Protocols
		}
		for _, item := range list {
			p, ok := parseProtocol(item)
			if !ok {
				return nil, "protocols", e.Protocols
			}
			if !slices.Contains(ps, p) { // at most three
				ps = append(ps, p)
			}
		}
		return ps, "", nil
	default:
		return []Protocol{TCP}, "", nil
	}
}

func parseProtocol(raw json.RawMessage) (Protocol, bool) {
	switch p := Protocol(strings.ToLower(text(raw))); p {
	case TCP, UDP, SCTP:
		return p, true
	default:
		return "", false
	}
}

// decodePort reads 80 and "80".
func decodePort(raw json.RawMessage) (uint16, error) {
	s := string(raw)
	if strings.HasPrefix(s, `"`) {
		s = text(raw)
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && n == 0 {
		err = errors.New("port 0")
	}
	return uint16(n), err
}

// text returns the string that raw is, or "" when it is anything else.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// shorten quotes nothing and keeps at most 64 bytes, cut where UTF-8 allows.
func shorten(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
