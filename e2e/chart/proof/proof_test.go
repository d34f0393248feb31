package proof

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// app is the namespace of an application that is there before the chart and after it.
const app = "shop"

// port is that of its Service, beside what the Nodes themselves listen on.
const port = 8080

const application = `apiVersion: v1
kind: Namespace
metadata: {name: ` + app + `}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: ` + app + `}
spec:
  type: LoadBalancer
  loadBalancerClass: nplbridge.io/%s
  selector: {app: web}
  ports: [{name: http, port: 8080, targetPort: http}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: ` + app + `}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 2}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 15
      %s
      containers:
      - name: echo
        image: ghcr.io/nplbridge/echo:lab
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 2}}}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
`

// common are the values of all installations: nobody waits for long.
var common = []string{"agent.config.withdrawGrace=1s", "uninstall.timeout=2m"}

// site is the application behind one installation of the chart.
type site struct {
	t     *testing.T
	usage *usage
}

func (s site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s site) poll(check func() error) {
	s.t.Helper()
	s.must(view.Poll(s.t.Context(), check))
}

func (s site) kubectl(args ...string) string {
	s.t.Helper()
	out, err := theLab.Kubectl(s.t.Context(), args...)
	s.must(err)
	return out
}

// apply installs or upgrades the chart.
func (s site) apply(values ...string) {
	s.t.Helper()
	s.must(theLab.ApplyChart(s.t.Context(), append(slices.Clone(values), common...)...))
	s.usage.note(s.t)
}

func (s site) service() *corev1.Service {
	s.t.Helper()
	found, err := theLab.Client().CoreV1().Services(app).Get(s.t.Context(), "web", metav1.GetOptions{})
	s.must(err)
	return found
}

func (s site) pods() []corev1.Pod {
	s.t.Helper()
	list, err := theLab.Client().CoreV1().Pods(app).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	s.must(err)
	return list.Items
}

// addresses waits until the Service is programmed, and returns where it is served.
func (s site) addresses() (out []string) {
	s.t.Helper()
	s.poll(func() error {
		found := s.service()
		programmed := slices.ContainsFunc(found.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "nplbridge.io/Programmed" && c.Status == metav1.ConditionTrue
		})
		if !programmed || len(found.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("Service web: ingress %v, conditions %+v", found.Status.LoadBalancer.Ingress, found.Status.Conditions)
		}
		return nil
	})
	for _, i := range s.service().Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(i.IP); err == nil && a.Is4() {
			out = append(out, netip.AddrPortFrom(a, port).String())
		}
	}
	if len(out) == 0 {
		s.t.Fatal("the Service has no IPv4 address")
	}
	return out
}

// client is a load from outside of the cluster.
func (s site) client() load.Options {
	return load.Options{
		Targets: s.addresses(), Clients: 4, Timeout: 10 * time.Second, Dial: view.View{Lab: theLab, Namespace: app}.DialFrom("client"),
	}
}

// answered waits until every Pod answers through the load balancer.
func (s site) answered(want int) {
	s.t.Helper()
	options := s.client()
	s.poll(func() error {
		r := load.Run(s.t.Context(), 40*want, options)
		if r.Failed > 0 || len(r.ByPod) != want {
			return fmt.Errorf("%d of %d requests failed, %d of %d Pods have answered: %q", r.Failed, r.Requests, len(r.ByPod), want, r.Failures)
		}
		return nil
	})
}

// under runs a change under load, and fails if a request does.
func (s site) under(what string, change func()) {
	s.t.Helper()
	l := load.Start(s.t.Context(), s.client())
	change()
	before := l.Result().Requests
	s.poll(func() error { // what comes late is seen, too
		if n := l.Result().Requests - before; n < 500 {
			return fmt.Errorf("%d requests since", n)
		}
		return nil
	})
	r := l.Stop()
	s.t.Logf("%s: %d requests, %d failed", what, r.Requests, r.Failed)
	if r.Failed > 0 {
		s.t.Errorf("%s: %d of %d requests failed: %q", what, r.Failed, r.Requests, r.Failures)
	}
}

// published waits until want Pods are ready and have node ports of their own Nodes, each its own.
func (s site) published(want int) {
	s.t.Helper()
	s.poll(func() error {
		owners := map[netip.AddrPort]string{}
		ready := 0
		for _, p := range s.pods() {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("Pod %s is terminating", p.Name)
			}
			if !view.Ready(p) {
				return fmt.Errorf("Pod %s is not ready: %+v", p.Name, p.Status.Conditions)
			}
			ready++
			ms, err := npl.Decode(p.Annotations[npl.Annotation])
			if err != nil || len(ms) == 0 {
				return fmt.Errorf("Pod %s has the annotation %q: %w", p.Name, p.Annotations[npl.Annotation], err)
			}
			for _, m := range ms {
				at := netip.AddrPortFrom(m.NodeIP, m.NodePort)
				if other := owners[at]; other != "" || m.NodePort < 61000 || m.NodePort > 62000 ||
					m.NodeIP != lab.NodeAddress(p.Spec.NodeName) && m.NodeIP != lab.NodeAddress6(p.Spec.NodeName) {
					return fmt.Errorf("Pod %s on %s is at %s, as is %q", p.Name, p.Spec.NodeName, at, other)
				}
				owners[at] = p.Name
			}
		}
		if ready != want {
			return fmt.Errorf("%d Pods, want %d", ready, want)
		}
		return nil
	})
}

