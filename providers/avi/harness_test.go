package avi

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/avisim"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

const testPassword = "the-secret-password"

// controller is a simulated Controller and what is needed to talk to it.
type controller struct {
	*avisim.Server
	t     testing.TB
	cfg   Config
	owner providers.Owner

	mu    sync.Mutex
	calls []avisim.Call
}

// newController starts a Controller with a network vips, 192.0.2.10 to .99 and 2001:db8::10 to ::99.
func newController(t testing.TB, change ...func(*avisim.Config)) *controller {
	t.Helper()
	c := &controller{t: t, owner: providers.Owner{ClusterUID: "0f4c5b6e-aaaa-4000-8000-000000000001", Instance: "nplbridge-system/nplbridge"}}
	cfg := avisim.Config{
		Username: "lbsync", Password: testPassword,
		Networks: []avisim.Network{
			{Name: "vips", Prefix: netip.MustParsePrefix("192.0.2.0/24"), First: netip.MustParseAddr("192.0.2.10"), Last: netip.MustParseAddr("192.0.2.99")},
			{Name: "vips6", Prefix: netip.MustParsePrefix("2001:db8::/64"), First: netip.MustParseAddr("2001:db8::10"), Last: netip.MustParseAddr("2001:db8::99")},
		},
		Observe: func(call avisim.Call) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls = append(c.calls, call)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := avisim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	url, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	dir := t.TempDir()
	c.Server, c.cfg = s, DefaultConfig()
	c.cfg.URL, c.cfg.Username, c.cfg.Rate = url, "lbsync", 1000
	c.cfg.CAFile, c.cfg.PasswordFile = filepath.Join(dir, "ca.pem"), filepath.Join(dir, "password")
	c.write(c.cfg.CAFile, string(s.CAPEM()))
	c.write(c.cfg.PasswordFile, cfg.Password+"\n")
	return c
}

// write replaces a file as the kubelet replaces a mounted Secret.
func (c *controller) write(path, text string) {
	c.t.Helper()
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		c.t.Fatal(err)
	}
}

// open returns a provider for the Controller.
func (c *controller) open(options ...Option) *Provider {
	c.t.Helper()
	p, err := New(c.cfg, c.owner, zap.NewNop(), options...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = p.Close() })
	return p
}

// since forgets the calls so far, and returns a function that tells those that came after.
func (c *controller) since() func() []avisim.Call {
	c.mu.Lock()
	from := len(c.calls)
	c.mu.Unlock()
	return func() []avisim.Call {
		c.mu.Lock()
		defer c.mu.Unlock()
		return append([]avisim.Call(nil), c.calls[from:]...)
	}
}

// writes keeps the calls that change something.
func writes(calls []avisim.Call) []avisim.Call {
	var out []avisim.Call
	for _, call := range calls {
		if call.Method != http.MethodGet && strings.HasPrefix(call.Path, "/api/") {
			out = append(out, call)
		}
	}
	return out
}

// lines shows calls for a failure.
func lines(calls []avisim.Call) string {
	var b strings.Builder
	for _, call := range calls {
		b.WriteString(call.Method + " " + call.Endpoint + " " + http.StatusText(call.Status) + "\n")
	}
	return b.String()
}

// key is the n-th Service port, web is a pool and virtual server for it.
func key(n int) providers.Key {
	return providers.Key{Namespace: "shop", Service: "web-" + string(rune('a'+n%26)) + strings.Repeat("x", n/26), Port: 80, Protocol: providers.TCP}
}

func member(n int) providers.Member {
	return providers.Member{
		UID:     "0f4c5b6e-0000-4000-8000-" + leftPad(n),
		Name:    "shop/web-" + leftPad(n),
		Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), uint16(61000+n%1000)),
		State:   providers.Enabled,
	}
}

func leftPad(n int) string {
	text := "000000000000"
	digits := []byte(text)
	for at := len(digits) - 1; n > 0; at, n = at-1, n/10 {
		digits[at] = byte('0' + n%10)
	}
	return string(digits)
}

// web is a Service's state.
func web(k providers.Key, vip string, members ...providers.Member) providers.State {
	return providers.State{
		Pools:          []providers.Pool{{Key: k, Members: members}},
		VirtualServers: []providers.VirtualServer{{Key: k, VIPs: []netip.Addr{netip.MustParseAddr(vip)}, Port: k.Port}},
	}
}

// bring applies what leads from one state to another and demands success.
func (c *controller) bring(p *Provider, from, to providers.State) {
	c.t.Helper()
	for k, err := range p.Apply(c.t.Context(), providertest.Diff(from, to)) {
		if err != nil {
			c.t.Fatalf("apply %s: %v", k, err)
		}
	}
}

// replace is bring for one pool that stays, without the steps on its members, which are slow to work out for thousands.
func (c *controller) replace(p *Provider, from, to providers.State) {
	c.t.Helper()
	k := to.Pools[0].Key
	if err := p.Apply(c.t.Context(), providers.Changes{Pools: []providers.PoolChange{{Key: k, Old: &from.Pools[0], New: &to.Pools[0]}}})[k]; err != nil {
		c.t.Errorf("apply %s: %v", k, err)
	}
}

// observe reads back and demands a state.
func (c *controller) observe(p *Provider, want providers.State, attached ...map[providers.Key]string) providers.Observed {
	c.t.Helper()
	scope := providers.Scope{}
	if len(attached) > 0 {
		scope.Attached = attached[0]
	}
	got, err := p.Observe(c.t.Context(), scope)
	if err != nil {
		c.t.Fatalf("observe: %v", err)
	}
	if g, w := providertest.Render(got.State), providertest.Render(want); g != w {
		c.t.Fatalf("observed\n%swant\n%s", g, w)
	}
	return got
}

// object returns the stored object that carries our mark and a name with a text in it.
func (c *controller) object(typ, part string) map[string]any {
	c.t.Helper()
	for _, o := range c.Snapshot().Objects[typ] {
		if strings.Contains(o["name"].(string), part) {
			return o
		}
	}
	c.t.Fatalf("no %s with %q in its name", typ, part)
	return nil
}

// eventually polls.
func (c *controller) eventually(what string, ok func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	c.t.Fatalf("not in time: %s", what)
}
