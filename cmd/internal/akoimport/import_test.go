package akoimport

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write testdata/*.golden instead of comparing them")

var options = Options{Namespace: "nplbridge-system", Secret: "avi-account"}

// The values and the report of each input are kept beside it.
func TestInputs(t *testing.T) {
	for _, name := range []string{"akodeploymentconfig", "quirks", "ako-values", "configmap"} {
		t.Run(name, func(t *testing.T) {
			input := read(t, name+".yaml")
			result, err := Import(input, options)
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(map[string]any{"values": result.Values, "report": result.Report})
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, text, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(read(t, name+".golden")), string(text)); diff != "" {
				t.Errorf("-kept +now, go test -update:\n%s", diff)
			}
			if strings.Contains(string(text), "hunter2") {
				t.Error("a secret came out")
			}
			if n := result.Report.Count(Unknown); name != "configmap" && n > 0 {
				t.Errorf("%d unknown keys in an input without any", n)
			}
		})
	}
}

// What TKG's AKODeploymentConfig for NodePortLocal says is in the values, or has no meaning here: nothing is lost.
func TestNothingIsLost(t *testing.T) {
	result, err := Import(read(t, "akodeploymentconfig.yaml"), options)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range result.Report.Keys {
		if k.Verdict != Mapped && k.Verdict != NotNeeded {
			t.Errorf("%s: %s, %s", k.Key, k.Verdict, k.Note)
		}
	}
	for path, want := range map[string]string{
		"serviceType": "NodePortLocal", "agent.enabled": "false", "lbsync.existingSecret": "avi-account",
		"lbsync.config.provider": "avi", "lbsync.config.avi.url": "https://192.0.2.10", "lbsync.config.avi.cloud": "lab-cloud",
		"lbsync.config.avi.seGroup": "Default-Group", "lbsync.config.avi.network": "VIPs", "lbsync.config.avi.subnets": `["198.51.100.0/24"]`,
		"lbsync.config.avi.username": "lbsync", "admissionPolicies.annotationWriters": `["system:serviceaccount:kube-system:antrea-agent"]`,
	} {
		if got := show(at(result.Values, path)); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

// One line of input changes one verdict.
func TestVerdicts(t *testing.T) {
	for _, test := range []struct {
		form    form
		yaml    string // of the configuration
		verdict Verdict
		key     string
		to, set string // the value of the chart
		note    string
	}{
		{chart, "L7Settings: {serviceType: NodePort}", Mapped, "L7Settings.serviceType", "serviceType", "NodePort", ""},
		{chart, "L7Settings: {serviceType: Nodeport}", NotSupported, "L7Settings.serviceType", "serviceType", "", "want one of NodePortLocal, NodePort, ClusterIP"},
		{chart, "L7Settings: {}", Mapped, "L7Settings.serviceType", "serviceType", "ClusterIP", "AKO's default"},
		{operator, "cloudName: a", Mapped, "spec.extraConfigs.ingress.serviceType", "serviceType", "NodePort", "AKO's default"},
		{operator, "cloudName: a", Mapped, "spec.extraConfigs.cniPlugin", "agent.enabled", "false", "Antrea's agent"},
		{operator, "extraConfigs: {cniPlugin: calico}", NotNeeded, "spec.extraConfigs.cniPlugin", "agent.enabled", "", "every CNI"},
		{chart, "AKOSettings: {fullSyncFrequency: 300}", Mapped, "AKOSettings.fullSyncFrequency", "lbsync.config.resync", "5m", ""},
		{chart, "AKOSettings: {fullSyncFrequency: '3601'}", Mapped, "AKOSettings.fullSyncFrequency", "lbsync.config.resync", "1h0m1s", ""},
		{chart, "AKOSettings: {fullSyncFrequency: '86400'}", Mapped, "AKOSettings.fullSyncFrequency", "lbsync.config.resync", "24h", ""},
		{chart, "AKOSettings: {fullSyncFrequency: '86401'}", NotSupported, "AKOSettings.fullSyncFrequency", "lbsync.config.resync", "", "10s to 24h"},
		{chart, "AKOSettings: {fullSyncFrequency: '0'}", NotSupported, "AKOSettings.fullSyncFrequency", "lbsync.config.resync", "", "10s to 24h"},
		{chart, "AKOSettings: {fullSyncFrequency: often}", NotSupported, "AKOSettings.fullSyncFrequency", "lbsync.config.resync", "", "no number"},
		{chart, "AKOSettings: {logLevel: WARN}", Mapped, "AKOSettings.logLevel", "lbsync.config.logLevel", "warn", ""},
		{chart, "AKOSettings: {logLevel: LOUD}", NotSupported, "AKOSettings.logLevel", "lbsync.config.logLevel", "", "want one of"},
		{chart, "AKOSettings: {ipFamily: V6}", Mapped, "AKOSettings.ipFamily", "agent.config.ipFamilies", `["IPv6"]`, ""},
		{chart, "AKOSettings: {ipFamily: v6}", NotSupported, "AKOSettings.ipFamily", "agent.config.ipFamilies", "", "V4_V6"},
		{chart, "AKOSettings: {layer7Only: 'true'}", NotSupported, "AKOSettings.layer7Only", "", "", "Ingresses"},
		{chart, "AKOSettings: {layer7Only: 'false'}", NotNeeded, "AKOSettings.layer7Only", "", "", ""},
		{chart, "AKOSettings: {layer7Only: maybe}", NotSupported, "AKOSettings.layer7Only", "", "", ""},
		{chart, "AKOSettings: {primaryInstance: true}", NotNeeded, "AKOSettings.primaryInstance", "", "", ""},
		{chart, "AKOSettings: {primaryInstance: false}", NotSupported, "AKOSettings.primaryInstance", "", "", "providerName"},
		{chart, "AKOSettings: {deleteConfig: 'true'}", NotSupported, "AKOSettings.deleteConfig", "", "", "delete its virtual services"},
		{chart, "AKOSettings: {clusterName: prod}", NotNeeded, "AKOSettings.clusterName", "", "", "avi.takeOver=ako-prod"},
		{chart, "AKOSettings: {blockedNamespaceList: [a, B]}", NotSupported, "AKOSettings.blockedNamespaceList", "lbsync.config.blockedNamespaces", `["a"]`, "no name of a Namespace"},
		{chart, "AKOSettings: {disableStaticRouteSync: 'false'}", NotSupported, "AKOSettings.disableStaticRouteSync", "", "", "no routes"},
		{chart, "{AKOSettings: {disableStaticRouteSync: 'false'}, L7Settings: {serviceType: NodePortLocal}}", NotNeeded, "AKOSettings.disableStaticRouteSync", "", "", "no route"},
		{chart, "AKOSettings: {namespaceSelector: {labelKey: tier, labelValue: web}}", Mapped, "AKOSettings.namespaceSelector.labelValue", "lbsync.config.namespaceSelector", `[{"key":"tier","value":"web"}]`, ""},
		{chart, "AKOSettings: {namespaceSelector: {labelValue: web}}", NotSupported, "AKOSettings.namespaceSelector.labelValue", "lbsync.config.namespaceSelector", "", "without its key"},
		{chart, "AKOSettings: {namespaceSelector: {labelKey: a b, labelValue: web}}", NotSupported, "AKOSettings.namespaceSelector.labelKey", "lbsync.config.namespaceSelector", "", "no label"},
		{chart, "AKOSettings: {namespaceSelector: tier}", NotSupported, "AKOSettings.namespaceSelector", "lbsync.config.namespaceSelector", "", "it should hold keys"},
		{chart, "AKOSettings: {clustername: hunter2}", Unknown, "AKOSettings.clustername", "", "", "did you mean clusterName?"},
		{chart, "AKOSettings: {\"logLevel.x\": hunter2}", Unknown, "AKOSettings.logLevel.x", "", "", ""},
		{chart, "{AKOSettings: {}, mine: {deep: {er: hunter2}}}", Unknown, "mine.deep.er", "", "", ""},
		{chart, "avicredentials: {passwd: hunter2}", Unknown, "avicredentials.passwd", "", "", "did you mean password?"},
		{chart, "avicredentials: {username: ako}", Mapped, "avicredentials.username", "lbsync.config.avi.username", "ako", "docs/how-to/avi.md"},
		{chart, "avicredentials: {username: [x]}", NotSupported, "avicredentials.username", "lbsync.config.avi.username", "lbsync", "a text"},
		{chart, "avicredentials: {username: {password: hunter2}}", NotSupported, "avicredentials.username", "lbsync.config.avi.username", "lbsync", "a text"},
		{chart, "avicredentials: {authtoken: hunter2}", Mapped, "avicredentials.authtoken", "lbsync.config.avi.tokenFile", "/etc/nplbridge/avi/token", ""},
		{chart, "avicredentials: {authtoken: hunter2, password: hunter2}", Mapped, "avicredentials.authtoken", "lbsync.config.avi.tokenFile", "", ""},
		{chart, "avicredentials:", Mapped, "(account)", "lbsync.config.avi.username", "lbsync", "--username"},
		{chart, "ControllerSettings: {controllerHost: avi.example.com}", Mapped, "ControllerSettings.controllerHost", "lbsync.config.avi.url", "https://avi.example.com", ""},
		{chart, "ControllerSettings: {controllerHost: '2001:db8::1'}", Mapped, "ControllerSettings.controllerHost", "lbsync.config.avi.url", "https://[2001:db8::1]", ""},
		{chart, "ControllerSettings: {controllerHost: 'http://a:80'}", Mapped, "ControllerSettings.controllerHost", "lbsync.config.avi.url", "https://a:80", "instead of http"},
		{chart, "ControllerSettings: {controllerHost: 'a:99999'}", NotSupported, "ControllerSettings.controllerHost", "lbsync.config.avi.url", "", "no address"},
		{chart, "ControllerSettings: {controllerHost: 'https://me:hunter2@a'}", NotSupported, "ControllerSettings.controllerHost", "lbsync.config.avi.url", "", "an account"},
		{chart, "ControllerSettings: {controllerHost: 'a/hunter2?x'}", NotSupported, "ControllerSettings.controllerHost", "lbsync.config.avi.url", "", "no address"},
		{chart, "ControllerSettings: {controllerVersion: 30.2.1}", Mapped, "ControllerSettings.controllerVersion", "lbsync.config.avi.apiVersion", "30.2.1", ""},
		{chart, "ControllerSettings: {controllerVersion: 18.2.8}", NotSupported, "ControllerSettings.controllerVersion", "lbsync.config.avi.apiVersion", "", "22.1.3"},
		{chart, "ControllerSettings: {vrfName: blue}", Mapped, "ControllerSettings.vrfName", "lbsync.config.avi.vrf", "blue", ""},
		{chart, "ControllerSettings: {tenantName: ''}", NotNeeded, "ControllerSettings.tenantName", "lbsync.config.avi.tenant", "", "empty"},
		{chart, "ControllerSettings: {tenantName: [a]}", NotSupported, "ControllerSettings.tenantName", "lbsync.config.avi.tenant", "", "a text"},
		{chart, "NetworkSettings: {vipNetworkList: [{networkUUID: u}]}", NotSupported, "NetworkSettings.vipNetworkList[0]", "lbsync.config.avi.network", "", "by name"},
		{chart, "NetworkSettings: {vipNetworkList: [{networkName: a, cidr: 192.0.2.9/24}]}", Mapped, "NetworkSettings.vipNetworkList[0].cidr", "lbsync.config.avi.subnets", `["192.0.2.0/24"]`, "behind its mask"},
		{chart, "NetworkSettings: {vipNetworkList: [{networkName: a, v6cidr: 192.0.2.0/24, cidr: 198.51.100.0/24}]}", NotSupported, "NetworkSettings.vipNetworkList[0].v6cidr", "lbsync.config.avi.subnets", `["198.51.100.0/24"]`, "of its family"},
		{chart, "NetworkSettings: {vipNetworkList: [{networkName: a, cird: hunter2}]}", Unknown, "NetworkSettings.vipNetworkList[0].cird", "lbsync.config.avi.network", "a", "did you mean cidr?"},
		{chart, "NetworkSettings: {vipNetworkList: [a]}", NotSupported, "NetworkSettings.vipNetworkList", "lbsync.config.avi.network", "", "entry 0 is a text"},
		{configMap, "vipNetworkList: '[{'", NotSupported, "data.vipNetworkList", "lbsync.config.avi.network", "", "looks like JSON"},
		{configMap, "vipNetworkList: '[]'", NotNeeded, "data.vipNetworkList", "lbsync.config.avi.network", "", "IPAM"},
		{configMap, "{nodeKey: ingress, nodeValue: ''}", Mapped, "data.nodeKey", "lbsync.config.nodePortSelector", `[{"key":"ingress","value":""}]`, ""},
		{configMap, "bgpPeerLabels: '[\"a\"]'", NotSupported, "data.bgpPeerLabels", "", "", "BGP"},
		{configMap, "bgpPeerLabels: '[]'", NotNeeded, "data.bgpPeerLabels", "", "", ""},
		{configMap, "defaultLBController: 'true'", Mapped, "data.defaultLBController", "lbsync.config.handleUnclassed", "false", "when AKO has stopped"},
		{configMap, "defaultLBController: perhaps", NotSupported, "data.defaultLBController", "lbsync.config.handleUnclassed", "", "want true or false"},
		{operator, "dataNetwork: {cidr: 192.0.2.0/24}", NotSupported, "spec.dataNetwork.cidr", "lbsync.config.avi.subnets", "", "need a network"},
		{operator, "extraConfigs: {ingress: {nodeNetworkList: {networkName: a}}}", NotNeeded, "spec.extraConfigs.ingress.nodeNetworkList", "", "", "it should be a list"},
		{operator, "adminCredentialRef: {name: a, namespace: b}", Mapped, "spec.adminCredentialRef", "lbsync.existingSecret", "avi-account", "not copied"},
		{operator, "{adminCredentialRef: {name: a, namespace: b}, workloadCredentialRef: {name: c, namespace: d}}", NotNeeded, "spec.adminCredentialRef", "", "", "workloadCredentialRef"},
		{operator, "adminCredentialRef: {name: '$(reboot)', namespace: b}", NotSupported, "spec.adminCredentialRef", "", "", "name and namespace"},
		{operator, "adminCredentialRef: {name: a, namespace: b, password: hunter2}", Unknown, "spec.adminCredentialRef.password", "", "", ""},
		{operator, "controlPlaneNetwork: {name: a}", NotSupported, "spec.controlPlaneNetwork", "", "", "the AKO operator"},
		{operator, "extraConfigs: {replicaCount: 3}", Mapped, "spec.extraConfigs.replicaCount", "lbsync.replicas", "3", ""},
		{operator, "extraConfigs: {replicaCount: 0}", NotSupported, "spec.extraConfigs.replicaCount", "lbsync.replicas", "", "1 to 10"},
	} {
		t.Run(test.yaml, func(t *testing.T) {
			result, err := Import([]byte(wrap(test.form, test.yaml)), options)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(result.Report.Keys, func(k Key) bool {
				return k.Key == test.key && (k.Verdict == test.verdict || test.verdict != NotSupported)
			})
			if i < 0 {
				t.Fatalf("no verdict %s on %s in %+v", test.verdict, test.key, result.Report.Keys)
			}
			if k := result.Report.Keys[i]; k.Verdict != test.verdict || !strings.Contains(k.Note, test.note) {
				t.Errorf("%+v, want %s because of %q", k, test.verdict, test.note)
			}
			if got := show(at(result.Values, test.to)); got != test.set && test.to != "" {
				t.Errorf("%s is %q, want %q", test.to, got, test.set)
			}
			if text := fmt.Sprint(result); strings.Contains(text, "hunter2") || strings.Contains(text, "reboot") {
				t.Errorf("a secret, or the text of somebody else's command, came out: %s", text)
			}
		})
	}
}

// The command that makes the Secret takes nothing from where the input has nothing, and says what is to be done about that.
func TestCommands(t *testing.T) {
	const (
		ca       = "--from-file=ca.crt=<(kubectl "
		noCA     = "# Get the certificate of the Controller's authority, see docs/how-to/avi.md, and add --from-file=ca.crt=ITS-FILE"
		maybe    = "# If avi-system/avi-secret has no certificateAuthorityData, get the certificate"
		password = "# Instead of FILE give a file with the account's password: the input names no Secret that has it"
		fromFile = "--from-file=password=FILE"
	)
	all := []string{ca, noCA, maybe, password, fromFile}
	for _, test := range []struct {
		form form
		yaml string
		want []string
	}{
		{chart, "avicredentials: {certificateAuthorityData: hunter2}", []string{ca}},
		{chart, "avicredentials: {certificateAuthorityData: ''}", []string{noCA}},
		{chart, "avicredentials: {username: a}", []string{noCA}},
		{configMap, "cloudName: a", []string{ca, maybe}},
		{operator, "cloudName: a", []string{noCA, password, fromFile}},
		{operator, "adminCredentialRef: {name: a, namespace: b}", []string{noCA}},
		{operator, "certificateAuthorityRef: {name: a, namespace: b}", []string{ca, password, fromFile}},
		{operator, "{adminCredentialRef: {name: a, namespace: b}, certificateAuthorityRef: {name: a, namespace: b}}", []string{ca}},
	} {
		result, err := Import([]byte(wrap(test.form, test.yaml)), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range all {
			if got := strings.Contains(result.Report.Commands[0], text); got != slices.Contains(test.want, text) {
				t.Errorf("%s: %q is there: %v in\n%s", test.yaml, text, got, result.Report.Commands[0])
			}
		}
	}
}

func TestNoConfiguration(t *testing.T) {
	adc := wrap(operator, "cloudName: a")
	for input, want := range map[string]string{
		"":                 "it is empty; give an AKODeploymentConfig",
		"# nothing\n---\n": "it is empty",
		"a: [":             "document 1 is not YAML",
		"hunter2":          "document 1 holds no keys",
		"- hunter2":        "document 1 holds no keys",
		"a: 1\na: 2":       "already set",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n---\nkind: Secret\n": "no configuration of AKO, only Pod web, Secret;",
		"mine: {}": "only a document without kind;",
		"kind: AKODeploymentConfig\napiVersion: example.com/v1\nmetadata: {name: a}":      `AKODeploymentConfig a: apiVersion "example.com/v1" is not one of networking.tkg.tanzu.vmware.com`,
		"kind: AKODeploymentConfig\napiVersion: networking.tkg.tanzu.vmware.com/v1alpha1": "has no keys below spec",
		"kind: ConfigMap\nmetadata: {name: avi-k8s-config}\ndata: hunter2":                "has no keys below data",
		adc + "\n---\n" + wrap(configMap, "cloudName: a"):                                 "it holds 2 configurations of AKO, AKODeploymentConfig mine, ConfigMap avi-system/avi-k8s-config; give one of them",
		"kind: ConfigMapList\nitems: [{kind: ConfigMap, metadata: {name: other}}, 7]":     "only ConfigMap other;",
	} {
		_, err := Import([]byte(input), options)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %q", input, err, want)
		}
	}
}

// wrap makes an input of a form.
func wrap(f form, tree string) string {
	indented := "  " + strings.ReplaceAll(tree, "\n", "\n  ")
	switch f {
	case operator:
		return "apiVersion: networking.tkg.tanzu.vmware.com/v1alpha1\nkind: AKODeploymentConfig\nmetadata: {name: mine}\nspec:\n" + indented + "\n"
	case configMap:
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: avi-k8s-config}\ndata:\n" + indented + "\n"
	default:
		if strings.HasPrefix(tree, "{") {
			return tree
		}
		return tree + "\nL4Settings: {}\n"
	}
}

// Every key has a verdict, nothing secret comes out, and the same input gives the same result, whatever the input.
func TestEveryKeyHasAVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom([]form{operator, chart, configMap}).Draw(t, "form")
		tree := drawTree(t, f.names(), 4)
		var input map[string]any
		switch f {
		case operator:
			input = map[string]any{"apiVersion": groupOperator + "/v1", "kind": kindOperator, "spec": tree}
		case configMap:
			input = map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": configMapName}, "data": tree}
		default:
			input, tree["AKOSettings"] = tree, map[string]any{}
			delete(tree, "kind")
		}
		text, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		check(t, text)
		result, err := Import(text, options)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprint(result), "hunter2") {
			t.Fatalf("a secret of %s came out", text)
		}
		prefix := map[form]string{operator: "spec.", configMap: "data."}[f]
		for _, leaf := range leaves(prefix, tree) {
			judged := func(k Key) bool {
				return k.Key == leaf || strings.HasPrefix(k.Key, leaf+"[") || strings.HasPrefix(leaf, k.Key+".")
			}
			if !slices.ContainsFunc(result.Report.Keys, judged) {
				t.Fatalf("no verdict on %s in %s", leaf, text)
			}
		}
	})
}

func FuzzImport(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		input, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input []byte) { check(t, input) })
}

type failer interface{ Fatalf(string, ...any) }

// check holds for every input.
func check(t failer, input []byte) {
	result, err := Import(input, options)
	again, errAgain := Import(input, options)
	if fmt.Sprint(err) != fmt.Sprint(errAgain) || !cmp.Equal(result, again) {
		t.Fatalf("twice the same input, %v and %v:\n%s", err, errAgain, cmp.Diff(result, again))
	}
	if err != nil {
		return
	}
	if _, err := json.Marshal(result.Values); err != nil {
		t.Fatalf("values cannot be written: %v", err)
	}
	for _, k := range result.Report.Keys {
		if _, known := order[k.Verdict]; !known || k.Verdict != Mapped && k.Note == "" {
			t.Fatalf("%+v has no verdict, or no reason", k)
		}
	}
	for _, c := range result.Report.Commands {
		if strings.ContainsAny(c, "`;&") {
			t.Fatalf("the command %q does more than it should", c)
		}
	}
}

// drawTree draws keys that AKO has, and others, with all kinds of values. What stands under a name of a secret, or an unknown one, is secret.
func drawTree(t *rapid.T, known *name, depth int) map[string]any {
	tree := map[string]any{}
	for range rapid.IntRange(0, 6).Draw(t, "keys") {
		key, below := rapid.StringMatching(`[A-Za-z]{1,8}`).Draw(t, "key"), (*name)(nil)
		if keys := slices.Sorted(maps.Keys(known.below)); len(keys) > 0 && rapid.Bool().Draw(t, "known") {
			key = rapid.SampledFrom(keys).Draw(t, "of AKO")
			below = known.below[key]
		}
		switch {
		case depth > 0 && below != nil && below.entry == nil:
			tree[key] = drawTree(t, below, depth-1)
		case below == nil, slices.Contains([]string{"password", "authtoken", "certificateAuthorityData"}, key):
			tree[key] = rapid.SampledFrom([]any{"hunter2", map[string]any{"x": "hunter2"}, []any{"hunter2"}}).Draw(t, "secret")
		default:
			tree[key] = rapid.SampledFrom([]any{
				nil, "", "a", "true", "false", "[]", `[{"networkName":"a"}]`, "30.2.1", "1800", "192.0.2.0/24", 7.0, -1.0, true, false, []any{}, []any{"a", 1.0},
				[]any{map[string]any{"networkName": "a", "cidr": "192.0.2.0/24"}}, map[string]any{"name": "a", "namespace": "b"},
			}).Draw(t, "value")
		}
	}
	return tree
}

// leaves returns the paths of the values in a tree.
func leaves(at string, tree map[string]any) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if below, ok := tree[key].(map[string]any); ok && len(below) > 0 {
			out = append(out, leaves(at+key+".", below)...)
		} else {
			out = append(out, at+key)
		}
	}
	return out
}

func at(values map[string]any, path string) any {
	var value any = values
	for segment := range strings.SplitSeq(path, ".") {
		tree, _ := value.(map[string]any)
		value = tree[segment]
	}
	return value
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}
