// Package load is the client of the end-to-end tests: it keeps requesting an echo server through whatever stands
// in front of it, and counts who answered and what failed.
package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// DialFunc opens a connection from wherever the client stands, for example from a network namespace.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// Answer is what the echo server says of itself and of its peer.
type Answer struct {
	Pod  string `json:"pod"`
	UID  string `json:"uid"`
	Node string `json:"node"`
	Peer string `json:"peer"` // address and port that the echo server saw as its client
}

// Options describe a load.
type Options struct {
	// Targets are "address:port", used in turn.
	Targets []string
	// Clients is the number of concurrent clients, at least 1.
	Clients int
	// KeepAlive reuses connections; otherwise every request opens its own.
	KeepAlive bool
	// Timeout of one request.
	Timeout time.Duration
	// Dial opens the connections.
	Dial DialFunc
	// OnAnswer, if set, is called for each answer, by several goroutines.
	OnAnswer func(target string, answer Answer, at time.Time)
}

// Result counts requests.
type Result struct {
	Requests int
	Failed   int
	ByPod    map[string]int // answers per Pod name
	ByNode   map[string]int
	Peers    map[string]int // answers per client address (without port) that the Pod saw
	Failures []string       // the first distinct errors, at most 10
}

// Ratio is the largest share of a Pod over the smallest, 1 when all are equal, 0 without answers.
func (r Result) Ratio() float64 {
	if len(r.ByPod) == 0 {
		return 0
	}
	counts := slices.Collect(maps.Values(r.ByPod))
	return float64(slices.Max(counts)) / float64(slices.Min(counts))
}

// Load is a running load; see Start.
type Load struct {
	opt    Options
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	result Result
	left   int // requests still to start; negative is no limit
	turn   int
}

// Run sends n requests and returns what came of them.
func Run(ctx context.Context, n int, opt Options) Result {
	l := start(ctx, n, opt)
	l.done.Wait()
	return l.Result()
}

// Start sends requests until Stop.
func Start(ctx context.Context, opt Options) *Load { return start(ctx, -1, opt) }

func start(ctx context.Context, n int, opt Options) *Load {
	ctx, cancel := context.WithCancel(ctx)
	l := &Load{opt: opt, cancel: cancel, left: n, result: Result{
		ByPod: map[string]int{}, ByNode: map[string]int{}, Peers: map[string]int{},
	}}
	for range max(1, opt.Clients) {
		l.done.Go(func() { l.client(ctx) })
	}
	return l
}

// Stop lets the requests under way finish and returns the counts.
func (l *Load) Stop() Result {
	l.mu.Lock()
	l.left = 0
	l.mu.Unlock()
	l.done.Wait()
	l.cancel()
	return l.Result()
}

// Result returns a copy of the counts so far.
func (l *Load) Result() Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.result
	r.ByPod, r.ByNode, r.Peers = maps.Clone(r.ByPod), maps.Clone(r.ByNode), maps.Clone(r.Peers)
	r.Failures = slices.Clone(r.Failures)
	return r
}

func (l *Load) client(ctx context.Context) {
	transport := &http.Transport{DialContext: l.opt.Dial, DisableKeepAlives: !l.opt.KeepAlive, MaxIdleConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: l.opt.Timeout}
	for ctx.Err() == nil {
		target, ok := l.next()
		if !ok {
			return
		}
		answer, err := get(ctx, client, target)
		if ctx.Err() != nil {
			return
		}
		if err == nil && l.opt.OnAnswer != nil {
			l.opt.OnAnswer(target, answer, time.Now())
		}
		l.count(answer, err)
	}
}

func (l *Load) next() (target string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		return "", false
	}
	l.left--
	l.turn++
	return l.opt.Targets[l.turn%len(l.opt.Targets)], true
}

func (l *Load) count(answer Answer, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Requests++
	if err != nil {
		l.result.Failed++
		if text := err.Error(); len(l.result.Failures) < 10 && !slices.Contains(l.result.Failures, text) {
			l.result.Failures = append(l.result.Failures, text)
		}
		return
	}
	l.result.ByPod[answer.Pod]++
	l.result.ByNode[answer.Node]++
	if host, _, err := net.SplitHostPort(answer.Peer); err == nil {
		l.result.Peers[host]++
	}
}

func get(ctx context.Context, client *http.Client, target string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/", nil)
	if err != nil {
		return Answer{}, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{}, fmt.Errorf("reading the answer of %s: %w", target, err)
	}
	if resp.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("%s answered %s", target, resp.Status)
	}
	var a Answer
	if err := json.Unmarshal(body, &a); err != nil {
		return Answer{}, fmt.Errorf("%s answered what is not the echo server's JSON: %w", target, err)
	}
	return a, nil
}
