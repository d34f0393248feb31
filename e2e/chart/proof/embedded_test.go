package proof

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/view"
)

// `helm install` alone gives working LoadBalancer Services, at the addresses of the Nodes; it is upgraded, goes and comes back, and leaves nothing.
func TestEmbedded(t *testing.T) {
	s := site{t: t, usage: &rights}
	defer s.explain()
	s.makeNamespace()
	s.deploy("haproxy", true)
	s.kubectl("-n", app, "wait", "--for=condition=ContainersReady", "pod", "-l", "app=web", "--timeout=1m")
	before := fingerprint(t)

	s.apply("serviceType=NodePort")
	addresses := s.addresses()
	s.life()
	s.goAndComeBack()
	s.uninstall()
	for _, address := range addresses { // HAProxy is gone, and nothing of it is left on the Nodes
		s.poll(func() error {
			conn, err := view.View{Lab: theLab}.DialFrom("client")(t.Context(), "tcp", address)
			if err == nil {
				_ = conn.Close()
				return fmt.Errorf("somebody listens on %s", address)
			}
			if !errors.Is(err, syscall.ECONNREFUSED) {
				return err
			}
			return nil
		})
	}
	s.kubectl("-n", app, "scale", "deployment/web", "--replicas=4")
	unchanged(t, before)
	s.kubectl("delete", "namespace", app)
}
