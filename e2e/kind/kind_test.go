package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/chart/manifests"
)

var update = flag.Bool("update", false, "write testdata/*.golden instead of comparing them")

const token = "secret-token"

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"-haproxy beside": `-haproxy: "beside" is neither inside nor outside`,
		"-name a/b":       `-name: "a/b"; want up to 32 small letters, digits and dashes`,
		"more":            `"more": there are only flags`,
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	o, err := parse([]string{"-haproxy", "inside", "-keep"}, io.Discard)
	if err != nil || o.name != "nplbridge" || o.haproxy != inside || !o.keep || !filepath.IsAbs(o.root) {
		t.Errorf("%+v, %v", o, err)
	}
}

// Every command is kept in testdata, so that a change of one is seen.
func TestPlan(t *testing.T) {
	for _, where := range []string{inside, outside} {
		var out bytes.Buffer
		if err := tell(t.Context(), options{root: "/repository", name: "nplbridge", haproxy: where, haproxyImage: "haproxy:2.6", plan: true}, &out); err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", where+".golden")
		if *update {
			if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s: -kept +now, go test -update:\n%s", where, diff)
		}
	}
}

func TestVIPs(t *testing.T) {
	for subnets, want := range map[string]string{
		"fc00:f853:ccd:e793::/64 172.18.0.0/16 ": "172.18.255.251-172.18.255.254",
		"192.0.2.64/27":                          "192.0.2.91-192.0.2.94",
		"192.0.2.7/24":                           "192.0.2.251-192.0.2.254",
		"192.0.2.0/28":                           "",
		"2001:db8::/64":                          "",
		"":                                       "",
		"nonsense":                               "",
	} {
		got, err := vips(subnets)
		if (err == nil) != (want != "") || err == nil && rangeOf(got) != want {
			t.Errorf("%q: %v, %v, want %s", subnets, got, err, want)
		}
	}
}

// kind itself takes the configuration, in the version that is pinned. A program docker that refuses stands in for the real one.
func TestKindTakesTheConfiguration(t *testing.T) {
	root := repository(t)
	kind, err := manifests.Tool(t.Context(), root, "kind", "kind")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "docker"), "#!/bin/sh\necho \"$@\" >> "+dir+"/calls\necho no engine here >&2\nexit 1\n", 0o755)
	create := func(config string) string {
		write(t, filepath.Join(dir, "kind.yaml"), config, 0o644)
		s := story{options: options{name: "nplbridge"}, dir: dir}
		command := exec.CommandContext(t.Context(), kind, s.create()[1].argv[4:]...) // behind go tool -modfile kind
		command.Env = append(os.Environ(), "PATH="+dir, "KIND_EXPERIMENTAL_PROVIDER=docker")
		out, err := command.CombinedOutput()
		if err == nil {
			t.Errorf("kind made a cluster without an engine:\n%s", out)
		}
		return string(out)
	}
	if out := create(kindConfig()); strings.Contains(out, "config") || !strings.Contains(out, "docker") {
		t.Errorf("kind goes no further than the configuration:\n%s", out)
	}
	for _, bad := range []string{"role: worker", "nodes:"} {
		if out := create(strings.Replace(kindConfig(), bad, "x"+bad, 1)); !strings.Contains(out, "decode config") {
			t.Errorf("kind does not look at the configuration:\n%s", out)
		}
	}
	if strings.Count(kindConfig(), "role:") != nodes {
		t.Errorf("not %d Nodes:\n%s", nodes, kindConfig())
	}
}

