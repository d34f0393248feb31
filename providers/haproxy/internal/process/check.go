package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckError is haproxy's refusal of a candidate.
type CheckError struct {
	Alerts []Alert
	Err    error
}

// Alert is one [ALERT] of haproxy; Line is the line of the candidate that it names, or 0.
type Alert struct {
	Text string
	Line int
}

// Error returns the alerts.
func (e *CheckError) Error() string {
	if len(e.Alerts) == 0 {
		return fmt.Sprintf("haproxy -c: %v", e.Err)
	}
	var texts []string
	for _, a := range e.Alerts {
		texts = append(texts, a.Text)
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns how the process ended.
func (e *CheckError) Unwrap() error { return e.Err }

// Check lets haproxy judge the candidate together with the administrator's files. An empty binary skips the check,
// for an lbsync whose image has no haproxy; a failing reload is still detected and taken back.
func (f Files) Check(ctx context.Context, binary, candidate string) error {
	if binary == "" {
		return nil
	}
	args, err := f.arguments(candidate)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, binary, append([]string{"-c"}, args...)...).CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		return err
	}
	return &CheckError{Alerts: parseAlerts(string(out), candidate), Err: err}
}

var alertLine = regexp.MustCompile(`^\[ALERT\]\s+\(\d+\) : (?:config : )?(.*)$`)

// parseAlerts picks the alerts out of haproxy's output, without its closing "Fatal errors found" lines.
func parseAlerts(output, candidate string) []Alert {
	place := regexp.MustCompile(`\[` + regexp.QuoteMeta(candidate) + `:(\d+)\]`)
	var alerts []Alert
	for line := range strings.Lines(output) {
		m := alertLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || strings.HasPrefix(m[1], "Fatal errors found") || strings.HasPrefix(m[1], "Error(s) found") {
			continue
		}
		alert := Alert{Text: m[1]}
		if p := place.FindStringSubmatch(m[1]); p != nil {
			alert.Line, _ = strconv.Atoi(p[1])
		}
		alerts = append(alerts, alert)
	}
	return alerts
}

// TestBind reports why HAProxy could not listen on address, by listening there for a moment. `haproxy -c` does not
// look, and a reload that fails to bind refuses every new connection for about two seconds. For a port that only this
// process may not bind (below 1024, without the capability) the kernel's list of listeners is read instead.
func TestBind(ctx context.Context, address netip.AddrPort) error {
	err := tryBind(ctx, address)
	if errors.Is(err, unix.EACCES) {
		if err = tryBind(ctx, netip.AddrPortFrom(address.Addr(), 0)); err == nil && listens(address) {
			err = unix.EADDRINUSE
		}
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%s is in use by another listener; stop that listener or choose another address or port", address)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%s is not an address of this host; add it to an interface (or set net.ipv4.ip_nonlocal_bind=1, "+
			"for IPv6 net.ipv6.ip_nonlocal_bind=1)", address)
	default:
		return nil
	}
}

func tryBind(ctx context.Context, address netip.AddrPort) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.String())
	if err != nil {
		return err
	}
	return l.Close()
}
