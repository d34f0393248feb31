package manifests

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// lbsync of a load balancer elsewhere needs no HAProxy, no Node's network and no root; the files that its settings name are in its Secret.
func TestLBSyncAlone(t *testing.T) {
	for provider, values := range map[string][]string{"avi": aviValues, "bigip": bigipValues} {
		deployment := aloneOf(t, values...)
		pod := deployment.Spec.Template.Spec
		hardened(t, pod, "lbsync")
		selects(t, deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels)
		if len(pod.Containers) != 1 || pod.HostNetwork || !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser == 0 {
			t.Errorf("%s: %d containers, hostNetwork %v, security context %+v", provider, len(pod.Containers), pod.HostNetwork, pod.SecurityContext)
		}
		if r := deployment.Spec.Strategy.RollingUpdate; r.MaxUnavailable.IntValue() != 0 || *deployment.Spec.Replicas != 2 {
			t.Errorf("%s: a new Pod cannot come before the old one goes: %v, of %d replicas", provider, r, *deployment.Spec.Replicas)
		}
		for _, c := range pod.TopologySpreadConstraints {
			if c.WhenUnsatisfiable != corev1.ScheduleAnyway {
				t.Errorf("%s: a single Node is not enough: %+v", provider, c)
			}
			selects(t, c.LabelSelector.MatchLabels, deployment.Spec.Template.Labels)
		}

		at := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "settings" })
		mounted := pod.Containers[0].VolumeMounts[at].MountPath
		var files []string
		for _, v := range pod.Volumes {
			if v.Name != "settings" {
				continue
			}
			if mode := *v.Projected.DefaultMode; mode&0o007 != 0 {
				t.Errorf("%s: mode %o", provider, mode)
			}
			for _, source := range v.Projected.Sources {
				if source.Secret == nil {
					continue
				}
				if source.Secret.Name != "account" {
					t.Errorf("%s: Secret %s", provider, source.Secret.Name)
				}
				for _, item := range source.Secret.Items {
					files = append(files, path.Join(mounted, item.Path))
				}
			}
		}
		settings := settingsOf(t, "nplbridge-lbsync", values...)[provider].(map[string]any)
		for _, key := range []string{"passwordFile", "caFile"} {
			if file := settings[key].(string); !slices.Contains(files, file) {
				t.Errorf("%s.%s is %s, the Secret makes %q", provider, key, file, files)
			}
		}
	}
}

// Settings of other load balancers than the one that is there are left out.
func TestSettingsOfOneProvider(t *testing.T) {
	for provider, values := range map[string][]string{"haproxy": nil, "avi": aviValues, "bigip": bigipValues} {
		settings := settingsOf(t, "nplbridge-lbsync", values...)
		for _, other := range []string{"haproxy", "avi", "bigip"} {
			if _, has := settings[other]; has != (other == provider) {
				t.Errorf("%s: has settings of %s: %v", provider, other, has)
			}
		}
	}
	bigip := settingsOf(t, "nplbridge-lbsync", append(slices.Clone(bigipValues), "lbsync.config.bigip.routeDomain=2")...)["bigip"].(map[string]any)
	if diff := cmp.Diff([]any{"https://a", "https://b"}, bigip["urls"]); diff != "" || bigip["routeDomain"] != 2.0 {
		t.Errorf("%v", bigip)
	}
}

// What lbsync cannot do without is asked for when the chart is installed.
func TestRemoteNeeds(t *testing.T) {
	for _, test := range []struct {
		set  []string
		want string
	}{
		{aviValues[:1], "lbsync.config.avi.url is empty"},
		{bigipValues[:1], "lbsync.config.bigip.urls is empty"},
		{aviValues[:2], "lbsync.config.avi.username is empty"},
		{aviValues[:3], "lbsync.existingSecret is empty, and lbsync.config.avi.passwordFile"},
		{append(slices.Clone(bigipValues[:3]), "lbsync.config.bigip.passwordFile=/p"), "lbsync.existingSecret is empty, and lbsync.config.bigip.caFile"},
	} {
		if out, err := template(t, test.set...); err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%q: %v, want %q in\n%.300s", test.set, err, test.want, out)
		}
	}
	if out, err := template(t, append(slices.Clone(aviValues[:3]), "lbsync.config.avi.passwordFile=/p", "lbsync.config.avi.caFile=")...); err != nil {
		t.Errorf("files from elsewhere: %v\n%s", err, out)
	}
}

