package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Master is the command line of HAProxy's master process. It has no interactive mode worth keeping: every call is a
// connection of its own.
type Master struct{ Path string }

// call sends lines and returns all that comes back.
func (m Master) call(ctx context.Context, lines string) (string, error) {
	conn, err := m.dial(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline := time.Now().Add(callTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, lines+"\n"); err != nil {
		return "", err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxReply))
	return string(answer), err
}

// masterPause is how long a master that refuses connections is tried again: it executes itself anew with every reload.
const masterPause = time.Second

func (m Master) dial(ctx context.Context) (net.Conn, error) {
	giveUp := time.Now().Add(masterPause)
	for {
		conn, err := (&net.Dialer{Timeout: callTimeout}).DialContext(ctx, "unix", m.Path)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(giveUp) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Reload asks the master to start a new worker from its configuration files. 2.6 answers nothing and closes the
// connection as it re-executes itself: the outcome shows in Processes and in the new worker.
func (m Master) Reload(ctx context.Context) error {
	_, err := m.call(ctx, "reload")
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	return err
}

// Processes is the answer of the master's `show proc`.
type Processes struct {
	Reloads int   // since the master started
	Failed  int   // reloads that failed since the last good one
	Old     []int // workers that wait for their last connections, by process id
}

// Processes asks for the list of processes.
func (m Master) Processes(ctx context.Context) (Processes, error) {
	answer, err := m.call(ctx, "show proc")
	if err != nil {
		return Processes{}, err
	}
	return ParseProcesses(answer)
}

var masterLine = regexp.MustCompile(`^\d+\s+master\s+(\d+)(?:\s+\[failed:\s+(\d+)\])?`)

// ParseProcesses reads the answer of `show proc`.
func ParseProcesses(text string) (Processes, error) {
	var p Processes
	found, old := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if m := masterLine.FindStringSubmatch(line); m != nil {
			found = true
			p.Reloads, _ = strconv.Atoi(m[1])
			p.Failed, _ = strconv.Atoi(m[2])
			continue
		}
		if strings.HasPrefix(line, "#") {
			old = line == "# old workers"
			continue
		}
		fields := strings.Fields(line)
		if !old || len(fields) < 2 || fields[1] != "worker" {
			continue
		}
		pid, err := strconv.Atoi(fields[0])
		if err != nil || pid <= 0 {
			return Processes{}, fmt.Errorf("show proc: no process id in %.80q", line)
		}
		p.Old = append(p.Old, pid)
	}
	if !found {
		return Processes{}, fmt.Errorf("show proc: no master in %.80q", text)
	}
	return p, nil
}

// Sessions returns the current sessions of a backend's servers in the worker with this process id. A worker that is
// gone, or that does not know the backend, has none.
func (m Master) Sessions(ctx context.Context, pid int, backend string) (map[string]int, error) {
	answer, err := m.call(ctx, fmt.Sprintf("@!%d show stat %s 4 -1", pid, backend))
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(answer, "# pxname") {
		return nil, nil
	}
	return ParseSessions(answer)
}

// Map returns the entries of a map in the worker with this process id. A worker that is gone, or that has no such map, has none.
func (m Master) Map(ctx context.Context, pid int, path string) (map[string]string, error) {
	answer, err := m.call(ctx, fmt.Sprintf("@!%d show map %s", pid, path))
	if err != nil || !strings.HasPrefix(answer, "0x") {
		return nil, err
	}
	return ParseMap(answer), nil
}

var sessionLine = regexp.MustCompile(`^(0x[0-9a-f]+): .*? be=(\S+) srv=(\S+)`)

// ParseSessionList reads `show sess` and returns the ids of the sessions whose "backend/server" is wanted.
func ParseSessionList(text string, wanted func(backend, server string) bool) []string {
	var ids []string
	for line := range strings.Lines(text) {
		if m := sessionLine.FindStringSubmatch(line); m != nil && wanted(m[2], m[3]) {
			ids = append(ids, m[1])
		}
	}
	return ids
}

// ShutdownSessions closes the sessions of an old worker on the wanted servers. An old worker refuses `shutdown sessions
// server` ("Proxy is disabled"), so they are closed one by one.
func (m Master) ShutdownSessions(ctx context.Context, pid int, wanted func(backend, server string) bool) error {
	list, err := m.call(ctx, fmt.Sprintf("@!%d show sess", pid))
	if err != nil {
		return err
	}
	var errs []error
	for batch := range slices.Chunk(ParseSessionList(list, wanted), windowCommands) {
		var lines strings.Builder
		for _, id := range batch {
			fmt.Fprintf(&lines, "@!%d shutdown session %s\n", pid, id)
		}
		_, err := m.call(ctx, strings.TrimSuffix(lines.String(), "\n"))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
