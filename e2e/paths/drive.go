package paths

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is what a client does with its connections.
type Kind string

// The kinds.
const (
	// Connect opens a connection for each request and closes it after the answer.
	Connect Kind = "connect"
	// Keep sends one request after the other on one connection.
	Keep Kind = "keep"
	// Bulk sends lines of bulkLine bytes on one connection; the answers count as requests.
	Bulk Kind = "bulk"
	// Hold opens a connection for one request, and keeps it until all clients have had their answer: then all are open at once.
	Hold Kind = "hold"
)

const (
	bulkLine = 32 << 10
	patience = 10 * time.Second // of one request
)

// Task is what the clients of one measurement do. They run as a process of their own in the network of a host, see Drive.
type Task struct {
	Target   string // address:port of an echo server, or of what stands in front of it
	Kind     Kind
	Clients  int           // at once
	Requests int           // in all, with Hold one of each client; 0 means until For has passed
	For      time.Duration // 0 means until Requests are done
	Sources  []netip.Addr  // client i takes the i-th of them, again from the first when there are fewer; none leaves it to the kernel
}

// Outcome is what came of a Task.
type Outcome struct {
	Requests, Failed int
	ByPod            map[string]int // answers by Pod name
	ByNode           map[string]int // by the Node of the Pod
	Peers            map[string]int // by the client address, without port, that the Pod saw
	Kept             int            // answers of the same Pod as the client's first one
	Seconds          float64
	P50, P99, P999   time.Duration // of a request, with opening the connection where each has its own
	Error            string        // the first failure
}

// PerSecond is the rate of answers.
func (o Outcome) PerSecond() float64 { return float64(o.Requests-o.Failed) / max(o.Seconds, 1e-9) }

// Ratio is the largest share of a Pod over the smallest of pods Pods; +Inf would be one that got nothing, and is 0.
func (o Outcome) Ratio(pods int) float64 {
	if len(o.ByPod) < pods {
		return 0
	}
	least, most := 0, 0
	for _, n := range o.ByPod {
		if least == 0 || n < least {
			least = n
		}
		most = max(most, n)
	}
	return float64(most) / float64(max(least, 1))
}

// Drive carries out a Task from where this process is.
func Drive(ctx context.Context, t Task) Outcome {
	d := &drive{task: t, left: t.Requests, out: Outcome{ByPod: map[string]int{}, ByNode: map[string]int{}, Peers: map[string]int{}}}
	if t.For > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, t.For)
		defer stop()
	}
	began := time.Now()
	var all sync.WaitGroup
	d.opening.Add(max(1, t.Clients))
	for i := range max(1, t.Clients) {
		all.Go(func() { d.client(ctx, i) })
	}
	all.Wait()
	d.out.Seconds = time.Since(began).Seconds()
	slices.Sort(d.took)
	d.out.P50, d.out.P99, d.out.P999 = quantile(d.took, 0.5), quantile(d.took, 0.99), quantile(d.took, 0.999)
	return d.out
}

type drive struct {
	task    Task
	opening sync.WaitGroup // clients that have made no request yet, with Hold

	mu   sync.Mutex
	left int
	took []time.Duration
	out  Outcome
}

func (d *drive) next() bool {
	if d.task.Requests == 0 {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left--
	return d.left >= 0
}

// client makes requests one after the other; what it saw is counted at its end, so that clients do not wait for each other.
func (d *drive) client(ctx context.Context, i int) {
	c := &client{task: d.task, line: []byte("\n"), byPod: map[string]int{}, byNode: map[string]int{}, peers: map[string]int{}}
	if d.task.Kind == Bulk {
		c.line = []byte(strings.Repeat("x", bulkLine-1) + "\n")
	}
	if len(d.task.Sources) > 0 {
		c.dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(d.task.Sources[i%len(d.task.Sources)], 0))
	}
	defer c.close()
	if d.task.Kind == Hold {
		c.request()
		d.opening.Done()
		d.opening.Wait()
	} else {
		for ctx.Err() == nil && d.next() {
			c.request()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.out.Requests += c.requests
	d.out.Failed += c.failed
	d.out.Kept += c.kept
	if d.out.Error == "" && c.err != nil {
		d.out.Error = c.err.Error()
	}
	for sum, one := range map[*map[string]int]map[string]int{&d.out.ByPod: c.byPod, &d.out.ByNode: c.byNode, &d.out.Peers: c.peers} {
		for name, n := range one {
			(*sum)[name] += n
		}
	}
	d.took = append(d.took, c.took...)
}

// client is one of them.
type client struct {
	task   Task
	dialer net.Dialer
	line   []byte
	conn   net.Conn
	reader *bufio.Reader

	first                  string // the Pod that answered first
	requests, failed, kept int
	byPod, byNode, peers   map[string]int
	took                   []time.Duration
	err                    error
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close() //nolint:errcheck // nothing is to come any more
		c.conn = nil
	}
}

func (c *client) request() {
	began := time.Now()
	answer, err := c.ask()
	c.requests++
	if err != nil {
		c.close()
		c.failed++
		if c.err == nil {
			c.err = err
		}
		return
	}
	c.took = append(c.took, time.Since(began))
	if c.first == "" {
		c.first = answer.Pod
	}
	if c.first == answer.Pod {
		c.kept++
	}
	c.byPod[answer.Pod]++
	c.byNode[answer.Node]++
	c.peers[answer.Peer.Addr().String()]++
}

// reply is the echo server's line.
type reply struct {
	Pod  string         `json:"pod"`
	Node string         `json:"node"`
	Peer netip.AddrPort `json:"peer"`
}

func (c *client) ask() (reply, error) {
	if c.conn == nil {
		ctx, stop := context.WithTimeout(context.Background(), patience) // a request that has begun is finished
		defer stop()
		conn, err := c.dialer.DialContext(ctx, "tcp", c.task.Target)
		if err != nil {
			return reply{}, err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return reply{}, err
	}
	if _, err := c.conn.Write(c.line); err != nil {
		return reply{}, err
	}
	line, err := c.reader.ReadBytes('\n')
	if err != nil {
		return reply{}, fmt.Errorf("reading the answer of %s: %w", c.task.Target, err)
	}
	if c.task.Kind == Connect {
		c.close()
	}
	var r reply
	if err := json.Unmarshal(line, &r); err != nil {
		return reply{}, fmt.Errorf("%s answered what is not the echo server's JSON: %w", c.task.Target, err)
	}
	return r, nil
}

// quantile returns the value that the share q of all, 0 to 1, does not exceed; all is sorted.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[min(len(all)-1, int(float64(len(all))*q))]
}
