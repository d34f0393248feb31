package runtime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeWorker is a command line that answers as told, for what a real haproxy does too seldom.
type fakeWorker struct {
	path   string
	mu     sync.Mutex
	most   int                                     // most commands that were sent before an answer was read
	answer func(n int, line string) (string, bool) // n counts the commands, the greeting and looks aside; false hangs up
	look   func(n int) (string, bool)              // what it says of itself, n commands and looks after the greeting; nil: it stays the same
}

func newFake(t *testing.T, answer func(n int, line string) (string, bool)) *fakeWorker {
	t.Helper()
	dir, err := os.MkdirTemp("", "npl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fakeWorker{path: filepath.Join(dir, "s"), answer: answer}
	l, err := net.Listen("unix", f.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *fakeWorker) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	for n, looks := 0, 0; ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		f.mu.Lock()
		f.most = max(f.most, 1+in.Buffered()/len(line))
		f.mu.Unlock()
		text, ok := "", true
		switch line = strings.TrimSpace(line); {
		case line == "prompt", line == "set severity-output number":
		case line == "show info":
			if text = infoText + "\n"; f.look != nil {
				text, ok = f.look(looks)
			}
			looks++
		default:
			text, ok = f.answer(n, line)
			n++
		}
		if !ok {
			return
		}
		if _, err := fmt.Fprintf(c, "%s\n> ", text); err != nil {
			return
		}
	}
}

func (f *fakeWorker) dial(t *testing.T) *Session {
	t.Helper()
	s, err := Dial(t.Context(), f.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func ready(n int) []Command {
	var commands []Command
	for i := range n {
		commands = append(commands, Ready("b", fmt.Sprintf("s%04d", i)))
	}
	return commands
}

func TestRunKeepsOrderAndWindow(t *testing.T) {
	f := newFake(t, func(n int, line string) (string, bool) {
		if n == 150 {
			return "[3]: No such server.\n", true
		}
		return "", true
	})
	results, err := f.dial(t).Run(t.Context(), ready(1000))
	if err != nil || len(results) != 1000 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	for i, r := range results {
		if (r.Err != nil) != (i == 150) {
			t.Errorf("command %d: %v", i, r.Err)
		}
	}
	var refused *RefusedError
	if !errors.As(results[150].Err, &refused) || refused.Answer != "No such server." || !strings.Contains(refused.Command, "s0150") {
		t.Errorf("%v does not say which command was refused and why", results[150].Err)
	}
	if f.most > windowCommands {
		t.Errorf("%d commands were under way, at most %d may be", f.most, windowCommands)
	}
}

func TestPartialBatchIsUnknown(t *testing.T) {
	f := newFake(t, func(n int, _ string) (string, bool) { return "", n < 37 })
	results, err := f.dial(t).Run(t.Context(), ready(300))
	if err == nil || len(results) != 37 {
		t.Errorf("%d results, %v: want the 37 that were answered and an error", len(results), err)
	}
}

func TestAnswersAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		command Command
		answer  string
		ok      bool
	}{
		"silence":            {Ready("b", "s"), "", true},
		"notice":             {Ready("b", "s"), "[4]: changed\n", true},
		"error":              {Ready("b", "s"), "[3]: No such server.\n", false},
		"unknown command":    {Ready("b", "s"), "[6]: Unknown command.\n", false},
		"data":               {Ask("show backend"), "# name\nb\n", true},
		"empty data":         {Ask("show backend"), "", false},
		"refused data":       {Ask("show backend"), "[3]: Permission denied\n", false},
		"added":              {Command{"add server x", Added}, "[6]: New server registered.\n", true},
		"added with warning": {Command{"add server x", Added}, "[4]: careful\n[6]: New server registered.\n", true},
		"not added":          {Command{"add server x", Added}, "", false},
		"deleted":            {DeleteServer("b", "s"), "[6]: Server deleted.\n", true},
		"not deleted":        {DeleteServer("b", "s"), "[3]: Server still has connections\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, func(int, string) (string, bool) { return c.answer, true })
			results, err := f.dial(t).Run(t.Context(), []Command{c.command})
			if err != nil {
				t.Fatal(err)
			}
			if (results[0].Err == nil) != c.ok {
				t.Errorf("%q: %v", c.answer, results[0].Err)
			}
		})
	}
}

