package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// written counts what npl-agent and each lbsync wrote to the API server since the last time, from its audit log. Events, Leases and ConfigMaps
// (the watermarks) do not count: they say that a component lives.
func (s *site) written() (map[string]int, error) {
	file, err := os.Open(s.Lab.AuditLog())
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(s.auditRead, io.SeekStart); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return counts, nil // the rest is being written
		}
		s.auditRead += int64(len(line))
		var entry struct {
			Stage, Verb string
			User        struct {
				Username string
				Extra    map[string][]string
			}
			ObjectRef      struct{ Resource, Name string }
			ResponseStatus struct{ Code int }
			RequestObject  json.RawMessage
		}
		if json.Unmarshal(line, &entry) != nil {
			continue
		}
		account, ours := strings.CutPrefix(entry.User.Username, "system:serviceaccount:"+system+":")
		if !ours || entry.Stage != "ResponseComplete" || slices.Contains([]string{"get", "list", "watch"}, entry.Verb) ||
			slices.Contains([]string{"events", "leases", "configmaps"}, entry.ObjectRef.Resource) {
			continue
		}
		if place := s.tokens[strings.Join(entry.User.Extra["authentication.kubernetes.io/credential-id"], "")]; place != "" {
			account = lbsyncOn(place)
		}
		what := fmt.Sprintf("%s %s %s %s", account, entry.Verb, entry.ObjectRef.Resource, entry.ObjectRef.Name)
		if len(entry.RequestObject) > 0 {
			what += " " + string(entry.RequestObject)
		}
		counts[what]++
	}
}

// lbsyncOn is what the lbsync of a place is called.
func lbsyncOn(place string) string { return "lbsync on " + place }

// state is everything that a restart must not change.
type state struct {
	annotations map[string]string
	servers     string
	remote      int // changing calls that the simulators were sent
}

func (s *site) state(ctx context.Context) (state, error) {
	now := state{annotations: map[string]string{}}
	for _, p := range s.watch.list() {
		now.annotations[p.Name] = p.Annotations[npl.Annotation]
	}
	for _, b := range s.Lab.LoadBalancers() {
		servers, err := runtime(ctx, b, "show servers state")
		if err != nil {
			return now, err
		}
		for line := range strings.Lines(servers) {
			f := strings.Fields(line)
			if len(f) <= columnPort || removed(f) {
				continue // it is deleted when nobody is connected any more, restart or not
			}
			now.servers += strings.Join([]string{b.Place(), f[columnBackend], f[columnServer], f[columnAddress], f[columnPort], f[columnAdmin], f[columnWeight]}, " ") + "\n"
		}
	}
	var err error
	now.remote, err = s.remoteChanges()
	return now, err
}

// remoteChanges counts the changing calls that the simulators were sent.
func (s *site) remoteChanges() (n int, err error) {
	for _, simulator := range []interface{ Log() (string, error) }{s.avi, s.bigip} {
		log, err := simulator.Log()
		if err != nil {
			return n, err
		}
		for line := range strings.Lines(log) {
			f := strings.Fields(line)
			if len(f) == 4 && f[1] != "GET" && !strings.Contains(f[3], "login") && !strings.Contains(f[3], "authz") && !strings.Contains(f[3], "/sys/config") {
				n++
			}
		}
	}
	return n, nil
}

// quiet waits until nobody of ours has written to the API server for a while, so that what is late is not blamed on a restart.
func (s *site) quiet(ctx context.Context) error {
	since := time.Now()
	return view.Poll(ctx, func() error {
		counts, err := s.written()
		if err != nil {
			return err
		}
		if len(counts) > 0 {
			since = time.Now()
		}
		if calm := time.Since(since); calm < 1200*time.Millisecond {
			return fmt.Errorf("the last write was %v ago", calm)
		}
		return nil
	})
}

// restart does something that must change nothing (I4), and holds it to that.
func (s *site) restart(ctx context.Context, what string, do func() error) error {
	if err := s.quiet(ctx); err != nil {
		return err
	}
	before, err := s.state(ctx)
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	if err := s.rest(ctx); err != nil {
		return err
	}
	counts, err := s.written()
	if err != nil {
		return err
	}
	after, err := s.state(ctx)
	if err != nil {
		return err
	}
	s.watch.count("I4")
	if len(counts) > 0 {
		s.watch.violate("I4: %s wrote to the API server: %v", what, counts)
	}
	if !maps.Equal(before.annotations, after.annotations) {
		s.watch.violate("I4: %s changed annotations: %v, before %v", what, after.annotations, before.annotations)
	}
	if before.servers != after.servers {
		s.watch.violate("I4: %s changed HAProxy's servers:\n%sbefore:\n%s", what, after.servers, before.servers)
	}
	if before.remote != after.remote {
		s.watch.violate("I4: %s made %d changing calls to the simulators", what, after.remote-before.remote)
	}
	return nil
}
