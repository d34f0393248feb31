package bigip

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// address is an IP address in a route domain.
type address struct {
	addr netip.Addr
	rd   int
}

// parseAddress reads "10.0.0.1%2" in any spelling of the address. Without a route domain it is in def.
func parseAddress(text string, def int) (address, bool) {
	plain, domain, given := strings.Cut(text, "%")
	a, err := netip.ParseAddr(plain)
	if err != nil || a.Zone() != "" {
		return address{}, false
	}
	rd := def
	if given {
		n, err := strconv.ParseUint(domain, 10, 16)
		if err != nil {
			return address{}, false
		}
		rd = int(n)
	}
	return address{a.Unmap(), rd}, true
}

// text writes the address; the route domain is left out where it is the default.
func (a address) text(def int) string {
	if a.rd == def {
		return a.addr.String()
	}
	return a.addr.String() + "%" + strconv.Itoa(a.rd)
}

// joinEndpoint writes a host, which may be a path, and a port. A host with colons takes a dot, else a colon.
func joinEndpoint(host string, port uint16) string {
	separator := ":"
	if strings.Contains(host, ":") {
		separator = "."
	}
	return host + separator + strconv.Itoa(int(port))
}

// splitEndpoint reads joinEndpoint's form. A port by name, such as "http", is none.
func splitEndpoint(text string) (host string, port uint16, ok bool) {
	at := strings.LastIndexByte(text, ':')
	if strings.Count(text, ":") > 1 {
		at = strings.LastIndexByte(text, '.')
	}
	if at <= 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(text[at+1:], 10, 16)
	return text[:at], uint16(n), err == nil
}

// splitPath takes a full path apart: "/a/b/c" is partition a, folders b, name c.
func splitPath(full string) (partition, folders, name string) {
	full = strings.TrimPrefix(full, "/")
	at := strings.LastIndexByte(full, '/')
	name = full[at+1:]
	if at > 0 {
		partition, folders, _ = strings.Cut(full[:at], "/")
	}
	return partition, folders, name
}

// destination reads where a virtual server listens, "/partition/10.0.0.1%2:443".
func destination(text string, def int) (address, uint16, bool) {
	host, port, ok := splitEndpoint(text[strings.LastIndexByte(text, '/')+1:])
	if !ok {
		return address{}, 0, false
	}
	a, ok := parseAddress(host, def)
	return a, port, ok
}

// source reads the clients of a virtual server, "10.0.0.0%2/8".
func source(text string, def int) (netip.Prefix, bool) {
	host, bits, ok := strings.Cut(text, "/")
	a, ok2 := parseAddress(host, def)
	n, err := strconv.Atoi(bits)
	if !ok || !ok2 || err != nil {
		return netip.Prefix{}, false
	}
	p, err := a.addr.Prefix(n)
	return p, err == nil
}

// rule is a pool's monitor: so many of these must be good, all of them where min is 0.
type rule struct {
	min      int
	monitors []string // sorted
}

// parseRule reads a monitor rule in every form that is read or written: "a", "a and b ", "min 1 of { a b }", "min 1 of a b", "none".
func parseRule(text string) rule {
	words := strings.Fields(strings.NewReplacer("{", " ", "}", " ").Replace(text))
	var r rule
	if len(words) >= 3 && words[0] == "min" && words[2] == "of" {
		r.min, _ = strconv.Atoi(words[1]) // what is no number matches no rule of ours
		words = words[3:]
	}
	for _, word := range words {
		if word != "and" && word != "none" {
			r.monitors = append(r.monitors, word)
		}
	}
	slices.Sort(r.monitors)
	return r
}

func (r rule) equal(o rule) bool { return r.min == o.min && slices.Equal(r.monitors, o.monitors) }

// text writes the rule, without braces, which some versions do not take back.
func (r rule) text() string {
	if r.min > 0 {
		return "min " + strconv.Itoa(r.min) + " of " + strings.Join(r.monitors, " ")
	}
	return strings.Join(r.monitors, " and ")
}
