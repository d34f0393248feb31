package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

const (
	controlNamespace = "control"
	// controlLeast is how many Pods live at a time at least. With more changes a second there are as many as changes, so that each lives two
	// seconds: half of the changes are births.
	controlLeast = 10
	// controlEnding is how long a Pod goes on after it was told to end, as a preStop hook does.
	controlEnding = 1500 * time.Millisecond
	// controlCoolDown is short: a thousand node ports are not enough for fifty new Pods a second on one Node with the default minute.
	controlCoolDown = 5 * time.Second
	controlClients  = 8
	controlWriters  = 32 // changes on their way to the API server at once
	sampleEvery     = time.Second
)

// control measures, under requests through a VIP and at several rates of change, how long it takes from a Pod being Ready to its first answer
// and from its deletion to its last, and what npl-agent and lbsync take meanwhile.
//
// The Pods exist in the API only and are all bound to the site's Node; their addresses are those of one server in the namespace of that Node,
// which answers with the address that was asked. So a Pod costs the machine nothing but its objects, and npl-agent, nftables, lbsync,
// HAProxy and the requests are all real. A Pod gets its IP and becomes Ready in one status: what npl-agent takes is part of the time.
func control(ctx context.Context, r *runner) ([]Figure, error) {
	s, err := r.agentSite(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.answerForPods(ctx); err != nil {
		return nil, err
	}
	if err := r.lab.StartLoadBalancer(ctx); err != nil {
		return nil, err
	}
	if err := s.namespace(ctx, controlNamespace); err != nil {
		return nil, err
	}
	if err := freeze(); err != nil { // a cluster has them on processors of their own
		return nil, err
	}
	a, err := s.startAgent(ctx, "--cool-down="+controlCoolDown.String())
	if err != nil {
		return nil, err
	}
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	c, err := s.newChurn(ctx)
	if err != nil {
		return nil, err
	}
	var samples *os.File
	if r.opt.Samples != "" {
		if samples, err = os.Create(r.opt.Samples); err != nil {
			return nil, err
		}
		defer samples.Close()
		fmt.Fprintln(samples, "changes a second,seconds,program,rss bytes,cpu seconds")
	}
	pids := map[string]int{"npl-agent": a.cmd.Process.Pid, "lbsync": r.lab.LoadBalancer().LBSyncPID()}
	var figures []Figure
	for _, perSecond := range r.opt.Rates {
		found, err := c.measure(ctx, r, perSecond, pids, samples)
		if err := a.explain(err); err != nil {
			return nil, fmt.Errorf("%d changes a second: %w", perSecond, err)
		}
		figures = append(figures, found...)
	}
	return figures, errors.Join(a.stop(), s.deletePods(ctx, controlNamespace))
}

// answerForPods has one server answer for the addresses of all Pods of the site, until ctx ends.
func (s *site) answerForPods(ctx context.Context) error {
	route := s.lab.Command(ctx, host, "ip", "route", "add", "local", "10.250.0.0/16", "dev", "lo")
	if out, err := route.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(route.Args, " "), err, out)
	}
	var listener net.Listener
	err := s.lab.Do(ctx, host, func() (err error) {
		listener, err = net.Listen("tcp4", ":8080")
		return err
	})
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(answerAsPod), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener) //nolint:errcheck // without it there are no answers, and that is said
	context.AfterFunc(ctx, func() { server.Close() })
	return nil
}

// answerAsPod answers with the address that was asked, which is the Pod's.
func answerAsPod(w http.ResponseWriter, r *http.Request) {
	address, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	_ = json.NewEncoder(w).Encode(load.Answer{UID: address.IP.String(), Pod: address.IP.String()})
}

// churn has Pods come and go.
type churn struct {
	site  *site
	view  view.View
	vip   string
	seen  *sightings
	next  atomic.Int64 // number of the next Pod, which gives it name and address
	mu    sync.Mutex
	alive []int // in the order of their birth
}

// newChurn makes the Service, and watches its Pods until ctx ends.
func (s *site) newChurn(ctx context.Context) (*churn, error) {
	c := &churn{site: s, view: view.View{Lab: s.lab, Namespace: controlNamespace}, seen: newSightings(func(p *corev1.Pod) string { return p.Status.PodIP })}
	svc := service(controlNamespace, "app")
	svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, new(s.lab.LoadBalancer().Class())
	svc.Spec.AllocateLoadBalancerNodePorts = new(false)
	if err := s.createService(ctx, svc); err != nil {
		return nil, err
	}
	if err := c.seen.watch(ctx, s.client, controlNamespace); err != nil {
		return nil, err
	}
	var err error
	c.vip, err = c.view.Address(ctx, "app", npl.IPv4)
	return c, err
}

func podName(n int) string { return fmt.Sprintf("pod-%d", n) }

func (c *churn) birth(ctx context.Context) error {
	n := int(c.next.Add(1))
	p := smallPod(controlNamespace, podName(n), "app")
	if err := c.site.createPod(ctx, p, running(p, n)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive = append(c.alive, n)
	return nil
}

// oldest takes the Pod that has lived longest out of the living, unless there are too few of them.
func (c *churn) oldest() (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.alive) <= controlLeast/2 {
		return 0, false
	}
	n, c.alive = c.alive[0], c.alive[1:]
	return n, true
}

// death tells a Pod to end.
func (c *churn) death(ctx context.Context, n int) error {
	return c.delete(ctx, n, 30)
}

