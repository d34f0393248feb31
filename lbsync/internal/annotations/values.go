package annotations

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// What a setting can be, beside the empty string.
var (
	algorithms     = []providers.Algorithm{providers.RoundRobin, providers.LeastConnections, providers.SourceHash}
	persistences   = []string{"None", string(providers.SourceAddress)}
	proxyProtocols = []providers.ProxyProtocol{providers.ProxyV1, providers.ProxyV2}
	monitors       = []providers.MonitorType{
		providers.MonitorNone, providers.MonitorTCP, providers.MonitorHTTP, providers.MonitorHTTPS, providers.MonitorUDP, providers.MonitorExisting,
	}
)

// oneOf reads one of some words, in their spelling.
func oneOf[T ~string](what, value string, words []T) (T, error) {
	if slices.Contains(words, T(value)) {
		return T(value), nil
	}
	return "", fmt.Errorf("%q is not %s; write %s", shorten(value), what, enumerate(words))
}

// enumerate lists words for people: "a, b or c".
func enumerate[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i > 0 && i == len(words)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// truth reads "true" or "false".
func truth(value string) (bool, error) {
	switch value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf(`%q is neither yes nor no; write "true" or "false", in quotes`, shorten(value))
}

// span reads a duration of whole seconds within limits.
func span(value string, least, most time.Duration) (time.Duration, error) {
	fix := fmt.Sprintf("write whole seconds, minutes or hours from %s to %s, such as %s", short(least), short(most), short(min(30*time.Second, most)))
	d, err := time.ParseDuration(value)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration; %s", shorten(value), fix)
	case d%time.Second != 0:
		return 0, fmt.Errorf("%q is not whole seconds; %s", shorten(value), fix)
	case d < least || d > most:
		return 0, fmt.Errorf("%q is out of range; %s", shorten(value), fix)
	}
	return d, nil
}

// short formats a duration without the parts that are zero: "1h", not "1h0m0s".
func short(d time.Duration) string {
	switch {
	case d == 0:
		return "0s"
	case d%time.Hour == 0:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	case d%time.Minute == 0:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	default:
		return d.String()
	}
}

// count reads a whole number within limits.
func count(value string, least, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d; write one, such as %d", shorten(value), least, most, min(most, max(least, 5)))
	}
	return n, nil
}

// The syntaxes of names.
var (
	labelSyntax  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	nameSyntax   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	optionSyntax = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	hostSyntax   = regexp.MustCompile(`^[A-Za-z0-9\[]([-A-Za-z0-9_.:\[\]]{0,253}[A-Za-z0-9\]])?$`)
	pathSyntax   = regexp.MustCompile(`^/[!#-&(-\[\]-~]{0,511}$`)
	// objectSyntax is the name of something on a load balancer, in its own spelling.
	objectSyntax = regexp.MustCompile(`^[^\s"'\\,=\pC]([^"'\\,\pC]{0,253}[^\s"'\\,\pC])?$`)
)

// match checks the syntax of a value.
func match(syntax *regexp.Regexp, value, fix string) (string, error) {
	if !syntax.MatchString(value) {
		return "", fmt.Errorf("%q cannot be used; %s", shorten(value), fix)
	}
	return value, nil
}

// names reads names of provider instances, separated by commas. The result is sorted, each once.
func names(value string, instances []string) ([]string, error) {
	var out []string
	for field := range strings.SplitSeq(value, ",") {
		name := strings.TrimSpace(field)
		if err := isInstance(name, instances); err != nil {
			return nil, err
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// isInstance checks the name of a provider instance; with no instances given, its syntax.
func isInstance(name string, instances []string) error {
	fix := "write names of load balancers, separated by commas"
	if len(instances) > 0 {
		fix = "there are " + strings.Join(slices.Sorted(slices.Values(instances)), ", ")
	}
	if !nameSyntax.MatchString(name) || len(instances) > 0 && !slices.Contains(instances, name) {
		return fmt.Errorf("%q is not the name of a load balancer%s; %s", shorten(name), meant(name, instances), fix)
	}
	return nil
}

// prefixes reads prefixes and single addresses. The result is sorted, and none is within another. Bits after a prefix are refused or, where
// Kubernetes allows them, cleared.
func prefixes(fields []string, clear bool) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, field := range fields {
		field = strings.TrimSpace(field)
		p, err := netip.ParsePrefix(field)
		if addr, addrErr := netip.ParseAddr(field); addrErr == nil && addr.Zone() == "" {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is neither a prefix nor an address; write ranges such as 192.0.2.0/24 or 2001:db8::/64, separated by commas", shorten(field))
		case p.Addr().Is4In6():
			return nil, fmt.Errorf("%q is IPv4 written as IPv6; write %s", shorten(field), p.Addr().Unmap())
		case p != p.Masked() && !clear:
			return nil, fmt.Errorf("%q has bits set after the prefix; write %s for that whole range, or %s for the one address", shorten(field), p.Masked(), p.Addr())
		}
		all = append(all, p.Masked())
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, p := range all { // who contains p comes before it
		if len(out) == 0 || !out[len(out)-1].Overlaps(p) {
			out = append(out, p)
		}
	}
	return out, nil
}

// attachments reads "<port>=<instance>:<pool>,...". The result is in the order of the text.
func attachments(value string, instances []string) ([]Attachment, error) {
	const fix = "write <port>=<load balancer>:<pool>, separated by commas, such as http=edge:web"
	var out []Attachment
	for field := range strings.SplitSeq(value, ",") {
		field = strings.TrimSpace(field)
		port, rest, hasPool := strings.Cut(field, "=")
		instance, pool, ok := strings.Cut(rest, ":")
		a := Attachment{Port: strings.TrimSpace(port), Instance: strings.TrimSpace(instance), Pool: strings.TrimSpace(pool)}
		n, numErr := strconv.ParseUint(a.Port, 10, 16)
		switch {
		case !hasPool || !ok:
			return nil, fmt.Errorf("%q does not say which pool; %s", shorten(field), fix)
		case numErr == nil && n == 0 || numErr != nil && !(labelSyntax.MatchString(a.Port) && strings.ContainsFunc(a.Port, isLetter)):
			return nil, fmt.Errorf("%q: %q is neither the number nor the name of a port of the Service; %s", shorten(field), shorten(a.Port), fix)
		case !objectSyntax.MatchString(a.Pool):
			return nil, fmt.Errorf("%q: %q cannot be the name of a pool; %s", shorten(field), shorten(a.Pool), fix)
		}
		if err := isInstance(a.Instance, instances); err != nil {
			return nil, fmt.Errorf("%q: %w", shorten(field), err)
		}
		if numErr == nil {
			a.Port = strconv.FormatUint(n, 10)
		}
		if slices.ContainsFunc(out, func(o Attachment) bool { return o.Port == a.Port && o.Instance == a.Instance }) {
			return nil, fmt.Errorf("port %s is in two pools of %s; write one of them", a.Port, a.Instance)
		}
		out = append(out, a)
	}
	return out, nil
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' }

// sourceRanges reads an annotation; a restriction to nobody cannot be meant.
func sourceRanges(value string) ([]netip.Prefix, error) {
	if value == "" {
		return nil, errors.New(`"" says nothing; write ranges such as 192.0.2.0/24, or remove the annotation to let everybody in`)
	}
	return prefixes(strings.Split(value, ","), false)
}
