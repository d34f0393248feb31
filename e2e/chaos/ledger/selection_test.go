package ledger

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func second(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Second))) }

func TestJudge(t *testing.T) {
	s := NewSelection()
	web, api := map[string]string{"app": "web"}, map[string]string{"app": "api"}
	s.Service(second(0), "web", web)
	s.Service(second(0), "api", api)
	s.Pod(second(10), "w", "web-1", web)
	s.Pod(second(10), "a", "api-1", api)
	s.Pod(second(20), "a", "api-1", map[string]string{"app": "out"}) // taken out by its label
	s.Gone(second(30), "w")
	s.Pod(second(40), "b", "api-2", api)
	s.Service(second(50), "api", map[string]string{"app": "api", "color": "blue"}) // by the selector

	for name, c := range map[string]struct {
		service, uid           string
		opened, sent, answered float64
		wrong, late            bool
		behind                 time.Duration
	}{
		"while selected":                         {"web", "w", 11, 11, 12, false, false, 0},
		"selected when sent, gone when answered": {"web", "w", 29, 29, 31, false, false, 0},
		"selected when answered only":            {"web", "w", 9, 9, 11, false, false, 0},
		"the event came a little late":           {"web", "w", 9, 9, 9.9, false, false, 0},
		"long before":                            {"web", "w", 5, 5, 6, true, false, 0},
		"after it was gone":                      {"web", "w", 29, 31, 32, true, false, 0},
		"Pod of another Service":                 {"web", "a", 11, 11, 12, true, false, 0},
		"Pod nobody knows":                       {"web", "x", 11, 11, 12, true, false, 0},
		"after its label was edited":             {"api", "a", 21, 22, 23, false, true, time.Second},
		"the same, on an older connection":       {"api", "a", 19, 22, 23, false, true, -time.Second},
		"after the selector was edited":          {"api", "b", 53, 54, 55, false, true, 3 * time.Second},
		"Service that is unknown":                {"other", "w", 11, 11, 12, true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := s.Judge(c.service, c.uid, second(c.opened), second(c.sent), second(c.answered), 200*time.Millisecond)
			if v.Wrong != c.wrong || v.Late != c.late || v.Behind != c.behind {
				t.Errorf("%+v, want wrong %v, late %v, behind %v", v, c.wrong, c.late, c.behind)
			}
			if (v.Why != "") != (c.wrong || c.late) {
				t.Errorf("why: %q", v.Why)
			}
		})
	}
}

// Whatever happens, an answer is right exactly if some moment between sending and answering had the Pod selected.
func TestJudgeAgreesWithHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewSelection()
		colors := []string{"red", "blue"}
		selector, label, exists := "", "", false
		var selected []bool // in the second before event i+1
		n := rapid.IntRange(1, 12).Draw(t, "events")
		for i := range n {
			at := second(float64(i))
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				selector = rapid.SampledFrom(colors).Draw(t, "selector")
				s.Service(at, "svc", map[string]string{"color": selector})
			case 1:
				label, exists = rapid.SampledFrom(colors).Draw(t, "label"), true
				s.Pod(at, "uid", "pod", map[string]string{"color": label})
			case 2:
				exists = false
				s.Gone(at, "uid")
			case 3:
				selector = ""
				s.Service(at, "svc", nil)
			}
			selected = append(selected, exists && selector == label && selector != "")
		}
		from := rapid.IntRange(0, n-1).Draw(t, "sent")
		to := rapid.IntRange(from, n-1).Draw(t, "answered")
		want := false
		for i := from; i <= to; i++ {
			want = want || selected[i]
		}
		v := s.Judge("svc", "uid", second(float64(from)+0.5), second(float64(from)+0.5), second(float64(to)+0.5), 0)
		if got := !v.Wrong && !v.Late; got != want {
			t.Errorf("right %v (%s), want %v", got, v.Why, want)
		}
	})
}
