package loop

import (
	"maps"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/model"
)

// changeInterval is the least time between two messages about one refusal that lasts: who a port waits for may change with every
// watermark.
const changeInterval = time.Minute

// subject is what a refusal is about. While it lasts, its messages may change.
type subject struct {
	reason          model.Reason
	podUID, service string
}

// told is what people were told last about a refusal.
type told struct {
	refusal model.Refusal
	at      time.Time
}

// tell tells people what begins, what changes and what ends. refusals are sorted; the messages of one subject are joined.
func (l *Loop) tell(now time.Time, refusals []model.Refusal) {
	current := map[subject]model.Refusal{}
	var order []subject
	for _, r := range refusals {
		s := subject{r.Reason, r.PodUID, r.Service}
		if before, ok := current[s]; ok {
			r.Message = before.Message + "; " + r.Message
		} else {
			order = append(order, s)
		}
		current[s] = r
	}
	for _, s := range order {
		r := current[s]
		switch before, known := l.told[s]; {
		case !known:
			l.reporter.Refused(r)
		case before.refusal.Message != r.Message && now.Sub(before.at) >= changeInterval:
			l.reporter.Changed(r)
		default:
			continue
		}
		l.told[s] = told{r, now}
	}
	ended := maps.Clone(l.told)
	maps.DeleteFunc(ended, func(s subject, _ told) bool { _, lasts := current[s]; return lasts })
	for _, t := range slices.SortedFunc(maps.Values(ended), func(a, b told) int { return a.refusal.Compare(b.refusal) }) {
		l.reporter.Withdrawn(t.refusal)
	}
	maps.DeleteFunc(l.told, func(s subject, _ told) bool { _, lasts := current[s]; return !lasts })
}
