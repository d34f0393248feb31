package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/e2e/chaos/ledger"
)

// class is how much an action may cost.
type class string

const (
	// careful is what a careful operator does: no request may fail.
	careful class = "careful"
	// fault breaks something: only requests to what it removed may fail, and for no longer than it says.
	fault class = "fault"
)

// action is one kind of thing that happens in a run. It returns when what it did is undone, or over; that everything comes to rest is
// waited for afterwards.
type action struct {
	name  string
	doc   string
	class class
	do    func(ctx context.Context, s *site, random *rand.Rand) (budget, error)
}

// budget is which requests a fault may cost.
type budget struct {
	what   string // was removed
	may    func(ledger.Request) bool
	within time.Duration // from the first failed request's sending to the last one's end
}

// nothing is the budget of a careful action, and of a fault behind which the data path goes on.
var nothing budget

// over returns what requests cost beyond a budget.
func (b budget) over(requests []ledger.Request) (beyond []string) {
	lost := ledger.Lost(requests)
	if lost.Failed == 0 {
		return nil
	}
	if b.may == nil {
		return []string{fmt.Sprintf("%d requests failed, none may: %s", lost.Failed, samples(lost))}
	}
	var others []ledger.Request
	for _, r := range requests {
		if r.Err != "" && !b.may(r) {
			others = append(others, r)
		}
	}
	if len(others) > 0 {
		beyond = append(beyond, fmt.Sprintf("%d requests failed that had nothing to do with %s: %s", len(others), b.what, samples(ledger.Lost(others))))
	}
	if lost.Window > b.within {
		beyond = append(beyond, fmt.Sprintf("requests failed for %v, %s excuses %v: %s", lost.Window.Round(time.Millisecond), b.what, b.within, samples(lost)))
	}
	return beyond
}

func samples(lost ledger.Losses) string {
	var out []string
	for _, r := range lost.Samples {
		out = append(out, fmt.Sprintf("%s %s to %s at %s after %v: %s", r.Kind, r.Service, r.Target, r.Sent.Format("15:04:05.000"), r.Ended.Sub(r.Sent).Round(time.Millisecond), r.Err))
	}
	return strings.Join(out, "; ")
}

// ofServices excuses requests to these Services.
func ofServices(services ...string) func(ledger.Request) bool {
	return func(r ledger.Request) bool { return slices.Contains(services, r.Service) }
}

// ofKinds excuses requests of these client kinds.
func ofKinds(kinds ...string) func(ledger.Request) bool {
	return func(r ledger.Request) bool { return slices.Contains(kinds, r.Kind) }
}

var throughHAProxy = []string{httpKept, httpNew, tcpLines}

// actions are all there are.
func actions() []action {
	return slices.Concat(changes(), nodes(), neighbours(), restarts(), outages(), tampering(), cuts())
}

// names are those of actions, in order.
func names(all []action) (out []string) {
	for _, a := range all {
		out = append(out, a.name)
	}
	return out
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }
