package winnat

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
)

// transcript is a PowerShell that has answered already: a file in testdata. ">" begins a line of a script, without the prelude; "<" one
// that was answered, "!" how the process ended. Blank lines and lines beginning with "#" are for people. The form of the answers is that of
// Microsoft's documentation of the NetNat cmdlets and of ConvertTo-Json; they were not recorded on Windows.
type transcript struct {
	t     *testing.T
	lines []string
}

func (r *transcript) Run(_ context.Context, script string) (string, error) {
	r.t.Helper()
	for line := range strings.Lines(strings.TrimPrefix(script, prelude)) {
		if len(r.lines) == 0 || r.lines[0] != "> "+strings.TrimSuffix(line, "\n") {
			r.t.Fatalf("script has\n> %sthe transcript %q", line, r.lines)
		}
		r.lines = r.lines[1:]
	}
	var out strings.Builder
	for ; len(r.lines) > 0 && strings.HasPrefix(r.lines[0], "<"); r.lines = r.lines[1:] {
		out.WriteString(strings.TrimPrefix(strings.TrimPrefix(r.lines[0], "<"), " ") + "\r\n")
	}
	if len(r.lines) > 0 && strings.HasPrefix(r.lines[0], "!") {
		err := errors.New(strings.TrimPrefix(r.lines[0], "! "))
		r.lines = r.lines[1:]
		return out.String(), err
	}
	return out.String(), nil
}

// TestTranscripts plays a Load for every file, and then what is named here.
func TestTranscripts(t *testing.T) {
	both := targets{tcp(40000): to("10.244.1.5:8080"), udp(40001): to("10.244.1.6:53")}
	cases := map[string]struct {
		ours    targets // as an earlier process wrote them to the file
		want    targets // that Load returns
		is      error
		message string
		then    func(*NAT) error
	}{
		"one":           {ours: both, want: targets{tcp(40000): to("10.244.1.5:8080")}},
		"several":       {ours: both, want: both},
		"none":          {ours: both, want: targets{}},
		"no-nat":        {is: dataplane.ErrUnsupported, message: "New-NetNat"},
		"no-feature":    {is: dataplane.ErrUnsupported, message: "Invalid class"},
		"denied":        {is: dataplane.ErrPermission, message: "Zugriff verweigert"},
		"cut-off":       {message: `answered 1 of 2 commands; it wrote "npl:0:`},
		"killed":        {message: "exit status 1"},
		"not-as-agreed": {message: "what PowerShell wrote"},
		"change": {ours: both, want: both, then: func(n *NAT) error {
			return n.Apply(dataplane.Change{
				Set: targets{tcp(40000): to("10.244.1.7:8080"), tcp(40002): to("10.244.1.6:443")}, Delete: []dataplane.Key{udp(40001)},
				Cool: map[dataplane.Key]time.Duration{udp(40001): time.Minute},
			})
		}},
		"refused": {want: targets{}, then: func(n *NAT) error {
			return n.Apply(dataplane.Change{Set: targets{tcp(40000): to("10.244.1.5:8080"), tcp(40001): to("10.244.1.5:8081")}})
		}, is: dataplane.ErrPortBusy, message: "node port 40000/tcp IPv4: adding a static mapping to 10.244.1.5:8080: Sie konnten nicht verbunden werden"},
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != len(cases) {
		t.Fatalf("%d files, %d cases, %v", len(files), len(cases), err)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			r := &transcript{t: t}
			for line := range strings.Lines(string(content)) {
				if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#") {
					r.lines = append(r.lines, line)
				}
			}
			dir := t.TempDir()
			n, err := Open(Config{ClusterUID: "uid", Dir: dir, Runner: r, Probe: func(dataplane.Key) error { return nil }})
			if err != nil {
				t.Fatal(err)
			}
			written := state{ours: map[mapping]bool{}}
			for k, target := range c.ours {
				written.ours[mapping{k, target}] = true
			}
			if err := n.file.write(written); err != nil {
				t.Fatal(err)
			}
			s, err := n.Load()
			if c.want != nil && (err != nil || !maps.Equal(s.Mappings, c.want)) {
				t.Fatalf("loaded %v, %v; want %v", s.Mappings, err, c.want)
			}
			if c.then != nil {
				err = c.then(n)
			}
			if failed := err != nil; failed != (c.message != "") || c.is != nil && !errors.Is(err, c.is) || failed && !strings.Contains(err.Error(), c.message) {
				t.Errorf("got %v, want %v and %q", err, c.is, c.message)
			}
			if len(r.lines) > 0 {
				t.Errorf("not played: %q", r.lines)
			}
		})
	}
}
