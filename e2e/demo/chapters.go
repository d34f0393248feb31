package demo

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

func (s *Story) deploy(ctx context.Context, a *app) error {
	if err := a.apply(ctx, "echo", corev1.ServiceTypeLoadBalancer, group{Name: "echo", Replicas: 4}); err != nil {
		return err
	}
	vip, err := a.Address(ctx, "echo", npl.IPv4)
	if err != nil {
		return err
	}
	a.vip = vip
	if _, err := a.Settled(ctx, "echo", 4); err != nil {
		return err
	}
	s.say("$ kubectl -n demo get service echo")
	out, err := s.Lab.Kubectl(ctx, "-n", namespace, "get", "service", "echo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		s.say("%s", strings.TrimRight(line, "\n"))
	}
	return nil
}

func (s *Story) annotations(ctx context.Context, a *app) error {
	pods, err := a.Pods(ctx, "echo")
	if err != nil {
		return err
	}
	var rows []table.Row
	for _, p := range pods {
		rows = append(rows, table.Row{p.Name, p.Spec.NodeName, p.Status.PodIP, p.Annotations[npl.Annotation]})
	}
	s.table(table.Row{"Pod", "Node", "Pod IP", "annotation " + npl.Annotation}, rows...)
	return nil
}

func (s *Story) pool(ctx context.Context, a *app) error {
	published, err := a.Settled(ctx, "echo", 4)
	if err != nil {
		s.check(false, "the pool equals the annotations", err.Error())
		return nil
	}
	servers, err := a.Members("echo")
	if err != nil {
		return err
	}
	var rows []table.Row
	for _, addr := range slices.SortedFunc(maps.Keys(servers), netip.AddrPort.Compare) {
		rows = append(rows, table.Row{addr, servers[addr].Name, published[addr]})
	}
	s.table(table.Row{"member (nodeIP:nodePort)", s.kind().member, "Pod"}, rows...)
	s.check(true, "the pool equals the annotations", fmt.Sprintf("%d members", len(servers)))
	return nil
}

const (
	shareRequests = 4000
	maxRatio      = 1.05
)

func (s *Story) shares(ctx context.Context, a *app) error {
	r := load.Run(ctx, shareRequests, a.client(a.vip))
	s.shareTable(r)
	s.checkShares("equal shares", r)
	return nil
}

func (s *Story) checkShares(claim string, r load.Result) {
	s.check(r.Failed == 0 && r.Ratio() > 0 && r.Ratio() <= maxRatio, claim,
		fmt.Sprintf("largest over smallest share %.3f (at most %.2f) over %d requests, %d failed", r.Ratio(), maxRatio, r.Requests, r.Failed))
}

func (s *Story) uneven(ctx context.Context, a *app) error {
	s.say("3 Pods on node-1, 1 Pod on node-2, one Service.")
	err := a.apply(ctx, "uneven", corev1.ServiceTypeLoadBalancer,
		group{Name: "many", Replicas: 3, Node: "node-1"}, group{Name: "one", Replicas: 1, Node: "node-2"})
	if err != nil {
		return err
	}
	vip, err := a.Address(ctx, "uneven", npl.IPv4)
	if err != nil {
		return err
	}
	if _, err := a.Settled(ctx, "uneven", 4); err != nil {
		return err
	}
	r := load.Run(ctx, shareRequests, a.client(vip))
	a.uneven = r
	s.shareTable(r)
	s.checkShares("equal shares with 3 Pods on one Node and 1 on another", r)
	return nil
}

const churnRequests = 5000

func (s *Story) churn(ctx context.Context, a *app) error {
	short := load.Start(ctx, a.client(a.vip))
	options := a.client(a.vip)
	options.KeepAlive = true
	long := load.Start(ctx, options)
	began := time.Now()
	for _, step := range []struct {
		what string
		pods int
		do   func() error
	}{
		{"4 to 8 Pods", 8, func() error { return s.scale(ctx, 8) }},
		{"8 to 2 Pods", 2, func() error { return s.scale(ctx, 2) }},
		{"2 to 4 Pods", 4, func() error { return s.scale(ctx, 4) }},
		{"rolling restart of 4 Pods", 4, func() error { return s.restart(ctx, a) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		if _, err := a.Settled(ctx, "echo", step.pods); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		r1, r2 := short.Result(), long.Result()
		s.say("%-26s done after %4.1f s; %6d requests so far, %d failed", step.what, time.Since(began).Seconds(),
			r1.Requests+r2.Requests, r1.Failed+r2.Failed)
	}
	// A quick machine may be through before enough was asked to mean anything.
	if err := view.Poll(ctx, func() error {
		if n := short.Result().Requests + long.Result().Requests; n < churnRequests {
			return fmt.Errorf("only %d requests so far", n)
		}
		return nil
	}); err != nil {
		return err
	}
	r1, r2 := short.Stop(), long.Stop()
	for _, f := range slices.Concat(r1.Failures, r2.Failures) {
		s.say("failure: %s", f)
	}
	s.check(r1.Failed+r2.Failed == 0, "no request fails during scaling and a rolling restart",
		fmt.Sprintf("%d failed of %d (%d on new connections, %d on kept ones)", r1.Failed+r2.Failed, r1.Requests+r2.Requests, r1.Requests, r2.Requests))
	return nil
}

func (s *Story) scale(ctx context.Context, replicas int) error {
	_, err := s.Lab.Kubectl(ctx, "-n", namespace, "scale", "deployment", "echo", fmt.Sprintf("--replicas=%d", replicas))
	return err
}

// restart rolls the Deployment and waits until none of the Pods of before is left.
func (s *Story) restart(ctx context.Context, a *app) error {
	before, err := a.Pods(ctx, "echo")
	if err != nil {
		return err
	}
	if _, err := s.Lab.Kubectl(ctx, "-n", namespace, "rollout", "restart", "deployment", "echo"); err != nil {
		return err
	}
	return view.Poll(ctx, func() error {
		now, err := a.Pods(ctx, "echo")
		if err != nil {
			return err
		}
		for _, p := range now {
			if slices.ContainsFunc(before, func(b corev1.Pod) bool { return b.UID == p.UID }) {
				return fmt.Errorf("the Pod %s is still there", p.Name)
			}
		}
		return nil
	})
}

// client is the load of the whole story: 8 clients in the client's namespace.
func (a *app) client(targets ...string) load.Options {
	return load.Options{Targets: targets, Clients: 8, Timeout: 10 * time.Second, Dial: a.DialFrom("client")}
}

func (s *Story) shareTable(r load.Result) {
	var rows []table.Row
	for _, pod := range slices.Sorted(maps.Keys(r.ByPod)) {
		share := float64(r.ByPod[pod]) / float64(max(1, r.Requests))
		rows = append(rows, table.Row{pod, r.ByPod[pod], fmt.Sprintf("%.1f %%", 100*share), strings.Repeat("▇", int(share*60+0.5))})
	}
	s.table(table.Row{"Pod", "requests", "share", ""}, rows...)
}
