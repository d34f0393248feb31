package manifests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A value that cannot be is refused at the schema, and the message names the value and what is allowed.
func TestSchemaRefuses(t *testing.T) {
	const duration = "want a duration with its unit, such as 90s or 5m"
	for _, test := range []struct{ set, at, allowed string }{
		{"serviceType=Ingress", "/serviceType", "'NodePortLocal', 'NodePort', 'ClusterIP'"},
		{"addressPools={not an address}", "/addressPools/0", "want a prefix such as 192.0.2.0/24, a range FIRST-LAST or an address"},
		{"addressPools[0].name=p", "/addressPools/0", "missing property 'ranges'"},
		{"addressPools[0].range={192.0.2.0/28}", "/addressPools/0", "additional properties 'range' not allowed"},
		{"agnet.enabled=false", "''", "additional properties 'agnet' not allowed"},
		{"agent.enabled=maybe", "/agent/enabled", "want boolean"},
		{"agent.image.pullPolicy=Sometimes", "/agent/image/pullPolicy", "'Always', 'IfNotPresent', 'Never'"},
		{"agent.image.repository=", "/agent/image/repository", "minLength: got 0, want 1"},
		{"agent.config.cooldown=60s", "/agent/config", "additional properties 'cooldown' not allowed"},
		{"agent.config.coolDown=60", "/agent/config/coolDown", "got number, want string"},
		{"agent.config.coolDown=sixty", "/agent/config/coolDown", duration},
		{"agent.config.repairInterval=1 minute", "/agent/config/repairInterval", duration},
		{"agent.config.portRange=61000", "/agent/config/portRange", "want string"},
		{"agent.config.portRange=61000:62000", "/agent/config/portRange", "want FIRST-LAST, such as 61000-62000"},
		{"agent.config.ipFamilies={IPv5}", "/agent/config/ipFamilies/0", "'IPv4', 'IPv6'"},
		{"agent.config.nodeAddressCIDRs={192.0.2.1}", "/agent/config/nodeAddressCIDRs/0", "want a CIDR such as 192.0.2.0/24"},
		{"agent.config.masquerade=some", "/agent/config/masquerade", "'auto', 'all', 'none'"},
		{"agent.config.portReuse=never", "/agent/config/portReuse", "'coolDown', 'confirmed'"},
		{"agent.config.listen=10361x", "/agent/config/listen", "want [ADDRESS]:PORT, such as :10361"},
		{"agent.config.logLevel=loud", "/agent/config/logLevel", "'debug', 'info', 'warn', 'error'"},
		{"agent.updateStrategy.type=Recreate", "/agent/updateStrategy/type", "'RollingUpdate', 'OnDelete'"},
		{"agent.updateStrategy.maxUnavailable=200%", "/agent/updateStrategy/maxUnavailable", "want a number from 1 on, or a percentage such as 10%"},
		{"agent.resources.limits.memory=lots", "/agent/resources/limits/memory", "want a quantity such as 100m or 64Mi"},
		{"agent.tolerations[0].effect=NoRun", "/agent/tolerations/0/effect", "'NoSchedule', 'PreferNoSchedule', 'NoExecute'"},
		{"agent.nodeSelector.a=1", "/agent/nodeSelector/a", "want string"},
		{"agent.windows.portRange=x", "/agent/windows/portRange", "want FIRST-LAST"},
		{"uninstall.timeout=soon", "/uninstall/timeout", duration},
		{"lbsync.placement=somewhere", "/lbsync/placement", "'beside', 'external'"},
		{"lbsync.replicas=many", "/lbsync/replicas", "want integer"},
		{"lbsync.replicas=-1", "/lbsync/replicas", "minimum: got -1, want 0"},
		{"lbsync.haproxy.announce=bgp", "/lbsync/haproxy/announce", "'', 'keepalived', 'routed'"},
		{"lbsync.keepalived.virtualRouterID=300", "/lbsync/keepalived/virtualRouterID", "maximum: got 300, want 255"},
		{"lbsync.keepalived.interface=eth0/1", "/lbsync/keepalived/interface", "want the name of a network interface, such as eth0"},
		{"lbsync.updateStrategy.maxUnavailable=0", "/lbsync/updateStrategy/maxUnavailable", "minimum: got 0, want 1"},
		{"lbsync.networkPolicy.apiServerCIDRs={any}", "/lbsync/networkPolicy/apiServerCIDRs/0", "want a CIDR such as 192.0.2.0/24"},
		{"lbsync.networkPolicy.apiServerPorts={70000}", "/lbsync/networkPolicy/apiServerPorts/0", "maximum: got 70,000, want 65,535"},
		{"monitoring.podMonitor.interval=often", "/monitoring/podMonitor/interval", duration},
		{"lbsync.config.provider=nginx", "/lbsync/config/provider", "'haproxy', 'avi', 'bigip'"},
		{"lbsync.config.providerName=A_B", "/lbsync/config/providerName", "want a name of small letters, digits and dashes"},
		{"lbsync.config.providers[0].kind=avi", "/lbsync/config/providers/0", "missing property 'name'"},
		{"lbsync.config.providers[0].type=avi", "/lbsync/config/providers/0", "additional properties 'type' not allowed"},
		{"lbsync.config.statusAddress=:1", "/lbsync/config/statusAddress", "want a loopback address and a port, such as 127.0.0.1:10364"},
		{"lbsync.config.blockedNamespaces={A}", "/lbsync/config/blockedNamespaces/0", "want a name of small letters"},
		{"lbsync.config.nodePortSelector.key=a", "/lbsync/config/nodePortSelector", "got object, want array"},
		{"lbsync.config.nodePortSelector[0].key=a", "/lbsync/config/nodePortSelector/0", "missing property 'value'"},
		{"lbsync.config.haproxy.binary=no", "/lbsync/config/haproxy", "additional properties 'binary' not allowed"},
		{"lbsync.config.haproxy.peerAddress=here", "/lbsync/config/haproxy/peerAddress", "want ADDRESS:PORT"},
		{"lbsync.config.haproxy.peers={lb-2}", "/lbsync/config/haproxy/peers/0", "want NAME=ADDRESS:PORT"},
		{"lbsync.config.avi.url=http://a", "/lbsync/config/avi/url", "want https://HOST or https://HOST:PORT, without an account"},
		{"lbsync.config.avi.url=https://u:p@a", "/lbsync/config/avi/url", "without an account"},
		{"lbsync.config.avi.rate=0", "/lbsync/config/avi/rate", "minimum: got 0, want 1"},
		{"lbsync.config.avi.password=p", "/lbsync/config/avi", "additional properties 'password' not allowed"},
		{"lbsync.config.avi.passwordFile=p", "/lbsync/config/avi/passwordFile", "want an absolute path, or nothing"},
		{"lbsync.config.avi.apiVersion=v22", "/lbsync/config/avi/apiVersion", "want a version such as 22.1.3"},
		{"lbsync.config.avi.prefix=a b", "/lbsync/config/avi/prefix", "want 1 to 40 letters"},
		{"lbsync.config.bigip.urls={a}", "/lbsync/config/bigip/urls/0", "want https://HOST"},
		{"lbsync.config.bigip.routeDomain=x", "/lbsync/config/bigip/routeDomain", "want a number from 0 to 65534, or nothing"},
		{"lbsync.config.bigip.partition=/Common", "/lbsync/config/bigip/partition", "want the name of a partition, without slashes"},
		{"lbsync.config.bigip.snat=auto", "/lbsync/config/bigip/snat", "want automap, none or the path of a SNAT pool"},
		{"lbsync.config.bigip.tcpProfile=tcp", "/lbsync/config/bigip/tcpProfile", "want the path of a profile, such as /Common/tcp"},
		{"lbsync.config.bigip.foreignMembers=ask", "/lbsync/config/bigip/foreignMembers", "'remove', 'keep'"},
	} {
		out, err := template(t, test.set)
		line := slices.IndexFunc(strings.Split(out, "\n"), func(l string) bool {
			return strings.HasPrefix(l, "- at '"+strings.Trim(test.at, "'")+"'") && strings.Contains(l, test.allowed)
		})
		if err == nil || line < 0 {
			t.Errorf("--set %s: %v, want %s and %s in\n%.400s", test.set, err, test.at, test.allowed, out)
		}
	}
}

