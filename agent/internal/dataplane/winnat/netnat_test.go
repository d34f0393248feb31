package winnat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// fataler is what testing.T and rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// netNAT is the NAT of a Windows host as the NetNat cmdlets show it, and a PowerShell that understands exactly the statements we send.
// It is stricter than the real one: a statement it does not know, and the removal of somebody else's mapping, end the test.
type netNAT struct {
	t        fataler
	nats     map[string]string // internal prefix by name
	mappings map[uint32]row    // by StaticMappingID; the lowest free one is given, so an old ID is soon somebody else's
	listens  map[dataplane.Key]bool
	quirk    int // how ConvertTo-Json writes lists: 0 arrays, 1 one bare object or null, 2 {"value", "Count"}

	starts, writes int
	failIn         int // cmdlets that write until PowerShell is killed; 0: never
	crashIn        int // the same for the agent's process; PowerShell's start and its end count, too
	// wrote is called before each cmdlet that writes.
	wrote func(cmdlet string, r row)
}

// row is one static mapping; ours were made by Add-NetNatStaticMapping.
type row struct {
	nat, protocol, external, target string
	port, targetPort                uint16
	ours                            bool
}

func (r row) key() dataplane.Key {
	return dataplane.Key{Protocol: npl.Protocol(strings.ToLower(r.protocol)), Family: npl.IPv4, NodePort: r.port}
}

func (r row) addrPort() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(r.target), r.targetPort)
}

func newNetNAT(t fataler) *netNAT {
	return &netNAT{t: t, nats: map[string]string{"pods": "10.244.1.0/24"}, mappings: map[uint32]row{}, listens: map[dataplane.Key]bool{}}
}

// crashed is what the agent's process dies of.
type crashed struct{}

var (
	stepLine   = regexp.MustCompile(`^step (\d+) \{ (.*) \}$`)
	addLine    = regexp.MustCompile(`^\$null = Add-NetNatStaticMapping -NatName '([^']*)' -Protocol (TCP|UDP) -ExternalIPAddress '0\.0\.0\.0' -ExternalPort (\d+) -InternalIPAddress '([\d.]+)' -InternalPort (\d+) -ErrorAction Stop$`)
	removeLine = regexp.MustCompile(`^foreach \(\$m in @\(\$all \| Where-Object \{ \[string\]\$_\.Protocol -in '(TCP|UDP)','(6|17)' -and \$_\.ExternalIPAddress -eq '0\.0\.0\.0' -and \$_\.ExternalPort -eq (\d+) -and \$_\.InternalIPAddress -eq '([\d.]+)' -and \$_\.InternalPort -eq (\d+) \}\)\) \{ Remove-NetNatStaticMapping -NatName \$m\.NatName -StaticMappingID \$m\.StaticMappingID -Confirm:\$false -ErrorAction Stop \}$`)
)

// Run implements Runner.
func (h *netNAT) Run(_ context.Context, script string) (string, error) {
	h.t.Helper()
	h.starts++
	h.step()
	rest, ok := strings.CutPrefix(script, prelude)
	if !ok {
		h.t.Fatalf("script without prelude: %s", script)
	}
	all, out := map[uint32]row{}, "WARNING: noise\r\n"
	for line := range strings.Lines(rest) {
		if line == readAll {
			all = maps.Clone(h.mappings)
			continue
		}
		m := stepLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			h.t.Fatalf("PowerShell does not understand %q", line)
		}
		answer, err := h.statement(m[2], all)
		if err != nil {
			return out, err
		}
		out += "npl:" + m[1] + ":" + answer + "\r\n"
	}
	h.step()
	return out, nil
}

// step is a point at which the agent's process may die.
func (h *netNAT) step() {
	if h.crashIn > 0 {
		if h.crashIn--; h.crashIn == 0 {
			panic(crashed{})
		}
	}
}

func (h *netNAT) write(cmdlet string, r row) error {
	h.step()
	if h.failIn > 0 {
		if h.failIn--; h.failIn == 0 {
			return errors.New("signal: killed")
		}
	}
	h.writes++
	if h.wrote != nil {
		h.wrote(cmdlet, r)
	}
	return nil
}

