package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/chaos/ledger"
	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// The settings that a run gives nplbridge. They are short, so that a run sees many of each.
const (
	coolDown  = 1500 * time.Millisecond
	portRange = "61000-61031"
	ports     = 32
	resync    = 10 * time.Second
	nodeGrace = 20 * time.Second
	namespace = "chaos"
	system    = "nplbridge-system"
)

// apart is by how much the times of two events that a watch shows may differ from those at which they happened, on a busy machine.
const apart = 700 * time.Millisecond

var chartValues = []string{
	"agent.config.coolDown=" + coolDown.String(),
	"agent.config.portRange=" + portRange,
	"agent.config.withdrawGrace=1s",
	"admissionPolicies.annotationWriters={nplbridge-lab-admin}",
}

// The providers of each lbsync, and where their addresses come from. HAProxy keeps the name that it begins with: agents would wait for the
// watermark of one that was renamed.
const (
	viaHAProxy = "haproxy"
	viaAvi     = "controller"
	viaBigIP   = "device"

	haproxyVIPs = "172.31.0.10-172.31.0.79"
	aviVIPs     = "172.31.0.80-172.31.0.149"
	bigipVIPs   = "172.31.0.150-172.31.0.219"
)

// openPorts hold what Services of a run ask for, but for those of "exhaustion".
var openPorts = []string{"172.31.0.8/29:80-90", "172.31.0.8/29:100-199"}

// site is a lab with everything that a run needs.
type site struct {
	view.View

	out       io.Writer
	small     bool // one Node, few Pods
	openPorts bool // HAProxy listens before Services come
	avi       *lab.Beside
	bigip     *lab.Beside
	relays    map[string]*relay // by what lies behind: "api", "avi", "bigip", and of each HAProxy "admin@lb", "master@lb"
	tokens    map[string]string // the place of each lbsync, by the ID of its token
	selection *ledger.Selection
	tally     *ledger.Tally
	asking    []*client
	watch     *watch
	rules     *rules
	excuses   excuses
	baseline  resources
	foreign   map[string]string
	version   int // of the template of agents
	auditRead int64
}

// newSite starts a lab with everything in it.
func newSite(ctx context.Context, o Options) (_ *site, err error) {
	nodes := 3
	if o.Small {
		nodes = 1
	}
	l, err := lab.Start(ctx, lab.Options{Nodes: nodes, NodeGrace: nodeGrace, ReusePodIPs: true, Programs: o.Programs, Progress: io.Discard})
	if err != nil {
		return nil, err
	}
	s := &site{
		View: view.View{Lab: l, Namespace: namespace}, out: o.Out, small: o.Small, openPorts: o.OpenPorts,
		relays: map[string]*relay{}, tokens: map[string]string{}, selection: ledger.NewSelection(), tally: ledger.NewTally(), foreign: map[string]string{},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := l.InstallChart(ctx, chartValues...); err != nil {
		return nil, err
	}
	if err := l.StartLoadBalancer(ctx); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{
		l.StartStandby, s.startSimulators, s.startRelays, s.configure, s.openRules, s.makeNamespace, s.seed, s.startWatch, s.deploy, s.startSampler,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *site) close() error {
	if s.watch != nil {
		s.watch.stop()
	}
	for _, r := range s.relays {
		r.close()
	}
	return s.Lab.Close()
}

func (s *site) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *site) startSimulators(ctx context.Context) (err error) {
	if s.avi, err = s.Lab.StartBeside(ctx, lab.Avi, aviVIPs); err != nil {
		return err
	}
	s.bigip, err = s.Lab.StartBeside(ctx, lab.BigIP, "")
	return err
}

// text is a value as JSON, which YAML includes.
func text(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err) // maps and strings
	}
	return string(out)
}

// workload is a Deployment of echo servers; Services choose them by the label "app", or "color".
type workload struct {
	name     string
	replicas int
	labels   string // beside app
	gates    string
}

func (s *site) makeNamespace(ctx context.Context) error {
	err := s.Lab.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: privileged}}
