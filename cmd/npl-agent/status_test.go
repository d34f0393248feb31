package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nplbridge/nplbridge/agent"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
)

const served = `{
 "node": "node-1", "at": "2026-01-02T03:04:05Z", "addresses": ["192.0.2.11", "2001:db8::11"], "portRange": {"first": 61000, "last": 62000},
 "mappings": [
  {"pod": "shop/web-1", "podUID": "0f6b", "services": ["shop/web"], "protocol": "tcp", "family": "IPv4", "nodePort": 61000, "target": "10.244.0.10:8080", "state": "serving", "programmed": true},
  {"pod": "shop/web-1", "podUID": "0f6b", "services": ["shop/dns", "shop/web"], "protocol": "udp", "family": "IPv6", "nodePort": 61000, "target": "[fd00::10]:53", "state": "withdrawing", "programmed": true}
 ],
 "cooling": [{"protocol": "tcp", "family": "IPv4", "nodePort": 61001, "until": "2026-01-02T03:09:05Z", "waitingFor": ["nplbridge-system/lbsync-a"]}],
 "refusals": [{"reason": "PortsExhausted", "pod": "shop/late", "service": "shop/web", "message": "Pod shop/late needs 2 node ports and 0 are free: make portRange larger, or wait until others have cooled down"}],
 "findings": [
  {"check": "Kernel", "severity": "ok", "found": "fine"},
  {"check": "ForwardPolicy", "severity": "warning", "object": "o", "found": "chain FORWARD of iptables-nft: policy drop (IPv4)", "meaning": "m", "fix": "f"}
 ]
}`

// serveStatus serves the document as a running agent does, and returns the flag that leads to it.
func serveStatus(t *testing.T, document string) string {
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
	go func() {
		done <- serve.Serve(ctx, listener, serve.StatusHandler(func() any { return json.RawMessage(document) }))
	}()
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
	out, err := execute("status", serveStatus(t, served))
	if err != nil {
		t.Fatal(err)
	}
	want := `node         node-1
last pass    2026-01-02T03:04:05Z
addresses    192.0.2.11, 2001:db8::11
port range   61000-62000

MAPPINGS (2)
POD          PORT   PROTOCOL   FAMILY   NODE PORT   STATE         IN KERNEL   SERVICES
shop/web-1   8080   tcp        IPv4     61000       serving       true        shop/web
shop/web-1   53     udp        IPv6     61000       withdrawing   true        shop/dns, shop/web

COOLING (1)
NODE PORT   PROTOCOL   FAMILY   UNTIL                  WAITING FOR
61001       tcp        IPv4     2026-01-02T03:09:05Z   nplbridge-system/lbsync-a

REFUSALS (1)
REASON           POD         SERVICE    MESSAGE
PortsExhausted   shop/late   shop/web   Pod shop/late needs 2 node ports and 0 are free: make portRange larger,
                                        or wait until others have cooled down

FINDINGS (1)
CHECK           SEVERITY   FOUND
ForwardPolicy   warning    chain FORWARD of iptables-nft: policy drop (IPv4)
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for format, want := range map[string]string{"json": `"podUID": "0f6b"`, "yaml": "podUID: 0f6b"} {
		if out, err := execute("status", serveStatus(t, served), "-o", format); err != nil || !strings.Contains(out, want) || !strings.Contains(out, "meaning") {
			t.Errorf("%s is not the whole document: %v\n%s", format, err, out)
		}
	}
}

func TestStatusPort(t *testing.T) {
	socket := serveStatus(t, served)
	for port, want := range map[string]string{
		"192.0.2.11:61000/tcp":         "shop/web-1   8080   tcp        IPv4     61000       serving   true        shop/web\n",
		"192.0.2.11:61000":             "shop/web-1   8080",
		"192.0.2.11:61000/TCP":         "shop/web-1   8080",
		"[2001:db8::11]:61000/udp":     "shop/web-1   53     udp        IPv6",
		"192.0.2.11:61000/tcp -o=json": `"target": "10.244.0.10:8080"`,
		"192.0.2.11:61000/tcp -o=yaml": "  podUID: 0f6b\n",
	} {
		if out, err := execute(append([]string{"status", socket, "--port"}, strings.Fields(port)...)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, no %q in\n%s", port, err, want, out)
		}
	}
	for port, want := range map[string]string{
		"192.0.2.11:61000/udp":     "no Pod is behind 192.0.2.11:61000/udp: Node node-1 gave it to nobody",
		"[2001:db8::11]:61000/tcp": "gave it to nobody",
		"192.0.2.11:61001/tcp":     "it cools down until 2026-01-02T03:09:05Z and waits for nplbridge-system/lbsync-a",
		"[2001:db8::11]:61001/tcp": "gave it to nobody",
		"192.0.2.12:61000/tcp":     "Node node-1 publishes [192.0.2.11 2001:db8::11]",
		"192.0.2.11:8080/tcp":      "outside portRange 61000-62000",
		"61000":                    `"61000" for "--port" flag: write NODE-ADDRESS:PORT/PROTOCOL`,
		"192.0.2.1:99999":          "write NODE-ADDRESS:PORT/PROTOCOL",
		"192.0.2.1:61000/foo":      "with the protocol tcp, udp or sctp",
		"192.0.2.11:61000/":        "write NODE-ADDRESS:PORT/PROTOCOL",
		"worker-1:61000/tcp":       "write NODE-ADDRESS:PORT/PROTOCOL",
	} {
		out, err := execute("status", socket, "--port", port)
		if err == nil || !strings.Contains(err.Error(), want) || out != "" {
			t.Errorf("%s: %v, want %q; printed %q", port, err, want, out)
		}
	}
}

func TestStatusOfAnotherVersion(t *testing.T) {
	if _, err := execute("status", serveStatus(t, `{"mappings": 7}`)); err == nil || !strings.Contains(err.Error(), "use the same version") {
		t.Errorf("got %v", err)
	}
}

func TestPrintFindings(t *testing.T) {
	d := checkDocument{"node-1", []agent.Finding{
		{Check: "Kernel", Severity: "ok", Found: "nf_tables has NAT, maps, sets with timeouts and conntrack"},
		{
			Check: "ForwardPolicy", Severity: "warning", Found: "chain FORWARD of iptables-nft: policy drop (IPv4)",
			Meaning: "Connections to node ports are dropped unless another rule of this chain accepts them as traffic to Pods, as the rules of many CNIs do.",
			Fix:     "Set forwardAccept: true, or let them through by hand:\niptables-nft -A FORWARD -m conntrack --ctstate DNAT --ctorigdstport 61000:62000 -m comment --comment \"node ports\" -j ACCEPT",
		},
	}}
	var out bytes.Buffer
	if err := printFindings(&out, "table", d); err != nil {
		t.Fatal(err)
	}
	want := `ok       Kernel           nf_tables has NAT, maps, sets with timeouts and conntrack
warning  ForwardPolicy    chain FORWARD of iptables-nft: policy drop (IPv4)
                          Connections to node ports are dropped unless another rule of this chain accepts them as
                          traffic to Pods, as the rules of many CNIs do.
                          -> Set forwardAccept: true, or let them through by hand:
                             # iptables-nft -A FORWARD -m conntrack --ctstate DNAT --ctorigdstport 61000:62000 -m comment --comment "node ports" -j ACCEPT
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for format, want := range map[string]string{"json": `"severity": "warning"`, "yaml": "severity: warning"} {
		out.Reset()
		if err := printFindings(&out, format, d); err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "node-1") {
			t.Errorf("%s: %v\n%s", format, err, &out)
		}
	}
}
