package bigip

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

const testPassword = "the-secret-password"

// bench is a simulated device, or two, and what is needed to talk to them.
type bench struct {
	*bigipsim.Sim
	t     testing.TB
	cfg   Config
	owner providers.Owner
}

func simConfig(change ...func(*bigipsim.Config)) bigipsim.Config {
	cfg := bigipsim.Config{
		Username: "lbsync", Password: testPassword, VLANs: []string{"external", "internal"}, RouteDomains: []int{2},
		Partitions: []bigipsim.Partition{{Name: "k8s"}, {Name: "other"}, {Name: "two", DefaultRouteDomain: 2}, {Name: "tenant", AS3: true}},
	}
	for _, f := range change {
		f(&cfg)
	}
	return cfg
}

// newBench starts a device with the partitions k8s, other, two (whose route domain is 2) and tenant (of AS3).
func newBench(t testing.TB, change ...func(*bigipsim.Config)) *bench {
	t.Helper()
	s, err := bigipsim.New(simConfig(change...))
	if err != nil {
		t.Fatal(err)
	}
	return benchOf(t, s)
}

// benchOf serves devices; calls by hand go to the first.
func benchOf(t testing.TB, devices ...*bigipsim.Sim) *bench {
	t.Helper()
	b := &bench{Sim: devices[0], t: t, cfg: DefaultConfig(), owner: providers.Owner{ClusterUID: "0f4c5b6e-aaaa-4000-8000-000000000001", Instance: "nplbridge-system/nplbridge"}}
	dir := t.TempDir()
	b.cfg.CAFile, b.cfg.PasswordFile, b.cfg.Username, b.cfg.Partition = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "password"), "lbsync", "k8s"
	var trusted []byte
	for _, s := range devices {
		server := httptest.NewUnstartedServer(s)
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that a test breaks
		server.StartTLS()
		t.Cleanup(server.Close)
		b.cfg.URLs = append(b.cfg.URLs, server.URL)
		trusted = append(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})...)
		s.Admin("POST", "/mgmt/tm/ltm/rule", `{"name": "_sys_https_redirect", "partition": "Common", "apiAnonymous": "when HTTP_REQUEST { }"}`)
	}
	b.write(b.cfg.CAFile, string(trusted))
	b.write(b.cfg.PasswordFile, testPassword+"\n")
	return b
}

// write replaces a file as the kubelet replaces a mounted Secret.
func (b *bench) write(path, text string) {
	b.t.Helper()
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		b.t.Fatal(err)
	}
}

// open returns a provider for the devices.
func (b *bench) open(options ...Option) *Provider {
	b.t.Helper()
	p, err := New(b.cfg, b.owner, zap.NewNop(), options...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = p.Close() })
	return p
}

func (b *bench) names() names { return names{b.cfg.Prefix, b.cfg.Partition, b.owner} }

// admin makes a call as the administrator does by hand.
func (b *bench) admin(method, path string, body any) map[string]any {
	b.t.Helper()
	return adminOf(b.t, b.Sim, method, path, body)
}

func adminOf(t testing.TB, s *bigipsim.Sim, method, path string, body any) map[string]any {
	t.Helper()
	text := ""
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	status, answer := s.Admin(method, "/mgmt/tm/"+path, text)
	if status/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	var out map[string]any
	_ = json.Unmarshal(answer, &out) // a DELETE answers nothing
	return out
}

// has reports whether an object is there.
func (b *bench) has(path string) bool {
	status, _ := b.Admin("GET", "/mgmt/tm/"+path, "")
	return status == http.StatusOK
}

// poolPath is where a pool of ours is, below /mgmt/tm.
func (b *bench) poolPath(k providers.Key) string {
	return "ltm/pool/~" + b.cfg.Partition + "~" + b.names().pool(k)
}

// members of a pool of ours by address, as they are read.
func (b *bench) members(k providers.Key) map[string]map[string]any {
	b.t.Helper()
	return membersAt(b.t, b.Sim, b.poolPath(k))
}

func membersAt(t testing.TB, s *bigipsim.Sim, pool string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	items, _ := adminOf(t, s, "GET", pool+"/members", nil)["items"].([]any)
	for _, item := range items {
		m := item.(map[string]any)
		out[m["name"].(string)] = m
	}
	return out
}

