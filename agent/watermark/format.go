package watermark

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A FieldError says what is wrong with one field of a watermark, and what would be right.
type FieldError struct {
	Field string // "seen", "held[2].nodePort"
	Value string // as found, shortened to 64 bytes; empty if it is missing
	Fix   string
}

func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("watermark, %s: is missing; %s", e.Field, e.Fix)
	}
	return fmt.Sprintf("watermark, %s %s: %s", e.Field, e.Value, e.Fix)
}

type object struct {
	Instance     string `json:"instance"`
	LoadBalancer string `json:"loadBalancer"`
	Seen         string `json:"seen"`
	At           string `json:"at"`
	Held         []held `json:"held"`
}

type held struct {
	Node     string `json:"node"`
	Protocol string `json:"protocol"`
	Family   string `json:"family"`
	NodePort uint16 `json:"nodePort"`
}

// Encode returns the one form in which w is written: At in UTC to the second, Held sorted and without duplicates.
func Encode(w Watermark) string {
	o := object{Instance: w.Instance, LoadBalancer: w.LoadBalancer, Seen: w.Seen, At: w.At.UTC().Format(time.RFC3339), Held: []held{}}
	ports := slices.SortedFunc(slices.Values(w.Held), NodePort.Compare)
	for _, p := range slices.Compact(ports) {
		o.Held = append(o.Held, held{p.Node, p.Protocol, p.Family, p.Port})
	}
	b, err := json.Marshal(o)
	if err != nil { // strings and numbers always marshal
		panic("watermark: " + err.Error())
	}
	return string(b)
}

// anyObject has the same fields unread. encoding/json matches their names without regard to case.
type anyObject struct {
	Instance     json.RawMessage `json:"instance"`
	LoadBalancer json.RawMessage `json:"loadBalancer"`
	Seen         json.RawMessage `json:"seen"`
	At           json.RawMessage `json:"at"`
	Held         json.RawMessage `json:"held"`
}

type anyHeld struct {
	Node     json.RawMessage `json:"node"`
	Protocol json.RawMessage `json:"protocol"`
	Family   json.RawMessage `json:"family"`
	NodePort json.RawMessage `json:"nodePort"`
}

// Decode reads what Encode writes, and beside that: fields in any order and any case, unknown fields, ports and resourceVersions as
// numbers or strings, protocols and families in any case, no `held` for none, and a missing or odd `at`, which nothing depends on.
//
// With an error the rest is as far as it could be read, for messages, and Seen is empty: it confirms nothing. The error is a
// *FieldError, or says that it is no JSON object.
func Decode(s string) (Watermark, error) {
	var o anyObject
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		return Watermark{}, fmt.Errorf(`watermark %s is not a JSON object such as {"instance":"nplbridge-system/lbsync","loadBalancer":"haproxy","seen":"4711","held":[]}: %w`, shorten(s), err)
	}
	w := Watermark{Instance: text(o.Instance), LoadBalancer: text(o.LoadBalancer)}
	if at, err := time.Parse(time.RFC3339, text(o.At)); err == nil && at.UTC().Year() >= 0 && at.UTC().Year() <= 9999 {
		w.At = at.UTC().Truncate(time.Second)
	}
	if namespace, name, ok := strings.Cut(w.Instance, "/"); !ok || namespace == "" || name == "" {
		return w, fail("instance", o.Instance, `write "namespace/name" of the writer`)
	}
	if w.LoadBalancer == "" {
		return w, fail("loadBalancer", o.LoadBalancer, "write the name of the load balancer")
	}
	seen := text(o.Seen)
	if !validVersion(seen) {
		return w, fail("seen", o.Seen, "write a resourceVersion of Pods, a positive decimal integer")
	}
	ports, err := decodeHeld(o.Held)
	if err != nil {
		return w, err
	}
	w.Seen, w.Held = seen, ports
	return w, nil
}

func decodeHeld(raw json.RawMessage) ([]NodePort, error) {
	if absent(raw) {
		return nil, nil
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(raw, &entries); err != nil {
		return nil, fail("held", raw, "write an array of node ports")
	}
	var out []NodePort
	for i, entry := range entries {
		var h anyHeld
		where := fmt.Sprintf("held[%d]", i)
		if err := json.Unmarshal(entry, &h); err != nil || absent(entry) {
			return nil, fail(where, entry, `write an object such as {"node":"node-1","protocol":"tcp","family":"IPv4","nodePort":61000}`)
		}
		p := NodePort{Node: text(h.Node), Protocol: strings.ToLower(text(h.Protocol))}
		if p.Node == "" {
			return nil, fail(where+".node", h.Node, "write the name of the Node")
		}
		if p.Protocol != "tcp" && p.Protocol != "udp" && p.Protocol != "sctp" {
			return nil, fail(where+".protocol", h.Protocol, `write "tcp", "udp" or "sctp"`)
		}
		switch family := text(h.Family); {
		case strings.EqualFold(family, "IPv4"):
			p.Family = "IPv4"
		case strings.EqualFold(family, "IPv6"):
			p.Family = "IPv6"
		default:
			return nil, fail(where+".family", h.Family, `write "IPv4" or "IPv6"`)
		}
		port, err := strconv.ParseUint(text(h.NodePort), 10, 16)
		if err != nil || port == 0 {
			return nil, fail(where+".nodePort", h.NodePort, "write a port from 1 to 65535")
		}
		p.Port = uint16(port)
		out = append(out, p)
	}
	slices.SortFunc(out, NodePort.Compare)
	return slices.Compact(out), nil
}

func fail(field string, raw json.RawMessage, fix string) error {
	e := &FieldError{Field: field, Fix: fix}
	if !absent(raw) {
		e.Value = shorten(string(raw))
	}
	return e
}

// text returns the string or the number that raw is, or "" when it is anything else.
func text(raw json.RawMessage) string {
	var n json.Number // also takes a string, but only one that is a number
	var s string
	switch {
	case json.Unmarshal(raw, &s) == nil:
		return s
	case json.Unmarshal(raw, &n) == nil:
		return n.String()
	default:
		return ""
	}
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// shorten keeps at most 64 bytes, cut where UTF-8 allows.
func shorten(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
