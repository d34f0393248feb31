package node

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func (c *cluster) configMap(t *testing.T, name string, data map[string]string) {
	t.Helper()
	_, err := c.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) secret(t *testing.T, name string, data map[string]string) {
	t.Helper()
	_, err := c.client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestEnvironmentAndVolumes(t *testing.T) {
	c := theCluster(t)
	c.configMap(t, "settings", map[string]string{"level": "info", "app.yaml": "a: 1\n"})
	c.secret(t, "key", map[string]string{"password": "hunter2"})
	c.create(t, "inside", `
restartPolicy: Never
containers:
- name: main
  image: sh
  command: [sh, -c]
  args:
  - |
    echo level=$LEVEL prefix=$S_level password=$PASSWORD pod=$POD ip=$IP label=$LABEL expanded=$EXPANDED arg=$(LEVEL) api=$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT
    cat /etc/settings/app.yaml; ls /etc/settings
    cat /etc/one.yaml
    stat -Lc %a /etc/key/password; cat /etc/key/password; echo
    cat /etc/info/labels; echo
    test -s /var/run/secrets/kubernetes.io/serviceaccount/token && test -s /var/run/secrets/kubernetes.io/serviceaccount/ca.crt && cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo
    touch /etc/settings/x 2>/dev/null || echo read-only
    echo shared > /scratch/sub/file; hostname
  env:
  - {name: LEVEL, valueFrom: {configMapKeyRef: {name: settings, key: level}}}
  - {name: PASSWORD, valueFrom: {secretKeyRef: {name: key, key: password}}}
  - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: LABEL, valueFrom: {fieldRef: {fieldPath: "metadata.labels['app']"}}}
  - {name: EXPANDED, value: "<$(POD)>"}
  - {name: ABSENT, valueFrom: {configMapKeyRef: {name: nosuch, key: x, optional: true}}}
  envFrom: [{prefix: S_, configMapRef: {name: settings}}]
  volumeMounts:
  - {name: settings, mountPath: /etc/settings}
  - {name: settings, mountPath: /etc/one.yaml, subPath: app.yaml}
  - {name: key, mountPath: /etc/key}
  - {name: info, mountPath: /etc/info}
  - {name: scratch, mountPath: /scratch/sub, subPath: a/b}
volumes:
- {name: settings, configMap: {name: settings, items: [{key: app.yaml, path: app.yaml}]}}
- {name: key, secret: {secretName: key, defaultMode: 0400}}
- {name: info, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}
- {name: scratch, emptyDir: {medium: Memory}}
`)
	pod := c.until(t, "inside", ended)
	want := strings.Join([]string{
		"level=info prefix=info password=hunter2 pod=inside ip=" + pod.Status.PodIP + " label=inside expanded=<inside> arg=info api=10.96.0.1:443",
		"a: 1", "app.yaml", "a: 1", "400", "hunter2", `app="inside"`, "default", "read-only", "inside",
	}, "\n")
	if got := strings.TrimSpace(c.logs(pod, "main")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestVolumesFollowTheirObjects(t *testing.T) {
	c := theCluster(t)
	c.configMap(t, "live", map[string]string{"a": "1"})
	c.create(t, "follow", `
restartPolicy: Never
containers:
- name: main
  image: sh
  command: [sh, -c, 'until test "$(cat /etc/live/a /etc/live/note)" = "2note=\"two\""; do sleep 0.02; done']
  volumeMounts: [{name: live, mountPath: /etc/live}]
volumes:
- name: live
  projected:
    sources:
    - configMap: {name: live}
    - downwardAPI: {items: [{path: note, fieldRef: {fieldPath: metadata.annotations}}]}
`)
	c.until(t, "follow", func(p *corev1.Pod) bool { return mainStatus(p).State.Running != nil })
	for _, err := range []error{
		second(c.client.CoreV1().ConfigMaps("default").Patch(t.Context(), "live", types.MergePatchType, []byte(`{"data":{"a":"2"}}`), metav1.PatchOptions{})),
		second(c.client.CoreV1().Pods("default").Patch(t.Context(), "follow", types.MergePatchType, []byte(`{"metadata":{"annotations":{"note":"two"}}}`), metav1.PatchOptions{})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if pod := c.until(t, "follow", ended); pod.Status.Phase != corev1.PodSucceeded {
		t.Errorf("got %+v", mainStatus(pod))
	}
}

func second[T any](_ T, err error) error { return err }

func TestTokensAreBoundToThePod(t *testing.T) {
	c := theCluster(t)
	c.create(t, "token", `
restartPolicy: Never
containers: [{name: main, image: sh, command: [cat, /tokens/custom], volumeMounts: [{name: t, mountPath: /tokens}]}]
volumes: [{name: t, projected: {sources: [{serviceAccountToken: {path: custom, audience: example.org, expirationSeconds: 700}}]}}]
`)
	pod := c.until(t, "token", ended)
	parts := strings.Split(c.logs(pod, "main"), ".")
	if len(parts) != 3 {
		t.Fatalf("not a token: %q", parts)
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Aud        []string
		Exp, Iat   int64
		Kubernetes struct {
			Pod, Node struct{ Name, UID string }
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		t.Fatal(err)
	}
	k := claims.Kubernetes
	if len(claims.Aud) != 1 || claims.Aud[0] != "example.org" || claims.Exp-claims.Iat != 700 || k.Pod.UID != string(pod.UID) || k.Node.Name != "node-1" {
		t.Errorf("got claims %s", text)
	}
}

func TestSecurityContext(t *testing.T) {
	c := theCluster(t)
	show := `grep -E "^(CapEff|CapBnd|NoNewPrivs)" /proc/self/status | tr -s "\t " " "; touch /tmp/x 2>&1 && echo writable`
	c.create(t, "caps", `
restartPolicy: Never
containers:
- name: main
  image: sh
  command: [sh, -c, '`+show+`']
  securityContext:
    runAsUser: 0
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL], add: [NET_ADMIN]}
    seccompProfile: {type: RuntimeDefault}
`)
	pod := c.until(t, "caps", ended)
	want := "CapEff: 0000000000001000\nCapBnd: 0000000000001000\nNoNewPrivs: 1\ntouch: cannot touch '/tmp/x': Read-only file system"
	if got := strings.TrimSpace(c.logs(pod, "main")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNonRootReadsItsGroupsVolumes(t *testing.T) {
	c := theCluster(t)
	c.secret(t, "grouped", map[string]string{"k": "v"})
	c.create(t, "nonroot", `
restartPolicy: Never
securityContext: {runAsNonRoot: true, fsGroup: 2000}
containers:
- name: main
  image: sh
  command: [sh, -c, 'cat /s/k && touch /scratch/x && grep CapEff /proc/self/status']
  volumeMounts: [{name: s, mountPath: /s}, {name: scratch, mountPath: /scratch}]
volumes: [{name: s, secret: {secretName: grouped, defaultMode: 0400}}, {name: scratch, emptyDir: {}}]
`)
	pod := c.until(t, "nonroot", ended)
	if got := strings.Join(strings.Fields(c.logs(pod, "main")), " "); got != "vCapEff: 0000000000000000" {
		t.Errorf("got %q, %+v", got, mainStatus(pod))
	}
}

func TestHostNetworkAndHostPath(t *testing.T) {
	c := theCluster(t)
	c.create(t, "host", `
restartPolicy: Never
hostNetwork: true
containers:
- name: main
  image: sh
  command: [sh, -c, 'hostname; echo x > /node/file; ip -o -4 address show eth0 | grep -o 172.30.0.11; touch /modules/x 2>/dev/null || echo read-only']
  volumeMounts: [{name: run, mountPath: /node}, {name: modules, mountPath: /modules}]
volumes:
- {name: run, hostPath: {path: /run/app, type: DirectoryOrCreate}}
- {name: modules, hostPath: {path: /usr/lib, type: Directory}}
`)
	pod := c.until(t, "host", ended)
	if got := strings.Fields(c.logs(pod, "main")); strings.Join(got, " ") != "node-1 172.30.0.11 read-only" || pod.Status.PodIP != "172.30.0.11" {
		t.Errorf("got %q, Pod IP %s", got, pod.Status.PodIP)
	}
	if text, err := os.ReadFile(c.state + "/host/run/app/file"); err != nil || string(text) != "x\n" {
		t.Errorf("the Node's own /run/app: %q, %v", text, err)
	}
}

func TestSharedProcessNamespace(t *testing.T) {
	c := theCluster(t)
	c.create(t, "sharing", `
restartPolicy: Never
shareProcessNamespace: true
containers:
- {name: main, image: sh, command: [sh, -c, 'until pid=$(pgrep -x tail); do :; done; kill $pid']}
- {name: other, image: sh, command: [tail, -f, /dev/null]}
`)
	pod := c.until(t, "sharing", ended)
	if other := pod.Status.ContainerStatuses[1].State.Terminated; other == nil || other.Signal != 15 {
		t.Errorf("got %+v; want the other container ended by the first one's signal", pod.Status.ContainerStatuses)
	}
}
