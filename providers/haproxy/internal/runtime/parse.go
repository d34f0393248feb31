package runtime

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrVersion says that the HAProxy at the other end is too old to add servers at run time.
var ErrVersion = errors.New("haproxy is older than 2.6")

// Version is HAProxy's major and minor version.
type Version struct{ Major, Minor int }

// AtLeast reports whether the version is major.minor or later.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

func (v Version) supported() error {
	if !v.AtLeast(2, 6) {
		return fmt.Errorf("%w: it is %d.%d; install 2.6 or later (Debian 12 has it)", ErrVersion, v.Major, v.Minor)
	}
	return nil
}

// Info is the part of `show info` that identifies a worker.
type Info struct {
	Version  Version
	Worker   Worker
	Stopping bool // an old worker that waits for its last connections
}

// Worker identifies a worker process: in a container every HAProxy has the same process ids. The zero Worker is none.
type Worker struct {
	PID     int
	Started int64 // Unix time in seconds; 0 when HAProxy does not say
}

// ParseInfo reads the answer of `show info`.
func ParseInfo(text string) (Info, error) {
	var info Info
	var err error
	seen := map[string]bool{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if !ok {
			continue
		}
		switch name {
		case "Version":
			info.Version, err = parseVersion(value)
		case "Pid":
			info.Worker.PID, err = strconv.Atoi(value)
			if err == nil && info.Worker.PID <= 0 {
				err = errors.New("not a process id")
			}
		case "Stopping":
			info.Stopping = value != "0"
		case "Start_time_sec":
			if info.Worker.Started, err = strconv.ParseInt(value, 10, 64); err == nil {
				continue // not one of the three that must be there
			}
		default:
			continue
		}
		if err != nil {
			return Info{}, fmt.Errorf("show info: %s %q: %w", name, value, err)
		}
		seen[name] = true
	}
	if len(seen) < 3 {
		return Info{}, fmt.Errorf("show info: Version, Pid or Stopping is missing in %.80q", text)
	}
	return info, nil
}

// ParseFields reads the answer of `show info` as names and values.
func ParseFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ": "); ok {
			fields[name] = value
		}
	}
	return fields
}

