package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/providers"
)

// Whatever comes, changes and goes: a port on the Nodes has one owner, the oldest of those that are to have it, and whoever's answer changes
// hears of it.
func TestPortOwnership(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewIndex()
		x.atNodes = []string{"lb"}
		feed := x.Feed(now)
		there := map[model.ServiceKey]model.Service{}
		type question struct {
			asks model.ServiceKey
			port uint16
		}
		answers := func() map[question]model.ServiceKey {
			out := map[question]model.ServiceKey{}
			for key := range there {
				for port := range uint16(3) {
					out[question{key, port}], _ = x.PortOwner("lb", key, port, providers.TCP)
				}
			}
			return out
		}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			before := answers()
			feed.TakeDirty()
			name := fmt.Sprintf("s%d", rapid.IntRange(0, 4).Draw(t, "service"))
			key := model.ServiceKey{Namespace: "shop", Name: name}
			if _, is := there[key]; is && rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				delete(there, key)
				x.DeleteService(key, true, now)
			} else {
				s := testService(name, "app")
				s.Created = now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "age")) * time.Hour)
				for port := range uint16(3) {
					if rapid.Bool().Draw(t, "port") {
						s.Ports = append(s.Ports, model.ServicePort{Port: port, Protocol: providers.TCP})
					}
				}
				s.Deleting, s.ManagedByOther = rapid.IntRange(0, 5).Draw(t, "deleting") == 0, rapid.IntRange(0, 5).Draw(t, "of another") == 0
				if rapid.IntRange(0, 3).Draw(t, "elsewhere") == 0 {
					s.On = []string{"other"}
				}
				if rapid.IntRange(0, 3).Draw(t, "has an address") == 0 {
					s.Wishes.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
				}
				there[key] = s
				x.SetService(s, now)
			}
			after := answers()
			dirty, _ := feed.TakeDirty()
			for q, owner := range after {
				if _, was := before[q]; !was || before[q] == owner || !has(there[q.asks], q.port) {
					continue
				}
				if _, told := dirty[q.asks]; !told {
					t.Fatalf("%s was not told that port %d belongs to %q after %q", q.asks, q.port, owner, before[q])
				}
			}
			for port := range uint16(3) {
				var rivals []model.Service
				for _, s := range there {
					if has(s, port) {
						rivals = append(rivals, s)
					}
				}
				slices.SortFunc(rivals, func(a, b model.Service) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID)) })
				for _, asks := range slices.SortedFunc(maps.Keys(there), compareServices) {
					want := model.ServiceKey{}
					if len(rivals) > 0 && rivals[0].ServiceKey != asks {
						want = rivals[0].ServiceKey
					}
					if got := after[question{asks, port}]; got != want {
						t.Fatalf("port %d belongs to %q for %s, want %q", port, got, asks, want)
					}
				}
			}
		}
	})
}

// has reports whether a Service is to have the port on Nodes.
func has(s model.Service, port uint16) bool {
	return slices.Equal(s.On, []string{"lb"}) && !s.Deleting && !s.ManagedByOther && len(s.Wishes.Addresses) == 0 &&
		slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.Port == port })
}

// Where no load balancer is on a Node nobody owns a port, and another instance or protocol is another port.
func TestPortOwnerElsewhere(t *testing.T) {
	s, other := testService("a", "a"), model.ServiceKey{Namespace: "shop", Name: "b"}
	s.Ports = []model.ServicePort{{Port: 80, Protocol: providers.TCP}}
	for _, test := range []struct {
		atNodes  []string
		instance string
		port     uint16
		protocol providers.Protocol
		owned    bool
	}{
		{[]string{"lb"}, "lb", 80, providers.TCP, true},
		{nil, "lb", 80, providers.TCP, false},
		{[]string{"lb", "two"}, "two", 80, providers.TCP, false},
		{[]string{"lb"}, "lb", 80, providers.UDP, false},
		{[]string{"lb"}, "lb", 81, providers.TCP, false},
	} {
		x := NewIndex()
		x.atNodes = test.atNodes
		x.SetService(s, now)
		if _, owned := x.PortOwner(test.instance, other, test.port, test.protocol); owned != test.owned {
			t.Errorf("%+v: %v", test, owned)
		}
	}
}