`, namespace))
	if err != nil {
		return err
	}
	return view.Poll(ctx, func() error { // without it a Pod is refused
		_, err := s.Lab.Client().CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// deploy makes the Services and their Pods.
func (s *site) deploy(ctx context.Context) error {
	var manifest strings.Builder
	for _, w := range s.workloads() {
		manifest.WriteString(w.manifest())
	}
	manifest.WriteString(balanced("web", viaHAProxy, "{app: web}", tcpPorts, ""))
	manifest.WriteString(balanced("api", viaHAProxy, "{app: api}", tcpPorts, ""))
	manifest.WriteString(balanced("color", viaHAProxy, "{color: blue}", "[{name: http, port: 80, targetPort: http}]", ""))
	manifest.WriteString(direct("dns", "{app: dns}", udpPorts))
	// Pods of both colors have node ports, whichever the Service "color" selects: what a careful operator sees to before the switch.
	manifest.WriteString(direct("palette", "{palette: mixed}", "[{name: http, port: 80, targetPort: http}]"))
	manifest.WriteString(balanced("dns-avi", viaAvi, "{app: dns}", udpPorts, "nplbridge.io/monitor: None"))
	manifest.WriteString(balanced("dns-bigip", viaBigIP, "{app: dns}", udpPorts, "nplbridge.io/monitor: None"))
	return s.Lab.Apply(ctx, manifest.String())
}

func (s *site) workloads() []workload {
	if s.small {
		return []workload{{name: "web", replicas: 2, gates: gateInPool}, {name: "api", replicas: 2}, {name: "blue", replicas: 1, labels: "color: blue, palette: mixed"}, {name: "dns", replicas: 1}}
	}
	return []workload{
		{name: "web", replicas: 4, gates: gateInPool}, {name: "api", replicas: 3, gates: gateChaos},
		{name: "blue", replicas: 2, labels: "color: blue, palette: mixed"}, {name: "green", replicas: 2, labels: "color: green, palette: mixed"}, {name: "dns", replicas: 3},
	}
}

// The readiness gates: that of lbsync, and one of our own, by which a Pod loses its readiness and gets it back.
const (
	conditionChaos = "chaos.nplbridge.io/ready"
	gateInPool     = "{conditionType: nplbridge.io/in-pool}"
	gateChaos      = "{conditionType: " + conditionChaos + "}"
)

const (
	tcpPorts = "[{name: http, port: 80, targetPort: http}, {name: tcp, port: 90, targetPort: line}]"
	udpPorts = "[{name: udp, port: 53, targetPort: datagram, protocol: UDP}]"
)

// manifest is that of Pods that go as careful ones do: no new work for 3 s before they are told to end, and old work finished after.
func (w workload) manifest() string {
	labels := "app: " + w.name
	if w.labels != "" {
		labels += ", " + w.labels
	}
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  replicas: %[3]d
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 2}}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {%[4]s}}
    spec:
      readinessGates: [%[5]s]
%[6]s---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: %[1]s, namespace: %[2]s}
spec: {minAvailable: %[7]d, selector: {matchLabels: {app: %[1]s}}}
`, w.name, namespace, w.replicas, labels, w.gates, indent(podSpec, "      "), w.replicas-1)
}

const podSpec = `terminationGracePeriodSeconds: 15
tolerations: [{operator: Exists}]
containers:
- name: echo
  image: ghcr.io/nplbridge/echo:lab
  args: [--linger=1s]
  ports: [{name: http, containerPort: 8080}, {name: line, containerPort: 9090}, {name: datagram, containerPort: 9090, protocol: UDP}]
  readinessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 1}
  lifecycle: {preStop: {sleep: {seconds: 3}}}
  env:
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
`

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

// balanced is the manifest of a Service behind a load balancer.
func balanced(name, provider, selector, ports, annotations string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s, annotations: {%s}}
spec:
  type: LoadBalancer
  loadBalancerClass: nplbridge.io/%s
  allocateLoadBalancerNodePorts: false
  selector: %s
  ports: %s
`, name, namespace, annotations, provider, selector, ports)
}

// direct is the manifest of a Service that only asks for node ports.
func direct(name, selector, ports string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: %s, annotations: {nodeportlocal.antrea.io/enabled: "true"}}
spec:
  selector: %s
  ports: %s
`, name, namespace, selector, ports)
}