// parseVersion reads "2.6.12-1+deb12u4" or "3.3-dev1".
func parseVersion(text string) (Version, error) {
	major, rest, ok := strings.Cut(text, ".")
	if !ok {
		return Version{}, errors.New("no minor version")
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	var v Version
	var err1, err2 error
	v.Major, err1 = strconv.Atoi(major)
	v.Minor, err2 = strconv.Atoi(rest[:end])
	return v, errors.Join(err1, err2)
}

// Bits of Server.Admin (srv_admin_state, management guide 9.3 "show servers state").
const (
	AdminForcedMaint = 0x01
	AdminForcedDrain = 0x08
)

// Bits of Server.Check (srv_check_state).
const (
	CheckConfigured = 0x02
	CheckEnabled    = 0x04
)

// Values of Server.Operation (srv_op_state) and Server.Result (srv_check_result).
const (
	OperationStopped = 0
	ResultUnknown    = 0 // no check has ended yet
)

// Server is one line of `show servers state`.
type Server struct {
	Backend string
	Name    string
	ID      int
	Address netip.AddrPort // invalid for a server without a numeric address
	Admin   int            // bits, see AdminForcedMaint
	Weight  int            // the weight set at run time, 0 to 256
	Check   int            // bits, see CheckConfigured
	// Operation and Result are what the checks found, see OperationStopped and ResultUnknown.
	Operation int
	Result    int
}

// ParseServers reads the answer of `show servers state [backend]`, format 1. A backend without servers has no lines.
func ParseServers(text string) ([]Server, error) {
	version, text, _ := strings.Cut(text, "\n")
	if version != "1" {
		return nil, fmt.Errorf("show servers state: format %.40q, know only 1", version)
	}
	header, rows, _ := strings.Cut(text, "\n")
	columns, err := columnIndex(strings.TrimPrefix(header, "# "), " ", serverColumns[:]...)
	if err != nil {
		return nil, fmt.Errorf("show servers state: %w", err)
	}
	var at [len(serverColumns)]int
	for i, name := range serverColumns {
		at[i] = columns.at[name]
	}
	servers := make([]Server, 0, 1+strings.Count(rows, "\n"))
	var fields []string
	for line := range strings.Lines(rows) {
		if fields = splitBlanks(line, fields[:0]); len(fields) == 0 {
			continue
		}
		if len(fields) < columns.min {
			return nil, fmt.Errorf("show servers state: short line %.120q", line)
		}
		var numbers [len(serverColumns)]int
		for i := firstNumber; i < len(at); i++ {
			if numbers[i], err = strconv.Atoi(fields[at[i]]); err != nil {
				return nil, fmt.Errorf("show servers state: %s: %w", serverColumns[i], err)
			}
		}
		s := Server{
			Backend: fields[at[0]], Name: fields[at[1]], ID: numbers[3], Admin: numbers[5], Weight: numbers[6], Check: numbers[7],
			Operation: numbers[8], Result: numbers[9],
		}
		if addr, e := netip.ParseAddr(fields[at[2]]); e == nil && numbers[4] > 0 && numbers[4] <= 65535 {
			s.Address = netip.AddrPortFrom(addr, uint16(numbers[4]))
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// serverColumns are the columns of `show servers state` that matter, those with numbers last.
var serverColumns = [...]string{
	"be_name", "srv_name", "srv_addr", "srv_id", "srv_port", "srv_admin_state", "srv_uweight", "srv_check_state", "srv_op_state", "srv_check_result",
}

const firstNumber = 3

// splitBlanks appends the words of a line of ASCII to words.
func splitBlanks(line string, words []string) []string {
	for begin, i := 0, 0; i <= len(line); i++ {
		if i < len(line) && line[i] > ' ' {
			continue
		}
		if i > begin {
			words = append(words, line[begin:i])
		}
		begin = i + 1
	}
	return words
}

// ParseSessions reads the server lines of `show stat <backend> 4 -1` and returns the current sessions of each server.
// (`show servers conn` is no measure: its used_cur stays 0 for connections in TCP mode on 2.6.)
func ParseSessions(text string) (map[string]int, error) {
	header, rows, _ := strings.Cut(text, "\n")
	columns, err := columnIndex(strings.TrimPrefix(header, "# "), ",", "svname", "scur", "qcur")
	if err != nil {
		return nil, fmt.Errorf("show stat: %w", err)
	}
	sessions := map[string]int{}
	for line := range strings.Lines(rows) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		fields := strings.Split(line, ",")
		if len(fields) < columns.min {
			return nil, fmt.Errorf("show stat: short line %.120q", line)
		}
		total := 0
		for _, name := range []string{"scur", "qcur"} {
			n, err := strconv.Atoi(fields[columns.at[name]])
			if err != nil || n < 0 {
				return nil, fmt.Errorf("show stat: %s is %q", name, fields[columns.at[name]])
			}
			total += n
		}
		sessions[fields[columns.at["svname"]]] += total
	}
	return sessions, nil
}

// ParseBackends reads the answer of `show backend`.
func ParseBackends(text string) map[string]bool {
	backends := map[string]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			backends[line] = true
		}
	}
	return backends
}

type columnsOf struct {
	at  map[string]int
	min int // fields a line must have
}

func columnIndex(header, separator string, names ...string) (columnsOf, error) {
	c := columnsOf{at: map[string]int{}}
	for i, name := range strings.Split(header, separator) {
		c.at[strings.TrimSpace(name)] = i
	}
	for _, name := range names {
		i, ok := c.at[name]
		if !ok {
			return c, fmt.Errorf("no column %s in %.120q", name, header)
		}
		c.min = max(c.min, i+1)
	}
	return c, nil
}
