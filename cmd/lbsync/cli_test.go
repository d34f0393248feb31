package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/remote/remotetest"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
	"github.com/nplbridge/nplbridge/lbsync"
)

// document is what a running lbsync could serve: shop/web is in order but for one Pod, shop/db is broken.
func document() lbsync.Document {
	read := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	three := 3
	return lbsync.Document{
		Version: lbsync.DocumentVersion, Instance: "nplbridge-system/nplbridge", Identity: "lbsync-a", Leading: true, Leader: "lbsync-a", ServiceType: "NodePortLocal",
		Providers: []lbsync.Provider{{
			Name: "edge", Kind: "haproxy", Local: true, Writing: true, Ready: true, LastObserve: &read, Foreign: []string{"backend old"},
			Planned: []lbsync.PlannedChange{
				{Key: "shop/db:5432/TCP", Object: "virtual server", Op: "change", Steps: []lbsync.PlannedStep{{Op: "~", What: "addresses", From: "192.0.2.2", To: "192.0.2.3"}}},
				{Key: "shop/web:80/TCP", Object: "pool", Op: "change", Steps: []lbsync.PlannedStep{
					{Op: "+", What: "192.0.2.13:61000 shop/web-3"}, {Op: "-", What: "192.0.2.14:61000 shop/web-4"},
				}},
			},
		}},
		Services: []lbsync.ServiceStatus{
			{Service: "shop/db", On: []string{"edge"}, Source: "NodePortLocal", Selected: 1, Ports: []lbsync.PortStatus{{
				Port: 5432, Protocol: "TCP", Provider: "edge", Target: "5432", VIPs: []string{"192.0.2.2"}, Problem: "no such monitor", ProblemKind: "Rejected",
				Members: []lbsync.MemberStatus{},
			}}},
			{
				Service: "shop/web", On: []string{"edge"}, Source: "NodePortLocal", Selected: 3, NodePorts: true,
				Ports: []lbsync.PortStatus{{
					Port: 80, Protocol: "TCP", Provider: "edge", Target: "8080", VIPs: []string{"192.0.2.1", "2001:db8::1"}, Programmed: true,
					Members: []lbsync.MemberStatus{
						{Pod: "shop/web-1", PodUID: "u1", Address: "192.0.2.11:61000", State: "Enabled", Health: "Up", Connections: &three},
						{Pod: "shop/web-2", PodUID: "u2", Address: "192.0.2.12:61000", State: "Draining"},
					},
				}},
				Pods: []lbsync.PodStatus{{Pod: "shop/web-2", UID: "u2", Ready: true, Terminating: true}, {Pod: "shop/web-3", UID: "u3"}},
			},
		},
	}
}