func TestCommandsAreOneLine(t *testing.T) {
	f := newFake(t, func(int, string) (string, bool) { return "", true })
	for _, bad := range []string{"", "a\nb", "a;b", "a\rb", strings.Repeat("a", windowBytes)} {
		if _, err := f.dial(t).Run(t.Context(), []Command{{Text: bad}}); err == nil {
			t.Errorf("%.20q was sent", bad)
		}
	}
}

func TestContextEndsACall(t *testing.T) {
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	ctx, cancel := context.WithCancel(t.Context())
	f := newFake(t, func(int, string) (string, bool) { cancel(); <-blocked; return "", false })
	if _, err := f.dial(t).Run(ctx, ready(1)); err == nil {
		t.Error("the call succeeded without an answer")
	}
}

// stops is the answer of a worker that a reload has replaced.
var stops = strings.Replace(infoText, "Stopping: 0", "Stopping: 1", 1) + "\n"

// TestTrapSessionWithAnOldWorker: what a worker answers that is stopping, or that is gone right after, is done nowhere, at whichever end of the batch it shows.
func TestTrapSessionWithAnOldWorker(t *testing.T) {
	another := strings.Replace(infoText, "25776", "25777", 1) + "\n"
	for name, c := range map[string]struct {
		look    func(n int) (string, bool)
		atBegin bool
	}{
		"stopping when the batch begins": {func(int) (string, bool) { return stops, true }, true},
		"stopping after the commands":    {func(n int) (string, bool) { return []string{infoText + "\n", stops}[n], true }, false},
		"gone after the commands":        {func(n int) (string, bool) { return infoText + "\n", n == 0 }, false},
		"another after the commands":     {func(n int) (string, bool) { return []string{infoText + "\n", another}[n], true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, func(int, string) (string, bool) { return "", true })
			f.look = c.look
			s, _, err := Begin(t.Context(), Unix(f.path), []Command{{Text: "show x"}})
			if errors.Is(err, ErrStale) != c.atBegin || err != nil && !c.atBegin {
				t.Fatalf("at the beginning: %v", err)
			}
			t.Cleanup(s.Close)
			if c.atBegin {
				if s, err := Dial(t.Context(), f.path); err != nil || !s.Info().Stopping {
					t.Errorf("Dial does not say that it stops: %v", err)
				}
				return
			}
			if results, err := s.Run(t.Context(), ready(3)); !errors.Is(err, ErrStale) || len(results) != 3 {
				t.Errorf("%d results, %v, want 3 and ErrStale", len(results), err)
			}
		})
	}
}

// TestARoundTripEach: the greeting, reads and the look leave in one write, and so do commands and the look after them.
func TestARoundTripEach(t *testing.T) {
	f := newFake(t, func(_ int, line string) (string, bool) { return line + "\n", true })
	at := &countingEndpoint{Endpoint: Unix(f.path)}
	s, answers, err := Begin(t.Context(), at, []Command{Ask("show a"), Ask("show b")})
	if err != nil || len(answers) != 2 || answers[0].Text != "show a" || answers[1].Text != "show b" {
		t.Fatalf("%+v, %v", answers, err)
	}
	t.Cleanup(s.Close)
	if at.writes != 1 {
		t.Errorf("Begin wrote %d times", at.writes)
	}
	if _, err := s.Run(t.Context(), []Command{Ask("show c"), Ask("show d")}); err != nil || at.writes != 2 {
		t.Errorf("%d writes after Begin and Run, %v", at.writes, err)
	}
}

// countingEndpoint counts what is written to it. A round trip is a write and the waiting for what it asks.
type countingEndpoint struct {
	Endpoint
	writes int
}

func (e *countingEndpoint) Dial(ctx context.Context) (net.Conn, error) {
	conn, err := e.Endpoint.Dial(ctx)
	return &countingConn{conn, e}, err
}

type countingConn struct {
	net.Conn
	at *countingEndpoint
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.at.writes++
	return c.Conn.Write(b)
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	f := newFake(t, func(n int, _ string) (string, bool) { return []string{"a\n" + long + "\nb\n", "[4]: c\n"}[n], true })
	results, err := f.dial(t).Run(t.Context(), []Command{Ask("show x"), Ready("b", "s")})
	if err != nil || results[0].Text != "a\n"+long+"\nb" || results[1].Text != "[4]: c" {
		t.Errorf("%v, %d bytes, then %q", err, len(results[0].Text), results[1].Text)
	}
}