// No value of the wrong type gets past the schema, and every one is named.
func TestSchemaRefusesWrongTypes(t *testing.T) {
	var s schema
	if err := json.Unmarshal([]byte(read(t, "charts/nplbridge/values.schema.json")), &s); err != nil {
		t.Fatal(err)
	}
	paths := slices.DeleteFunc(s.paths(s, ""), func(p string) bool { return p == "global" })
	// A truth is of the wrong type nearly everywhere, and a text is where it is not.
	for _, wrong := range []any{true, "wrong type"} {
		values := map[string]any{}
		for _, path := range paths {
			put(values, path, wrong)
		}
		text, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := template(t, "--values="+file)
		if err == nil {
			t.Fatal("nothing is refused")
		}
		paths = slices.DeleteFunc(paths, func(p string) bool {
			return strings.Contains(out, "- at '/"+strings.ReplaceAll(p, ".", "/")+"':")
		})
	}
	if len(paths) > 0 {
		t.Errorf("truths and texts are both taken for %q", paths)
	}
}

func put(values map[string]any, path string, value any) {
	head, rest, nested := strings.Cut(path, ".")
	if !nested {
		values[head] = value
		return
	}
	inner, has := values[head].(map[string]any)
	if !has {
		inner = map[string]any{}
		values[head] = inner
	}
	put(inner, rest, value)
}