// Several load balancers: each has its own settings, and files of its own Secret that these name.
func TestProviders(t *testing.T) {
	pod := embeddedOf(t, mixedRecords()...).Spec.Template.Spec // all in the DaemonSet's lbsync, so that one of them writes Services
	settings := settingsOf(t, "nplbridge-lbsync", mixedRecords()...)
	for _, key := range []string{"provider", "providerName", "avi", "bigip", "haproxy"} {
		if _, has := settings[key]; has {
			t.Errorf("setting %s is there beside providers", key)
		}
	}
	records := settings["providers"].([]any)
	nodes, core := records[0].(map[string]any), records[1].(map[string]any)
	haproxy := nodes["haproxy"].(map[string]any)
	if nodes["name"] != "nodes" || nodes["kind"] != "haproxy" || haproxy["checkInterval"] != "2s" || haproxy["nodeAddresses"] != true || haproxy["dir"] == nil {
		t.Errorf("HAProxy: %v", nodes)
	}
	avi := core["avi"].(map[string]any)
	for key, want := range map[string]any{
		"tenant": "shop", "cloud": "Default-Cloud", "url": "https://avi:8443", "passwordFile": "/etc/nplbridge/core/password", "caFile": "/etc/nplbridge/core/ca.crt", "tokenFile": "",
	} {
		if avi[key] != want {
			t.Errorf("avi.%s is %v, want %v", key, avi[key], want)
		}
	}
	if _, has := core["existingSecret"]; has {
		t.Error("existingSecret is no setting of lbsync")
	}
	files := map[string][]string{}
	for _, v := range pod.Volumes {
		if v.Name == "settings" {
			for _, s := range v.Projected.Sources {
				if s.Secret != nil {
					for _, item := range s.Secret.Items {
						files[s.Secret.Name] = append(files[s.Secret.Name], item.Path)
					}
				}
			}
		}
	}
	if diff := cmp.Diff(map[string][]string{"core-account": {"core/password", "core/token", "core/ca.crt"}}, files); diff != "" {
		t.Errorf("Secrets: -want +got:\n%s", diff)
	}
	alone := aloneOf(t, remoteRecords()...).Spec.Template.Spec
	hardened(t, alone, "lbsync")
	if alone.HostNetwork || !*alone.SecurityContext.RunAsNonRoot {
		t.Errorf("%+v", alone.SecurityContext)
	}
}

// A NetworkPolicy of the Deployment opens what lbsync needs: the ports are those of the load balancers' URLs.
func TestNetworkPolicy(t *testing.T) {
	policy := named[*networkingv1.NetworkPolicy](t, render(t, combinations["network policy"]...), "nplbridge-lbsync")
	selects(t, policy.Spec.PodSelector.MatchLabels, aloneOf(t, combinations["network policy"]...).Spec.Template.Labels)
	var got []string
	for _, rule := range policy.Spec.Egress {
		var to, ports []string
		for _, peer := range rule.To {
			to = append(to, peer.IPBlock.CIDR)
		}
		for _, p := range rule.Ports {
			ports = append(ports, string(*p.Protocol)+" "+p.Port.String())
		}
		got = append(got, strings.Join(to, ",")+" "+strings.Join(ports, ","))
	}
	want := []string{"192.0.2.1/32 TCP 443,TCP 6443", "192.0.2.2/32,2001:db8::2/128 TCP 8443,TCP 443", " UDP 53,TCP 53"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("egress: -want +got:\n%s", diff)
	}
	if len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.Ingress) != 1 || policy.Spec.Ingress[0].Ports[0].Port.String() != "probes" {
		t.Errorf("%+v", policy.Spec)
	}
	if _, has := find[*networkingv1.NetworkPolicy](render(t, "lbsync.networkPolicy.enabled=true"), "nplbridge-lbsync"); has {
		t.Error("a NetworkPolicy for Pods on the Node's network does nothing")
	}
}
