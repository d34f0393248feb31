package manifests

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
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