// The flags of kind exist.
func TestKindHasTheFlags(t *testing.T) {
	root := repository(t)
	kind, err := manifests.Tool(t.Context(), root, "kind", "kind")
	if err != nil {
		t.Fatal(err)
	}
	s := story{options: options{name: "n", haproxy: outside, nodeImage: "i"}, dir: "d", arch: "amd64"}
	internal, _ := s.credentials()
	steps := append(append(s.create(), internal), s.down()...)
	seen := 0
	for _, each := range steps {
		if len(each.argv) < 4 || each.argv[3] != "kind" {
			continue
		}
		seen++
		var flags, words []string
		for _, word := range each.argv[4:] {
			if strings.HasPrefix(word, "--") {
				flags = append(flags, word)
			} else if len(flags) == 0 {
				words = append(words, word)
			}
		}
		help, err := exec.CommandContext(t.Context(), kind, append(words, "--help")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, help)
		}
		if !strings.Contains(string(help), "kind "+strings.Join(words, " ")) {
			t.Errorf("kind has no command %q:\n%s", words, help)
		}
		for _, f := range flags {
			if !strings.Contains(string(help), f) {
				t.Errorf("kind %s has no flag %s", strings.Join(words, " "), f)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d commands of kind looked at", seen)
	}
}

// What helm is told renders, and puts HAProxy where it is said to be.
func TestChart(t *testing.T) {
	root := repository(t)
	helm, err := manifests.Tool(t.Context(), root, "helm", "helm")
	if err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string][]string{inside: {"nplbridge-agent", "nplbridge-haproxy"}, outside: {"nplbridge-agent"}} {
		s := story{options: options{haproxy: where}}
		var values []string
		for i, word := range s.install(documentation(t)).argv {
			if word == "--set" {
				values = append(values, s.install(documentation(t)).argv[i+1])
			}
		}
		out, err := exec.CommandContext(t.Context(), helm, manifests.Arguments(filepath.Join(root, "charts/nplbridge"), values...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		objects, err := manifests.Decode(string(out))
		if err != nil {
			t.Fatal(err)
		}
		var sets []string
		accounts := 0
		for _, o := range objects {
			switch o := o.(type) {
			case *appsv1.DaemonSet:
				sets = append(sets, o.Name)
				for _, c := range o.Spec.Template.Spec.Containers {
					if strings.HasPrefix(c.Image, "ghcr.io/nplbridge/") && !strings.HasSuffix(c.Image, ":"+tag) {
						t.Errorf("%s: image %s was not loaded", where, c.Image)
					}
				}
			case *corev1.ServiceAccount:
				if o.Name == "nplbridge-lbsync" {
					accounts++
				}
			}
		}
		if slices.Sort(sets); !slices.Equal(sets, want) || accounts != 1 {
			t.Errorf("%s: DaemonSets %q, %d accounts of lbsync, want %q and one", where, sets, accounts, want)
		}
	}
}

// The settings and the configuration of the HAProxy outside are taken by lbsync and by HAProxy.
func TestOutsideIsConfigured(t *testing.T) {
	root := repository(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "settings.yaml")
	write(t, file, settings(documentation(t)), 0o644)
	lbsync := exec.CommandContext(t.Context(), "go", "run", "./cmd/lbsync", "config", "validate", "--config", file)
	lbsync.Dir, lbsync.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := lbsync.CombinedOutput(); err != nil || string(out) != "the settings are good\n" {
		t.Errorf("lbsync config validate: %v\n%s", err, out)
	}
	config := filepath.Join(dir, "haproxy.cfg")
	write(t, config, haproxyConfig, 0o644)
	if out, err := exec.CommandContext(t.Context(), "haproxy", "-c", "-f", config).CombinedOutput(); err != nil {
		t.Errorf("haproxy -c: %v\n%s", err, out)
	}
}

// recorder answers steps and remembers them.
type recorder struct {
	mu     sync.Mutex
	steps  []string
	stdins []string
	answer func(command string) (string, error)
}

func (r *recorder) run(_ context.Context, s step) (string, error) {
	command := quoted(s.argv)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps, r.stdins = append(r.steps, command), append(r.stdins, s.stdin)
	return r.answer(command)
}

const internalKubeconfig = `apiVersion: v1
kind: Config
current-context: kind-nplbridge
clusters: [{name: kind-nplbridge, cluster: {server: "https://nplbridge-control-plane:6443"}}]
contexts: [{name: kind-nplbridge, context: {cluster: kind-nplbridge, user: kind-nplbridge}}]
users: [{name: kind-nplbridge, user: {client-key-data: YWRtaW4=}}]
`

// Outside, lbsync logs in with a token of its ServiceAccount, which no command line shows; everything is removed whatever happens.
func TestOutside(t *testing.T) {
	for _, failing := range []string{"", "docker run --detach --name nplbridge-haproxy "} {
		r := &recorder{answer: func(command string) (string, error) {
			switch {
			case failing != "" && strings.HasPrefix(command, failing), strings.HasPrefix(command, "docker rm"):
				return "", errors.New("it broke")
			case strings.Contains(command, "network inspect"):
				return "172.18.0.0/16\n", nil
			case strings.Contains(command, "get kubeconfig"):
				return internalKubeconfig, nil
			case strings.Contains(command, "create token"):
				return token + "\n", nil
			case strings.Contains(command, ".Config.Image"):
				return "kindest/node:v1\n", nil
			}
			return "", nil
		}}
		s := &story{options: options{root: "/r", name: "nplbridge", haproxy: outside, haproxyImage: "haproxy"}, dir: t.TempDir(), arch: "amd64", runner: r, out: io.Discard}
		if err := s.up(t.Context()); (err != nil) != (failing != "") {
			t.Fatal(err)
		}
		if err := s.removeAll(t.Context()); err == nil || !strings.Contains(err.Error(), "it broke") {
			t.Errorf("a failure to remove is not told: %v", err)
		}
		if removed := r.steps[len(r.steps)-3:]; !strings.HasPrefix(removed[0], "docker rm") || !strings.Contains(removed[1], "kind delete cluster") ||
			!strings.HasPrefix(removed[2], "docker volume rm") {
			t.Errorf("the end is %q", removed)
		}
		all := strings.Join(r.steps, "\n")
		if strings.Contains(all, token) {
			t.Errorf("the token is in\n%s", all)
		}
		if failing != "" {
			continue
		}
		if !strings.Contains(all, "--entrypoint /bin/sh kindest/node:v1 -ec 'ip address add 172.18.255.251/32 dev eth0;") {
			t.Errorf("no address is added in\n%s", all)
		}
		if !strings.Contains(all, "addressPools={172.18.255.251-172.18.255.254}") {
			t.Errorf("the chart does not get the addresses in\n%s", all)
		}
		login, err := clientcmd.LoadFromFile(filepath.Join(s.dir, "lbsync/kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		if user := login.AuthInfos["lbsync"]; len(login.AuthInfos) != 1 || user.Token != token || len(user.ClientKeyData) > 0 || login.Contexts["kind-nplbridge"].AuthInfo != "lbsync" {
			t.Errorf("lbsync logs in with %+v", login)
		}
	}
}

func TestWithToken(t *testing.T) {
	for name, kubeconfig := range map[string]string{"no YAML": "a: [", "nothing": ""} {
		if _, err := withToken(kubeconfig, token); err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := withToken(internalKubeconfig, ""); err == nil {
		t.Error("an empty token is taken")
	}
}

// The checks hold for a cluster that does what it should, and say what does not where it does not. The cluster is a recording, the load is real.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		answers func(n int64) int // which Pod answers the nth request
		refused bool              // some requests are, during the restart
		left    bool              // the annotations stay
		want    []string
	}{
		"in order":         {equally, false, false, []string{"ok      equal shares", "ok      no request fails", "ok      helm uninstall"}},
		"unequal":          {func(n int64) int { return int(min(n%5, 3)) }, false, false, []string{"FAILED  equal shares"}},
		"some are refused": {equally, true, false, []string{"FAILED  no request fails"}},
		"annotations stay": {equally, false, true, []string{"FAILED  helm uninstall takes the annotations off: 4 of 4 Pods have one"}},
	} {
		t.Run(name, func(t *testing.T) {
			var count atomic.Int64
			restarting, asked := make(chan struct{}), make(chan struct{}, 1000)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				pod := test.answers(count.Add(1))
				select {
				case <-restarting:
					select {
					case asked <- struct{}{}:
					default:
					}
					if test.refused {
						http.Error(w, "no", http.StatusServiceUnavailable)
						return
					}
				default:
				}
				fmt.Fprintf(w, `{"pod":"p%d","peer":"127.0.0.1:1"}`+"\n", pod)
			}))
			defer server.Close()
			replicas, uninstalled := 4, false
			r := &recorder{answer: func(command string) (string, error) {
				switch {
				case strings.Contains(command, "helm uninstall"):
					uninstalled = true
				case strings.Contains(command, "rollout restart"):
					close(restarting)
					for range 100 {
						<-asked
					}
				case strings.Contains(command, " scale "):
					_, n, _ := strings.Cut(command, "--replicas=")
					many, err := strconv.Atoi(n)
					replicas = many + 1
					return "", err
				case strings.Contains(command, "get pods"):
					return pods(t, replicas, !uninstalled || test.left), nil
				case strings.Contains(command, "get service"):
					return service(t, server.Listener.Addr().String()), nil
				}
				return "", nil
			}}
			var out bytes.Buffer
			s := &story{options: options{name: "nplbridge"}, dir: t.TempDir(), runner: r, out: &out}
			err := s.check(t.Context())
			for _, want := range test.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, &out)
				}
			}
			if failed := strings.Contains(out.String(), "FAILED"); failed != (err != nil) || failed != (name != "in order") {
				t.Errorf("%v after\n%s", err, &out)
			}
			if !strings.Contains(r.stdins[0], "loadBalancerClass: nplbridge.io/haproxy") {
				t.Errorf("the application is\n%s", r.stdins[0])
			}
		})
	}
}

func equally(n int64) int { return int(n % 4) }

// The application is what Kubernetes takes.
func TestApplication(t *testing.T) {
	s := story{options: options{name: "nplbridge"}}
	objects, err := manifests.Decode(s.application())
	if err != nil || len(objects) != 3 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
	if d := objects[1].(*appsv1.Deployment); d.Spec.Template.Spec.NodeSelector["kubernetes.io/hostname"] != "nplbridge-worker" {
		t.Errorf("the Pods of %s are anywhere: %v", d.Name, d.Spec.Template.Spec.NodeSelector)
	}
}

func pods(t *testing.T, n int, annotated bool) string {
	t.Helper()
	var list corev1.PodList
	for i := range n {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if annotated {
			p.Annotations = map[string]string{npl.Annotation: fmt.Sprintf(`[{"podPort":8080,"nodeIP":"192.0.2.1","nodePort":%d,"protocol":"tcp"}]`, 61000+i)}
		}
		list.Items = append(list.Items, p)
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func service(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	s := corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: int32(n)}}}}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: host}}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documentation are addresses that are nobody's.
func documentation(t *testing.T) []netip.Addr {
	t.Helper()
	addresses, err := vips("192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := manifests.Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}
