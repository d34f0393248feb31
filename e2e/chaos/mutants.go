package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/e2e/chaos/script"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// mutant is a build of nplbridge that breaks an invariant.
type mutant struct {
	name    string
	program string // below cmd
	edits   []edit
	steps   []script.Step
	caught  []string // parts of what a run says of it, any of which will do
}

// edit replaces a text that a file must have exactly once.
type edit struct{ file, from, to string }

var theMutants = []mutant{
	{
		name: "npl-agent without cool-down", program: "npl-agent",
		edits: []edit{{"agent/internal/ports/ports.go", "if !now.Before(c.until) && confirmed(k) {", "if true || c.until.IsZero() {"}},
		steps: []script.Step{{Action: "exhaustion"}}, caught: []string{"and the cool-down is", "I3:"},
	},
	{
		name: "npl-agent that publishes before it programs", program: "npl-agent",
		edits: []edit{
			{"agent/internal/loop/sync.go", "if !e.programmed() || e.ends() {", "if e.ends() {"},
			// The wait stands for the API server's answer.
			{"agent/internal/loop/sync.go", "	kernelErr := l.program(now)\n", "	l.publisher.Set(l.desired(v, l.held()))\n	time.Sleep(250 * time.Millisecond)\n	kernelErr := l.program(now)\n"},
		},
		steps: []script.Step{{Action: "scale"}}, caught: []string{"I1:"},
	},
	{
		name: "lbsync without the ownership check", program: "lbsync",
		edits: []edit{
			{"providers/bigip/names.go", "return m.get(markCluster) == n.owner.ClusterUID && m.get(markInstance) == n.owner.Instance", "return true"},
			{"providers/bigip/inventory.go", "if !ok || p.Name != d.names.pool(k) {", "if !ok {"}, // the name is made of the owner, too
		},
		steps: []script.Step{{Action: "lbsync-kill"}}, caught: []string{"I5:"},
	},
}

// withoutRedispatch returns the programs with an lbsync, in a directory of its own, whose HAProxy tries nothing a second time.
func withoutRedispatch(ctx context.Context, programs lab.Programs) (lab.Programs, error) {
	m := mutant{
		name: "lbsync without redispatch", program: "lbsync",
		edits: []edit{
			{"providers/haproxy/internal/config/render.go", `"    option redispatch 1"`, `"    no option redispatch"`},
			{"providers/haproxy/internal/config/render.go", `"    retries 3"`, `"    retries 0"`},
		},
	}
	var err error
	if programs == (lab.Programs{}) {
		if programs, err = lab.Built(); err != nil {
			return programs, err
		}
	}
	dir, err := os.MkdirTemp("", "nplbridge-lbsync-")
	if err != nil {
		return programs, err
	}
	programs.LBSync = filepath.Join(dir, m.program)
	if err := m.build(ctx, dir, programs.LBSync); err != nil {
		return programs, errors.Join(err, os.RemoveAll(dir))
	}
	return programs, nil
}

// CheckMutants makes every mutant and a run with it, which must find what it breaks.
func CheckMutants(ctx context.Context, out io.Writer) error {
	var missed []error
	for _, m := range theMutants {
		began := time.Now()
		what, err := m.run(ctx)
		if err != nil {
			missed = append(missed, fmt.Errorf("%s: %w", m.name, err))
			fmt.Fprintf(out, "%6.1f s  %s: %v\n", time.Since(began).Seconds(), m.name, err)
			continue
		}
		fmt.Fprintf(out, "%6.1f s  caught: %s\n          %s\n", time.Since(began).Seconds(), m.name, what)
	}
	return errors.Join(missed...)
}

// run returns what was found of the mutant.
func (m mutant) run(ctx context.Context) (found string, err error) {
	dir, err := os.MkdirTemp("", "nplbridge-mutant-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	programs, err := lab.Built()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, m.program)
	if err := m.build(ctx, dir, program); err != nil {
		return "", err
	}
	if m.program == "lbsync" {
		programs.LBSync = program
	} else {
		programs.NPLAgent = program
	}
	var log bytes.Buffer
	r, err := Run(ctx, Options{Steps: m.steps, Small: true, Programs: programs, Out: &log})
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, &log)
	}
	for _, failure := range r.Failures {
		for _, part := range m.caught {
			if strings.Contains(failure, part) {
				line, _, _ := strings.Cut(failure, "\n")
				return line, nil
			}
		}
	}
	return "", fmt.Errorf("not caught; the run said %q", r.Failures)
}

// build makes the program with the edits, by files that are laid over those of the repository.
func (m mutant) build(ctx context.Context, dir, program string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	replaced := map[string]string{}
	for i, e := range m.edits {
		path := filepath.Join(strings.TrimSpace(string(root)), e.file)
		source := path
		if before, again := replaced[path]; again {
			source = before
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		if n := strings.Count(string(content), e.from); n != 1 {
			return fmt.Errorf("%s has %q %d times, not once: tell the mutant how it reads now", e.file, e.from, n)
		}
		replaced[path] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(replaced[path], []byte(strings.Replace(string(content), e.from, e.to, 1)), 0o600); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", file, "-o", program, "./cmd/"+m.program)
	build.Dir = strings.TrimSpace(string(root))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", m.name, err, out)
	}
	return nil
}