// writes are the calls since the last reset that change something.
func (b *bench) writes() []bigipsim.Call {
	return slices.DeleteFunc(b.Calls(), func(c bigipsim.Call) bool { return !c.Writes() })
}

// noWrites demands that nothing was written since the last reset.
func (b *bench) noWrites() {
	b.t.Helper()
	if w := b.writes(); len(w) > 0 {
		b.t.Errorf("%d writes:\n%s", len(w), lines(w))
	}
}

// lines shows calls for a failure.
func lines(calls []bigipsim.Call) string {
	var b strings.Builder
	for _, c := range calls {
		fmt.Fprintf(&b, "%d %s %s %s\n", c.Status, c.Method, c.Path, c.Body)
	}
	return b.String()
}

// key is the n-th Service port.
func key(n int) providers.Key {
	return providers.Key{Namespace: "shop", Service: fmt.Sprintf("web-%04d", n), Port: 80, Protocol: providers.TCP}
}

// member is the n-th Pod, one of a hundred on its Node.
func member(n int) providers.Member {
	return providers.Member{
		UID:     fmt.Sprintf("0f4c5b6e-0000-4000-8000-%012d", n),
		Name:    fmt.Sprintf("shop/web-%d", n),
		Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n / 100 >> 8), byte(n / 100)}), uint16(61000+n%100)),
		State:   providers.Enabled,
	}
}

func members(from, to int) (out []providers.Member) {
	for n := from; n < to; n++ {
		out = append(out, member(n))
	}
	return out
}

func drained(m providers.Member) providers.Member {
	m.State = providers.Draining
	return m
}

// web is a Service's state.
func web(k providers.Key, vip string, members ...providers.Member) providers.State {
	slices.SortFunc(members, providers.CompareMembers)
	return providers.State{
		Pools:          []providers.Pool{{Key: k, Members: members}},
		VirtualServers: []providers.VirtualServer{{Key: k, VIPs: []netip.Addr{netip.MustParseAddr(vip)}, Port: k.Port}},
	}
}

func join(states ...providers.State) (out providers.State) {
	for _, s := range states {
		out.Pools = append(out.Pools, s.Pools...)
		out.VirtualServers = append(out.VirtualServers, s.VirtualServers...)
	}
	slices.SortFunc(out.Pools, func(a, b providers.Pool) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(out.VirtualServers, func(a, b providers.VirtualServer) int { return a.Key.Compare(b.Key) })
	return out
}

// bring applies what leads from one state to another and demands success.
func (b *bench) bring(p *Provider, from, to providers.State) {
	b.t.Helper()
	for k, err := range p.Apply(b.t.Context(), providertest.Diff(from, to)) {
		if err != nil {
			b.t.Fatalf("apply %s: %v", k, err)
		}
	}
}

// observe reads back and demands a state.
func (b *bench) observe(p *Provider, want providers.State, attached ...map[providers.Key]string) providers.Observed {
	b.t.Helper()
	scope := providers.Scope{}
	if len(attached) > 0 {
		scope.Attached = attached[0]
	}
	got, err := p.Observe(b.t.Context(), scope)
	if err != nil {
		b.t.Fatalf("observe: %v", err)
	}
	if g, w := providertest.Render(got.State), providertest.Render(want); g != w {
		b.t.Fatalf("observed\n%swant\n%s", g, w)
	}
	return got
}

// settle reads back, applies the difference to what is wanted, and demands that it is reached.
func (b *bench) settle(p *Provider, want providers.State) {
	b.t.Helper()
	got, err := p.Observe(b.t.Context(), providers.Scope{})
	if err != nil {
		b.t.Fatalf("observe: %v", err)
	}
	diff := providertest.Diff(got.State, want)
	if diff.Empty() {
		b.t.Fatal("there is no difference")
	}
	for k, err := range p.Apply(b.t.Context(), diff) {
		if err != nil {
			b.t.Errorf("apply %s: %v", k, err)
		}
	}
	b.observe(p, want)
}

// eventually polls.
func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	b.t.Fatalf("not in time: %s", what)
}
