package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nplbridge/nplbridge/cmd/internal/drift"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/cmd/internal/settings/settingstest"
	"github.com/nplbridge/nplbridge/lbsync"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

func TestDocs(t *testing.T) {
	settingstest.Reference(t, "../../docs/reference/settings.md", table())

	flags := pflag.NewFlagSet("lbsync", pflag.ContinueOnError)
	table().AddFlags(flags)
	values, err := table().Load(flags)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config(values)
	if err != nil {
		t.Fatal(err)
	}
	balancer := providertest.NewLoadBalancer(providertest.MemoryCapabilities()).Open(providers.Owner{ClusterUID: "u", Instance: cfg.Instance})
	metrics := drift.NewMetrics()
	if _, err := lbsync.New(cfg, fake.NewClientset(), map[string]providers.Provider{cfg.Providers[0]: balancer}, zap.NewNop(), metrics); err != nil {
		t.Fatal(err)
	}
	if _, err := observeCalls(metrics); err != nil {
		t.Fatal(err)
	}
	metrics.Reference(t, "../../docs/reference/metrics.md", "lbsync")
}

func TestChart(t *testing.T) {
	own := []string{
		"instance", "identity", "leaseNamespace", "leaseName", "serviceType", "portRange", "addressPools", "kubeconfig", "statusSocket", "state",
		"nodeName", "nodePortRange", "haproxy.nodeAddresses", "haproxy.announce", // follow lbsync.haproxy.announce
		"haproxy.configFiles", "haproxy.dir", "haproxy.masterSocket", "haproxy.adminSocket", "haproxy.binary", "haproxy.stateFile",
		"haproxy.caFile", "haproxy.certFile", "haproxy.keyFile", "haproxy.serverName", // of one on another host
	}
	different := []string{
		"logFormat", statusAddress,
		"providerName",                                                         // follows provider
		"avi.passwordFile", "avi.caFile", "bigip.passwordFile", "bigip.caFile", // of the Secret that the chart mounts
	}
	settingstest.Chart(t, "../../charts/nplbridge", "lbsync", table(), own, different)
}

