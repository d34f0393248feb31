// Package naming is how TMOS writes addresses, members, destinations, monitor rules and paths.
package naming

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Address is an IP address in a route domain.
type Address struct {
	IP netip.Addr
	// RouteDomain is 0..65534.
	RouteDomain int
}

// ParseAddress reads "10.0.0.1", "2001:db8::1" or either with "%<route domain>"; without one it is in fallback.
func ParseAddress(text string, fallback int) (Address, error) {
	host, domain, given := strings.Cut(text, "%")
	a := Address{RouteDomain: fallback}
	if given {
		n, err := strconv.ParseUint(domain, 10, 16)
		if err != nil || n > 65534 {
			return a, fmt.Errorf("%q: the route domain is no number from 0 to 65534", text)
		}
		a.RouteDomain = int(n)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return a, fmt.Errorf("%q is no IP address", text)
	}
	a.IP = ip
	return a, nil
}

// Text writes the address as it is read back: lower case, compressed, and without its route domain where that is the default one.
func (a Address) Text(defaultDomain int) string {
	if a.RouteDomain == defaultDomain {
		return a.IP.String()
	}
	return a.IP.String() + "%" + strconv.Itoa(a.RouteDomain)
}

// Endpoint splits "10.0.0.1:80", "web:80", "2001:db8::1.80" and "2001:db8::1%2.80" into host and port. A host with a colon has a dot before the port.
// Port 0 and "any" are every port.
func Endpoint(text string) (host string, port uint16, err error) {
	at := strings.LastIndexByte(text, ':')
	if strings.Count(text, ":") > 1 {
		at = strings.LastIndexByte(text, '.')
	}
	if at <= 0 || at == len(text)-1 {
		return "", 0, fmt.Errorf("%q has no port", text)
	}
	host = text[:at]
	if text[at+1:] == "any" {
		return host, 0, nil
	}
	n, err := strconv.ParseUint(text[at+1:], 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: the port is no number from 0 to 65535", text)
	}
	return host, uint16(n), nil
}

// Join is the reverse of Endpoint.
func Join(host string, port uint16) string {
	separator := ":"
	if strings.Contains(host, ":") {
		separator = "."
	}
	return host + separator + strconv.Itoa(int(port))
}

// Path is the place of an object, "/Common/web" or "/Common/folder/web".
type Path struct {
	Partition string
	Folder    string // below the partition; empty is the partition itself
	Name      string
}

// ParsePath reads a full path. Text without a slash at the beginning is a name in Common.
func ParsePath(text string) (Path, error) {
	if !strings.HasPrefix(text, "/") {
		text = "/Common/" + text
	}
	parts := strings.Split(text[1:], "/")
	if len(parts) < 2 {
		return Path{}, fmt.Errorf("%q has no partition and name", text)
	}
	if slices.Contains(parts, "") {
		return Path{}, fmt.Errorf("%q has an empty part", text)
	}
	last := len(parts) - 1
	return Path{parts[0], strings.Join(parts[1:last], "/"), parts[last]}, nil
}

// String returns the full path.
func (p Path) String() string { return p.In() + "/" + p.Name }

// In returns the folder that the object is in, "/Common" or "/Common/folder".
func (p Path) In() string {
	if p.Folder == "" {
		return "/" + p.Partition
	}
	return "/" + p.Partition + "/" + p.Folder
}

var escaper = strings.NewReplacer("/", "~", "%", "%25", "?", "%3F", "#", "%23", " ", "%20")

// Escape writes a full path as an element of a URL, "~Common~web", with "%" as "%25".
func Escape(path string) string { return escaper.Replace(path) }

// Unescape reads an element of a URL that was decoded already: "~Common~web" is a full path, anything else a name.
func Unescape(element string) string {
	if !strings.HasPrefix(element, "~") {
		return element
	}
	return strings.ReplaceAll(element, "~", "/")
}

// ErrBraces says that a monitor rule has braces, which TMOS writes and on many versions does not take back.
var ErrBraces = errors.New("braces")

// Rule is a monitor rule: so many of the monitors have to be good; 0 is all of them.
type Rule struct {
	Min      int
	Monitors []string
}

// ParseRule reads "a", "a and b", "min 1 of a b" and, where braces are allowed, "min 1 of { a b }". "none" and "" are a rule without monitors.
func ParseRule(text string, braces bool) (Rule, error) {
	words := strings.Fields(text)
	if len(words) == 0 || (len(words) == 1 && words[0] == "none") {
		return Rule{}, nil
	}
	if words[0] == "min" {
		return parseMin(text, words, braces)
	}
	var r Rule
	for i, word := range words {
		if (i%2 == 1) != (word == "and") {
			return Rule{}, fmt.Errorf("%q: names are joined by and", text)
		}
		if i%2 == 0 {
			r.Monitors = append(r.Monitors, word)
		}
	}
	if len(words)%2 == 0 {
		return Rule{}, fmt.Errorf("%q ends with and", text)
	}
	return r, nil
}

func parseMin(text string, words []string, braces bool) (Rule, error) {
	if len(words) < 4 || words[2] != "of" {
		return Rule{}, fmt.Errorf("%q: use min <number> of <names>", text)
	}
	n, err := strconv.Atoi(words[1])
	names := words[3:]
	if names[0] == "{" {
		if !braces {
			return Rule{}, fmt.Errorf("%q: %w", text, ErrBraces)
		}
		if names[len(names)-1] != "}" {
			return Rule{}, fmt.Errorf("%q: a brace is not closed", text)
		}
		names = names[1 : len(names)-1]
	}
	if err != nil || n < 1 || n > len(names) {
		return Rule{}, fmt.Errorf("%q: the number is not one from 1 to the number of names", text)
	}
	for _, name := range names {
		if strings.ContainsAny(name, "{}") || name == "and" {
			return Rule{}, fmt.Errorf("%q: %q is no name", text, name)
		}
	}
	return Rule{n, names}, nil
}

// String writes the rule as TMOS does.
func (r Rule) String() string {
	if r.Min > 0 {
		return fmt.Sprintf("min %d of { %s }", r.Min, strings.Join(r.Monitors, " "))
	}
	return strings.Join(r.Monitors, " and ")
}
