package view

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// Server is a member as the load balancer itself shows it.
type Server struct {
	Name    string
	Up      bool // running and taking new connections
	Enabled bool // not draining
}

// Members asks the running load balancer for the members of the Service's pools. HAProxy's servers in maintenance are on their
// way out and are left out.
func (v View) Members(service string) (map[netip.AddrPort]Server, error) {
	if v.Balancer().Kind() != lab.HAProxy {
		return v.remoteMembers(context.Background(), service)
	}
	text, err := ask(v.Balancer().AdminSocket(), "show servers state")
	if err != nil {
		return nil, fmt.Errorf("reading the pools of HAProxy: %w", err)
	}
	return parseMembers(text, v.backendPrefix(service))
}

// attachedName begins the name of each server of ours in a backend of HAProxy's administrator.
const attachedName = "npl-"

// Attached returns our members of a backend of HAProxy's administrator, and the names of all other servers there.
func (v View) Attached(backend string) (map[netip.AddrPort]Server, []string, error) {
	text, err := ask(v.Balancer().AdminSocket(), "show servers state "+backend)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the backend %s of HAProxy: %w", backend, err)
	}
	members, err := parseMembers(text, backend)
	var others []string
	for address, server := range members {
		if !strings.HasPrefix(server.Name, attachedName) {
			others = append(others, server.Name)
			delete(members, address)
		}
	}
	slices.Sort(others)
	return members, others, err
}

// Servers returns the lines of the Service's pools in "show servers state", without what changes by itself.
func (v View) Servers(service string) ([]string, error) {
	text, err := ask(v.Balancer().AdminSocket(), "show servers state")
	if err != nil {
		return nil, fmt.Errorf("reading the pools of HAProxy: %w", err)
	}
	var lines []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > colPort && strings.HasPrefix(f[colBackend], v.backendPrefix(service)) {
			lines = append(lines, strings.Join([]string{f[colBackend], f[colServer], f[colAddress], f[colPort], "id=" + f[colServerID], "admin=" + f[colAdmin]}, " "))
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// Clients returns how many clients the load balancer remembers the members of, for a port of a Service with persistence.
func (v View) Clients(service string, port int) (int, error) {
	table := fmt.Sprintf("%s%d", v.backendPrefix(service), port)
	text, err := ask(v.Balancer().AdminSocket(), "show table "+table)
	if err != nil {
		return 0, fmt.Errorf("reading the clients of %s: %w", table, err)
	}
	_, used, found := strings.Cut(text, "used:")
	if !found {
		return 0, fmt.Errorf("%s has no table of clients: %s", table, strings.TrimSpace(text))
	}
	used, _, _ = strings.Cut(used, "\n")
	return strconv.Atoi(strings.TrimSpace(used))
}

// backendPrefix begins the name of each HAProxy backend of the Service.
func (v View) backendPrefix(service string) string {
	return fmt.Sprintf("npl_b_%s_%s_", v.Namespace, service)
}

// The columns of "show servers state", HAProxy management guide, section 9.3.
const (
	colBackend  = 1
	colServerID = 2
	colServer   = 3
	colAddress  = 4
	colOpState  = 5
	colAdmin    = 6
	colPort     = 18

	running     = "2"
	forcedMaint = 1
)

func parseMembers(text, backendPrefix string) (map[netip.AddrPort]Server, error) {
	members := map[netip.AddrPort]Server{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) <= colPort || strings.HasPrefix(line, "#") || !strings.HasPrefix(f[colBackend], backendPrefix) {
			continue
		}
		admin, err := strconv.Atoi(f[colAdmin])
		if err != nil {
			return nil, fmt.Errorf("the admin state of server %s/%s: %w", f[colBackend], f[colServer], err)
		}
		if admin&forcedMaint != 0 {
			continue
		}
		addr, err := netip.ParseAddrPort(net.JoinHostPort(f[colAddress], f[colPort]))
		if err != nil {
			return nil, fmt.Errorf("the address of server %s/%s: %w", f[colBackend], f[colServer], err)
		}
		members[addr] = Server{Name: f[colServer], Up: f[colOpState] == running, Enabled: admin == 0}
	}
	return members, nil
}

func ask(socket, command string) (string, error) {
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	return string(out), err
}
