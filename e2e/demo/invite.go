package demo

import (
	"context"
	"fmt"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// Invite prints what to try while the lab stays up.
func (s *Story) Invite(ctx context.Context) error {
	vip, err := view.View{Lab: s.Lab, Namespace: namespace}.Address(ctx, "echo", npl.IPv4)
	if err != nil {
		return err
	}
	service, err := s.Lab.Relay("client", vip)
	if err != nil {
		return err
	}
	page, err := s.Lab.Relay("lb", s.kind().page.address)
	if err != nil {
		return err
	}
	s.heading("The cluster stays up. Try, in another terminal:")
	for _, line := range [][2]string{
		{"every Pod and its Node", "make kubectl ARGS='-n demo get pods -o wide'"},
		{"or with a kubectl of yours", "kubectl --kubeconfig " + s.Lab.HostKubeconfig() + " -n demo get pods"},
		{"a request through the VIP", "curl http://" + service},
		{s.kind().page.what, s.kind().page.scheme + page + "/"},
		{"watch the pool follow", "make kubectl ARGS='-n demo scale deployment echo --replicas=6'"},
	} {
		s.say("%-28s %s", line[0], line[1])
	}
	fmt.Fprintln(s.Out, "\n   Ctrl-C ends it and leaves nothing behind.")
	return nil
}
