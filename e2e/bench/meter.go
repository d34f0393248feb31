package bench

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// meter is a socket in front of HAProxy's: it passes connections on, and counts them and what is said on them.
type meter struct {
	to                          string
	connections, sent, received atomic.Int64
}

// newMeter listens at path until the returned listener is closed.
func newMeter(path, to string) (*meter, net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("a socket in front of %s: %w", to, err)
	}
	m := &meter{to: to}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			m.connections.Add(1)
			go m.pass(client)
		}
	}()
	return m, listener, nil
}

// pass ends when either side does.
func (m *meter) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", m.to)
	if err != nil {
		return // the client is told as much
	}
	defer server.Close()
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, counted{server, &m.received})
	}()
	_, _ = io.Copy(server, counted{client, &m.sent})
}

// spoken is what a meter has counted.
type spoken struct{ connections, sent, received int64 }

func (m *meter) read() spoken {
	return spoken{m.connections.Load(), m.sent.Load(), m.received.Load()}
}

func (s spoken) since(before spoken) spoken {
	return spoken{s.connections - before.connections, s.sent - before.sent, s.received - before.received}
}

func (s spoken) String() string {
	return fmt.Sprintf("%d, %s and %s", s.connections, kib(s.sent), kib(s.received))
}

func kib(bytes int64) string { return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10)) }
