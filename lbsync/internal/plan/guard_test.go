package plan

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

func loss(m providers.Member) model.Loss {
	return model.Loss{Key: key, Member: m.ID(), Why: "nobody knows"}
}

func TestSuspicious(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	other := key
	other.Port = 81
	for _, test := range []struct {
		name   string
		before *providers.Pool
		lost   []model.Loss
		want   bool
	}{
		{"no pool", nil, []model.Loss{loss(member("a", 1, enabled))}, false},
		{"two of three", pool(member("a", 1, enabled), member("b", 2, enabled), member("c", 3, enabled)),
			[]model.Loss{loss(member("a", 1, enabled)), loss(member("b", 2, enabled))}, true},
		{"one of three", pool(member("a", 1, enabled), member("b", 2, enabled), member("c", 3, enabled)), []model.Loss{loss(member("a", 1, enabled))}, false},
		{"both of two", pool(member("a", 1, enabled), member("b", 2, enabled)),
			[]model.Loss{loss(member("a", 1, enabled)), loss(member("b", 2, enabled))}, false},
		{"half of four", pool(member("a", 1, enabled), member("b", 2, enabled), member("c", 3, enabled), member("d", 4, enabled)),
			[]model.Loss{loss(member("a", 1, enabled)), loss(member("b", 2, enabled))}, false},
		{"what drains for good reason does not count", pool(member("a", 1, enabled), member("b", 2, enabled), member("c", 3, draining), member("d", 4, draining)),
			[]model.Loss{loss(member("a", 1, enabled)), loss(member("b", 2, enabled))}, false},
		{"nor does it hide the rest", pool(member("a", 1, enabled), member("b", 2, enabled), member("c", 3, enabled), member("d", 4, draining), member("e", 5, draining)),
			[]model.Loss{loss(member("a", 1, enabled)), loss(member("b", 2, enabled))}, true},
		{"what drains because it is lost does", pool(member("a", 1, draining), member("b", 2, draining), member("c", 3, enabled)),
			[]model.Loss{loss(member("a", 1, enabled)), loss(member("b", 2, enabled))}, true},
		{"of another pool", pool(member("a", 1, enabled), member("b", 2, enabled), member("c", 3, enabled)),
			[]model.Loss{loss(member("a", 1, enabled)), {Key: other, Member: member("b", 2, enabled).ID()}}, false},
		{"not there any more", pool(member("a", 1, enabled), member("b", 2, enabled), member("c", 3, enabled)),
			[]model.Loss{loss(member("a", 1, enabled)), loss(member("x", 9, enabled))}, false},
	} {
		if got := Suspicious(test.before, test.lost); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

func TestGuard(t *testing.T) {
	const enabled, draining = providers.Enabled, providers.Draining
	a, b, c := member("a", 1, enabled), member("b", 2, enabled), member("c", 3, enabled)
	for _, test := range []struct {
		name          string
		before, after *providers.Pool
		lost          []providers.Member
		want          string
	}{
		{"removal", pool(a, b), pool(b), []providers.Member{a}, "[]"},
		{"drain", pool(a, b), pool(member("a", 1, draining), b), []providers.Member{a}, "[]"},
		{"removal of one that drains", pool(member("a", 1, draining), b), pool(b), []providers.Member{a}, "[]"},
		{"what is explained goes", pool(a, b, c), pool(c), []providers.Member{a}, "[Remove b:2]"},
		{"what is new enters", pool(a), pool(b), []providers.Member{a}, "[Add b:2]"},
		{"another Pod has the address", pool(a, b), pool(member("x", 1, enabled)), []providers.Member{a, b}, "[Remove a:1 Add x:1]"},
		{"everything", pool(a, b, c), pool(), []providers.Member{a, b, c}, "[]"},
	} {
		var losses []model.Loss
		for _, m := range test.lost {
			losses = append(losses, loss(m))
		}
		changes := Between(providers.State{Pools: []providers.Pool{*test.before}}, providers.State{Pools: []providers.Pool{*test.after}})
		got := "[]"
		for _, c := range Guard(losses, map[providers.Key]bool{key: true})(changes).Pools {
			got = steps(c.Members)
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if free := Guard(losses, nil)(changes); fmt.Sprint(free) != fmt.Sprint(changes) {
			t.Errorf("%s: nothing is held, and yet %v became %v", test.name, changes, free)
		}
	}
}

// A pool that is to go, or a new one, is not the guard's matter: the Service says so.
func TestGuardLeavesPoolsAlone(t *testing.T) {
	before := providers.State{Pools: []providers.Pool{*pool(member("a", 1, providers.Enabled))}}
	for _, c := range []providers.Changes{Between(before, providers.State{}), Between(providers.State{}, before)} {
		if got := Guard([]model.Loss{loss(member("a", 1, providers.Enabled))}, map[providers.Key]bool{key: true})(c); fmt.Sprint(got) != fmt.Sprint(c) {
			t.Errorf("%+v became %+v", c, got)
		}
	}
}

// The more pools are held, and the more members are lost in them, the more stays: exactly as it was, beside all that is new, and never at an
// address that another Pod has. What remains of the changes is valid to a strict load balancer.
func TestGuardProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawState(t, "before"), drawState(t, "after")
		var some, all []model.Loss
		few, many := map[providers.Key]bool{}, map[providers.Key]bool{}
		for _, p := range before.Pools {
			many[p.Key] = rapid.Bool().Draw(t, "held")
			few[p.Key] = many[p.Key] && rapid.Bool().Draw(t, "held by fewer")
			for _, m := range p.Members {
				if now := find(after, p.Key, m.ID()); (now == nil || now.State != providers.Enabled) && rapid.Bool().Draw(t, "lost") {
					all = append(all, model.Loss{Key: p.Key, Member: m.ID()})
					if rapid.Bool().Draw(t, "lost among fewer") {
						some = append(some, all[len(all)-1])
					}
				}
			}
		}
		changes := Between(before, after)
		free, less, more := outcome(t, before, changes), outcome(t, before, Guard(some, few)(changes)), outcome(t, before, Guard(all, many)(changes))
		for _, pair := range []struct{ fewer, more providers.State }{{free, less}, {less, more}, {free, more}} {
			for _, p := range pair.fewer.Pools {
				for _, m := range p.Members {
					kept := find(pair.more, p.Key, m.ID())
					if kept == nil || m.State == providers.Enabled && kept.State != providers.Enabled {
						t.Fatalf("more is held, and less is there of %s at %s", m.UID, m.Address)
					}
				}
			}
		}
		for _, p := range before.Pools {
			for _, m := range p.Members {
				lost := many[p.Key] && slices.ContainsFunc(all, func(l model.Loss) bool { return l.Key == p.Key && l.Member == m.ID() })
				to := findPool(after, p.Key)
				displaced := to != nil && slices.ContainsFunc(to.Members, func(o providers.Member) bool { return o.Address == m.Address && o.UID != m.UID })
				now := find(more, p.Key, m.ID())
				switch {
				case lost && to != nil && !displaced && (now == nil || now.State != m.State):
					t.Fatalf("%s at %s was to be held as it is", m.UID, m.Address)
				case displaced && now != nil:
					t.Fatalf("%s at %s is there beside who has the address now", m.UID, m.Address)
				case !lost && (now == nil) != (find(after, p.Key, m.ID()) == nil):
					t.Fatalf("%s at %s is not lost, and yet not as wanted", m.UID, m.Address)
				}
			}
		}
	})
}

// outcome applies changes to a strict load balancer that has before.
func outcome(t *rapid.T, before providers.State, changes providers.Changes) providers.State {
	lb := providertest.NewLoadBalancer(providertest.MemoryCapabilities())
	p := lb.Open(owner)
	for _, c := range []providers.Changes{Between(providers.State{}, before), changes} {
		for key, err := range p.Apply(t.Context(), c) {
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
		}
	}
	return lb.State()
}

func find(s providers.State, key providers.Key, id providers.MemberID) *providers.Member {
	if p := findPool(s, key); p != nil {
		for i := range p.Members {
			if p.Members[i].ID() == id {
				return &p.Members[i]
			}
		}
	}
	return nil
}
