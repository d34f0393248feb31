package stories

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// talk is one connection that a client keeps.
type talk struct {
	conn  net.Conn
	lines *bufio.Scanner
}

// talk open ADDRESS | talk on | talk end. A client in its own namespace opens one TCP connection, and sends a line on it each time; the answer
// says which Pod gave it. A connection that has ended is an error.
func (s *story) talk(_ *testscript.TestScript, args []string) (string, error) {
	switch {
	case args[0] == "open":
		conn, err := s.Lab.Dial(s.ctx, "client", "tcp", args[1])
		if err != nil {
			return "", err
		}
		s.talking = &talk{conn, bufio.NewScanner(conn)}
	case s.talking == nil:
		return "", errors.New("talk: no connection is open")
	case args[0] == "end":
		err := s.talking.conn.Close()
		s.talking = nil
		return "", err
	}
	if err := s.talking.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(s.talking.conn, "hello"); err != nil {
		return "", err
	}
	if !s.talking.lines.Scan() {
		return "", fmt.Errorf("the connection has ended: %w", cmp.Or(s.talking.lines.Err(), io.EOF))
	}
	return s.talking.lines.Text() + "\n", nil
}
