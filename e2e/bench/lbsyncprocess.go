package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nplbridge/nplbridge/lbsync"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// moment is what a process of ServeInMemory tells, one JSON object a line.
type moment struct {
	What string // one of the moments below
	At   time.Time
	// What was sent to the load balancer and to the API server since the process, or the restart, began. Requests for the Lease and the
	// ConfigMaps of the watermark are Coordination and not Written.
	Applications, Steps, Observations int
	Written, Coordination             int64
	// All that was sent to the API server and came from it, the bodies of requests and answers without compression; a watch is one call
	// however much it tells.
	Calls, Sent, Received int64
	Refused               int           // Service ports that the load balancer did not take, at any time since the process began
	Processor             time.Duration // that this process has used since it began
}

const (
	momentCaches    = "caches"    // they hold the cluster
	momentModel     = "model"     // the first complete one: the load balancer is told of all Services at once
	momentApplied   = "applied"   // all members are on the load balancer
	momentRested    = "rested"    // nothing has been written to Kubernetes for a while
	momentSteady    = "steady"    // it was asked for
	momentChanged   = "changed"   // so many members as were asked for have been written since the moment before
	momentRestarted = "restarted" // every Service was looked at by the second Syncer
	momentQuiet     = "quiet"     // and this is what it has written until a while later
)

const (
	lbsyncInstance = "nplbridge-system/nplbridge"
	lbsyncProvider = "memory"
	lbsyncLease    = "nplbridge-lbsync"
)

func lbsyncConfig(identity string) lbsync.Config {
	c := lbsync.DefaultConfig()
	c.Instance, c.Providers, c.Identity = lbsyncInstance, []string{lbsyncProvider}, identity
	c.LeaseNamespace, c.LeaseName = "default", lbsyncLease
	c.AddressPools = []lbsync.AddressPool{{Name: "default", Ranges: []lbsync.AddressRange{{First: lbsyncVIP(0), Last: lbsyncVIP(1 << 16)}}}}
	return c
}

const restAfter = 10 * time.Second

// What a process of ServeInMemory is told, a line each; a number has it wait until as many members were written.
const (
	tellSteady = "steady"
	tellAgain  = "again" // start a second Syncer
)

// ServeInMemory runs lbsync as cmd/lbsync does, but for a load balancer in memory without delay that has to get so many members; when
// everything rests it does what lines from in say, the last of which starts a second Syncer on the same load balancer.
func ServeInMemory(ctx context.Context, kubeconfig string, members int, in io.Reader, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "lbsync-bench"
	config.ContentType = runtime.ContentTypeProtobuf // this and the limits as cmd/lbsync has them
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.QPS, config.Burst = 1000, 2000
	p := &subject{members: members, in: bufio.NewScanner(in), out: json.NewEncoder(out), lb: providertest.NewLoadBalancer(providertest.MemoryCapabilities())}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{p, next} })
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := p.run(ctx, "first", p.first); err != nil {
		return err
	}
	if err := p.run(ctx, "second", p.second); err != nil {
		return err
	}
	p.in.Scan() // it ends when the last moment was read, and the memory beside it
	return p.in.Err()
}

// subject is the process that is measured.
type subject struct {
	members int
	in      *bufio.Scanner
	out     *json.Encoder
	lb      *providertest.LoadBalancer
	client  kubernetes.Interface

	written, coordination, calls, sent, received atomic.Int64
	base                                         moment // counts when the run began

	mu      sync.Mutex
	largest int // number of pools in one call
	modelAt time.Time
	refused int
}

// counter counts what is written to the API server.
type counter struct {
	*subject
	next http.RoundTripper
}

func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.calls.Add(1)
	c.sent.Add(max(0, r.ContentLength))
	if r.Method != http.MethodGet {
		if coordinates(r.URL.Path) {
			c.coordination.Add(1)
		} else {
			c.written.Add(1)
		}
	}
	answer, err := c.next.RoundTrip(r)
	if err == nil {
		answer.Body = counted{answer.Body, &c.received}
	}
	return answer, err
}

// counted counts what is read of an answer.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// coordinates reports whether a request is about the Lease or a ConfigMap of the watermark.
func coordinates(path string) bool {
	return strings.Contains(path, "/leases") || strings.Contains(path, "/configmaps")
}

// recorder notes when the load balancer is told of the most pools at once, and what it did not take.
type recorder struct {
	providers.Provider
	*subject
}

