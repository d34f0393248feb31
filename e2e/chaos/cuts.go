package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nplbridge/nplbridge/e2e/chaos/ledger"
)

// cuts are what happens to the network.
func cuts() []action {
	return []action{
		{"node-cut", "a Node's link is down for a while", fault, nodeCut},
		{"lb-link", "the link of the load balancers' host is down for a moment", fault, lbLink},
		{"api-drop", "packets between lbsync and the API server are dropped", fault, apiDrop},
		{"relay-stall", "nothing passes between lbsync and one of its ends, and nobody is told", fault, relayStall},
	}
}

// link sets the underlay's end of a place's link up or down: the place itself sees no carrier, and keeps its addresses and routes.
func (s *site) link(ctx context.Context, place, state string) error {
	if out, err := s.Lab.Command(ctx, "", "ip", "link", "set", place, state).CombinedOutput(); err != nil {
		return fmt.Errorf("link of %s %s: %w: %s", place, state, err, out)
	}
	return nil
}

// lastCheck is how long after a cut HAProxy may still count a server as down: the interval of its checks and their timeout.
const lastCheck = 2 * time.Second

func (s *site) unplug(ctx context.Context, place string, d time.Duration) error {
	if err := s.link(ctx, place, "down"); err != nil {
		return err
	}
	err := errors.Join(sleep(ctx, d), s.link(context.WithoutCancel(ctx), place, "up"))
	return errors.Join(err, sleep(ctx, lastCheck))
}

func nodeCut(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	node := pick(random, s.Lab.Nodes())
	d := time.Duration(2000+random.IntN(2000)) * time.Millisecond
	return s.budgetOf(node, d+8*time.Second), s.unplug(ctx, node, d)
}

func lbLink(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	d := time.Duration(500+random.IntN(2000)) * time.Millisecond
	return budget{"the load balancers", func(r ledger.Request) bool { return r.Kind != udpDirect }, d + 8*time.Second}, s.unplug(ctx, "lb", d)
}

// apiDrop drops packets in one direction or both.
func apiDrop(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	direction := pick(random, []string{"output tcp dport", "input tcp sport"})
	hook := direction[:len(direction)-len(" tcp dport")]
	script := fmt.Sprintf("nft 'add table ip cut; add chain ip cut c { type filter hook %s priority 0; }; add rule ip cut c %s 443 drop'", hook, direction[len(hook)+1:])
	return s.blind(func() error {
		if out, err := s.Lab.Command(ctx, "lb", "sh", "-c", script).CombinedOutput(); err != nil {
			return fmt.Errorf("drop: %w: %s", err, out)
		}
		err := sleep(ctx, time.Duration(3000+random.IntN(4000))*time.Millisecond)
		out, undo := s.Lab.Command(context.WithoutCancel(ctx), "lb", "nft", "delete", "table", "ip", "cut").CombinedOutput()
		if undo != nil {
			undo = fmt.Errorf("end of drop: %w: %s", undo, out)
		}
		return errors.Join(err, undo)
	})
}

func relayStall(ctx context.Context, s *site, random *rand.Rand) (budget, error) {
	defer s.weather([]string{pick(random, []string{"api", "avi", "bigip", "admin@lb"})}, weather{stalls: true})()
	return nothing, sleep(ctx, time.Duration(2000+random.IntN(3000))*time.Millisecond)
}
