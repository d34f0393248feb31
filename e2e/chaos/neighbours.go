package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// neighbours are who is near what is bad.
func neighbours() []action {
	return []action{
		{"bad-neighbour", "two Services and an annotation are nonsense and a load balancer stalls, while a Deployment behind another one is scaled", careful, badNeighbour},
	}
}

// i7Bound is how long the members of healthy pools may take to be what is wanted, whatever is bad beside them; the Pods' own time counts.
const i7Bound = 30 * time.Second

// block is who stalls, what is scaled, and on whom that and the bad Services are.
type block struct {
	stalls []string // relays
	app    string
	on     []string
}

func badNeighbour(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	if err := s.nothingCools(ctx); err != nil { // a load balancer that stalls confirms nothing: a Node whose last node ports cool has none for a new Pod
		return nothing, err
	}
	haproxies := slices.DeleteFunc(s.balancers(), func(name string) bool { return !strings.Contains(name, "@") })
	b := pick(random, []block{
		{[]string{"avi"}, "api", []string{viaHAProxy}},
		{[]string{"bigip"}, "api", []string{viaHAProxy}},
		{haproxies, "dns", []string{viaBigIP, viaAvi}},
	})
	defer s.weather(b.stalls, weather{stalls: true})()
	ports := "[{name: bad, port: 99, targetPort: http}]"
	manifest := balanced("nonsense", b.on[0], "{app: web}", ports, "nplbridge.io/algorithm: Dice") +
		balanced("nowhere", b.on[0], "{app: web}", ports, "nplbridge.io/load-balancer-ips: 203.0.113.9")
	if err := s.apply(ctx, "bad Services", manifest); err != nil {
		return nothing, err
	}
	err := s.scaleBesides(ctx, b, pick(random, s.podsOf("web")))
	return nothing, errors.Join(err, s.deleteAll(ctx, "service", "nonsense", "nowhere"))
}

// scaleBesides scales up and down while everything else is bad, and holds the members to I7.
func (s *site) scaleBesides(ctx context.Context, b block, forged *corev1.Pod) error {
	if err := poll(ctx, func() error { return s.refused(ctx, "nonsense", "nowhere") }); err != nil {
		return err
	}
	before := len(s.podsOf(b.app))
	for _, replicas := range []int{before + 2, before} {
		const nonsense = "[{]"
		s.watch.forge(string(forged.UID), nonsense)
		if err := s.patchPod(ctx, forged.Name, object{"metadata": object{"annotations": object{npl.Annotation: nonsense}}}); err != nil {
			return err
		}
		if err := s.scale(ctx, b.app, replicas); err != nil {
			return err
		}
		s.watch.count("I7")
		within, cancel := context.WithTimeout(ctx, i7Bound)
		var last error
		err := poll(within, func() error { last = s.healthy(ctx, b.app, b.on...); return last })
		cancel()
		if err != nil {
			s.watch.violate("I7: beside what is bad, %s (%s) with %d Pods took longer than %v: %v", b.app, strings.Join(b.on, ", "), replicas, i7Bound, last)
		}
	}
	return nil
}

// refused returns nil when Services say that they cannot be served as they are.
func (s *site) refused(ctx context.Context, services ...string) error {
	for _, name := range services {
		svc, err := s.Lab.Client().CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(svc.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == "nplbridge.io/Accepted" && c.Status == metav1.ConditionFalse
		}) {
			return fmt.Errorf("the Service %s is bad, and nobody says so: %v", name, svc.Status.Conditions)
		}
	}
	return nil
}

// healthy returns nil when the Pods of a Deployment, or all, are there and some providers have exactly their members for it.
func (s *site) healthy(ctx context.Context, app string, providers ...string) error {
	options := metav1.ListOptions{}
	if app != "" {
		options.LabelSelector = "app=" + app
		d, err := s.Lab.Client().AppsV1().Deployments(namespace).Get(ctx, app, metav1.GetOptions{})
		if err == nil {
			err = complete(d)
		}
		if err != nil {
			return err
		}
	}
	pods, err := s.Lab.Client().CoreV1().Pods(namespace).List(ctx, options)
	if err != nil {
		return err
	}
	services, err := s.Lab.Client().CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	want, err := s.want(pods.Items, services.Items)
	if err != nil {
		return err
	}
	var on []string
	for _, provider := range providers {
		on = append(on, s.writtenTo(provider)...)
	}
	has := map[string]bool{} // Services with members of this Deployment
	for key, m := range want.pools {
		if !slices.Contains(on, m.provider) {
			delete(want.pools, key)
			continue
		}
		has[m.service] = true
	}
	have, err := s.pools(ctx)
	if err != nil {
		return err
	}
	return equal(slices.DeleteFunc(have, func(m member) bool { return !slices.Contains(on, m.provider) || !has[m.service] }), want.pools)
}
