package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// tampering is what people and programs edit that they should leave alone.
func tampering() []action {
	return []action{
		{"nft-flush", "all nftables rules of a Node are flushed", fault, nftFlush},
		{"nft-edit", "elements and rules of our tables are edited", fault, nftEdit},
		{"annotation-edit", "a node port annotation is edited by hand", fault, annotationEdit},
		{"drift", "a member is deleted on each load balancer, with the connections through it", fault, drift},
	}
}

func nftFlush(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	node := pick(random, s.Lab.Nodes())
	return s.nft(ctx, node, "flush ruleset\n")
}

func nftEdit(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	node := pick(random, s.Lab.Nodes())
	programmed, err := s.rules.of(node)
	if err != nil {
		return nothing, err
	}
	var script strings.Builder
	for port := range programmed {
		if port.family == npl.IPv4 && random.IntN(3) == 0 {
			fmt.Fprintf(&script, "delete element ip nplbridge ports { %s . %d }\n", port.protocol, port.number)
		}
	}
	switch random.IntN(3) {
	case 0:
		script.WriteString("flush chain ip nplbridge prerouting\n")
	case 1:
		script.WriteString("delete table ip nplbridge\n")
	case 2:
		script.WriteString("add element ip nplbridge ports { tcp . 60999 : 192.0.2.9 . 9 }\n")
	}
	return s.nft(ctx, node, script.String())
}

// nft runs a script of nft on a Node, which breaks node ports there until they are repaired.
func (s *site) nft(ctx context.Context, node, script string) (budget, error) {
	b := s.budgetOf(node, 6*time.Second)
	s.excuseTables(node, true)
	defer s.excuseTables(node, false)
	cmd := s.Lab.Command(ctx, node, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("nft on %s: %w: %s\n%s", node, err, out, script)
	}
	if strings.Contains(script, "flush ruleset") {
		if err := s.seedNode(ctx, node); err != nil {
			return b, err
		}
	}
	return b, s.rest(ctx)
}

func annotationEdit(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	p := pick(random, s.podsOf(pick(random, []string{"web", "api", "dns"})))
	var value any
	switch random.IntN(3) {
	case 0: // taken away
	case 1:
		value = "{not JSON"
	case 2: // a node port that leads nowhere
		mappings, err := npl.Decode(p.Annotations[npl.Annotation])
		if err != nil || len(mappings) == 0 {
			return nothing, errors.Join(err, fmt.Errorf("the Pod %s has no node port", p.Name))
		}
		mappings[0].NodePort = 61999
		value = npl.Encode(mappings)
	}
	forged, _ := value.(string)
	s.watch.forge(string(p.UID), forged)
	b := s.budgetOf(p.Spec.NodeName, 6*time.Second)
	b.what = "the Pod " + p.Name
	return b, s.patchPod(ctx, p.Name, object{"metadata": object{"annotations": object{npl.Annotation: value}}})
}

// drift deletes a member on every load balancer, as an operator might; the next look at it puts that right. What an operator only disables stays so.
func drift(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	b := budget{"the members", ofServices("web", "dns-avi", "dns-bigip"), udpPatience + 3*time.Second}
	all, err := s.servers(ctx, s.Lab.LoadBalancer())
	if err != nil {
		return b, err
	}
	var servers []string
	for _, of := range all {
		if f := of.fields; of.service == "web" && f[columnAdmin] == "0" {
			servers = append(servers, f[columnBackend]+"/"+f[columnServer])
		}
	}
	if len(servers) == 0 {
		return b, errors.New("HAProxy has no server of web")
	}
	server := pick(random, servers)
	if _, err := runtime(ctx, s.Lab.LoadBalancer(), "set server "+server+" state maint"); err != nil {
		return b, err
	}
	err = poll(ctx, func() error { // it can be deleted once nobody is connected
		if _, err := runtime(ctx, s.Lab.LoadBalancer(), "shutdown sessions server "+server); err != nil {
			return err
		}
		answer, err := runtime(ctx, s.Lab.LoadBalancer(), "del server "+server)
		if err == nil && !strings.Contains(answer, "deleted") && !strings.Contains(answer, "No such server") {
			err = fmt.Errorf("HAProxy: del server %s: %s", server, answer)
		}
		return err
	})
	if err != nil {
		return b, err
	}
	return b, errors.Join(s.driftAvi(ctx), s.driftBigIP(ctx, random))
}

// driftAvi takes a server out of a pool.
func (s *site) driftAvi(ctx context.Context) error {
	content, err := s.avi.Administer(ctx, http.MethodGet, "/api/pool?page_size=200", nil)
	if err != nil {
		return err
	}
	var pools struct{ Results []map[string]any }
	if err := json.Unmarshal(content, &pools); err != nil {
		return err
	}
	for _, pool := range pools.Results {
		servers, _ := pool["servers"].([]any)
		if pool["name"] == "nplbridge-chaos-stranger-TCP-80" || len(servers) < 2 {
			continue
		}
		pool["servers"] = servers[1:]
		_, err := s.avi.Administer(ctx, http.MethodPut, fmt.Sprintf("/api/pool/%s", pool["uuid"]), pool)
		return err
	}
	return nil
}

// driftBigIP deletes a member of a pool.
func (s *site) driftBigIP(ctx context.Context, random *rand.Rand) error {
	content, err := s.bigip.Administer(ctx, http.MethodGet, "/mgmt/tm/ltm/pool?expandSubcollections=true", nil)
	if err != nil {
		return err
	}
	var pools struct {
		Items []struct {
			Name, Partition  string
			MembersReference struct {
				Items []struct{ Name, Partition string }
			}
		}
	}
	if err := json.Unmarshal(content, &pools); err != nil {
		return err
	}
	for _, pool := range pools.Items {
		members := pool.MembersReference.Items
		if len(members) < 2 {
			continue
		}
		m := pick(random, members)
		_, err := s.bigip.Administer(ctx, http.MethodDelete, fmt.Sprintf("/mgmt/tm/ltm/pool/~%s~%s/members/~%s~%s", pool.Partition, pool.Name, m.Partition, m.Name), nil)
		return err
	}
	return nil
}