func (h *netNAT) statement(s string, all map[uint32]row) (string, error) {
	switch {
	case s == listNATs:
		var out []any
		for _, name := range slices.Sorted(maps.Keys(h.nats)) {
			out = append(out, map[string]any{"name": name, "internal": h.nats[name]})
		}
		return h.result(out), nil
	case s == listMappings:
		var out []any
		for _, id := range slices.Backward(slices.Sorted(maps.Keys(h.mappings))) {
			r := h.mappings[id]
			out = append(out, map[string]any{"protocol": h.protocol(r), "address": r.external, "remote": "0.0.0.0/0", "port": r.port, "internalAddress": r.target, "internalPort": r.targetPort})
		}
		return h.result(out), nil
	}
	if m := addLine.FindStringSubmatch(s); m != nil {
		r := row{nat: m[1], protocol: m[2], external: "0.0.0.0", port: number(m[3]), target: m[4], targetPort: number(m[5]), ours: true}
		if err := h.write("Add", r); err != nil {
			return "", err
		}
		return h.add(r), nil
	}
	if m := removeLine.FindStringSubmatch(s); m != nil {
		if (m[1] == "TCP") != (m[2] == "6") {
			h.t.Fatalf("%s is not protocol %s", m[1], m[2])
		}
		for id, r := range all {
			if r.protocol != m[1] || r.external != "0.0.0.0" || r.port != number(m[3]) || r.target != m[4] || r.targetPort != number(m[5]) {
				continue
			}
			if err := h.write("Remove", r); err != nil {
				return "", err
			}
			if now, there := h.mappings[id]; there && !now.ours {
				h.t.Fatalf("I5: somebody else's mapping %+v is removed", now)
			}
			delete(h.mappings, id)
		}
		return h.result(nil), nil
	}
	h.t.Fatalf("PowerShell does not understand %q", s)
	return "", nil
}

func number(s string) uint16 {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		panic(err)
	}
	return uint16(n)
}

// add makes a mapping, or returns the error record.
func (h *netNAT) add(r row) string {
	prefix, ok := h.nats[r.nat]
	if !ok {
		return failure("The system cannot find the file specified.", "Windows System Error 2,Add-NetNatStaticMapping")
	}
	if !netip.MustParsePrefix(prefix).Contains(r.addrPort().Addr()) {
		return failure("The parameter is incorrect.", "Windows System Error 87,Add-NetNatStaticMapping")
	}
	for _, o := range h.mappings {
		if o.key() == r.key() && (o.external == r.external || o.external == "0.0.0.0" || r.external == "0.0.0.0") {
			return failure("You were not connected because a duplicate name exists on the network.", "Windows System Error 52,Add-NetNatStaticMapping")
		}
	}
	if h.listens[r.key()] {
		return failure("The process cannot access the file because it is being used by another process.", "Windows System Error 32,Add-NetNatStaticMapping")
	}
	id := uint32(0)
	for _, taken := h.mappings[id]; taken; _, taken = h.mappings[id] {
		id++
	}
	h.mappings[id] = r
	return h.result(nil)
}

func failure(message, id string) string {
	b, _ := json.Marshal(map[string]string{"id": id, "error": message})
	return string(b)
}

func (h *netNAT) protocol(r row) string {
	if h.quirk == 0 {
		return r.protocol
	}
	return map[string]string{"TCP": "6", "UDP": "17"}[r.protocol]
}

func (h *netNAT) result(list []any) string {
	var out any = append([]any{}, list...)
	switch {
	case h.quirk == 1 && len(list) == 1:
		out = list[0]
	case h.quirk == 1 && len(list) == 0:
		out = nil
	case h.quirk == 2:
		out = map[string]any{"value": out, "Count": len(list)}
	}
	b, err := json.Marshal(map[string]any{"out": out})
	if err != nil {
		h.t.Fatalf("%v", err)
	}
	return string(b)
}

// foreign returns what others have mapped, ours what we have.
func (h *netNAT) foreign() (out []string) {
	for _, r := range h.mappings {
		if !r.ours {
			out = append(out, fmt.Sprint(r))
		}
	}
	slices.Sort(out)
	return out
}

func (h *netNAT) ours() map[dataplane.Key]netip.AddrPort {
	out := map[dataplane.Key]netip.AddrPort{}
	for _, r := range h.mappings {
		if r.ours {
			out[r.key()] = r.addrPort()
		}
	}
	return out
}

// occupied reports whether somebody else has a port.
func (h *netNAT) occupied(k dataplane.Key) bool {
	for _, r := range h.mappings {
		if !r.ours && r.key() == k {
			return true
		}
	}
	return false
}

// put makes a mapping of somebody else.
func (h *netNAT) put(r row) {
	r.ours = false
	if answer := h.add(r); strings.Contains(answer, "error") {
		h.t.Fatalf("%s", answer)
	}
	for id, have := range h.mappings {
		if have.key() == r.key() && have.external == r.external {
			h.mappings[id] = r
		}
	}
}

// take removes a mapping, as somebody else may.
func (h *netNAT) take(k dataplane.Key) {
	maps.DeleteFunc(h.mappings, func(_ uint32, r row) bool { return r.key() == k })
}
