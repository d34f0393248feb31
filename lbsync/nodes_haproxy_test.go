package lbsync

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync/internal/status"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy"
)

// realHAProxy runs a haproxy of its own, as the DaemonSet does, and returns the provider beside it.
func realHAProxy(t *testing.T) providers.Provider {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Fatal("install haproxy: apt-get install haproxy")
	}
	dir, err := os.MkdirTemp("", "npl") // t.TempDir is too long for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := haproxy.DefaultConfig()
	cfg.ConfigFiles, cfg.Dir = []string{filepath.Join(dir, "haproxy.cfg")}, filepath.Join(dir, "npl.d")
	cfg.MasterSocket, cfg.AdminSocket = filepath.Join(dir, "master.sock"), filepath.Join(dir, "admin.sock")
	cfg.MinReloadInterval, cfg.WriteDelay = 0, 0
	admin := fmt.Sprintf("global\n    stats socket %s mode 600 level admin\n    stats timeout 10m\ndefaults\n    timeout connect 1s\n    timeout client 10s\n    timeout server 10s\n", cfg.AdminSocket)
	if err := os.WriteFile(cfg.ConfigFiles[0], []byte(admin), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := haproxy.New(cfg, owner, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	cmd := exec.Command("haproxy", "-W", "-db", "-S", cfg.MasterSocket+",mode,600", "-f", cfg.ConfigFiles[0], "-f", cfg.Dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	return p
}

// Two real HAProxies on Nodes of their own. Each listens at its Node's address and nowhere else; where something else has the port, the
// address is not published.
func TestOnNodesHAProxy(t *testing.T) {
	a, b := byte(10+rand.IntN(200)), byte(rand.IntN(250))
	address := func(n int) string { return fmt.Sprintf("127.%d.%d.%d", a, b, n) }
	listen := func(at string) (net.Listener, uint16) {
		t.Helper()
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l, netip.MustParseAddrPort(l.Addr().String()).Port()
	}
	backend, nodePort := listen(address(1) + ":0")
	go func() {
		for {
			c, err := backend.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello from the Pod")
			_ = c.Close()
		}
	}()
	other, port := listen(address(2) + ":0") // what has the port of the Service on the second Node

	web, p := service("web"), pod("web", 1)
	web.Spec.Ports = []corev1.ServicePort{{Port: int32(port), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}}
	p.Annotations[npl.Annotation] = npl.Encode([]npl.Mapping{{
		PodPort: 8080, NodeIP: netip.MustParseAddr(address(1)), NodePort: nodePort, Protocol: npl.TCP, Family: npl.IPv4,
	}})
	w := newOnNodes(t, 0, web, p)
	for n := 1; n <= 2; n++ {
		one := numbered(n)
		one.Status.Addresses[0].Address = address(n)
		if err := w.client.Tracker().Add(one); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"node-1", "node-2"} {
		balancer := realHAProxy(t)
		w.place(name, 1, func(s *Syncer) {
			s.balancers[0].provider = balancer
			cfg := *s.settings.Load()
			cfg.PortRange, cfg.NodePortRange = PortRange{}, PortRange{}
			s.settings.Store(&cfg)
		})
	}
	w.publishes("web", address(1))
	w.eventually("an Event names Node and address", func() bool {
		e := w.events("NotOnNode")
		return len(e) > 0 && strings.Contains(e[0], "Node node-2: ") && strings.Contains(e[0], fmt.Sprintf("%s:%d is in use by another listener", address(2), port))
	})
	w.eventually("programmed", func() bool { return w.condition("web", status.Programmed).Status == "True" })
	read := func(at string) string {
		c, err := net.DialTimeout("tcp", fmt.Sprintf("%s:%d", at, port), 5*time.Second)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = c.Close() }()
		text, err := io.ReadAll(c)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	if got := read(address(1)); got != "hello from the Pod" {
		t.Errorf("through the first Node: %s", got)
	}
	if got := read("127.0.0.1"); !strings.Contains(got, "refused") {
		t.Errorf("it listens elsewhere, too: %s", got)
	}
	_ = other.Close()
	w.publishes("web", address(1)+" "+address(2)) // tried again minutes later, by the clock of the test
	if got := read(address(2)); got != "hello from the Pod" {
		t.Errorf("through the second Node: %s", got)
	}
}