// bare waits until nothing of the agents is left: annotations, and tables on the Nodes.
func (s site) bare() {
	s.t.Helper()
	s.poll(func() error {
		for _, p := range s.pods() {
			if v, has := p.Annotations[npl.Annotation]; has {
				return fmt.Errorf("Pod %s has the annotation %s", p.Name, v)
			}
		}
		for _, node := range theLab.Nodes() {
			for _, table := range tables(s.t, node) {
				if strings.Contains(table, "nplbridge") {
					return fmt.Errorf("%s has %s", node, table)
				}
			}
		}
		return nil
	})
}

// explain prints what the chart's Pods and their Events say, if the test has failed.
func (s site) explain() {
	if !s.t.Failed() {
		return
	}
	ctx := context.WithoutCancel(s.t.Context())
	for _, args := range [][]string{
		{"get", "pods,services", "-A", "-o", "wide"}, {"get", "events", "-n", systemNamespace, "--sort-by=.metadata.creationTimestamp"},
		{"get", "configmaps", "-n", systemNamespace, "-o", "yaml"},
		{"logs", "-n", systemNamespace, "-l", "app.kubernetes.io/component=lbsync", "--tail=40", "--all-containers", "--prefix"},
		{"logs", "-n", systemNamespace, "-l", "app.kubernetes.io/component=agent", "--tail=15", "--prefix"},
	} {
		out, err := theLab.Kubectl(ctx, args...)
		s.t.Logf("kubectl %s\n%s%v", strings.Join(args, " "), out, err)
	}
}

// setState is what the hook does, by hand.
func (s site) setState(configMap, state string) {
	s.t.Helper()
	maps := theLab.Client().CoreV1().ConfigMaps(systemNamespace)
	found, err := maps.Get(s.t.Context(), configMap, metav1.GetOptions{})
	s.must(err)
	text, _, _ := strings.Cut(found.Data["settings.yaml"], "\nstate: ")
	found.Data["settings.yaml"] = strings.TrimRight(text, "\n") + "\nstate: " + state + "\n"
	_, err = maps.Update(s.t.Context(), found, metav1.UpdateOptions{})
	s.must(err)
}

// uninstall takes the chart away; the hook says that nothing is left.
func (s site) uninstall() {
	s.t.Helper()
	began := time.Now()
	out, err := theLab.UninstallChart(s.t.Context())
	s.must(err)
	s.t.Logf("helm uninstall took %s:\n%s", time.Since(began).Round(100*time.Millisecond), out)
}

// life is what the application goes through on one installation of the chart, whose members are its Nodes at first.
func (s site) life(values ...string) {
	s.t.Helper()
	s.answered(4)
	s.under("helm upgrade of serviceType from NodePort to NodePortLocal", func() {
		s.apply(append(values, "serviceType=NodePortLocal")...)
		s.published(4)
	})
	s.answered(4)
	s.under("a rolling update", func() {
		s.kubectl("-n", app, "rollout", "restart", "deployment/web")
		s.kubectl("-n", app, "rollout", "status", "deployment/web", "--timeout=2m")
		s.published(4)
	})
	s.under("scaling from 4 to 6 to 2 Pods", func() {
		for _, n := range []int{6, 2} {
			s.kubectl("-n", app, "scale", "deployment/web", fmt.Sprintf("--replicas=%d", n))
			s.published(n)
		}
	})
	s.answered(2)
	for _, p := range s.pods() {
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == "nplbridge.io/in-pool" && c.Status == corev1.ConditionTrue
		}) {
			s.t.Errorf("Pod %s: the readiness gate is not open: %+v", p.Name, p.Status.Conditions)
		}
	}
}

// goAndComeBack: what was told to go comes back, as after a `helm uninstall` that was interrupted.
func (s site) goAndComeBack() {
	s.t.Helper()
	began := time.Now()
	for _, name := range []string{"nplbridge-lbsync", "nplbridge-agent"} {
		s.setState(name, "removing")
	}
	s.bare()
	s.poll(func() error {
		if found := s.service(); len(found.Finalizers)+len(found.Status.Conditions)+len(found.Status.LoadBalancer.Ingress) > 0 {
			return fmt.Errorf("the Service has finalizers %q, conditions %+v, ingress %v", found.Finalizers, found.Status.Conditions, found.Status.LoadBalancer.Ingress)
		}
		return nil
	})
	s.t.Logf("gone after %s", time.Since(began).Round(100*time.Millisecond))
	for _, name := range []string{"nplbridge-lbsync", "nplbridge-agent"} {
		s.setState(name, "running")
	}
	s.published(2)
	s.answered(2)
}

// deploy makes the application, whose Pods wait for the load balancer if there is one.
func (s site) deploy(class string, gated bool) {
	s.t.Helper()
	gate := ""
	if gated {
		gate = "readinessGates: [{conditionType: nplbridge.io/in-pool}]"
	}
	s.must(theLab.Apply(s.t.Context(), fmt.Sprintf(application, class, gate)))
}

func (s site) makeNamespace() {
	s.t.Helper()
	s.must(theLab.Apply(s.t.Context(), `{apiVersion: v1, kind: Namespace, metadata: {name: `+systemNamespace+`, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
}

// rights is what all installations of these tests have used.
var rights usage
