package stories

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// rule SELECTOR prints the elements of any Node's nftables map that lead to a Pod of this story.
func (s *story) rule(_ *testscript.TestScript, args []string) (string, error) {
	pods, err := s.podIPs(args[0])
	if err != nil {
		return "", err
	}
	var found []string
	for _, node := range s.Lab.Nodes() {
		rules, err := s.ruleset(node)
		if err != nil {
			return "", err
		}
		for _, ip := range pods {
			if strings.Contains(rules, ": "+ip+" . ") {
				found = append(found, node+" "+ip)
			}
		}
	}
	if len(found) == 0 {
		return "", errAbsent
	}
	return strings.Join(found, "\n") + "\n", nil
}

func (s *story) podIPs(selector string) ([]string, error) {
	out, err := s.Lab.Kubectl(s.ctx, "-n", s.Namespace, "get", "pods", "-l", selector, "-o", "jsonpath={.items[*].status.podIPs[*].ip}")
	return strings.Fields(out), err
}

func (s *story) ruleset(node string) (string, error) {
	out, err := s.Lab.Command(s.ctx, node, "nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("listing the nftables rules of %s: %w: %s", node, err, out)
	}
	return string(out), nil
}

// cut SELECTOR PROTOCOL PODPORT deletes the rule of the first mapping that "mapping" prints, as somebody with nft would.
func (s *story) cut(ts *testscript.TestScript, args []string) (string, error) {
	if _, err := s.mapping(ts, args); err != nil {
		return "", err
	}
	mapping, err := netip.ParseAddrPort(ts.Getenv("MAPPING"))
	if err != nil {
		return "", err
	}
	node, err := s.nodeOf(mapping.Addr())
	if err != nil {
		return "", err
	}
	table := "ip"
	if mapping.Addr().Is6() {
		table = "ip6"
	}
	key := fmt.Sprintf("{ %s . %d }", args[1], mapping.Port())
	return s.execIn(ts, []string{node, "nft", "delete", "element", table, "nplbridge", "ports", key})
}