// serveDocument serves a document as a running lbsync does, and returns the flag that leads to it.
func serveDocument(t *testing.T, d any) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "npl") // short, for the socket's path
	if err != nil {
		t.Fatal(err)
	}
	listener, err := serve.ListenUnix(filepath.Join(dir, "s.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- serve.Serve(ctx, listener, serve.StatusHandler(func() any { return d })) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return "--status-socket=" + filepath.Join(dir, "s.sock")
}

func TestStatusTable(t *testing.T) {
	socket := serveDocument(t, document())
	out, err := execute("status", socket)
	if err != nil {
		t.Fatal(err)
	}
	want := `instance   nplbridge-system/nplbridge
process    lbsync-a
leader     lbsync-a (this process)

LOAD BALANCERS (1)
NAME   KIND      WRITTEN HERE   LAST READ              STATE
edge   haproxy   true           2026-01-02T03:04:05Z   in order; 1 objects of others are in the way: backend old

SERVICES (2)
SERVICE    PORT       ON     ADDRESS                  MEMBERS              STATE
shop/db    5432/TCP   edge   192.0.2.2                0 of 1               Rejected: no such monitor
shop/web   80/TCP     edge   192.0.2.1, 2001:db8::1   1 of 3, 1 draining   programmed

REFUSALS (0)
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	out, err = execute("status", socket, "-o", "wide", "-n", "shop")
	want = `
MEMBERS (2)
SERVICE    PORT     ON     POD          ADDRESS            STATE      HEALTH   CONNECTIONS
shop/web   80/TCP   edge   shop/web-1   192.0.2.11:61000   Enabled    Up       3
shop/web   80/TCP   edge   shop/web-2   192.0.2.12:61000   Draining   ?        ?
`
	if err != nil || !strings.Contains(out, want) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A harmless problem does not hide why a Service is not served.
func TestServiceState(t *testing.T) {
	const problem = `"problems":[{"key":"nplbridge.io/algorithm","value":"fastest","message":"no algorithm"}]`
	for text, want := range map[string]string{
		`{` + problem + `,"conditions":[{"type":"nplbridge.io/Accepted","status":"False","reason":"InvalidAnnotation","message":"no algorithm; every address is taken"}]}`: "InvalidAnnotation: no algorithm; every address is taken",
		`{` + problem + `,"conditions":[{"type":"nplbridge.io/Accepted","status":"True","reason":"Accepted","message":"the Service is served"}]}`:                          "nplbridge.io/algorithm: no algorithm",
		`{}`: "pending",
	} {
		var s lbsync.ServiceStatus
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got := serviceState(s); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestStatusFormats(t *testing.T) {
	socket := serveDocument(t, document())
	for args, want := range map[string]string{
		"-o json":          `"podUID": "u1"`,
		"-o yaml":          "podUID: u1\n",
		"-o json -n shop":  `"service": "shop/web"`,
		"-o json -A":       `"service": "shop/web"`,
		"-n other":         "SERVICES (0)",
		"-o yaml -n other": "services: []\n",
	} {
		if out, err := execute(append([]string{"status", socket}, strings.Fields(args)...)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, no %q in\n%s", args, err, want, out)
		}
	}
	if _, err := execute("status", socket, "-n", "a", "-A"); err == nil {
		t.Error("-n and -A together")
	}
	for _, another := range []any{map[string]any{"version": 1}, map[string]any{"version": 2, "services": 7}} {
		if _, err := execute("status", serveDocument(t, another)); err == nil || !strings.Contains(err.Error(), "use the same version of both") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := execute("status", "--status-socket=/nonexistent/s.sock"); err == nil || !strings.Contains(err.Error(), "or add --remote") {
		t.Errorf("got %v", err)
	}
	if _, err := execute("status", "--process=x"); err == nil || !strings.Contains(err.Error(), "add --remote") {
		t.Errorf("got %v", err)
	}
}

func TestExplainText(t *testing.T) {
	out, err := execute("explain", "service", "web", "--kubeconfig=/nonexistent", serveDocument(t, document()))
	if err != nil {
		t.Fatal(err)
	}
	want := `Service shop/web
  note     Service          Kubernetes allocates node ports for it, which no load balancer needs while members come from
                            NodePortLocal; those it has stay until ports are written anew
                            -> give back the Node's ports that nobody uses:
                               $ kubectl -n shop patch service web --type merge -p '{"spec":{"allocateLoadBalancerNodePorts":false}}'

shop/web:80/TCP on edge
  ok       VIP              192.0.2.1, 2001:db8::1 on edge (haproxy)
  ok       virtual server   confirmed by edge
  ok       members          1 take connections: shop/web-1 at 192.0.2.11:61000
  waiting  member           shop/web-2 at 192.0.2.12:61000 takes no new connections and leaves when it has none: its Pod
                            is being deleted
  note     Pod              shop/web-3 is not ready
                            -> see why:
                               $ kubectl -n shop describe pod web-3

NetworkPolicies were not looked at: `
	if diff := cmp.Diff(want, out[:min(len(want), len(out))]); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestExplain(t *testing.T) {
	socket := serveDocument(t, document())
	for args, test := range map[string]struct {
		want   string
		broken bool
	}{
		"service shop/web":                {"ok       VIP", false},
		"service web -n shop":             {"ok       VIP", false},
		"service db -n shop":              {"BROKEN   virtual server   edge did not take a change: no such monitor", true},
		"service db -n shop -o json":      {`"level": "broken"`, true},
		"service db -n shop -o yaml":      {"level: broken\n", true},
		"pod web-3":                       {"BROKEN   Pod              shop/web-3 is not ready", true},
		"pod web-1":                       {"is enabled, monitor says up, 3 connections", false},
		"pod other/none":                  {"no Service that lbsync serves selects this Pod", true},
		"vip 192.0.2.1":                   {"ok       members", false},
		"vip [2001:db8::1]:80":            {"ok       members", false},
		"vip 192.0.2.1:81":                {"BROKEN   virtual server   no Service has port 81", true},
		"member 192.0.2.11:61000":         {"ok       member", false},
		"member 192.0.2.19:61000":         {"BROKEN   pool", true},
		"service none -n other":           {"lbsync knows no such Service", true},
		"pod web-3 -n shop --output=json": {`"link": "Pod"`, true},
	} {
		out, err := execute(append([]string{"explain", "--kubeconfig=/nonexistent", socket}, strings.Fields(args)...)...)
		if errors.Is(err, program.ErrReported) != test.broken || err != nil && !test.broken || !strings.Contains(out, test.want) {
			t.Errorf("%s: %v, want broken %v and %q in\n%s", args, err, test.broken, test.want, out)
		}
	}
	for args, want := range map[string]string{
		"node worker-1":             `cannot explain "node"; write one of service, pod, vip, member`,
		"service":                   "accepts 2 arg(s)",
		"vip web":                   `"web" is not a VIP: write an address`,
		"member 192.0.2.1":          "write ADDRESS:PORT",
		"service none":              `lbsync knows no service of the name "none"; say the namespace with -n`,
		"service shop/web -n other": `"shop/web" is not in namespace other`,
		"service x/y/z":             `"x/y/z" is not the name of a service; write NAME with -n, or NAMESPACE/NAME`,
		"pod x/y/z -n x":            `"x/y/z" is not the name of a pod`,
		"service /web":              `"/web" is not the name of a service`,
		"service shop/":             `"shop/" is not the name of a service`,
		"pod Shop_1/web":            `"Shop_1/web" is not the name of a pod`,
	} {
		if out, err := execute(append([]string{"explain", "--kubeconfig=/nonexistent", socket}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q\n%s", args, err, want, out)
		}
	}
	command := root(callerOf("lbsync"))
	command.SetArgs([]string{"explain", "service", "x/y/z", socket})
	if code := program.Main(command); code != 2 {
		t.Errorf("a name that can be none: exit code %d, want 2", code)
	}
}

func TestExplainCompletion(t *testing.T) {
	socket := serveDocument(t, document())
	for args, want := range map[string]string{
		"explain|":                  "service\npod\nvip\nmember\n",
		"explain|service|":          "shop/db\nshop/web\n",
		"explain|-n|shop|service|":  "db\nweb\n",
		"explain|vip|":              "192.0.2.1\n192.0.2.2\n2001:db8::1\n",
		"explain|member|":           "192.0.2.11:61000\n192.0.2.12:61000\n",
		"explain|-n|shop|pod|":      "web-1\nweb-2\nweb-3\n",
		"explain|-n|other|service|": "",
		"status|--status-so":        "--status-socket\t",
	} {
		fields := strings.Split(args, "|")
		if fields[0] == "explain" {
			fields = append([]string{fields[0], socket}, fields[1:]...)
		}
		command := root(callerOf("lbsync"))
		command.SetErr(io.Discard)
		out, err := run(command, append([]string{"__complete"}, fields...)...)
		if err != nil || !strings.HasPrefix(out, want) || want == "" && !strings.HasPrefix(out, ":") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, err := execute("completion", shell); err != nil || !strings.Contains(out, "lbsync") {
			t.Errorf("%s: %v", shell, err)
		}
	}
}

// diff tells by its exit code, as kubectl's: 0 none, 1 some, more is a failure.
func TestDiff(t *testing.T) {
	equal, follower, away, starting := document(), document(), document(), document()
	equal.Providers[0].Planned = nil
	follower.Providers[0].Writing, follower.Leader = false, "lbsync-b"
	away.Providers[0].Problem = "connection refused"
	starting.Providers[0].Ready = false
	both := `change virtual server shop/db:5432/TCP on edge
  ~ addresses: 192.0.2.2 -> 192.0.2.3
change pool shop/web:80/TCP on edge
  + 192.0.2.13:61000 shop/web-3
  - 192.0.2.14:61000 shop/web-4
`
	for name, test := range map[string]struct {
		document any
		args     string
		want     string
		code     int
		err      string
	}{
		"some":                     {document: document(), want: both, code: 1},
		"none":                     {document: equal, want: "", code: 0},
		"none in that namespace":   {document: document(), args: "-n other", want: "", code: 0},
		"json":                     {document: document(), args: "-o json", want: `"provider": "edge"`, code: 1},
		"json of none":             {document: equal, args: "-o json", want: "[]", code: 0},
		"who does not write":       {document: follower, code: 2, err: "lbsync-a does not write edge, so it does not know; lbsync-b holds the Lease"},
		"a load balancer away":     {document: away, code: 2, err: "edge cannot be read: connection refused"},
		"before the first reading": {document: starting, code: 2, err: "ask again in a moment"},
		"another version":          {document: map[string]any{"version": 1}, code: 2, err: "use the same version"},
		"live, nothing to ask":     {document: document(), args: "--live --kubeconfig=/nonexistent", code: 2, err: "kubeconfig"},
	} {
		out, err := execute(append([]string{"diff", serveDocument(t, test.document)}, strings.Fields(test.args)...)...)
		code := 0
		if exit, ok := errors.AsType[*program.ExitError](err); ok {
			code = exit.Code
		} else if err != nil {
			t.Errorf("%s: %v has no exit code of its own", name, err)
		}
		if code != test.code || !strings.Contains(out, test.want) || test.err != "" && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: exit code %d, %v\n%s", name, code, err, out)
		}
	}
}

func TestConfigCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	if err := os.WriteFile(file, []byte("resync: 1m\naddressPools: [192.0.2.0/28]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := execute("config", "validate", "--config="+file); err != nil || out != "the settings are good\n" {
		t.Errorf("%v\n%s", err, out)
	}
	printed, err := execute("config", "print", "--config="+file)
	if err != nil || !strings.Contains(printed, "resync: 1m # "+file+"\n") || !strings.Contains(printed, `addressPools: ["192.0.2.0/28"] # `) {
		t.Errorf("%v\n%s", err, printed)
	}
	// What is printed can be used again.
	if err := os.WriteFile(file, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := execute("config", "print", "--config="+file); err != nil || strings.Count(again, "\n") != strings.Count(printed, "\n") {
		t.Errorf("%v\n%s", err, again)
	}
	if _, err := execute("config", "validate", "--resync=1s"); err == nil || !strings.Contains(err.Error(), `resync: "1s": write a duration from 10s to 24h (from --resync)`) {
		t.Errorf("got %v", err)
	}
}

// As a plugin of kubectl it says so, and asks the cluster.
func TestKubectlPlugin(t *testing.T) {
	for argv0, want := range map[string]caller{
		"/usr/local/bin/kubectl-npl": {"kubectl-npl", "kubectl npl", true},
		"kubectl-npl.exe":            {"kubectl-npl", "kubectl npl", true},
		"/lbsync":                    {"lbsync", "lbsync", false},
		"./lbsync-v2":                {"lbsync", "lbsync", false},
	} {
		if got := callerOf(argv0); got != want {
			t.Errorf("%s: %+v", argv0, got)
		}
	}
	plugin := callerOf("kubectl-npl")
	out, err := executeAs(plugin, "explain", "--help")
	if err != nil || !strings.Contains(out, "  kubectl npl explain service web -n shop\n") || !strings.Contains(out, "kubectl npl explain service|pod|vip|member NAME [flags]") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := executeAs(plugin, "--help"); err != nil || strings.Contains(out, "\n  run ") || strings.Contains(out, "kubectl npl run") || !strings.Contains(out, "\n  status ") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := executeAs(plugin, "status", "--kubeconfig=/nonexistent"); err == nil || !strings.Contains(err.Error(), `kubeconfig: "/nonexistent" (from --kubeconfig)`) {
		t.Errorf("it asked a socket: %v", err)
	}
	if got := plugin.lines("see:\nlbsync explain pod x\n  lbsync status\nlbsyncs are"); got != "see:\nkubectl npl explain pod x\n  kubectl npl status\nlbsyncs are" {
		t.Errorf("got %q", got)
	}
}

// Where lbsync is, of a release that the settings name.
func TestTargetOf(t *testing.T) {
	for args, want := range map[string]string{
		"":                           "nplbridge-system nplbridge-lbsync 10364 app.kubernetes.io/component=lbsync,app.kubernetes.io/instance=nplbridge",
		"--instance=lb/edge":         "lb edge-nplbridge-lbsync 10364 app.kubernetes.io/component=lbsync,app.kubernetes.io/instance=edge",
		"--instance=lb/my-nplbridge": "lb my-nplbridge-lbsync 10364 app.kubernetes.io/component=lbsync,app.kubernetes.io/instance=my-nplbridge",
		"--status-address=127.0.0.1:7 --lease-name=x": "nplbridge-system x 7 app.kubernetes.io/component=lbsync,app.kubernetes.io/instance=nplbridge",
	} {
		values, err := load(strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := targetOf(values)
		if text := strings.Join([]string{got.Namespace, got.Lease, portText(got.Port), got.Selector}, " "); err != nil || text != want {
			t.Errorf("%s: %v, %s", args, err, text)
		}
	}
}

func TestPolicies(t *testing.T) {
	pod := func(name, app string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": app}}}
	}
	policy := func(name string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
		return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: spec}
	}
	web := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	client := fake.NewClientset(pod("web-1", "web"), pod("db-1", "db"),
		policy("egress", networkingv1.NetworkPolicySpec{PodSelector: web, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}),
		policy("in", networkingv1.NetworkPolicySpec{PodSelector: web, Ingress: []networkingv1.NetworkPolicyIngressRule{
			{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &web}, {IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}}}},
			{Ports: []networkingv1.NetworkPolicyPort{
				{Port: new(intstr.FromInt32(8080)), EndPort: new(int32(8090))}, {Protocol: new(corev1.ProtocolUDP), Port: new(intstr.FromString("dns"))}, {},
			}},
			{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "::/0"}}}},
		}}))
	got, err := appendPolicies(t.Context(), client, nil, "shop")
	if err != nil {
		t.Fatal(err)
	}
	want := []lbsync.PolicyStatus{{Policy: "shop/in", Pods: []string{"shop/web-1"}, Rules: []lbsync.PolicyRule{
		{Blocks: []string{"10.0.0.0/8 without 10.1.0.0/16"}},
		{Anyone: true, Ports: []lbsync.PolicyRulePort{{Protocol: "tcp", First: 8080, Last: 8090}, {Protocol: "udp", Name: "dns"}, {Protocol: "tcp"}}},
		{Anyone: true},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := namespacesOf(document(), lbsync.Target{Kind: lbsync.TargetMember, Name: "192.0.2.11:61000"}); !cmp.Equal(got, []string{"shop"}) {
		t.Errorf("namespaces of a member: %q", got)
	}
}

// explain reads NetworkPolicies through the kubeconfig where it can.
func TestExplainReadsPolicies(t *testing.T) {
	d := document()
	d.Services[1].Ports[0].Members[0].Health = "Down"
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch r.URL.Path {
		case "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies":
			answer = networkingv1.NetworkPolicyList{
				TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicyList"},
				Items:    []networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "closed"}}},
			}
		case "/api/v1/namespaces/shop/pods":
			answer = corev1.PodList{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
				Items:    []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}}},
			}
		default:
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer api.Close()
	out, err := execute("explain", "service", "web", "-n", "shop", serveDocument(t, d), kubeconfigFor(t, api.URL))
	if !errors.Is(err, program.ErrReported) || !strings.Contains(strings.Join(strings.Fields(out), " "), "down, and NetworkPolicy shop/closed lets nobody but Pods reach port 8080 of it") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Where NetworkPolicies may not be read the answer says so in few words, and what to do.
