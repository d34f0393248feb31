package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nplbridge/nplbridge/e2e/chaos/ledger"
)

// restarts are what is killed, stopped or replaced of nplbridge itself, of HAProxy and of Nodes.
func restarts() []action {
	return []action{
		{"agent-kill", "kill -9 of npl-agent, on one Node or all", careful, agentKill},
		{"lbsync-kill", "kill -9 of an lbsync that is back at once, or of the leader until the other leads", careful, lbsyncKill},
		{"upgrade", "the chart is upgraded: agents are replaced one after the other", careful, upgrade},
		{"lbsync-freeze", "the leading lbsync stands still until the other leads, and goes on", fault, lbsyncFreeze},
		{"haproxy-worker", "kill -9 of HAProxy's worker", fault, haproxyWorker},
		{"haproxy-kill", "kill -9 of HAProxy's master and worker", fault, haproxyKill},
		{"node-reboot", "a Node is rebooted: rules gone, annotations stale, Pods with other addresses", fault, nodeReboot},
	}
}

func agentKill(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	nodes := s.Lab.Nodes()
	if random.IntN(2) == 0 {
		nodes = []string{pick(random, nodes)}
	}
	return nothing, s.restart(ctx, "kill -9 of npl-agent on "+strings.Join(nodes, ", "), func() error {
		for _, node := range nodes {
			agent, err := s.agentOn(ctx, node)
			if err != nil {
				return err
			}
			if err := s.Lab.KillContainer(system, agent.Name, "npl-agent"); err != nil {
				return err
			}
			if err := s.restarted(ctx, system, agent.Name, agent); err != nil {
				return err
			}
		}
		return nil
	})
}

func upgrade(ctx context.Context, s *site, _ *rand.Rand) (budget, error) {
	s.version++
	return nothing, s.restart(ctx, "an upgrade", func() error {
		return s.Lab.InstallChart(ctx, append(slices.Clone(chartValues), fmt.Sprintf("agent.podAnnotations.rolled=v%d", s.version))...)
	})
}

// throughHAProxyFor excuses everything that went through HAProxy while it was away.
func throughHAProxyFor(d time.Duration) budget {
	return budget{"HAProxy", ofKinds(throughHAProxy...), d}
}

func haproxyWorker(ctx context.Context, s *site, _ *rand.Rand) (budget, error) {
	b := throughHAProxyFor(8 * time.Second)
	master := s.Lab.LoadBalancer().HAProxyPID()
	workers, err := childrenOf(master)
	if err != nil || len(workers) == 0 {
		return b, errors.Join(err, fmt.Errorf("HAProxy's master %d has no worker", master))
	}
	return b, errors.Join(syscall.Kill(slices.Max(workers), syscall.SIGKILL), s.haproxyBack(ctx))
}

// childrenOf are the processes that a process has started.
func childrenOf(pid int) (children []int, err error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		content, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(content), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == strconv.Itoa(pid) && f[0] != "Z" {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			children = append(children, child)
		}
	}
	return children, err
}

func haproxyKill(ctx context.Context, s *site, _ *rand.Rand) (budget, error) {
	return throughHAProxyFor(8 * time.Second), errors.Join(s.Lab.LoadBalancer().KillHAProxy(), s.haproxyBack(ctx))
}

func (s *site) haproxyBack(ctx context.Context) error {
	return poll(ctx, func() error { return s.Lab.LoadBalancer().HAProxyReady(ctx) })
}

func nodeReboot(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	node := pick(random, s.Lab.Nodes())
	b := s.budgetOf(node, 15*time.Second)
	agent, err := s.agentOn(ctx, node)
	if err != nil {
		return b, err
	}
	s.excuseTables(node, true)
	defer s.excuseTables(node, false)
	if err := s.Lab.Reboot(ctx, node); err != nil {
		return b, err
	}
	if err := s.seedNode(ctx, node); err != nil {
		return b, err
	}
	if err := s.restarted(ctx, system, agent.Name, agent); err != nil {
		return b, err
	}
	return b, s.rest(ctx)
}

func (s *site) excuseTables(node string, excused bool) {
	s.excuses.set(func(e *excuses) {
		if e.tables == nil {
			e.tables = map[string]bool{}
		}
		e.tables[node] = excused
	})
}

// budgetOf excuses requests to the Pods of a Node: those that went straight to one by its UID, the others by their Service.
func (s *site) budgetOf(node string, within time.Duration) budget {
	there, services := map[string]bool{}, map[string]bool{}
	for _, p := range s.watch.list() {
		if p.Spec.NodeName != node {
			continue
		}
		there[string(p.UID)] = true
		services[p.Labels["app"]] = true
		if color := p.Labels["color"]; color != "" {
			services["color"] = true
		}
		if p.Labels["app"] == "dns" {
			services["dns-avi"], services["dns-bigip"] = true, true
		}
	}
	return budget{"the Pods of " + node, func(r ledger.Request) bool {
		if r.Kind == udpDirect {
			return there[r.Target]
		}
		return services[r.Service]
	}, within}
}