func (s *story) nodeOf(addr netip.Addr) (string, error) {
	nodes, err := s.Lab.Client().CoreV1().Nodes().List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, n := range nodes.Items {
		for _, a := range n.Status.Addresses {
			if a.Address == addr.String() {
				return n.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no Node has the address %s", addr)
}

// in-use RANGE COUNT looks at all Nodes for node ports of the range: exactly so many have a rule, the same ones are held by a socket, and
// no other port is.
func (s *story) inUse(_ *testscript.TestScript, args []string) (string, error) {
	var first, last, want int
	if _, err := fmt.Sscanf(args[0]+" "+args[1], "%d-%d %d", &first, &last, &want); err != nil {
		return "", fmt.Errorf("in-use RANGE COUNT: %w", err)
	}
	var ruled, held []string
	for _, node := range s.Lab.Nodes() {
		for _, family := range []string{"4", "6"} {
			rules, err := s.elements(node, family)
			if err != nil {
				return "", err
			}
			for port := first; port <= last; port++ {
				for _, protocol := range []string{"tcp", "udp"} {
					name := fmt.Sprintf("%s %s%s/%d", node, protocol, family, port)
					if rules[fmt.Sprintf("%s . %d", protocol, port)] {
						ruled = append(ruled, name)
					}
				}
			}
			sockets, err := s.sockets(node, family, first, last)
			if err != nil {
				return "", err
			}
			held = append(held, sockets...)
		}
	}
	out := fmt.Sprintf("rules: %s\nsockets: %s\n", strings.Join(ruled, ", "), strings.Join(held, ", "))
	if len(ruled) != want || len(held) != want {
		return out, fmt.Errorf("%d rules and %d sockets, want %d of each", len(ruled), len(held), want)
	}
	for _, name := range ruled {
		if !strings.Contains(out[strings.Index(out, "sockets:"):], name) {
			return out, fmt.Errorf("%s has a rule and no socket", name)
		}
	}
	return out, nil
}

var key = regexp.MustCompile(`(?m)(tcp|udp) \. \d+ :`)

// elements are the keys of the map of node ports on a Node; none where there is no table.
func (s *story) elements(node, family string) (map[string]bool, error) {
	out, err := s.Lab.Command(s.ctx, node, "nft", "list", "ruleset", map[string]string{"4": "ip", "6": "ip6"}[family]).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("listing the nftables rules of %s: %w: %s", node, err, out)
	}
	found := map[string]bool{}
	_, ours, _ := strings.Cut(string(out), " nplbridge {")
	ours, _, _ = strings.Cut(ours, "\n}")
	for _, k := range key.FindAllString(ours, -1) {
		found[strings.TrimSuffix(k, " :")] = true
	}
	return found, nil
}

// sockets are the ports of a range that cannot be bound on a Node because somebody holds them.
func (s *story) sockets(node, family string, first, last int) (held []string, err error) {
	err = s.Lab.Do(s.ctx, node, func() error {
		for port := first; port <= last; port++ {
			for _, protocol := range []string{"tcp", "udp"} {
				err := bind(s.ctx, protocol, family, port)
				switch {
				case errors.Is(err, unix.EADDRINUSE):
					held = append(held, fmt.Sprintf("%s %s%s/%d", node, protocol, family, port))
				case err != nil:
					return err
				}
			}
		}
		return nil
	})
	return held, err
}

// bind takes a port and gives it back.
func bind(ctx context.Context, protocol, family string, port int) error {
	address := ":" + strconv.Itoa(port)
	if protocol == "udp" {
		conn, err := new(net.ListenConfig).ListenPacket(ctx, protocol+family, address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	listener, err := new(net.ListenConfig).Listen(ctx, protocol+family, address)
	if err != nil {
		return err
	}
	return listener.Close()
}

// reached WHERE SELECTOR PROTOCOL PODPORT COUNT connects to each nodeIP:nodePort that the Pods' annotations name for this Pod port: there are so
// many, and each one is answered by the Pod that names it. WHERE is a place, or "its-node", or "itself". It prints who asked as whom.
func (s *story) reached(_ *testscript.TestScript, args []string) (string, error) {
	where, selector, protocol, podPort := args[0], args[1], args[2], args[3]
	want, err := strconv.Atoi(args[4])
	if err != nil {
		return "", err
	}
	pods, err := s.Lab.Client().CoreV1().Pods(s.Namespace).List(s.ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	n := 0
	for _, pod := range pods.Items {
		annotation, ok := pod.Annotations[npl.Annotation]
		if !ok {
			continue
		}
		mappings, err := npl.Decode(annotation)
		if err != nil {
			return "", fmt.Errorf("the annotation of Pod %s: %w", pod.Name, err)
		}
		for _, m := range mappings {
			if string(m.Protocol) != protocol || strconv.Itoa(int(m.PodPort)) != podPort {
				continue
			}
			n++
			addr := netip.AddrPortFrom(m.NodeIP, m.NodePort).String()
			answer, err := s.ask(from(where, pod), protocol, addr)
			fmt.Fprintf(&out, "%s at %s: %s\n", pod.Name, addr, answer)
			if err != nil {
				return out.String(), fmt.Errorf("asking Pod %s at %s/%s from %s: %w", pod.Name, addr, protocol, from(where, pod), err)
			}
			if !strings.Contains(answer, `"pod":"`+pod.Name+`"`) {
				return out.String(), fmt.Errorf("%s/%s is of Pod %s, another one answers: %s", addr, protocol, pod.Name, answer)
			}
		}
	}
	if n != want {
		return out.String(), fmt.Errorf("%d mappings, want %d", n, want)
	}
	return out.String(), nil
}

func from(where string, pod corev1.Pod) string {
	switch where {
	case "its-node":
		return pod.Spec.NodeName
	case "itself":
		return "pod:" + pod.Namespace + "/" + pod.Name
	}
	return where
}

// ask sends what the echo server answers at each of its ports, and returns the answer's line of JSON.
func (s *story) ask(where, network, addr string) (string, error) {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	conn, err := s.Lab.Dial(ctx, where, network, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
		return "", err
	}
	var answer strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		answer.Write(buf[:n])
		if line, ok := strings.CutSuffix(answer.String(), "}\n"); ok {
			return line[strings.LastIndexByte(line, '{'):] + "}", nil
		}
		if err != nil {
			return answer.String(), err
		}
	}
}