// Values that contradict each other, or lack each other, are refused with what to do.
func TestContradictions(t *testing.T) {
	keepalived := func(without string) []string {
		return slices.DeleteFunc(slices.Clone(keepalivedValues), func(v string) bool { return strings.HasPrefix(v, without) })
	}
	pools := "addressPools={192.0.2.0/28}"
	policy := append(slices.Clone(aviValues), "lbsync.networkPolicy.enabled=true")
	for _, test := range []struct {
		set  []string
		want string
	}{
		{[]string{pools}, "set lbsync.haproxy.announce to keepalived"},
		{[]string{"addressPools[0].name=p", "addressPools[0].ranges={192.0.2.1}"}, "set lbsync.haproxy.announce to keepalived"},
		{keepalived("addressPools"), "addressPools has no address for HAProxy"},
		{keepalived("lbsync.keepalived.interface"), "lbsync.keepalived.interface is empty: name the interface"},
		{keepalived("lbsync.keepalived.image"), "lbsync.keepalived.image.repository is empty: name an image"},
		{append(keepalived("addressPools"), pools), "192.0.2.0/28 is not a single address"},
		{append(keepalived("addressPools"), "addressPools={192.0.2.1-192.0.2.3}"), "192.0.2.1-192.0.2.3 is not a single address"},
		{append(keepalived("addressPools"), "addressPools={2001:db8::/32}"), "2001:db8::/32 is not a single address"},
		{append(mixedRecords(), pools), "set lbsync.haproxy.announce to keepalived"},
		{append(mixedRecords(), "lbsync.config.provider=avi"), "name each load balancer once"},
		{append(mixedRecords(), "lbsync.config.providerName=x"), "name each load balancer once"},
		{append(mixedRecords(), "lbsync.existingSecret=x"), "name the Secret of each load balancer in its record"},
		{append(remoteRecords(), "lbsync.config.providers[1].name=core"), "two load balancers with the name core"},
		{append(remoteRecords(), "lbsync.config.providers[1].existingSecret="), "lbsync.config.providers[1].existingSecret is empty, and lbsync.config.providers[1].bigip.passwordFile"},
		{append(remoteRecords(), "lbsync.config.providers[0].avi.url="), "lbsync.config.providers[0].avi.url is empty"},
		{append(remoteRecords(), "addressPools[0].name=p", "addressPools[0].ranges={192.0.2.1}", "addressPools[0].providers={cor}"), "names cor, which is no load balancer"},
		{slices.Concat(record(0, "name=a", "kind=haproxy"), record(1, "name=b", "kind=haproxy")), "two of kind haproxy"},
		{[]string{"lbsync.tokenSecret=true"}, "lbsync.tokenSecret is true, and lbsync.placement is beside"},
		{policy, "lbsync.networkPolicy.apiServerCIDRs is empty"},
		{append(slices.Clone(policy), "lbsync.networkPolicy.apiServerCIDRs={192.0.2.1/32}"), "lbsync.networkPolicy.loadBalancerCIDRs is empty"},
		{[]string{"agent.windows.enabled=true"}, "agent.windows.image.repository is empty"},
		{[]string{"readinessGate.inject=true"}, "this API server has no MutatingAdmissionPolicy"},
		{[]string{mutating, "readinessGate.inject=true", "lbsync.enabled=false"}, "nobody would open the gate"},
	} {
		if out, err := template(t, test.set...); err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%q: %v, want %q in\n%.300s", test.set, err, test.want, out)
		}
	}
}
