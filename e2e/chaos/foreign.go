package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// foreignName is part of the names of what is not nplbridge's, though it looks much like it: only the mark tells.
const foreignName = "stranger"

// foreignTable is a table of somebody else on every Node.
const foreignTable = `table ip stranger {
	map ports { type inet_proto . inet_service : ipv4_addr . inet_service; elements = { tcp . 62001 : 192.0.2.1 . 80 }; }
	chain prerouting { type nat hook prerouting priority dstnat; dnat ip to meta l4proto . th dport map @ports comment "not yours"; }
}
`

const foreignConfig = `# Not lbsync's.
backend npl_b_chaos_stranger_80_tcp
    mode tcp
    server 192.0.2.1:80_not-yours 192.0.2.1:80
`

const foreignService = `apiVersion: v1
kind: Service
metadata:
  name: stranger
  namespace: chaos
  annotations: {example.com/balancer: not-yours, nplbridge.io.example.com/pool: not-yours}
  finalizers: [example.com/keep]
spec:
  type: LoadBalancer
  loadBalancerClass: example.com/other
  allocateLoadBalancerNodePorts: false
  selector: {app: stranger}
  ports: [{port: 80}]
`

// otherCluster is the mark of a cluster that is not this one.
const otherCluster = "ffffffff-0000-4000-8000-000000000000"

// seed puts foreign things wherever nplbridge writes, and remembers how they are.
func (s *site) seed(ctx context.Context) error {
	for _, node := range s.Lab.Nodes() {
		if err := s.seedNode(ctx, node); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dirOf(s.Lab.LoadBalancer()), "npl.d", "90-stranger.cfg"), []byte(foreignConfig), 0o644); err != nil {
		return err
	}
	if err := s.Lab.Apply(ctx, foreignService); err != nil {
		return err
	}
	mark := func(key, value string) map[string]any { return map[string]any{"key": key, "values": []string{value}} }
	avi := map[string]any{
		"name":    "nplbridge-chaos-stranger-TCP-80",
		"servers": []any{map[string]any{"ip": map[string]any{"addr": "192.0.2.1", "type": "V4"}, "port": 80}},
		"markers": []any{
			mark("nplbridge-cluster", otherCluster), mark("nplbridge-instance", system+"/nplbridge"),
			mark("nplbridge-service", namespace+"/stranger"), mark("nplbridge-port", "80/TCP"),
		},
		"created_by": "nplbridge/" + otherCluster + "/" + system + "/nplbridge",
	}
	if _, err := s.avi.Administer(ctx, http.MethodPost, "/api/pool", avi); err != nil {
		return fmt.Errorf("foreign pool of Avi: %w", err)
	}
	datum := func(name, value string) map[string]any {
		return map[string]any{"name": name, "value": value, "persist": "true"}
	}
	bigip := map[string]any{"name": "nplbridge_chaos_stranger", "partition": "k8s", "metadata": []any{
		datum("nplbridge-cluster", otherCluster), datum("nplbridge-instance", system+"/nplbridge"), datum("nplbridge-key", namespace+"/stranger:80/TCP"),
	}}
	if _, err := s.bigip.Administer(ctx, http.MethodPost, "/mgmt/tm/ltm/pool", bigip); err != nil {
		return fmt.Errorf("foreign pool of BIG-IP: %w", err)
	}
	if _, err := s.bigip.Administer(ctx, http.MethodPost, "/mgmt/tm/ltm/pool/~k8s~nplbridge_chaos_stranger/members", map[string]any{"name": "192.0.2.1:80", "partition": "k8s"}); err != nil {
		return fmt.Errorf("foreign member of BIG-IP: %w", err)
	}
	var err error
	s.foreign, err = s.strangers(ctx)
	return err
}

// seedNode puts the foreign table on a Node, where it was never or no longer.
func (s *site) seedNode(ctx context.Context, node string) error {
	cmd := s.Lab.Command(ctx, node, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(foreignTable)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("foreign table on %s: %w: %s", node, err, out)
	}
	return nil
}

// volatile is what changes in a foreign object by itself.
var volatile = regexp.MustCompile(`"(resourceVersion|managedFields|_last_modified|generation)":("[^"]*"|\d+|\[[^\]]*\]),?`)

// strangers are the foreign things as they are now, by where they are.
func (s *site) strangers(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	for _, node := range s.Lab.Nodes() {
		out, err := s.Lab.Command(ctx, node, "nft", "list", "table", "ip", foreignName).CombinedOutput()
		if err != nil {
			out = append(out, []byte(err.Error())...)
		}
		found["nftables of "+node] = string(out)
	}
	content, err := os.ReadFile(filepath.Join(dirOf(s.Lab.LoadBalancer()), "npl.d", "90-stranger.cfg"))
	if err != nil {
		return nil, err
	}
	found["configuration of HAProxy"] = string(content)
	svc, err := s.Lab.Client().CoreV1().Services(namespace).Get(ctx, foreignName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	svc.ManagedFields = nil
	object, err := json.Marshal(svc)
	if err != nil {
		return nil, err
	}
	found["Service"] = volatile.ReplaceAllString(string(object), "")
	avi, err := s.avi.Administer(ctx, http.MethodGet, "/api/pool?name=nplbridge-chaos-stranger-TCP-80", nil)
	if err != nil {
		return nil, err
	}
	found["pool of Avi"] = volatile.ReplaceAllString(string(avi), "")
	bigip, err := s.bigip.Administer(ctx, http.MethodGet, "/mgmt/tm/ltm/pool/~k8s~nplbridge_chaos_stranger?expandSubcollections=true", nil)
	if err != nil {
		bigip = []byte(err.Error())
	}
	found["pool of BIG-IP"] = volatile.ReplaceAllString(string(bigip), "")
	return found, nil
}

// foreignBackend is loaded with the first reload of HAProxy after it was seeded.
const foreignBackend = "backend in HAProxy"

// checkForeign holds what is not nplbridge's to I5.
func (s *site) checkForeign(ctx context.Context) error {
	now, err := s.strangers(ctx)
	if err != nil {
		return err
	}
	if now[foreignBackend], err = s.backend(ctx); err != nil {
		return err
	}
	if _, known := s.foreign[foreignBackend]; !known {
		s.foreign[foreignBackend] = now[foreignBackend]
	}
	for _, where := range slices.Sorted(maps.Keys(s.foreign)) {
		if s.watch.count("I5"); now[where] != s.foreign[where] {
			s.watch.violate("I5: the foreign %s was\n%s\nand is\n%s", where, s.foreign[where], now[where])
		}
	}
	return nil
}

// backend is the foreign backend as HAProxy has it.
func (s *site) backend(ctx context.Context) (string, error) {
	text, err := runtime(ctx, s.Lab.LoadBalancer(), "show servers state npl_b_chaos_stranger_80_tcp")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > columnPort {
			fmt.Fprintln(&b, f[columnBackend], f[columnServer], f[columnAddress], f[columnPort], f[columnAdmin], f[columnWeight])
		}
	}
	if b.Len() == 0 {
		return "", fmt.Errorf("HAProxy has no backend of a stranger: %s", text)
	}
	return b.String(), nil
}
