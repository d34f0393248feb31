package bigipsim_test

import (
	"fmt"
	"testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

// pair is two devices with a client each that sends its password with each call.
type pair struct {
	*bigipsim.Pair
	a, b *session
}

func startPair(t *testing.T, cfg bigipsim.Config) pair {
	t.Helper()
	clock := prepare(&cfg)
	p, err := bigipsim.NewPair(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return pair{p, serve(t, p.A, clock).basic(), serve(t, p.B, clock).basic()}
}

// states are the two devices' states by the stats of a traffic group, as each of them tells.
func (p pair) states(t *testing.T, group string) string {
	t.Helper()
	var out [2]string
	for i, s := range []*session{p.a, p.b} {
		entries := s.get("/mgmt/tm/cm/traffic-group/~Common~" + group + "/stats").want(200).json()["entries"].(object)
		for _, device := range []string{"a", "b"} {
			for _, entry := range entries {
				e := at(entry, "nestedStats", "entries")
				if at(e, "deviceName", "description") == "/Common/bigip-"+device+".example.com" && at(e, "trafficGroup", "description") == "/Common/"+group {
					out[i] += at(e, "failoverState", "description").(string) + " "
				}
			}
		}
	}
	if out[0] != out[1] {
		t.Errorf("the devices tell different things: %v", out)
	}
	return out[0]
}

func TestSyncStatusAfterWrites(t *testing.T) {
	p := startPair(t, bigipsim.Config{})
	both := func(want string) {
		t.Helper()
		if a, b := p.a.status("cm/sync-status"), p.b.status("cm/sync-status"); a != want || b != want {
			t.Errorf("%v, %v, want %s", a, b, want)
		}
	}
	both("In Sync")
	p.a.create(pools, pool(member("10.0.0.1:80")))
	both("Changes Pending")
	p.b.get(web).want(404)
	p.a.sync("none-such").want(400)
	if got := p.a.sync("sync-failover").want(200).json(); got["kind"] != "tm:cm:runstate" {
		t.Errorf("%v", got)
	}
	both("In Sync")
	p.b.get(web).want(200)
	p.b.get(nodes + "/~P~10.0.0.1").want(200)
	p.a.post(pools, pool()).want(409)
	both("In Sync")
	id := p.a.begin()
	p.a.within(id).patch(web, object{"description": "x"}).want(200)
	both("In Sync")
	p.a.commit(id).want(200)
	both("Changes Pending")
	p.Disconnect(true)
	both("Disconnected")
	p.a.sync("sync-failover").want(400)
	p.Disconnect(false)
	if got := p.a.post("/mgmt/tm/task/cm/config-sync", object{"command": "run", "utilCmdArgs": "to-group sync-failover"}).want(200).json(); got["_taskState"] != "STARTED" {
		t.Errorf("%v", got)
	}
}

// A synchronisation makes the other device what this one is: its own changes are lost.
func TestSyncOfTwoDevicesWithChangesLosesOneSides(t *testing.T) {
	p := startPair(t, bigipsim.Config{})
	p.a.create(pools, pool())
	p.b.create(pools, object{"name": "other", "partition": "P"})
	p.a.sync("sync-failover").want(200)
	p.b.get(pools + "/~P~other").want(404)
	p.b.get(web).want(200)
	p.b.create(pools, object{"name": "third", "partition": "P"})
	p.a.post("/mgmt/tm/cm", object{"command": "run", "utilCmdArgs": "config-sync from-group sync-failover"}).want(200)
	p.a.get(pools + "/~P~third").want(200)
}

func TestAutoSync(t *testing.T) {
	for _, save := range []bool{false, true} {
		t.Run(fmt.Sprint(save), func(t *testing.T) {
			p := startPair(t, bigipsim.Config{AutoSync: true, SaveOnAutoSync: save})
			if got := p.a.get("/mgmt/tm/cm/device-group").want(200).json(); at(got, "items", 0, "autoSync") != "enabled" || at(got, "items", 0, "type") != "sync-failover" {
				t.Errorf("%v", got)
			}
			p.a.create(pools, pool())
			p.b.get(web).want(200)
			if got := p.b.status("cm/sync-status"); got != "In Sync" {
				t.Errorf("%v", got)
			}
			p.B.Reboot()
			want := 404
			if save {
				want = 200
			}
			p.b.get(web).want(want)
		})
	}
}

func TestFailover(t *testing.T) {
	p := startPair(t, bigipsim.Config{TrafficGroups: []string{"traffic-group-2"}})
	if got := p.states(t, "traffic-group-1"); got != "active standby " {
		t.Errorf("%s", got)
	}
	if a, b := p.a.status("cm/failover-status"), p.b.status("cm/failover-status"); a != "ACTIVE" || b != "STANDBY" {
		t.Errorf("%v, %v", a, b)
	}
	p.Failover("traffic-group-2")
	if one, two := p.states(t, "traffic-group-1"), p.states(t, "traffic-group-2"); one != "active standby " || two != "standby active " {
		t.Errorf("%s, %s", one, two)
	}
	p.Failover("traffic-group-2")
	p.Failover()
	if one, two := p.states(t, "traffic-group-1"), p.states(t, "traffic-group-2"); one != "standby active " || two != "standby active " || p.Active("") != p.B {
		t.Errorf("%s, %s", one, two)
	}
	p.a.create(pools, pool()) // a device on standby takes writes
	p.B.Reboot()
	if got := p.states(t, "traffic-group-1"); got != "active standby " {
		t.Errorf("%s after a reboot of the active one", got)
	}
	p.a.get("/mgmt/tm/cm/traffic-group/~Common~none-such/stats").want(404)
}

func TestDevicesOfAPair(t *testing.T) {
	for name, rules := range map[string]bigipsim.Rules{"text": {}, "flag": {SelfDeviceFlag: true}} {
		t.Run(name, func(t *testing.T) {
			p := startPair(t, bigipsim.Config{Rules: rules})
			for i, s := range []*session{p.a, p.b} {
				items := s.get("/mgmt/tm/cm/device").want(200).json()["items"].([]any)
				for j, state := range []string{"active", "standby"} {
					self := any(fmt.Sprint(i == j))
					if rules.SelfDeviceFlag {
						self = i == j
					}
					if at(items, j, "failoverState") != state || at(items, j, "selfDevice") != self || at(items, j, "managementIp") == nil || at(items, j, "hostname") != []string{"bigip-a.example.com", "bigip-b.example.com"}[j] {
						t.Errorf("%v", items[j])
					}
				}
			}
			if got := p.b.get("/mgmt/tm/sys/folder/~P").json(); got["deviceGroup"] != "/Common/sync-failover" {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestTokensAndFailover(t *testing.T) {
	for _, survive := range []bool{false, true} {
		t.Run(fmt.Sprint(survive), func(t *testing.T) {
			p := startPair(t, bigipsim.Config{Rules: bigipsim.Rules{TokensSurviveFailover: survive}})
			s := p.a.l.login()
			other := p.b.l.anonymous()
			other.header = s.header
			other.get(pools).denied(401, "X-F5-Auth-Token does not exist.") // each device has its own
			p.Failover()
			want := 401
			if survive {
				want = 200
			}
			s.get(pools).want(want)
		})
	}
}
