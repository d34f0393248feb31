package haproxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
	"github.com/nplbridge/nplbridge/providers/providertest"
)

var testSettings = config.Settings{CheckInterval: time.Second, ConnectTimeout: time.Second, IdleTimeout: time.Minute}

// obey carries out commands on servers by the rules of HAProxy 2.6 and fails on what it would refuse.
func obey(servers []runtime.Server, commands []runtime.Command) ([]runtime.Server, error) {
	servers = slices.Clone(servers)
	for _, c := range commands {
		words := strings.Fields(c.Text)
		place := slices.IndexFunc(words, func(w string) bool { return strings.Contains(w, "/") })
		backend, name, _ := strings.Cut(words[place], "/")
		i := slices.IndexFunc(servers, func(s runtime.Server) bool { return s.Name == name })
		verb := strings.Join(append(words[:place:place], words[place+1:]...), " ")
		if words[0] == "add" {
			id, err := strconv.Atoi(words[5])
			weight, bad := strconv.Atoi(words[7])
			if err != nil || bad != nil || words[4] != "id" || words[6] != "weight" {
				return nil, fmt.Errorf("%s: no id or weight", c.Text)
			}
			check := 0
			if slices.Contains(words, "check") {
				check = runtime.CheckConfigured
			}
			if slices.ContainsFunc(servers, func(s runtime.Server) bool { return s.ID == id || s.Name == name }) {
				return nil, fmt.Errorf("%s: already used", c.Text)
			}
			servers = append(servers, runtime.Server{
				Backend: backend, Name: name, ID: id, Address: netip.MustParseAddrPort(words[3]), Weight: weight,
				Admin: runtime.AdminForcedMaint, Check: check,
			})
			continue
		}
		if i < 0 {
			return nil, fmt.Errorf("%s: No such server", c.Text)
		}
		switch s := &servers[i]; verb {
		case "enable health":
			if s.Check&runtime.CheckConfigured == 0 {
				return nil, fmt.Errorf("%s: Health checks are not configured on this server", c.Text)
			}
			s.Check |= runtime.CheckEnabled
		case "set server state ready":
			s.Admin &^= runtime.AdminForcedMaint | runtime.AdminForcedDrain
		case "set server state maint":
			s.Admin = s.Admin&^runtime.AdminForcedDrain | runtime.AdminForcedMaint
		case "shutdown sessions server":
			if !isLeaving(*s) {
				return nil, fmt.Errorf("%s: its connections are closed before it is out", c.Text)
			}
		default:
			weight, is := strings.CutPrefix(verb, "set server weight ")
			if !is {
				return nil, fmt.Errorf("unknown command %s", c.Text)
			}
			var err error
			if s.Weight, err = strconv.Atoi(weight); err != nil {
				return nil, err
			}
		}
	}
	return servers, nil
}

func TestPlanMembersReachesWhatIsWanted(t *testing.T) {
	t.Parallel()
	genMembers := rapid.Custom(func(r *rapid.T) []providers.Member {
		var out []providers.Member
		for n := range 6 { // three addresses, two Pods each: an address passes from Pod to Pod
			if rapid.Bool().Draw(r, "in") {
				out = append(out, providers.Member{
					UID:     fmt.Sprint("uid-", n),
					Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n / 2)}), 61000),
					State:   rapid.SampledFrom([]providers.MemberState{providers.Enabled, providers.Draining}).Draw(r, "state"),
					Weight:  rapid.SampledFrom([]uint8{0, 2, 20}).Draw(r, "weight"),
				})
			}
		}
		slices.SortFunc(out, providers.CompareMembers)
		return out
	})
	key := testKey("web")
	rapid.Check(t, func(r *rapid.T) {
		var servers []runtime.Server
		var before []providers.Member
		for range rapid.IntRange(1, 5).Draw(r, "changes") {
			for i := range servers { // people do things by hand in between
				if rapid.IntRange(0, 5).Draw(r, "by hand") == 0 {
					servers[i].Admin = rapid.SampledFrom([]int{0, 1, 4, 5, 8}).Draw(r, "admin")
				}
			}
			now := genMembers.Draw(r, "members")
			plan, err := mark("").planMembers("b", testSettings, servers, change(key, before, now, nil).Pools[0])
			if err != nil {
				r.Fatal(err)
			}
			if servers, err = obey(servers, plan.commands); err != nil {
				r.Fatalf("%v, in %v", err, plan.commands)
			}
			want := providertest.Render(providers.Pool{Key: key, Members: now})
			if got := providertest.Render(providers.Pool{Key: key, Members: mark("").membersOf(servers)}); got != want {
				r.Fatalf("reached\n%swant\n%sby %v", got, want, plan.commands)
			}
			if file := fileServers(servers); !slices.Equal(file, plan.servers) {
				r.Fatalf("the file would list\n%v, the worker has\n%v", plan.servers, file)
			}
			for _, s := range servers {
				if !isLeaving(s) && s.Check&runtime.CheckEnabled == 0 {
					r.Fatalf("%s is not checked", s.Name)
				}
			}
			again, err := mark("").planMembers("b", testSettings, servers, change(key, before, now, nil).Pools[0])
			if err != nil || len(again.commands) > 0 {
				r.Fatalf("done twice it writes again: %v, %v", again.commands, err)
			}
			before = now
		}
	})
}

func TestPlanMembersKeepsTheOrderOfSteps(t *testing.T) {
	t.Parallel()
	key := testKey("web")
	m := func(n int, state providers.MemberState) providers.Member {
		return providers.Member{UID: fmt.Sprint(n), State: state, Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 80)}
	}
	old := []providers.Member{m(1, providers.Enabled), m(2, providers.Enabled)}
	start, err := mark("").planMembers("b", testSettings, nil, change(key, nil, old, nil).Pools[0])
	if err != nil {
		t.Fatal(err)
	}
	servers, err := obey(nil, start.commands)
	if err != nil {
		t.Fatal(err)
	}
	c := change(key, old, []providers.Member{m(2, providers.Draining), m(3, providers.Enabled)}, nil).Pools[0]
	steps := map[providers.MemberOp]providers.MemberChange{}
	for _, s := range c.Members {
		steps[s.Op] = s
	}
	c.Members = []providers.MemberChange{steps[providers.RemoveMember], steps[providers.AddMember], steps[providers.DrainMember]} // a contested one first
	plan, err := mark("").planMembers("b", testSettings, servers, c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, command := range plan.commands {
		got = append(got, strings.Join(strings.Fields(command.Text)[:3], " "))
	}
	want := []string{
		"set server b/192.0.2.1:80_1", "set server b/192.0.2.1:80_1", "shutdown sessions server",
		"add server b/192.0.2.3:80_3", "enable health b/192.0.2.3:80_3", "set server b/192.0.2.3:80_3",
		"set server b/192.0.2.2:80_2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("commands %q", got)
	}
}
