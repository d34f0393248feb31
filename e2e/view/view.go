// Package view reads what the cluster and the load balancer say of a Service, for the demo and the stories.
package view

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

// Patience is how long Poll waits for anything; it only matters when something is broken.
const Patience = 2 * time.Minute

// View looks at the Services of one namespace. The Pods of a Service carry its name in the label "app".
type View struct {
	Lab       *lab.Lab
	Namespace string
	// On is the load balancer to look at; nil is the lab's own.
	On *lab.LoadBalancer
}

// Balancer is the load balancer that the View looks at.
func (v View) Balancer() *lab.LoadBalancer { return cmp.Or(v.On, v.Lab.LoadBalancer()) }

// Pods returns the Pods behind a Service that are not terminating, by name.
func (v View) Pods(ctx context.Context, service string) ([]corev1.Pod, error) {
	list, err := v.Lab.Client().CoreV1().Pods(v.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
	if err != nil {
		return nil, fmt.Errorf("listing the Pods of Service %s/%s: %w", v.Namespace, service, err)
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(x, y corev1.Pod) int { return strings.Compare(x.Name, y.Name) })
	return pods, nil
}

// Published returns the TCP mappings that the annotations of the Service's ready Pods name, as "address:port" to Pod name. It is an error
// if a Pod is not ready or has no mapping yet.
func (v View) Published(ctx context.Context, service string, want int) (map[netip.AddrPort]string, error) {
	pods, err := v.Pods(ctx, service)
	if err != nil {
		return nil, err
	}
	if len(pods) != want {
		return nil, fmt.Errorf("the Service %s has %d Pods, not %d", service, len(pods), want)
	}
	members := map[netip.AddrPort]string{}
	for _, p := range pods {
		if !Ready(p) {
			return nil, fmt.Errorf("the Pod %s is not ready", p.Name)
		}
		mappings, err := npl.Decode(p.Annotations[npl.Annotation])
		if err != nil {
			return nil, fmt.Errorf("the annotation of Pod %s: %w", p.Name, err)
		}
		if len(mappings) == 0 {
			return nil, fmt.Errorf("the Pod %s has no mapping", p.Name)
		}
		for _, m := range mappings {
			if m.Protocol != npl.TCP {
				continue // HAProxy balances TCP only
			}
			members[netip.AddrPortFrom(m.NodeIP, m.NodePort)] = p.Name
		}
	}
	return members, nil
}

// Settled waits until the pool of the Service holds exactly what its want Pods publish, and returns it.
func (v View) Settled(ctx context.Context, service string, want int) (map[netip.AddrPort]string, error) {
	return v.SettledIn(ctx, service, want, func() (map[netip.AddrPort]Server, error) { return v.Members(service) })
}

// SettledIn is Settled with a pool that is not the Service's own.
func (v View) SettledIn(ctx context.Context, service string, want int, pool func() (map[netip.AddrPort]Server, error)) (map[netip.AddrPort]string, error) {
	var members map[netip.AddrPort]string
	err := Poll(ctx, func() error {
		var err error
		if members, err = v.Published(ctx, service, want); err != nil {
			return err
		}
		servers, err := pool()
		if err != nil {
			return err
		}
		got := slices.SortedFunc(maps.Keys(servers), netip.AddrPort.Compare)
		if published := slices.SortedFunc(maps.Keys(members), netip.AddrPort.Compare); !slices.Equal(got, published) {
			return fmt.Errorf("the pool holds %v, the annotations say %v", got, published)
		}
		for addr, s := range servers {
			if !s.Up {
				return fmt.Errorf("the member %v is in the pool but not up", addr)
			}
		}
		return nil
	})
	return members, err
}

// Address waits for the VIP of the Service in the family and returns it with the Service's first port.
func (v View) Address(ctx context.Context, service string, family npl.Family) (string, error) {
	var vip string
	err := Poll(ctx, func() error {
		svc, err := v.Lab.Client().CoreV1().Services(v.Namespace).Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			ip, err := netip.ParseAddr(ingress.IP)
			if err != nil {
				return fmt.Errorf("the VIP of Service %s/%s: %w", v.Namespace, service, err)
			}
			if ip.Is4() == (family == npl.IPv4) {
				vip = netip.AddrPortFrom(ip, uint16(svc.Spec.Ports[0].Port)).String()
				return nil
			}
		}
		return fmt.Errorf("the Service %s/%s has no %s address in its status", v.Namespace, service, family)
	})
	return vip, err
}

// DialFrom opens connections from a namespace of the lab.
func (v View) DialFrom(where string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return v.Lab.Dial(ctx, where, network, addr)
	}
}

// Ready reports whether the Pod's condition Ready is True.
func Ready(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Poll calls f until it succeeds; after Patience it returns f's last error.
func Poll(ctx context.Context, f func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		last = f()
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("waited %v: %w", Patience, last)
	}
	return err
}
