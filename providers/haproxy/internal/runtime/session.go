// Package runtime speaks HAProxy's command line protocol over unix sockets: the Runtime API of a worker, and the
// command line of the master process. It knows the protocol's framing and the text formats; it knows nothing of
// pools or Services. Facts are of HAProxy 2.6, the oldest version it accepts.
package runtime

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// Limits of one window of pipelined commands. HAProxy reads at most tune.bufsize (16 KiB) at once, and 3.2 stalls on
// unbounded pipelining; a window this small works on every version.
const (
	windowCommands = 100
	windowBytes    = 8 << 10
)

// callTimeout bounds one Session call whose context has no earlier deadline.
const callTimeout = 10 * time.Second

// ErrStale says that the worker behind the connection is not, or no longer, the one that serves new connections:
// what was written to it may have been lost.
var ErrStale = errors.New("haproxy was reloaded meanwhile: the connection belongs to an old worker")

// RefusedError is HAProxy's own answer that it did not carry out a command.
type RefusedError struct {
	Command string
	Answer  string
}

// Error returns the command and the answer.
func (e *RefusedError) Error() string {
	answer := e.Answer
	if answer == "" {
		answer = "empty answer"
	}
	return fmt.Sprintf("%q: %s", e.Command, answer)
}

// Session is one interactive connection to a worker's admin socket. It is not safe for concurrent use, and it is
// short-lived by design: after a reload a connection stays with the old worker, where writes succeed and vanish. So whatever it sends ends
// with a look at the worker, in the same write: what a worker that is not stopping has answered, it has answered in force.
type Session struct {
	conn net.Conn
	in   replies
	info Info
}

// Dial connects to the admin socket at path and checks the version.
func Dial(ctx context.Context, path string) (*Session, error) { return Open(ctx, Unix(path)) }

// Open connects to a command line and checks the version. The worker may be one that stops: see Info.
func Open(ctx context.Context, at Endpoint) (*Session, error) {
	s, _, err := Begin(ctx, at, nil)
	if errors.Is(err, ErrStale) {
		err = nil
	}
	return s, err
}

// Begin is Open and the first Run in one: the greeting, the commands and the look at the worker leave in one write. The commands go to any version
// and any worker, so they must only read. With ErrStale there is a Session, of a worker that stops; with any other error there is none.
func Begin(ctx context.Context, at Endpoint, reads []Command) (*Session, []Result, error) {
	conn, err := at.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	s := &Session{conn: conn, in: replies{from: conn}}
	results, err := s.exchange(ctx, slices.Concat(greeting, reads, look))
	if err == nil {
		err = cmp.Or(results[0].Err, results[1].Err)
	}
	if err == nil {
		s.info, err = infoOf(results[len(results)-1])
	}
	if err == nil {
		err = s.info.Version.supported()
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	results = results[len(greeting) : len(results)-1]
	if s.info.Stopping {
		return s, results, ErrStale
	}
	return s, results, nil
}

var (
	// greeting makes a connection interactive.
	greeting = []Command{{Text: "prompt"}, {Text: "set severity-output number"}}
	// look asks which worker is at the other end.
	look = []Command{Ask("show info")}
)

func infoOf(answer Result) (Info, error) {
	if answer.Err != nil {
		return Info{}, answer.Err
	}
	return ParseInfo(answer.Text)
}

// Info is what the worker last said of itself.
func (s *Session) Info() Info { return s.info }

// Close ends the connection.
func (s *Session) Close() { _ = s.conn.Close() }

// Result is the outcome of one command: its answer, or Err when HAProxy refused it.
type Result struct {
	Text string
	Err  error
}

// Run sends the commands in order, looks at the worker after them, and returns one Result for each command. ErrStale says that all were answered,
// by a worker that is stopping or gone: what they changed is lost. Any other error means that the connection
// failed: the results of the commands that were not answered are unknown, and so is whether they took effect.
func (s *Session) Run(ctx context.Context, commands []Command) ([]Result, error) {
	results, err := s.exchange(ctx, slices.Concat(commands, look))
	if err != nil {
		if len(results) == len(commands) {
			err = errors.Join(ErrStale, err)
		}
		return results, err
	}
	info, err := infoOf(results[len(commands)])
	results = results[:len(commands)]
	switch {
	case err != nil:
		return results, err
	case info.Stopping || info.Worker != s.info.Worker:
		return results, ErrStale
	}
	return results, nil
}

// exchange sends the commands in order, a window at a time, and returns the answers that came.
func (s *Session) exchange(ctx context.Context, commands []Command) ([]Result, error) {
	deadline := time.Now().Add(callTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := s.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	results := make([]Result, 0, len(commands))
	sent, unanswered := 0, 0 // commands, and bytes of those without an answer
	var out bytes.Buffer
	for len(results) < len(commands) {
		if err := ctx.Err(); err != nil {
			return results, err
		}
		// The next half of a window leaves while HAProxy works on the one before.
		if sent < len(commands) && sent-len(results) <= windowCommands/2 && unanswered <= windowBytes/2 {
			out.Reset()
			for _, c := range commands[sent:] {
				if sent-len(results) == windowCommands || unanswered > 0 && unanswered+len(c.Text) >= windowBytes {
					break
				}
				if err := c.valid(); err != nil {
					return results, err
				}
				out.WriteString(c.Text)
				out.WriteByte('\n')
				sent, unanswered = sent+1, unanswered+len(c.Text)+1
			}
			if out.Len() > 0 {
				if _, err := s.conn.Write(out.Bytes()); err != nil {
					return results, fmt.Errorf("sending %q: %w", commands[len(results)].Text, err)
				}
			}
		}
		c := commands[len(results)]
		answer, err := s.in.next()
		if err != nil {
			return results, fmt.Errorf("waiting for the answer to %q: %w", c.Text, err)
		}
		unanswered -= len(c.Text) + 1
		results = append(results, c.judge(answer))
	}
	return results, nil
}

// AskVariable asks for a variable of the worker's environment; Variable reads the answer.
func AskVariable(name string) Command { return Ask("show env " + name) }

// Variable returns the value in the answer to AskVariable, "" when the worker has no variable of that name.
func Variable(name string, answer Result) (string, error) {
	if refused, is := errors.AsType[*RefusedError](answer.Err); is && strings.Contains(refused.Answer, "Variable not found") {
		return "", nil
	}
	value, _ := strings.CutPrefix(answer.Text, name+"=")
	return value, answer.Err
}

// Environment returns a variable of the worker's environment, "" when it has none of that name.
func (s *Session) Environment(ctx context.Context, name string) (string, error) {
	results, err := s.Run(ctx, []Command{AskVariable(name)})
	if err != nil {
		return "", err
	}
	return Variable(name, results[0])
}
