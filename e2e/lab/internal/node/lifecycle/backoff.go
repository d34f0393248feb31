package lifecycle

import "time"

// Backoff spaces the restarts of a container that keeps ending.
type Backoff struct {
	// Initial is the delay of the second restart; the first one is immediate.
	Initial time.Duration
	// Max bounds the delay, which doubles from restart to restart.
	Max time.Duration
	// Reset is how long a run must last to be forgiven all that was before it.
	Reset time.Duration
}

// DefaultBackoff is gentler than a kubelet's (10 s to 5 min), so that a broken Pod recovers within a test's patience.
var DefaultBackoff = Backoff{Initial: time.Second, Max: 30 * time.Second, Reset: 10 * time.Minute}

// Streak counts the short runs in a row, given the count before and how long the newest run lasted.
func (b Backoff) Streak(before int, ran time.Duration) int {
	if ran >= b.Reset {
		return 1
	}
	return before + 1
}

// Delay is how long to wait after that many short runs in a row.
func (b Backoff) Delay(streak int) time.Duration {
	if streak <= 1 {
		return 0
	}
	delay := b.Initial
	for range streak - 2 {
		if delay >= b.Max {
			break
		}
		delay *= 2
	}
	return min(delay, b.Max)
}
