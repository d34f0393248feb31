package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	corev1 "k8s.io/api/core/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/load"
)

// application is 3 Pods on one Node and 1 on another, behind one Service.
func (s *story) application() string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: echo, namespace: default}
spec:
  type: LoadBalancer
  loadBalancerClass: nplbridge.io/haproxy
  allocateLoadBalancerNodePorts: false
  selector: {app: echo}
  ports: [{name: http, port: 80, targetPort: http}]
`)
	for _, group := range []struct {
		name, node string
		replicas   int
	}{{"many", "-worker", 3}, {"one", "-worker2", 1}} {
		fmt.Fprintf(&b, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: echo, group: %[1]s}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 2}}
  template:
    metadata: {labels: {app: echo, group: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 15
      nodeSelector: {kubernetes.io/hostname: %[3]s}
      containers:
        - name: echo
          image: ghcr.io/nplbridge/echo:%[4]s
          ports: [{name: http, containerPort: 8080}]
          readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
          lifecycle: {preStop: {sleep: {seconds: 2}}}
          env:
            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
            - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
            - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
`, group.name, group.replicas, s.name+group.node, tag)
	}
	return b.String()
}

func (s *story) deploy() step {
	return step{what: "4 Pods, 3 of them on one Node, and a Service of type LoadBalancer", argv: s.kubectl("apply", "--filename", "-"), stdin: s.application()}
}

const (
	shareRequests = 4000
	maxRatio      = 1.05
	settleLimit   = 2 * time.Minute
)

// check holds what the demo holds. Every claim is printed with what was measured.
func (s *story) check(ctx context.Context) error {
	if err := s.all(ctx, s.deploy()); err != nil {
		return err
	}
	if err := s.settled(ctx, 4); err != nil {
		return err
	}
	targets, err := s.addresses(ctx)
	if err != nil {
		return err
	}
	dial := (&net.Dialer{}).DialContext
	options := load.Options{Targets: targets, Clients: 8, Timeout: 10 * time.Second, Dial: dial}
	if err := s.reachable(ctx, options, 4); err != nil {
		return err
	}
	r := load.Run(ctx, shareRequests, options)
	held := s.hold(r.Failed == 0 && len(r.ByPod) == 4 && r.Ratio() <= maxRatio, "equal shares with 3 Pods on one Node and 1 on another",
		fmt.Sprintf("largest over smallest share %.3f (at most %.2f) over %d requests, %d failed", r.Ratio(), maxRatio, r.Requests, r.Failed))

	churn := load.Start(ctx, options)
	err = s.churn(ctx)
	r = churn.Stop()
	if err != nil {
		return err
	}
	for _, failure := range r.Failures {
		fmt.Fprintf(s.out, "        %s\n", failure)
	}
	held = s.hold(r.Failed == 0 && r.Requests > 0, "no request fails during scaling and a rolling restart", fmt.Sprintf("%d failed of %d", r.Failed, r.Requests)) && held

	err = s.all(ctx, step{what: "helm uninstall", argv: tool("helm", "uninstall", "nplbridge", "--namespace", namespace, "--kubeconfig", s.kubeconfig(), "--wait", "--timeout", "10m")})
	if err != nil {
		return err
	}
	pods, err := s.pods(ctx)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Annotations[npl.Annotation] == "" })
	held = s.hold(len(left) == 0, "helm uninstall takes the annotations off", fmt.Sprintf("%d of %d Pods have one", len(left), len(pods))) && held
	if !held {
		return errors.New("not every check held")
	}
	return nil
}

func (s *story) hold(held bool, claim, measured string) bool {
	mark := "ok     "
	if !held {
		mark = "FAILED "
	}
	fmt.Fprintf(s.out, "%s %s: %s\n", mark, claim, measured)
	return held
}

// churn scales and restarts while requests are under way.
func (s *story) churn(ctx context.Context) error {
	for _, replicas := range []int{6, 2, 3} {
		err := s.all(ctx, step{what: fmt.Sprintf("scaling to %d Pods", replicas+1), argv: s.kubectl("scale", "deployment", "many", fmt.Sprintf("--replicas=%d", replicas))})
		if err != nil {
			return err
		}
		if err := s.settled(ctx, replicas+1); err != nil {
			return err
		}
	}
	err := s.all(ctx, step{what: "a rolling restart", argv: s.kubectl("rollout", "restart", "deployment", "many", "one")},
		step{argv: s.kubectl("rollout", "status", "deployment", "many", "--timeout=3m")}, step{argv: s.kubectl("rollout", "status", "deployment", "one", "--timeout=3m")})
	if err != nil {
		return err
	}
	return s.settled(ctx, 4)
}

// settled waits until there are so many Pods, all ready, each with a node port of its own.
func (s *story) settled(ctx context.Context, want int) error {
	return poll(ctx, func() error {
		pods, err := s.pods(ctx)
		if err != nil {
			return err
		}
		published := map[string]bool{}
		for _, p := range pods {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("Pod %s is still ending", p.Name)
			}
			mappings, err := npl.Decode(p.Annotations[npl.Annotation])
			if err != nil {
				return fmt.Errorf("Pod %s: %w", p.Name, err)
			}
			if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				return fmt.Errorf("Pod %s is not ready", p.Name)
			}
			if len(mappings) == 0 {
				return fmt.Errorf("Pod %s has no node port", p.Name)
			}
			for _, m := range mappings {
				published[fmt.Sprint(m.NodeIP, ":", m.NodePort)] = true
			}
		}
		if len(pods) != want || len(published) < want {
			return fmt.Errorf("%d Pods with %d node ports, want %d", len(pods), len(published), want)
		}
		return nil
	})
}

func (s *story) pods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	text, err := s.runner.run(ctx, step{argv: s.kubectl("get", "pods", "--selector", "app=echo", "--output", "json")})
	if err == nil {
		err = json.Unmarshal([]byte(text), &list)
	}
	return list.Items, err
}

// addresses waits for the Service's and returns them with its port.
func (s *story) addresses(ctx context.Context) (targets []string, err error) {
	err = poll(ctx, func() error {
		var service corev1.Service
		text, err := s.runner.run(ctx, step{argv: s.kubectl("get", "service", "echo", "--output", "json")})
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &service); err != nil {
			return err
		}
		targets = nil
		for _, i := range service.Status.LoadBalancer.Ingress {
			targets = append(targets, net.JoinHostPort(i.IP, strconv.Itoa(int(service.Spec.Ports[0].Port))))
		}
		if len(targets) == 0 {
			return errors.New("the Service has no address yet; kubectl describe service echo says why")
		}
		return nil
	})
	return targets, err
}

// reachable waits until all Pods answer at every address.
func (s *story) reachable(ctx context.Context, options load.Options, want int) error {
	return poll(ctx, func() error {
		if r := load.Run(ctx, 100, options); r.Failed > 0 || len(r.ByPod) != want {
			return fmt.Errorf("%d Pods answer at %s, %d of %d requests fail: %s", len(r.ByPod), options.Targets, r.Failed, r.Requests, r.Failures)
		}
		return nil
	})
}

// poll tries until f succeeds, two minutes at most.
func poll(ctx context.Context, f func() error) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) { return struct{}{}, f() },
		backoff.WithBackOff(backoff.NewConstantBackOff(time.Second)), backoff.WithMaxElapsedTime(settleLimit))
	return err
}