func TestExplainMayNotReadPolicies(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
			Message: `networkpolicies.networking.k8s.io is forbidden: User "system:serviceaccount:a:b" cannot list resource "networkpolicies"`,
		})
	}))
	defer api.Close()
	out, err := execute("explain", "service", "web", "-n", "shop", serveDocument(t, document()), kubeconfigFor(t, api.URL))
	want := "\nNetworkPolicies were not looked at: they may not be read in namespace shop; name the kubeconfig of somebody who may with --kubeconfig\n"
	if err != nil || !strings.HasSuffix(out, want) {
		t.Errorf("%v, want %q at the end of\n%s", err, want, out)
	}
}

func kubeconfigFor(t *testing.T, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: "` + server + `"}}], users: [{name: u, user: {}}]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--kubeconfig=" + file
}

// With --remote the Pod that leads is asked, through the API server.
func TestRemote(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve.Serve(ctx, listener, serve.StatusHandler(func() any { return document() })) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	var selector string
	api := remotetest.Server(t, "lb", "edge-1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var answer any
		switch r.URL.Path {
		case "/api/v1/namespaces/lb/pods":
			selector = r.URL.Query().Get("labelSelector")
			answer = corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{
				{ObjectMeta: metav1.ObjectMeta{Namespace: "lb", Name: "edge-0"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
				{ObjectMeta: metav1.ObjectMeta{Namespace: "lb", Name: "edge-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}},
			}}
		case "/apis/coordination.k8s.io/v1/namespaces/lb/leases/edge-nplbridge-lbsync":
			answer = coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("edge-1")}}
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	flags := []string{"--instance=lb/edge", "--status-address=" + listener.Addr().String(), kubeconfigFor(t, api.URL)}
	for _, by := range []caller{callerOf("kubectl-npl"), callerOf("lbsync")} {
		args := append([]string{"status"}, flags...)
		if !by.plugin {
			args = append(args, "--remote")
		}
		if out, err := executeAs(by, args...); err != nil || !strings.Contains(out, "lbsync-a (this process)") {
			t.Errorf("%s: %v\n%s", by.typed, err, out)
		}
	}
	if want := "app.kubernetes.io/component=lbsync,app.kubernetes.io/instance=edge"; selector != want {
		t.Errorf("Pods were selected by %q, want %q", selector, want)
	}
	if _, err := execute(append([]string{"status", "--remote", "--process=edge-7"}, flags...)...); err == nil || !strings.Contains(err.Error(), "there are: edge-0, edge-1") {
		t.Errorf("got %v", err)
	}
}

// cleanup beside a process that listens on the status socket is refused before anything is asked of a load balancer.
func TestCleanupRefuses(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer api.Close()
	_, err := execute("cleanup", kubeconfigFor(t, api.URL), serveDocument(t, document()))
	if err == nil || !strings.Contains(err.Error(), "lbsync is running: it listens on") || !strings.Contains(err.Error(), "--wait") {
		t.Errorf("got %v", err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	_, err = execute("cleanup", kubeconfigFor(t, "http://"+free.Addr().String()), "--status-socket=")
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
}
