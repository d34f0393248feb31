// Package runtime speaks HAProxy's command line protocol over unix sockets: the Runtime API of a worker, and the
// command line of the master process. It knows the protocol's framing and the text formats; it knows nothing of
// pools or Services. Facts are of HAProxy 2.6, the oldest version it accepts.
package runtime

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Limits of one window of pipelined commands. HAProxy reads at most tune.bufsize (16 KiB) at once, and 3.2 stalls on
// unbounded pipelining; a window this small works on every version.
const (
	windowCommands = 100
	windowBytes    = 8 << 10
	maxReply       = 256 << 20
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
// short-lived by design: after a reload a connection stays with the old worker, where writes succeed and vanish.
type Session struct {
	at   Endpoint
	conn net.Conn
	in   *bufio.Reader
	info Info
}

// Dial connects to the admin socket at path and checks the version.
func Dial(ctx context.Context, path string) (*Session, error) { return Open(ctx, Unix(path)) }

// Open connects to a command line and checks the version.
func Open(ctx context.Context, at Endpoint) (*Session, error) {
	conn, err := at.Dial(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{at: at, conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	if err := s.greet(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return s, nil
}

// greet makes the connection interactive and asks which worker is at its other end.
func (s *Session) greet(ctx context.Context) error {
	results, err := s.Run(ctx, []Command{
		{Text: "prompt", Expect: Silence},
		{Text: "set severity-output number", Expect: Silence},
		{Text: "show info", Expect: Data},
	})
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	if s.info, err = ParseInfo(results[2].Text); err != nil {
		return err
	}
	return s.info.Version.supported()
}

// Info is what the worker said of itself when the session began.
func (s *Session) Info() Info { return s.info }

// Close ends the connection.
func (s *Session) Close() { _ = s.conn.Close() }

// Result is the outcome of one command: its answer, or Err when HAProxy refused it.
type Result struct {
	Text string
	Err  error
}

// Run sends the commands in order and returns one Result for each. A non-nil error means that the connection
// failed: the results of the commands that were not answered are unknown, and so is whether they took effect.
func (s *Session) Run(ctx context.Context, commands []Command) ([]Result, error) {
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
	var out bytes.Buffer
	for len(results) < len(commands) {
		if err := ctx.Err(); err != nil {
			return results, err
		}
		out.Reset()
		window := 0
		for _, c := range commands[len(results):] {
			if window == windowCommands || window > 0 && out.Len()+len(c.Text) >= windowBytes {
				break
			}
			if err := c.valid(); err != nil {
				return results, err
			}
			out.WriteString(c.Text)
			out.WriteByte('\n')
			window++
		}
		if _, err := s.conn.Write(out.Bytes()); err != nil {
			return results, fmt.Errorf("sending %q: %w", commands[len(results)].Text, err)
		}
		for range window {
			c := commands[len(results)]
			answer, err := readReply(s.in)
			if err != nil {
				return results, fmt.Errorf("waiting for the answer to %q: %w", c.Text, err)
			}
			results = append(results, c.judge(answer))
		}
	}
	return results, nil
}

// Current returns ErrStale unless this session's worker is still the one that a new connection reaches. Call it
// after a batch: together with Dial it brackets the batch.
func (s *Session) Current(ctx context.Context) error {
	results, err := s.Run(ctx, []Command{{Text: "show info", Expect: Data}})
	if err != nil {
		return errors.Join(ErrStale, err)
	}
	if results[0].Err != nil {
		return results[0].Err
	}
	info, err := ParseInfo(results[0].Text)
	if err != nil {
		return err
	}
	if info.Stopping {
		return ErrStale
	}
	fresh, err := Open(ctx, s.at)
	if err != nil {
		return err
	}
	defer fresh.Close()
	if fresh.info.Worker != s.info.Worker || fresh.info.Stopping {
		return ErrStale
	}
	return nil
}

// readReply reads one answer up to and including the prompt, "\n> ", and returns it without the prompt and without
// surrounding newlines.
func readReply(in *bufio.Reader) (string, error) {
	var reply strings.Builder
	for {
		line, err := in.ReadSlice('\n')
		reply.Write(line)
		if reply.Len() > maxReply {
			return "", fmt.Errorf("answer longer than %d bytes", maxReply)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue // the rest of the line follows
		}
		if err != nil {
			return "", err
		}
		next, err := in.Peek(2)
		if err != nil {
			return "", err
		}
		if string(next) == "> " {
			_, _ = in.Discard(2)
			return strings.Trim(reply.String(), "\n"), nil
		}
	}
}

// Environment returns a variable of the worker's environment, "" when it has none of that name.
func (s *Session) Environment(ctx context.Context, name string) (string, error) {
	results, err := s.Run(ctx, []Command{Ask("show env " + name)})
	if err != nil {
		return "", err
	}
	var refused *RefusedError
	if errors.As(results[0].Err, &refused) && strings.Contains(refused.Answer, "Variable not found") {
		return "", nil
	}
	value, _ := strings.CutPrefix(results[0].Text, name+"=")
	return value, results[0].Err
}
