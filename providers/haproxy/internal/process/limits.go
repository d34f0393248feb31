package process

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// OpenFiles returns the hard limit of open files of the haproxy with this process id; ok is false where that cannot be read, or is another program, as
// a process id means another process in another container.
func OpenFiles(pid int) (limit int, ok bool) {
	at := fmt.Sprintf("/proc/%d/", pid)
	name, err := os.ReadFile(at + "comm")
	if err != nil || strings.TrimSpace(string(name)) != "haproxy" {
		return 0, false
	}
	text, err := os.ReadFile(at + "limits")
	if err != nil {
		return 0, false
	}
	return parseLimit(string(text))
}

// parseLimit reads the hard limit of open files out of /proc/<pid>/limits (proc(5)).
func parseLimit(text string) (limit int, ok bool) {
	for line := range strings.Lines(text) {
		rest, is := strings.CutPrefix(line, "Max open files")
		if fields := strings.Fields(rest); is && len(fields) >= 2 {
			if fields[1] == "unlimited" {
				return math.MaxInt, true
			}
			limit, err := strconv.Atoi(fields[1])
			return limit, err == nil
		}
	}
	return 0, false
}

// FreeFiles returns how many more files all processes of this host may open; ok is false where the kernel does not say.
func FreeFiles() (free int, ok bool) {
	text, err := os.ReadFile("/proc/sys/fs/file-nr")
	if err != nil {
		return 0, false
	}
	fields := strings.Fields(string(text)) // taken, unused, most
	if len(fields) != 3 {
		return 0, false
	}
	used, err1 := strconv.Atoi(fields[0])
	most, err2 := strconv.Atoi(fields[2])
	return most - used, err1 == nil && err2 == nil
}

// Globals is what the administrator's global sections say of limits; zero is nothing.
type Globals struct {
	MaxConn    int
	HardLimit  int  // fd-hard-limit
	Unenforced bool // no strict-limits: a worker that gets too few starts all the same
	Uncertain  bool // a file could not be read, or has conditions or variables
}

// Globals reads the administrator's files, those in our directory included. The last word counts, as for haproxy.
func (f Files) Globals() Globals {
	var g Globals
	files := slices.Clone(f.Admin)
	beside, _ := filepath.Glob(filepath.Join(f.Dir, "*.cfg"))
	for _, path := range slices.Sorted(slices.Values(beside)) {
		if path != f.Path() {
			files = append(files, path)
		}
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			g.Uncertain = true
			continue
		}
		g.read(string(text))
	}
	return g
}

// sections are the words that begin one.
var sections = []string{
	"global", "defaults", "frontend", "backend", "listen", "peers", "resolvers", "mailers", "userlist", "cache", "program", "ring", "http-errors",
	"fcgi-app", "log-forward", "crt-store", "traces", "log-profile", "acme",
}

func (g *Globals) read(text string) {
	global := false
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if strings.HasPrefix(words[0], ".if") {
			g.Uncertain = true
		}
		if slices.Contains(sections, words[0]) {
			global = words[0] == "global"
			continue
		}
		if !global {
			continue
		}
		number := func(into *int) {
			if len(words) < 2 {
				return
			}
			n, err := strconv.Atoi(words[1])
			if err != nil {
				g.Uncertain = true
				return
			}
			*into = n
		}
		switch words[0] {
		case "maxconn":
			number(&g.MaxConn)
		case "fd-hard-limit":
			number(&g.HardLimit)
		case "no":
			g.Unenforced = g.Unenforced || len(words) > 1 && words[1] == "strict-limits"
		case "strict-limits":
			g.Unenforced = false
		}
	}
}