func (r recorder) Apply(ctx context.Context, changes providers.Changes) providers.Results {
	r.mu.Lock()
	if len(changes.Pools) > r.largest {
		r.largest, r.modelAt = len(changes.Pools), time.Now()
	}
	r.mu.Unlock()
	results := r.Provider.Apply(ctx, changes)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range results {
		if err != nil {
			r.refused++
		}
	}
	return results
}

// onLoadBalancer counts the members that are there.
func (p *subject) onLoadBalancer() (n int) {
	if p.lb.Writes() < p.members { // to count them is not free
		return 0
	}
	for _, pool := range p.lb.State().Pools {
		n += len(pool.Members)
	}
	return n
}

// run runs a Syncer until f returns.
func (p *subject) run(ctx context.Context, identity string, f func(context.Context, *lbsync.Syncer) error) error {
	p.base = p.counts()
	provider := recorder{p.lb.Open(providers.Owner{ClusterUID: "bench", Instance: lbsyncInstance}), p}
	defer provider.Close()
	s, err := lbsync.New(lbsyncConfig(identity), p.client, map[string]providers.Provider{lbsyncProvider: provider}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	err = f(ctx, s)
	stop()
	return errors.Join(err, <-ended)
}

func (p *subject) first(ctx context.Context, s *lbsync.Syncer) error {
	if err := until(ctx, s.Checks()[0].Check); err != nil {
		return err
	}
	p.tell(momentCaches, time.Now())
	err := until(ctx, func() error {
		if n := p.onLoadBalancer(); n < p.members {
			return fmt.Errorf("%d of %d members", n, p.members)
		}
		return nil
	})
	if err != nil {
		return err
	}
	now := time.Now()
	p.mu.Lock()
	modelAt := p.modelAt
	p.mu.Unlock()
	p.tell(momentModel, modelAt)
	p.tell(momentApplied, now)
	if err := p.rest(ctx, momentRested); err != nil {
		return err
	}
	return p.obey(ctx)
}

// obey does what lines say until one tells to start anew.
func (p *subject) obey(ctx context.Context) error {
	last := p.lb.Writes()
	for p.in.Scan() {
		switch line := p.in.Text(); line {
		case tellAgain:
			return nil
		case tellSteady:
			p.tell(momentSteady, time.Now())
		default:
			steps, err := strconv.Atoi(line)
			if err != nil {
				return fmt.Errorf("told %q: %w", line, err)
			}
			err = until(ctx, func() error {
				if n := p.lb.Writes() - last; n < steps {
					return fmt.Errorf("%d of %d members written", n, steps)
				}
				return nil
			})
			if err != nil {
				return err
			}
			p.tell(momentChanged, time.Now())
		}
		last = p.lb.Writes()
	}
	return errors.Join(io.ErrUnexpectedEOF, p.in.Err())
}

func (p *subject) second(ctx context.Context, s *lbsync.Syncer) error {
	if err := until(ctx, s.Checks()[0].Check); err != nil {
		return err
	}
	p.tell(momentCaches, time.Now())
	err := until(ctx, func() error {
		if p.lb.Observations() == p.base.Observations { // while another holds the Lease, this one is ready as it is
			return errors.New("the load balancer has not been read")
		}
		return s.Checks()[1].Check()
	})
	if err != nil {
		return err
	}
	p.tell(momentRestarted, time.Now())
	return p.rest(ctx, momentQuiet)
}

// rest waits until nothing was written to Kubernetes for a while, and tells when that began.
func (p *subject) rest(ctx context.Context, what string) error {
	last, since := p.written.Load(), time.Now()
	for time.Since(since) < restAfter {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if n := p.written.Load(); n != last {
			last, since = n, time.Now()
		}
	}
	p.tell(what, since)
	return nil
}

func (p *subject) counts() moment {
	return moment{
		Applications: p.lb.Applications(), Steps: p.lb.Writes(), Observations: p.lb.Observations(),
		Written: p.written.Load(), Coordination: p.coordination.Load(), Calls: p.calls.Load(), Sent: p.sent.Load(), Received: p.received.Load(),
	}
}

func (p *subject) tell(what string, at time.Time) {
	m := p.counts()
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		m.Processor = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	m.What, m.At = what, at
	m.Applications -= p.base.Applications
	m.Steps -= p.base.Steps
	m.Observations -= p.base.Observations
	m.Written -= p.base.Written
	m.Coordination -= p.base.Coordination
	m.Calls -= p.base.Calls
	m.Sent -= p.base.Sent
	m.Received -= p.base.Received
	p.mu.Lock()
	m.Refused = p.refused
	p.mu.Unlock()
	_ = p.out.Encode(m) // without a reader nobody misses it
}

// until polls in short steps: what is measured takes seconds.
func until(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
