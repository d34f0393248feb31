package stories

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/nplbridge/nplbridge/e2e/view"
)

// fingerprint is everything that a restart must not change: annotations, the Pods' elements of the nftables maps, the servers of the pool, and how
// often npl-agent and lbsync wrote to the API server.
func (s *story) fingerprint(service string) (string, error) {
	var b strings.Builder
	annotations, err := s.annotations("app=" + service)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "annotations:\n%s\n", strings.Join(annotations, "\n"))
	pods, err := s.podIPs("app=" + service)
	if err != nil {
		return "", err
	}
	for _, node := range s.Lab.Nodes() {
		rules, err := s.ruleset(node)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s:\n%s\n", node, strings.Join(mapElements(rules, pods), "\n"))
	}
	servers, err := s.Servers(service)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "haproxy:\n%s\n", strings.Join(servers, "\n"))
	writes, err := s.writes()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "writes to the API server: %s\n", writes)
	return b.String(), nil
}

var element = regexp.MustCompile(`(tcp|udp|sctp) \. \d+ : \S+ \. \d+`)

// mapElements returns the map elements of a listing that lead to these addresses, sorted: the kernel lists them in an order of its own.
// Others belong to Pods of the story before, which may go at any time.
func mapElements(ruleset string, to []string) []string {
	found := slices.DeleteFunc(element.FindAllString(ruleset, -1), func(e string) bool {
		return !slices.ContainsFunc(to, func(ip string) bool { return strings.Contains(e, ": "+ip+" . ") })
	})
	slices.Sort(found)
	return found
}

// writes counts what the chart's ServiceAccounts wrote, from the audit log of the API server. Events, Leases and
// ConfigMaps, lbsync's own watermarks and what each process has applied, do not count: they say that a component lives.
func (s *story) writes() (string, error) {
	f, err := os.Open(s.Lab.AuditLog())
	if err != nil {
		return "", err
	}
	defer f.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var entry struct {
			Stage, Verb string
			User        struct{ Username string }
			ObjectRef   struct{ Resource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			continue // the API server is in the middle of writing this line
		}
		account, ours := strings.CutPrefix(entry.User.Username, "system:serviceaccount:"+systemNamespace+":")
		reading := slices.Contains([]string{"get", "list", "watch"}, entry.Verb)
		sign := slices.Contains([]string{"events", "leases", "configmaps"}, entry.ObjectRef.Resource)
		if ours && entry.Stage == "ResponseComplete" && !reading && !sign {
			counts[account+" "+entry.Verb+" "+entry.ObjectRef.Resource]++
		}
	}
	text, err := json.Marshal(counts) // sorts the keys
	return string(text), err
}

// quiet waits until nobody of ours has written for a second.
func (s *story) quiet(_ *testscript.TestScript, _ []string) (string, error) {
	last, since := "", time.Now()
	return "", view.Poll(s.ctx, func() error {
		now, err := s.writes()
		if err != nil {
			return err
		}
		if now != last {
			last, since = now, time.Now()
		}
		if calm := time.Since(since); calm < time.Second {
			return fmt.Errorf("the last write was %v ago", calm)
		}
		return nil
	})
}
