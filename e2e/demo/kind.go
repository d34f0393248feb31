package demo

import "github.com/nplbridge/nplbridge/e2e/lab"

// kind is how the story speaks of a load balancer.
type kind struct {
	a      string // "a HAProxy"
	member string // what a name of a member is
	page   struct{ what, scheme, address string }
}

func (s *Story) kind() kind {
	lb := s.Lab.LoadBalancer()
	var k kind
	switch lb.Kind() {
	case lab.Avi:
		k = kind{a: "an Avi Controller (simulated)", member: "external_uuid of the server"}
	case lab.BigIP:
		k = kind{a: "a BIG-IP (simulated)", member: "BIG-IP member"}
	default:
		k = kind{a: "a HAProxy", member: "HAProxy server"}
		k.page.what, k.page.scheme, k.page.address = "HAProxy's statistics page", "http://", lb.StatsAddress()
		return k
	}
	k.page.what, k.page.scheme, k.page.address = "the page of the simulator", "https://", lb.ManagementAddress()
	return k
}
