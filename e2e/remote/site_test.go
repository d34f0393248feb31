package remote

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// site is one load balancer with the namespace of the Services behind it.
type site struct {
	view.View

	t   *testing.T // of the test that runs
	lb  *lab.LoadBalancer
	vip string // address:port of the Service web
}

var manifest = template.Must(template.New("manifest").Parse(`
apiVersion: v1
kind: Service
metadata:
  name: {{.Name}}
  namespace: {{.Namespace}}
  {{- with .Pool}}
  annotations: {nplbridge.io/pool: "{{.}}"}
  {{- end}}
spec:
  {{- if .Pool}}
  type: ClusterIP
  {{- else}}
  type: LoadBalancer
  loadBalancerClass: {{.Class}}
  allocateLoadBalancerNodePorts: false
  {{- end}}
  selector: {app: {{.Name}}}
  ports: [{port: 80, targetPort: http}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{.Name}}, namespace: {{.Namespace}}}
spec:
  replicas: {{.Replicas}}
  selector: {matchLabels: {app: {{.Name}}}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: {{.Name}}}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: echo
        image: ghcr.io/nplbridge/echo:lab
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 3}}}
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
`))

// apply makes a Service with Pods behind it; with a pool, one that only adds members to it.
func (s *site) apply(name string, replicas int, pool string) {
	s.t.Helper()
	var text bytes.Buffer
	err := manifest.Execute(&text, map[string]any{
		"Name": name, "Namespace": s.Namespace, "Replicas": replicas, "Pool": pool, "Class": s.lb.Class(),
	})
	s.must(err)
	s.must(s.Lab.Apply(s.t.Context(), text.String()))
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) kubectl(args ...string) string {
	s.t.Helper()
	out, err := s.Lab.Kubectl(s.t.Context(), append([]string{"-n", s.Namespace}, args...)...)
	s.must(err)
	return out
}

func (s *site) eventually(look func() error) {
	s.t.Helper()
	s.must(view.Poll(s.t.Context(), look))
}

func (s *site) settled(service string, pods int) map[netip.AddrPort]string {
	s.t.Helper()
	members, err := s.Settled(s.t.Context(), service, pods)
	s.must(err)
	return members
}

func (s *site) service(name string) *corev1.Service {
	s.t.Helper()
	svc, err := s.Lab.Client().CoreV1().Services(s.Namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	s.must(err)
	return svc
}

// condition returns "Status Reason: message" of a condition of a Service, or nothing.
func (s *site) condition(service, name string) string {
	s.t.Helper()
	for _, c := range s.service(service).Status.Conditions {
		if c.Type == name {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

func (s *site) hasCondition(service, name, want string) {
	s.t.Helper()
	s.eventually(func() error {
		if got := s.condition(service, name); !strings.HasPrefix(got, want) {
			return fmt.Errorf("the condition %s of %s is %q, want %s", name, service, got, want)
		}
		return nil
	})
}

func (s *site) client(target string) load.Options {
	return load.Options{Targets: []string{target}, Clients: 4, Timeout: 10 * time.Second, Dial: s.DialFrom("client")}
}

// balanced asks the address: nothing fails, and all of these Pods answer and no others.
func (s *site) balanced(address string, members map[netip.AddrPort]string) {
	s.t.Helper()
	r := load.Run(s.t.Context(), 60*len(members), s.client(address))
	if r.Failed > 0 {
		s.t.Errorf("%d of %d requests failed: %v", r.Failed, r.Requests, r.Failures)
	}
	for _, pod := range members {
		if r.ByPod[pod] == 0 {
			s.t.Errorf("%s has not been asked: %v", pod, r.ByPod)
		}
	}
	if len(r.ByPod) != len(members) {
		s.t.Errorf("%v answered, want the %d Pods %v", r.ByPod, len(members), members)
	}
}

// underLoad asks on new and on kept connections while something happens; no request fails.
func (s *site) underLoad(happens func()) {
	s.t.Helper()
	kept := s.client(s.vip)
	kept.KeepAlive = true
	loads := []*load.Load{load.Start(s.t.Context(), s.client(s.vip)), load.Start(s.t.Context(), kept)}
	happens()
	for _, l := range loads {
		r := l.Stop()
		s.t.Logf("%d requests, %d failed", r.Requests, r.Failed)
		if r.Failed > 0 || r.Requests < 100 {
			s.t.Errorf("%d of %d requests failed: %v", r.Failed, r.Requests, r.Failures)
		}
	}
}

// request is a line of the simulator's log.
type request struct {
	at           time.Time
	method, path string
	status       int
}

func (r request) String() string { return fmt.Sprint(r.method, " ", r.status, " ", r.path) }

// calls are those that the simulator was sent since an earlier number of them.
func (s *site) calls(since int) []request {
	var out []request
	for line := range strings.Lines(s.lb.SimulatorLog()) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, f[0])
		status, err2 := strconv.Atoi(f[2])
		if errors.Join(err, err2) != nil {
			continue // not a call
		}
		out = append(out, request{at, f[1], f[3], status})
	}
	return out[min(since, len(out)):]
}

// writes are those calls that change the configuration; logins and tokens do not.
func writes(calls []request) []request {
	return slices.DeleteFunc(slices.Clone(calls), func(c request) bool {
		configuration := strings.HasPrefix(c.path, "/api/") || strings.HasPrefix(c.path, "/mgmt/tm/")
		return c.method == http.MethodGet || !configuration
	})
}

// readings counts how often lbsync has read everything back.
func (s *site) readings(calls []request) int {
	whole := map[lab.Kind]*regexp.Regexp{
		lab.Avi:   regexp.MustCompile(`^/api/pool\?.*fields=`),
		lab.BigIP: regexp.MustCompile(`^/mgmt/tm/ltm/virtual\?`),
	}[s.lb.Kind()]
	n := 0
	for _, c := range calls {
		if c.method == http.MethodGet && whole.MatchString(c.path) {
			n++
		}
	}
	return n
}

// quiet waits until lbsync has read everything since its last write: nothing is left to do, or to save.
func (s *site) quiet() {
	s.t.Helper()
	s.eventually(func() error {
		all := s.calls(0)
		last := 0
		for i, c := range all {
			if len(writes([]request{c})) > 0 {
				last = i
			}
		}
		if s.readings(all[last:]) == 0 {
			return fmt.Errorf("no reading since %v", all[last])
		}
		return nil
	})
}

func (s *site) gone(service string) {
	s.t.Helper()
	s.kubectl("delete", "deployment,service", service, "--cascade=foreground", "--timeout=90s")
	s.eventually(func() error {
		_, err := s.Lab.Client().CoreV1().Services(s.Namespace).Get(s.t.Context(), service, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Service %s is still there: %w", service, err)
		}
		return nil
	})
}

// lbsyncRestarts kills lbsync and waits for the next one.
func (s *site) lbsyncRestarts() {
	s.t.Helper()
	before := s.lb.LBSyncPID()
	s.must(s.lb.KillLBSync())
	s.eventually(func() error {
		if s.lb.LBSyncPID() == before {
			return errors.New("lbsync does not run again yet")
		}
		return s.lb.LBSyncReady(s.t.Context())
	})
}

func (s *site) address(service string) string {
	s.t.Helper()
	address, err := s.Address(s.t.Context(), service, npl.IPv4)
	s.must(err)
	return address
}
