package document

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nplbridge/nplbridge/lbsync/internal/plan"
	"github.com/nplbridge/nplbridge/providers"
)

var key = providers.Key{Namespace: "shop", Service: "web", Port: 80, Protocol: providers.TCP}

func member(n int, state providers.MemberState) providers.Member {
	return providers.Member{
		UID: fmt.Sprintf("u%d", n), Name: fmt.Sprintf("shop/web-%d", n), State: state,
		Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 61000),
	}
}

func text(changes []Change) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s %s %s\n", c.Op, c.Object, c.Key)
		for _, s := range c.Steps {
			fmt.Fprintf(&b, "  %s %s", s.Op, s.What)
			if s.Op == "~" {
				fmt.Fprintf(&b, ": %s -> %s", s.From, s.To)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestChanges(t *testing.T) {
	heavy := member(2, providers.Enabled)
	heavy.Weight = 5
	before := providers.State{
		Pools: []providers.Pool{{Key: key, Settings: providers.PoolSettings{Algorithm: providers.RoundRobin, SlowStart: time.Minute}, Members: []providers.Member{
			member(1, providers.Enabled), member(2, providers.Enabled), member(3, providers.Draining),
		}}},
		VirtualServers: []providers.VirtualServer{{Key: key, Port: 80, VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}},
	}
	after := providers.State{
		Pools: []providers.Pool{{Key: key, Settings: providers.PoolSettings{Algorithm: providers.LeastConnections}, Members: []providers.Member{
			member(1, providers.Draining), heavy, member(4, providers.Enabled),
		}}},
		VirtualServers: []providers.VirtualServer{{Key: key, Port: 80, VIPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}},
	}
	for _, test := range []struct {
		before, after providers.State
		want          string
	}{
		{before, before, ""},
		{before, after, `change pool shop/web:80/TCP
  ~ algorithm: RoundRobin -> LeastConnections
  - slow start 1m0s
  + 192.0.2.4:61000 shop/web-4
  ~ 192.0.2.2:61000 shop/web-2 weight: 1 -> 5
  ~ 192.0.2.1:61000 shop/web-1: Enabled -> Draining
  - 192.0.2.3:61000 shop/web-3
change virtual server shop/web:80/TCP
  ~ addresses: 192.0.2.1 -> 192.0.2.2
`},
		{providers.State{}, before, `create pool shop/web:80/TCP
  + algorithm RoundRobin
  + slow start 1m0s
  + 192.0.2.1:61000 shop/web-1
  + 192.0.2.2:61000 shop/web-2
  + 192.0.2.3:61000 shop/web-3 Draining
create virtual server shop/web:80/TCP
  + addresses 192.0.2.1
  + port 80
`},
		{before, providers.State{}, `delete pool shop/web:80/TCP
  - algorithm RoundRobin
  - slow start 1m0s
  - 192.0.2.1:61000 shop/web-1
  - 192.0.2.2:61000 shop/web-2
  - 192.0.2.3:61000 shop/web-3
delete virtual server shop/web:80/TCP
  - addresses 192.0.2.1
  - port 80
`},
	} {
		if diff := cmp.Diff(test.want, text(Changes(plan.Between(test.before, test.after)))); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// A setting that nobody describes would be a difference that diff does not show: each field changes the text.
func TestEverySettingIsDescribed(t *testing.T) {
	var walk func(root reflect.Type, at []int, describe func(any) []setting)
	walk = func(root reflect.Type, at []int, describe func(any) []setting) {
		kind := root
		if len(at) > 0 {
			kind = root.FieldByIndex(at).Type
		}
		for i := range kind.NumField() {
			f, path := kind.Field(i), append(slices.Clone(at), i)
			switch {
			case f.Name == "Key" || f.Name == "Members":
			case f.Type.Kind() == reflect.Struct:
				walk(root, path, describe)
			default:
				changed := reflect.New(root).Elem()
				fill(changed.FieldByIndex(path))
				if slices.Equal(describe(reflect.Zero(root).Interface()), describe(changed.Interface())) {
					t.Errorf("%s of %s is not described", f.Name, root.Name())
				}
			}
		}
	}
	walk(reflect.TypeFor[providers.Pool](), nil, func(v any) []setting { return poolSettings(v.(providers.Pool)) })
	walk(reflect.TypeFor[providers.VirtualServer](), nil, func(v any) []setting { return virtualServerSettings(v.(providers.VirtualServer)) })
}

// fill gives v any value but the zero one.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(int64(time.Second))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(7)
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
	case reflect.Slice:
		if v.Type().Elem() == reflect.TypeFor[netip.Prefix]() {
			v.Set(reflect.ValueOf([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}))
		} else {
			v.Set(reflect.ValueOf([]netip.Addr{netip.MustParseAddr("192.0.2.1")}))
		}
	default:
		panic(v.Kind())
	}
}
