package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// dialect is the command line of one version of HAProxy, with its rules: what it does to a client that breaks one. Those of 2.6 are what the real
// one does in the tests beside; of later ones there is none here.
type dialect struct {
	version string
	// onePromptALine: commands joined by ";" are answered with one prompt; before 3.2 with one for each.
	onePromptALine bool
	// firstLineOnly: of what is sent at once without a prompt, only the first line is read.
	firstLineOnly bool
	// stalls: reads no more when more commands or bytes wait unanswered than a buffer holds.
	stalls bool
	// tooLong is the answer to a line of a buffer or more; empty is silence.
	tooLong string
	// deleted and unknown are answers that differ.
	deleted, unknown string
	// wait says that it has the command.
	wait bool
}

var dialects = map[string]dialect{
	"2.6": {version: "2.6.12-1+deb12u4", deleted: "[6]: Server deleted.\n", unknown: "[6]: Unknown command, but maybe one of the following ones is a better match:\n"},
	"3.0": {
		version: "3.0.5-8e879a5", firstLineOnly: true, tooLong: "[3]: The command line is too big for the buffer size.\n",
		deleted: "[6]: Server deleted.\n", unknown: "[6]: Unknown command: 'x'\n", wait: true,
	},
	"3.2": {
		version: "3.2.0-e134140", onePromptALine: true, firstLineOnly: true, stalls: true, tooLong: help26,
		deleted: "[4]: Server b/s is going DOWN for maintenance.\n[6]: Server deleted.\n", unknown: "[6]: Unknown command: 'x'\n", wait: true,
	},
	"3.4": {
		version: "3.4.0-80ea565fd", onePromptALine: true, firstLineOnly: true, tooLong: help26,
		deleted: "[4]: Server b/s is going DOWN for maintenance. 0 active\n[4]: backend 'b' has no server available!\n[6]: Server deleted.\n",
		unknown: "[6]: Unknown command: 'x'\n", wait: true,
	},
}

// bufferSize is tune.bufsize: what a line must stay below.
const bufferSize = 16384

// commandLine is a scripted HAProxy of a dialect.
type commandLine struct {
	dialect
	t    *testing.T
	path string
	mu   sync.Mutex
	done []string // commands that it carried out
}

func speak(t *testing.T, d dialect) *commandLine {
	t.Helper()
	dir, err := os.MkdirTemp("", "npl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &commandLine{dialect: d, t: t, path: filepath.Join(dir, "s")}
	l, err := net.Listen("unix", c.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(conn)
		}
	}()
	return c
}

func (c *commandLine) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1<<20)
	interactive, marked := false, false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		waiting := in.Buffered()
		if c.stalls && (waiting > bufferSize || waiting/len(line) > windowCommands) {
			c.t.Errorf("%d bytes are sent ahead of an answer; this version would stall", waiting)
			return
		}
		var out strings.Builder
		joined := strings.Split(strings.TrimSuffix(line, "\n"), ";")
		if len(line) >= bufferSize {
			joined = nil
			out.WriteString(c.tooLong)
		}
		for i, command := range joined {
			answer := c.answer(command)
			if !marked && strings.HasPrefix(answer, "[") {
				_, answer, _ = strings.Cut(answer, "]: ")
			}
			switch command {
			case "prompt":
				interactive = true
			case "set severity-output number":
				marked = true
			}
			out.WriteString(answer + "\n")
			if interactive && (i == len(joined)-1 || !c.onePromptALine) {
				out.WriteString("> ")
			}
		}
		if _, err := conn.Write([]byte(out.String())); err != nil {
			return
		}
		if !interactive && (c.firstLineOnly || waiting == 0) {
			return
		}
	}
}

func (c *commandLine) answer(command string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	words := strings.Fields(command)
	switch {
	case command == "prompt", strings.HasPrefix(command, "set severity-output"):
		return ""
	case command == "show info":
		return strings.Replace(infoText, "2.6.12-1+deb12u4", c.version, 1) + "\n"
	case command == "show servers state b":
		return serversText
	case command == "help":
		if c.wait {
			return help30
		}
		return help26
	case command == "add server help":
		return noKeywords
	case words[0] == "add":
		c.done = append(c.done, command)
		return "[6]: New server registered.\n"
	case words[0] == "del":
		c.done = append(c.done, command)
		return c.deleted
	case words[0] == "set", words[0] == "enable", words[0] == "shutdown":
		c.done = append(c.done, command)
		return ""
	case words[0] == "wait" && c.wait:
		return "[6]: Done.\n"
	}
	return c.unknown
}

// TestTrapVersionsAnswerDifferently: joined lines, lines sent ahead, lines that are too long and warnings before an answer are not what they were from one version
// to the next. One session speaks to all of them.
func TestTrapVersionsAnswerDifferently(t *testing.T) {
	for name, d := range dialects {
		t.Run(name, func(t *testing.T) {
			c := speak(t, d)
			s, answers, err := Begin(t.Context(), Unix(c.path), []Command{Ask("show servers state b")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			if servers, err := ParseServers(answers[0].Text); err != nil || len(servers) != 3 {
				t.Errorf("%d servers, %v", len(servers), err)
			}
			var commands []Command
			for i := range 3000 {
				commands = append(commands, Ready("b", fmt.Sprintf("10.0.0.1:%d_0f4c5b6e-0000-4000-8000-%012d", i, i)))
			}
			commands = append(commands, DeleteServer("b", "s"), Command{Text: "x"})
			results, err := s.Run(t.Context(), commands)
			if err != nil || len(results) != len(commands) {
				t.Fatalf("%d results, %v", len(results), err)
			}
			for i, r := range results[:len(results)-1] {
				if r.Err != nil || r.Text != "" && i < 3000 {
					t.Fatalf("%s: %q, %v", commands[i].Text, r.Text, r.Err)
				}
			}
			if refused, is := errors.AsType[*RefusedError](results[len(results)-1].Err); !is || !strings.Contains(refused.Answer, "Unknown command") {
				t.Errorf("an unknown command: %+v", results[len(results)-1])
			}
			if len(c.done) != 3001 {
				t.Errorf("it carried out %d commands of 3001", len(c.done))
			}
			if f, err := s.Features(t.Context()); err != nil || f.WaitRemovable != d.wait {
				t.Errorf("%+v, %v", f, err)
			}
			long := Command{Text: strings.Repeat("x", bufferSize)}
			if _, err := s.Run(t.Context(), []Command{long}); err == nil {
				t.Error("a line longer than the buffer was sent")
			}
		})
	}
}

// TestTooOld: below the floor it is said which version it is and what to do, and nothing but reading was asked of it.
func TestTooOld(t *testing.T) {
	c := speak(t, dialect{version: "2.4.22-0ubuntu0.22.04.3"})
	_, err := Open(t.Context(), Unix(c.path))
	if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "2.4") || !strings.Contains(err.Error(), "2.6 or later") {
		t.Errorf("%v", err)
	}
	if len(c.done) > 0 {
		t.Errorf("it was changed: %q", c.done)
	}
}