// A change of settings that lbsync follows while it runs does not restart it; any other does.
func TestChartRestartsForTheRest(t *testing.T) {
	helpers, err := os.ReadFile("../../charts/nplbridge/templates/lbsync/_settings.tpl")
	if err != nil {
		t.Fatal(err)
	}
	omitted := regexp.MustCompile(`omit \(include "nplbridge.lbsync.settings" . \| fromYaml\)((?: "[^"]+")+) \|`).FindSubmatch(helpers)
	if omitted == nil {
		t.Fatal("the chart leaves no settings out of the checksum")
	}
	var want []string
	for _, s := range table().Settings {
		if s.Live {
			want = append(want, strconv.Quote(s.Key))
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, strings.Fields(string(omitted[1]))); diff != "" {
		t.Errorf("-settings that are followed +left out of the checksum:\n%s", diff)
	}
}

// What is said to take effect live is what a running lbsync takes over.
func TestLiveSettings(t *testing.T) {
	values := map[string]string{
		"serviceType": "NodePort", "portRange": "1-2", "nodePortSelector": "a=b", "namespaceSelector": "a=b", "blockedNamespaces": "x", "handleUnclassed": "true",
		"guardHold": "7s", "gateTimeout": "7s", "drainLimit": "7s", "drainOnCordon": "true", "resync": "77s", "dryRun": "true", "addressPools": "192.0.2.1",
		"providerName": "x", "instance": "x/y", "leaseNamespace": "x", "leaseName": "x", "identity": "x",
	}
	before, err := load("--identity=me")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config(before)
	if err != nil {
		t.Fatal(err)
	}
	balancer := providertest.NewLoadBalancer(providertest.MemoryCapabilities()).Open(providers.Owner{ClusterUID: "u", Instance: cfg.Instance})
	for _, s := range table().Settings {
		value, tried := values[s.Key]
		if !tried {
			continue
		}
		running, err := lbsync.New(cfg, fake.NewClientset(), map[string]providers.Provider{cfg.Providers[0]: balancer}, zap.NewNop(), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"--" + s.Flag() + "=" + value}
		if s.Key != "identity" {
			args = append(args, "--identity=me")
		}
		after, err := load(args...)
		if err != nil {
			t.Fatal(err)
		}
		now, err := config(after)
		if err != nil {
			t.Fatal(err)
		}
		if err := running.Reload(now); (err == nil) != s.Live {
			t.Errorf("%s: live is %v, and a running lbsync says %v", s.Key, s.Live, err)
		}
		if err := take(running, cfg, after); err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
		delete(values, s.Key)
	}
	if len(values) > 0 {
		t.Errorf("no such settings: %v", values)
	}
}

func execute(args ...string) (string, error) { return executeAs(callerOf("lbsync"), args...) }

func executeAs(by caller, args ...string) (string, error) { return run(root(by), args...) }

func run(command *cobra.Command, args ...string) (string, error) {
	var out bytes.Buffer
	command.SetArgs(args)
	command.SetOut(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	err := command.Execute()
	return out.String(), err
}

// load loads settings from flags.
func load(args ...string) (*settings.Values, error) {
	flags := pflag.NewFlagSet("lbsync", pflag.ContinueOnError)
	table().AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return table().Load(flags)
}

func portText(port uint16) string { return strconv.Itoa(int(port)) }

func TestBadSettings(t *testing.T) {
	for want, args := range map[string][]string{
		`provider: "nginx" (from --provider): unknown provider; known: avi, bigip, `:                      {"--provider=nginx"},
		`avi url: "http://a" is not https://host or https://host:port (from --avi-url)`:                   {"--provider=avi", "--avi-url=http://a", "--avi-username=u", "--avi-token-file=/t"},
		`avi passwordFile: "" and tokenFile "": give exactly one of them`:                                 {"--provider=avi", "--avi-url=https://a", "--avi-username=u"},
		`avi.maxInFlight: "many" (from --avi-max-in-flight): write a whole number`:                        {"--provider=avi", "--avi-max-in-flight=many"},
		`avi.subnets: "192.0.2.0" (from --avi-subnets): "192.0.2.0" is not a prefix such as 192.0.2.0/24`: {"--provider=avi", "--avi-subnets=192.0.2.0"},
		"192.0.2.0/99":  {"--address-pools=192.0.2.0/99"},
		"(from --serv":  {"--service-type=Ingress"},
		"(from --drain": {"--drain-limit=25h"},
		"(from --hapr":  {"--haproxy-check-interval=1ms"},
		`"relative"`:    {"--haproxy-dir=relative"},
		`drainLimit: "25h": write a duration from 0 to 24h (from --drain-limit)`:                   {"--drain-limit=25h"},
		`handleUnclassed: "maybe" (from --handle-unclassed): want true or false; for example true`: {"--handle-unclassed=maybe"},
		`haproxy.deleteServers: "maybe"`: {"--haproxy-delete-servers=maybe"},
		`identity: "a b" (from --identity): want a name without blanks; for example lb-1`:                {"--identity=a b"},
		`haproxy minReloadInterval: 11m is not within 0s and 10m0s (from --haproxy-min-reload-interval)`: {"--haproxy-min-reload-interval=11m"},
	} {
		for _, verb := range []string{"run", "check"} {
			_, err := execute(append([]string{verb}, args...)...)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s %q: %v, want one line with %q", verb, args, err, want)
			}
		}
	}
}

// What only a file can say.
func TestBadFiles(t *testing.T) {
	for content, want := range map[string]string{
		"providers: [{name: a, kind: haproxy}, {name: b, kind: haproxy}]":                     `providers[1].haproxy.dir: "/etc/haproxy/npl.d" (from default): is that of a too`,
		"providers: [{name: a, kind: haproxy}, {name: a, kind: haproxy, haproxy: {dir: /x}}]": `providers: "a": give each provider a name of its own`,
		"provider: haproxy\nproviders: [{name: a, kind: haproxy}]":                            `provider: "haproxy" (from @): providers is set as well`,
		"providers: [{kind: haproxy}]":                                                        `providers[0].name: "" (from default): missing; for example edge`,
		"providers: [{name: a}]":                                                              `providers[0].kind: "" (from default): missing; for example haproxy`,
		"providers: [{name: a, kind: nginx}]":                                                 `providers[0].kind: "nginx" (from @): unknown provider; known: avi, bigip, `,
		"providers: [{name: a, kind: haproxy, haproxy: {dir: x}}]":                            `settings, providers[0]: haproxy dir: "x" is not an absolute path`,
		"addressPools: [{name: p, ranges: [192.0.2.0/33]}]":                                   `addressPools[0].ranges: "192.0.2.0/33" (from @): address pool "192.0.2.0/33": not a prefix`,
		"addressPools: [{ranges: [192.0.2.1]}]":                                               `addressPools[0].name: "": write a name in lower case`,
		"addressPools: [{name: p, ranges: [192.0.2.1]}, {name: q, ranges: [192.0.2.0/24]}]":   `overlaps 192.0.2.1 of p (from @)`,
		"addressPools: [{name: p, ranges: [192.0.2.1], providers: [core]}]":                   `addressPools[0].providers: "core": name load balancers that exist: haproxy`,
		"portRange: 5":                    `portRange: "5" (from @): write FIRST-LAST`,
		"statusAddress: 0.0.0.0:1":        `statusAddress: "0.0.0.0:1" (from @): write a loopback address and a port`,
		"serviceType: Ingress":            `serviceType: "Ingress": write NodePortLocal, NodePort or ClusterIP (from @)`,
		"guardHold: 25h":                  `guardHold: "25h": write a duration from 0 to 24h (from @)`,
		"blockedNamespaces: [a, a]":       `blockedNamespaces: "a": write it once (from @)`,
		"nodePortSelector: {ingress: no}": `nodePortSelector: "map[ingress:false]" (from @): want labels`,
	} {
		file := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := execute("run", "--config="+file)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), file, "@"), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s:\ngot  %v\nwant %s", content, err, want)
		}
	}
}

func TestGoodFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yaml")
	content := `
providers: [{name: edge, kind: haproxy}, {name: core, kind: avi, avi: {tenant: shop}}]
avi: {url: "https://avi.example.com", username: u, tokenFile: /t}
addressPools: [{name: public, ranges: [192.0.2.0/24], providers: [edge], onRequest: true, selector: [{key: Exposure, value: Public}]}]
namespaceSelector: [{key: tier, value: web}]
portRange: ""
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	values, err := load("--config=" + file)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config(values)
	if err != nil {
		t.Fatal(err)
	}
	pool := lbsync.AddressPool{
		Name: "public", Providers: []string{"edge"}, Namespaces: nil, OnRequest: true, Selector: map[string]string{"Exposure": "Public"},
		Ranges: []lbsync.AddressRange{{First: netip.MustParseAddr("192.0.2.1"), Last: netip.MustParseAddr("192.0.2.254")}},
	}
	if diff := cmp.Diff([]lbsync.AddressPool{pool}, got.AddressPools, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !slices.Equal(got.Providers, []string{"edge", "core"}) || got.PortRange != (lbsync.PortRange{}) || got.NamespaceSelector["tier"] != "web" {
		t.Errorf("%+v", got)
	}
}

func TestUnknownCommand(t *testing.T) {
	if _, err := execute("rum"); err == nil || !strings.Contains(err.Error(), `unknown command "rum"`) {
		t.Errorf("got %v", err)
	}
}

func TestHelpHasExamples(t *testing.T) {
	for _, command := range commands(root(callerOf("lbsync"))) {
		if command.Example == "" || command.Short == "" {
			t.Errorf("%s has no example or no short text", command.Name())
		}
	}
}

// commands returns a command with everything below it.
func commands(c *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		out = append(out, commands(sub)...)
	}
	return out
}
