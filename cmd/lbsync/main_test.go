package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nplbridge/nplbridge/cmd/internal/drift"
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
	metrics.Reference(t, "../../docs/reference/metrics.md", "lbsync")
}

func TestChart(t *testing.T) {
	own := []string{
		"instance", "identity", "leaseNamespace", "leaseName", "serviceType", "addressPools", "kubeconfig", "statusSocket",
		"haproxy.configFiles", "haproxy.dir", "haproxy.masterSocket", "haproxy.adminSocket", "haproxy.binary", "haproxy.stateFile",
	}
	for _, s := range table().Settings { // the chart runs lbsync beside HAProxy only, so far
		if strings.HasPrefix(s.Key, "avi.") {
			own = append(own, s.Key)
		}
	}
	settingstest.Chart(t, "../../charts/nplbridge", "lbsync", table(), own, []string{"logFormat"})
}

func execute(args ...string) (string, error) {
	var out bytes.Buffer
	command := root()
	command.SetArgs(args)
	command.SetOut(&out)
	command.SilenceErrors, command.SilenceUsage = true, true
	err := command.Execute()
	return out.String(), err
}

func TestBadSettings(t *testing.T) {
	for want, args := range map[string][]string{
		`provider: "nginx" (from --provider): unknown provider; known: avi, `:                             {"--provider=nginx"},
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

func TestUnknownCommand(t *testing.T) {
	if _, err := execute("rum"); err == nil || !strings.Contains(err.Error(), `unknown command "rum"`) {
		t.Errorf("got %v", err)
	}
}

func TestHelpHasExamples(t *testing.T) {
	for _, command := range append([]*cobra.Command{root()}, root().Commands()...) {
		if command.Example == "" || command.Short == "" {
			t.Errorf("%s has no example or no short text", command.Name())
		}
	}
}