// burial takes a Pod away when it would have ended.
func (c *churn) burial(ctx context.Context, n int) error {
	if err := pause(ctx, controlEnding); err != nil {
		return err
	}
	if err := c.delete(ctx, n, 0); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (c *churn) delete(ctx context.Context, n int, grace int64) error {
	return c.site.client.CoreV1().Pods(controlNamespace).Delete(ctx, podName(n), metav1.DeleteOptions{GracePeriodSeconds: &grace})
}

// populate makes births until at least so many Pods live, and waits until the load balancer has exactly those that do.
func (c *churn) populate(ctx context.Context, n int) (int, error) {
	missing := n - len(c.alive) // nobody else changes it meanwhile
	if err := inParallel(max(0, missing), func(int) error { return c.birth(ctx) }); err != nil {
		return 0, err
	}
	_, err := c.view.Settled(ctx, "app", len(c.alive))
	return len(c.alive), err
}

// run makes changes for a time, births and deaths in turn, and returns how many. They are as many a second as asked for, or fewer where
// the API server takes no more.
func (c *churn) run(ctx context.Context, perSecond int, d time.Duration) (made int, err error) {
	var changes, burials errgroup.Group
	changes.SetLimit(controlWriters)
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	birth := true
	for end := time.Now().Add(d); time.Now().Before(end); birth = !birth {
		select {
		case <-ctx.Done():
			return made, ctx.Err()
		case <-ticker.C:
		}
		if birth {
			made++
			changes.Go(func() error { return c.birth(ctx) })
		} else if n, ok := c.oldest(); ok {
			made++
			changes.Go(func() error {
				err := c.death(ctx, n)
				if err == nil {
					burials.Go(func() error { return c.burial(ctx, n) })
				}
				return err
			})
		}
	}
	err = changes.Wait()
	return made, errors.Join(err, burials.Wait())
}

func (c *churn) measure(ctx context.Context, r *runner, perSecond int, pids map[string]int, csv *os.File) ([]Figure, error) {
	members, err := c.populate(ctx, max(controlLeast, perSecond))
	if err != nil {
		return nil, err
	}
	pace := rate.NewLimiter(rate.Limit(r.opt.Requests), 1) // as many as the machine can would leave nothing for what is measured
	requests := load.Start(ctx, load.Options{
		Targets: []string{c.vip}, Clients: controlClients, Timeout: 10 * time.Second, Dial: c.view.DialFrom("client"),
		OnAnswer: func(target string, a load.Answer, at time.Time) {
			c.seen.answered(target, a, at)
			_ = pace.Wait(ctx) // it ends with ctx, as the load does
		},
	})
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	used := series{}
	sampled := used.record(sampling, pids, sampleEvery)
	began := time.Now()
	changes, err := c.run(ctx, perSecond, r.opt.For)
	took := time.Since(began) - controlEnding
	stop()
	if err := errors.Join(err, <-sampled); err != nil {
		requests.Stop()
		return nil, err
	}
	err = pause(ctx, 2*time.Second) // the last ones have their time, too
	counts := requests.Stop()
	if err != nil {
		return nil, err
	}
	found := c.seen.since(began)
	if csv != nil {
		if err := used.write(csv, perSecond, began); err != nil {
			return nil, err
		}
	}
	o := churned{rate: perSecond, members: members, changes: changes, took: took, all: time.Since(began), requests: counts, lives: found, used: used}
	figures := o.figures()
	for _, f := range figures {
		r.say("%s: %s: %s", f.Of, f.What, f.Measured)
	}
	return figures, nil
}

// churned is what was measured at one rate.
type churned struct {
	rate, members, changes int
	took, all              time.Duration
	requests               load.Result
	lives                  lives
	used                   series
}

func (o churned) figures() []Figure {
	perSecond := float64(o.requests.Requests) / o.all.Seconds()
	spread := func(all []time.Duration) string {
		return fmt.Sprintf("p50 %s, p99 %s (%d Pods)", ms(quantile(all, 0.5)), ms(quantile(all, 0.99)), len(all))
	}
	out := []Figure{
		{What: "Pod Ready to first answer through the VIP", Measured: spread(o.lives.begin)},
		{What: "Pod deletion to last answer", Measured: spread(o.lives.end)},
		{What: "a round of requests over the members", Measured: fmt.Sprintf("%.1f ms over %d", 1000*float64(o.members)/perSecond, o.members)},
		{What: "Pods deleted before any answer; answers of Pods that were gone", Measured: fmt.Sprintf("%d; %d", o.lives.never, o.lives.late)},
		{What: "requests", Measured: fmt.Sprintf("%d, %d failed; %.1f changes a second were made", o.requests.Requests, o.requests.Failed, float64(o.changes)/o.took.Seconds())},
	}
	for _, program := range []string{"npl-agent", "lbsync"} {
		t := o.used.taken(program)
		out = append(out, Figure{
			What: program + ": processor, RSS",
			Measured: fmt.Sprintf("%.1f%% of one, %s a change; %s at the beginning, %s at the end, at most %s", 100*t.cpu.Seconds()/max(t.span.Seconds(), 0.001),
				ms(t.cpu/time.Duration(max(1, o.changes))), mib(t.begin), mib(t.end), mib(t.most)),
		})
	}
	return of(fmt.Sprintf("%d changes a second", o.rate), out)
}
