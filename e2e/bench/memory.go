package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	memoryNamespaces = 50
	memoryServices   = 10_000 / memoryNamespaces // in each
	memoryEnabled    = 1_000 / memoryNamespaces
	memoryPods       = 250 / memoryNamespaces
	touched          = 1_000
	steadyAfter      = time.Minute
)

// memory measures what an agent takes in a large cluster, at its first list and after a while, and what a change of a Service that is
// not enabled costs it.
func memory(ctx context.Context, r *runner) ([]Figure, error) {
	s, err := r.agentSite(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.populate(ctx, r); err != nil {
		return nil, err
	}
	a, err := s.startAgent(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.ready(ctx); err != nil {
		return nil, err
	}
	if err := a.explain(s.annotated(ctx, memoryNamespaces*memoryPods)); err != nil {
		return nil, err
	}
	listed, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	r.say("after the first list: %s, peak %s", mib(listed.rss), mib(listed.peak))
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(steadyAfter):
	}
	steady, err := a.usage(ctx)
	if err != nil {
		return nil, err
	}
	r.say("steady: %s, of it %s anonymous, heap %s", mib(steady.rss), mib(steady.anonymous), mib(steady.heap))

	cost, err := s.touchForeign(ctx, a)
	if err := a.explain(err); err != nil {
		return nil, err
	}
	figures := []Figure{
		{What: "RSS, peak at the first list", Measured: mib(listed.peak), Expected: "< 80 MiB"},
		{What: fmt.Sprintf("RSS, steady (%s later)", steadyAfter), Measured: mib(steady.rss), Expected: "< 50 MiB"},
		{What: "of it anonymous", Measured: mib(steady.anonymous)},
		{What: "passes caused by 1,000 changes of Services that are not enabled", Measured: fmt.Sprint(cost.passes), Expected: "0"},
		{What: "processor time for each such change", Measured: fmt.Sprintf("%d us", cost.cpu.Microseconds()/touched), Expected: "decoding only"},
		{What: "RSS they added", Measured: mib(cost.rss), Expected: "0"},
	}
	return figures, a.stop()
}

// populate fills the cluster.
func (s *site) populate(ctx context.Context, r *runner) error {
	size := 0
	for n := range memoryNamespaces {
		namespace := fmt.Sprintf("tenant-%d", n)
		if err := s.namespace(ctx, namespace); err != nil {
			return err
		}
		err := inParallel(memoryServices, func(i int) error {
			svc := foreignService(namespace, fmt.Sprintf("app-%d", i))
			if i < memoryEnabled {
				svc = enabledService(namespace, fmt.Sprintf("app-%d", i))
				svc.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
			}
			return s.createService(ctx, svc)
		})
		if err != nil {
			return err
		}
		for i := range memoryPods {
			p := realisticPod(namespace, fmt.Sprintf("pod-%d", i), fmt.Sprintf("app-%d", i))
			if err := s.createPod(ctx, p, running(p, n*memoryPods+i)); err != nil {
				return err
			}
		}
		if (n+1)%10 == 0 {
			r.say("%d Services and %d Pods made", (n+1)*memoryServices, (n+1)*memoryPods)
		}
	}
	p, err := s.client.CoreV1().Pods("tenant-0").Get(ctx, "pod-0", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if text, err := json.Marshal(p); err == nil {
		size = len(text)
	}
	r.say("each Pod has %d bytes of JSON", size)
	return nil
}

// annotated waits until n Pods of the Node are.
func (s *site) annotated(ctx context.Context, n int) error {
	return poll(ctx, func() error {
		have := 0
		list, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if isAnnotated(&p) {
				have++
			}
		}
		if have < n {
			return fmt.Errorf("%d of %d Pods are annotated", have, n)
		}
		return nil
	})
}

// touchForeign changes Services that are not enabled and returns what the agent took more, until it knew of them all. That it does is
// known by an enabled Service that is changed after them, since one watch brings both; what such a change takes by itself is
// measured before, and left out.
func (s *site) touchForeign(ctx context.Context, a *agent) (cost usage, err error) {
	var at [3]usage
	if at[0], err = a.usage(ctx); err != nil {
		return cost, err
	}
	if err := s.sentinel(ctx, 9001); err != nil {
		return cost, err
	}
	if at[1], err = a.usage(ctx); err != nil {
		return cost, err
	}
	err = inParallel(touched, func(i int) error {
		namespace := fmt.Sprintf("tenant-%d", i%memoryNamespaces)
		name := fmt.Sprintf("app-%d", memoryEnabled+i/memoryNamespaces)
		patch := []byte(`{"metadata":{"annotations":{"touched":"` + strconv.Itoa(i) + `"}}}`)
		_, err := s.client.CoreV1().Services(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return cost, err
	}
	if err := s.sentinel(ctx, 9002); err != nil {
		return cost, err
	}
	if at[2], err = a.usage(ctx); err != nil {
		return cost, err
	}
	return usage{
		rss:    at[2].rss - at[1].rss,
		cpu:    (at[2].cpu - at[1].cpu) - (at[1].cpu - at[0].cpu),
		passes: (at[2].passes - at[1].passes) - (at[1].passes - at[0].passes),
	}, nil
}

// sentinel moves the target port of an enabled Service and waits until a Pod's annotation and the agent's own news of it say so.
func (s *site) sentinel(ctx context.Context, port int) error {
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/ports/0/targetPort","value":%d}]`, port)
	if _, err := s.client.CoreV1().Services("tenant-0").Patch(ctx, "app-0", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	err := poll(ctx, func() error {
		p, err := s.client.CoreV1().Pods("tenant-0").Get(ctx, "pod-0", metav1.GetOptions{})
		if err == nil && !isAnnotatedWith(p, uint16(port)) {
			err = fmt.Errorf("port %d is not in the annotation", port)
		}
		return err
	})
	if err != nil {
		return err
	}
	select { // the agent hears of its own patch, too
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
		return nil
	}
}
