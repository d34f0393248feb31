package model

import (
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// What the EndpointSlice controller and kube-proxy make of a Pod: enabled where an endpoint is ready, draining where it is not and was
// there before, enabled again where nothing but serving endpoints that terminate is left.
func TestEndpointSliceSemantics(t *testing.T) {
	for _, test := range []struct {
		ready, isTerminating, publish, finished bool
		alone, beside                           string // state of the member that was there, alone and beside a ready Pod
	}{
		{ready: true, alone: "Enabled", beside: "Enabled"},
		{ready: false, alone: "Draining", beside: "Draining"},
		{ready: true, isTerminating: true, alone: "Enabled", beside: "Draining"},
		{ready: false, isTerminating: true, alone: "Draining", beside: "Draining"},
		{ready: true, publish: true, alone: "Enabled", beside: "Enabled"},
		{ready: false, publish: true, alone: "Enabled", beside: "Enabled"},
		{ready: true, isTerminating: true, publish: true, alone: "Enabled", beside: "Enabled"},
		{ready: false, isTerminating: true, publish: true, alone: "Enabled", beside: "Enabled"},
		{ready: true, finished: true},
		{ready: true, finished: true, isTerminating: true},
		{ready: false, finished: true, publish: true},
	} {
		for _, alone := range []bool{true, false} {
			w := newWorld().pod(1, func(p *Pod) {
				p.Ready, p.Terminating, p.Finished = test.ready, test.isTerminating, test.finished
				p.ReadyChanged, p.Since = now.Add(-time.Second), now.Add(-time.Second)
			}).has(1, providers.Enabled)
			w.Service.PublishNotReady = test.publish
			want := test.beside
			if alone {
				want = test.alone
			}
			if want != "" {
				want = "u1:61001 " + want
			}
			if !alone {
				w.pod(2, nil)
				if want != "" {
					want += ", "
				}
				want += "u2:61002 Enabled"
			}
			if got := members(Build(w.Input)); got != want {
				t.Errorf("%+v, alone %t: %q, want %q", test, alone, got, want)
			}
		}
	}
}

func TestPodStates(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	checkMembers(t, []memberCase{
		{"ready", newWorld().pod(1, nil), "u1:61001 Enabled", ""},
		{"not ready never enters", newWorld().pod(1, unready(0)), "", ""},
		{"not ready drains", newWorld().pod(1, unready(time.Minute)).has(1, enabled), "u1:61001 Draining", ""},
		{"not ready for longer than the limit", newWorld().pod(1, unready(limit)).has(1, draining), "", ""},
		{"ready again", newWorld().pod(1, nil).has(1, draining), "u1:61001 Enabled", ""},
		{"publishNotReadyAddresses", newWorld().pod(1, unready(0)).pod(2, both(unready(0), terminating(0))).
			with(func(w *world) { w.Service.PublishNotReady = true }), "u1:61001 Enabled, u2:61002 Enabled", ""},
		{"finished", newWorld().pod(1, func(p *Pod) { p.Finished = true }).has(1, enabled), "", ""},
		{"terminating drains", newWorld().pod(1, terminating(time.Second)).pod(2, nil).has(1, enabled), "u1:61001 Draining, u2:61002 Enabled", ""},
		{"terminating, not serving, drains", newWorld().pod(1, both(unready(0), terminating(time.Second))).pod(2, nil).has(1, enabled),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"terminating never enters", newWorld().pod(1, terminating(time.Second)).pod(2, nil), "u2:61002 Enabled", ""},
		{"drained", newWorld().pod(1, terminating(time.Second)).pod(2, nil).has(1, draining).connections(1, 0), "u2:61002 Enabled", ""},
		{"one connection left", newWorld().pod(1, terminating(time.Second)).pod(2, nil).has(1, draining).connections(1, 1),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"zero connections while still enabled", newWorld().pod(1, terminating(time.Second)).pod(2, nil).has(1, enabled).connections(1, 0),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"drain limit", newWorld().pod(1, terminating(limit)).pod(2, nil).has(1, draining).connections(1, 1), "u2:61002 Enabled", ""},
		{"just before the drain limit", newWorld().pod(1, terminating(limit-1)).pod(2, nil).has(1, draining).connections(1, 1),
			"u1:61001 Draining, u2:61002 Enabled", ""},
		{"all terminating: those that serve stay enabled", newWorld().pod(1, terminating(0)).pod(2, both(unready(0), terminating(0))).
			has(1, enabled).has(2, enabled), "u1:61001 Enabled, u2:61002 Draining", ""},
		{"all terminating: those that drain come back", newWorld().pod(1, terminating(0)).has(1, draining).connections(1, 0), "u1:61001 Enabled", ""},
		{"all terminating, nothing there yet", newWorld().pod(1, terminating(0)), "u1:61001 Enabled", ""},
		{"one not ready, one terminating", newWorld().pod(1, unready(0)).pod(2, terminating(0)).has(2, enabled), "u2:61002 Enabled", ""},
		{"withdrawn from a live Pod drains", newWorld().pod(1, withdrawn(time.Second)).pod(2, nil).has(1, enabled).has(2, enabled),
			"u1:61001 Draining, u2:61002 Enabled", "web-1 NotPublished"},
		{"withdrawn: drained", newWorld().pod(1, withdrawn(time.Second)).pod(2, nil).has(1, draining).connections(1, 0), "u2:61002 Enabled", "web-1 NotPublished"},
		{"withdrawn: until the grace is over", newWorld().pod(1, withdrawn(WithdrawGrace)).pod(2, nil).has(1, draining).connections(1, 1),
			"u2:61002 Enabled", "web-1 NotPublished"},
		{"withdrawn from all Pods: better than an empty pool", newWorld().pod(1, withdrawn(time.Second)).pod(2, both(unready(0), withdrawn(time.Second))).
			has(1, enabled).has(2, enabled), "u1:61001 Enabled, u2:61002 Draining", "web-1 NotPublished"},
		{"withdrawn: never enters", newWorld().pod(1, withdrawn(time.Second)), "", "web-1 NotPublished"},
		{"withdrawn: gone when another Pod claims it", newWorld().pod(1, withdrawn(time.Second)).has(1, enabled).
			pod(2, func(p *Pod) { p.Mappings[0].NodePort = 61001 }), "u2:61001 Enabled", "web-1 NotPublished"},
		{"withdrawn: gone when a Pod of another Service claims it", newWorld().pod(1, withdrawn(time.Second)).pod(2, nil).has(1, enabled).with(func(w *world) {
			w.claim(&Pod{Namespace: "other", Name: "next", UID: "x", Mappings: []npl.Mapping{w.Endpoints[0].Pod.Withdrawn[0].Mapping}})
		}), "u2:61002 Enabled", "web-1 NotPublished"},
		{"withdrawn: gone when its Node has another address", newWorld().pod(1, withdrawn(time.Second)).onNode(machine(2)).pod(2, nil).has(1, enabled),
			"u2:61002 Enabled", "web-1 NotPublished"},
		{"withdrawn: another port instead", newWorld().pod(1, moved(time.Second)).has(1, enabled), "u1:61001 Draining, u1:61005 Enabled", ""},
	})
}

func TestWake(t *testing.T) {
	w := newWorld().pod(1, terminating(time.Minute)).pod(2, unready(2*time.Minute)).pod(3, nil).has(1, providers.Enabled).has(2, providers.Enabled)
	if got, want := Build(w.Input).Wake, now.Add(-2*time.Minute).Add(limit); !got.Equal(want) {
		t.Errorf("Wake %s, want %s, when the first drain limit is reached", got, want)
	}
	if got := Build(newWorld().pod(1, nil).Input).Wake; !got.IsZero() {
		t.Errorf("Wake %s with nothing draining", got)
	}
}
