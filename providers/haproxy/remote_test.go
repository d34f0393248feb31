package haproxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, dir, name string) *authority {
	a := &authority{t: t, file: filepath.Join(dir, name+".ca.pem")}
	a.key = a.newKey()
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.save(a.file, "CERTIFICATE", raw)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) save(path, kind string, raw []byte) {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes a certificate and its key, for 127.0.0.1 and the name.
func (a *authority) issue(name string) (cert, key string) {
	own := a.newKey()
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.cert, &own.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	base := strings.TrimSuffix(a.file, ".ca.pem") + "-" + name
	a.save(base+".crt", "CERTIFICATE", raw)
	a.save(base+".key", "PRIVATE KEY", secret)
	return base + ".crt", base + ".key"
}

// appliance is an HAProxy that is driven over the network: its administrator has a backend, a frontend with TLS in front of the
// command line, and, by mistake, a `stats socket ... ssl`.
type appliance struct {
	*balancer
	ca    *authority
	trap  string
	front netip.AddrPort
}

func newAppliance(t *testing.T) *appliance {
	t.Helper()
	b := newBalancer(t)
	dir := filepath.Dir(b.cfg.AdminSocket)
	a := &appliance{balancer: b, ca: newAuthority(t, dir, "own"), trap: netip.AddrPortFrom(b.vips[0], 9444).String(), front: netip.AddrPortFrom(b.vips[0], 90)}
	cert, key := a.ca.issue("lb.example")
	both := filepath.Join(dir, "server.pem")
	var text []byte
	for _, path := range []string{cert, key} {
		part, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	b.write(both, string(text))
	remote := netip.AddrPortFrom(b.vips[0], 9443).String()
	guard := fmt.Sprintf("ssl crt %s ca-file %s verify required", both, a.ca.file)
	b.write(b.cfg.ConfigFiles[0], fmt.Sprintf(administrator, b.cfg.AdminSocket)+fmt.Sprintf(`
global
    stats socket %s level admin %s
frontend cli
    mode tcp
    timeout client 10m
    bind %s %s
    tcp-request content reject unless { ssl_c_s_dn(cn) -m str lbsync }
    default_backend cli
backend cli
    mode tcp
    timeout server 10m
    server cli unix@%s
frontend theirs
    mode tcp
    bind %s
    default_backend theirs
backend theirs
    mode tcp
    balance leastconn
`, a.trap, guard, remote, guard, b.cfg.AdminSocket, a.front))
	if err := os.MkdirAll(b.cfg.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.cfg.AdminSocket, b.cfg.ServerName, b.cfg.CAFile = remote, "lb.example", a.ca.file
	b.cfg.CertFile, b.cfg.KeyFile = a.ca.issue("lbsync")
	b.cfg.Dir, b.cfg.MasterSocket, b.cfg.Binary = "/nonexistent", "/nonexistent", "/nonexistent"
	return a
}

// TestMembersOverTLS: everything that members need, and nothing that a file would.
func TestMembersOverTLS(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	p := a.open()
	d, key := desk{t, p}, testKey("web")
	one, two := newPod(t, "one"), newPod(t, "two")
	if p.Capabilities().Local {
		t.Error("it is on another host, and says that it is beside lbsync")
	}
	if pool, there := d.attached(key, "theirs"); !there || len(pool.Members) > 0 {
		t.Errorf("at first %+v, %v", pool, there)
	}
	d.must(attach(key, "theirs", nil, members(one, two)))
	reach := func(pods ...*pod) {
		t.Helper()
		a.reached(a.front, pods...)
	}
	reach(one, two)
	d.must(attach(key, "theirs", members(one, two), []providers.Member{one.Member, two.draining()}))
	reach(one)
	pool, _ := d.attached(key, "theirs")
	want := providers.Pool{Key: key, Attached: "theirs", Members: change(key, nil, []providers.Member{one.Member, two.draining()}, nil).Pools[0].New.Members}
	if g, w := providertest.Render(pool), providertest.Render(want); g != w {
		t.Errorf("observed\n%swant\n%s", g, w)
	}
	c := change(testKey("own"), nil, members(one), &providers.VirtualServer{Key: testKey("own"), VIPs: a.vips[:1], Port: 80})
	if err := p.Apply(t.Context(), c)[testKey("own")]; providers.KindOf(err) != providers.Rejected || !strings.Contains(fmt.Sprint(err), "nplbridge.io/pool") {
		t.Errorf("a Service of our own: %v", err)
	}
}

// TestRemoteIsRefused: nobody gets in without the right certificate, lbsync takes no server without one, and it says which it is.
func TestRemoteIsRefused(t *testing.T) {
	t.Parallel()
	a := newAppliance(t)
	other := newAuthority(t, filepath.Dir(a.ca.file), "other")
	wrongCert, wrongKey := other.issue("lbsync")
	guestCert, guestKey := a.ca.issue("guest")
	for name, c := range map[string]struct {
		edit func(*Config)
		kind providers.Kind
		text string
	}{
		// haproxy takes this line without a warning and serves admin rights to anybody.
		"stats socket ssl answers in clear": {func(c *Config) { c.AdminSocket = a.trap }, providers.Misconfigured, "clear text"},
		"their authority is another":        {func(c *Config) { c.CAFile = other.file }, providers.Misconfigured, "certificate"},
		"our certificate is of another":     {func(c *Config) { c.CertFile, c.KeyFile = wrongCert, wrongKey }, providers.Misconfigured, "certificate"},
		"our name is another":               {func(c *Config) { c.CertFile, c.KeyFile = guestCert, guestKey }, providers.Unavailable, ""},
		"their name is another":             {func(c *Config) { c.ServerName = "lb2.example" }, providers.Misconfigured, "lb2.example"},
		"a file is missing":                 {func(c *Config) { c.KeyFile = "/nonexistent" }, providers.Misconfigured, "/nonexistent"},
	} {
		b := &balancer{t: t, cfg: a.cfg, log: a.log}
		c.edit(&b.cfg)
		_, err := b.open().Observe(t.Context(), providers.Scope{})
		if err == nil || providers.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %s %v, want %s with %q", name, providers.KindOf(err), err, c.kind, c.text)
		}
	}
	bad := a.cfg
	bad.KeyFile, bad.CAFile = "", ""
	if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "haproxy keyFile") || !strings.Contains(err.Error(), "haproxy caFile") {
		t.Errorf("without files: %v", err)
	}
}
