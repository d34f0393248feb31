package ledger

import (
	"slices"
	"testing"
	"time"
)

func TestLost(t *testing.T) {
	failed := func(kind string, sent, ended float64) Request {
		return Request{Kind: kind, Service: "web", Sent: second(sent), Ended: second(ended), Err: "no"}
	}
	got := Lost([]Request{
		failed("tcp", 10, 11), {Kind: "tcp", Service: "web"}, failed("http", 3, 4), failed("tcp", 7, 8), failed("http", 4, 5.5),
	})
	if got.Requests != 5 || got.Failed != 4 || got.Window != 4*time.Second || !slices.Equal(got.Kinds, []string{"http web", "tcp web"}) || len(got.Samples) != 4 {
		t.Errorf("%+v", got)
	}
	if none := Lost(nil); none.Failed != 0 || none.Window != 0 {
		t.Errorf("of nothing: %+v", none)
	}
}

func TestTally(t *testing.T) {
	tally := NewTally()
	tally.Add(Request{Kind: "tcp", Sent: second(1)})
	tally.Add(Request{Kind: "tcp", Sent: second(2), Err: "no"})
	tally.Add(Request{Kind: "udp", Sent: second(3)})
	if got := tally.Take(second(3)); len(got) != 2 {
		t.Errorf("took %v, want what was sent before", got)
	}
	if got := tally.Take(second(9)); len(got) != 1 || len(tally.Take(second(9))) != 0 {
		t.Errorf("took %v, want the rest, once", got)
	}
	if got := tally.Answered(); got["tcp"] != 1 || got["udp"] != 1 {
		t.Errorf("answered %v", got)
	}
}
