package bigipsim_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

func TestDefaultsOfAPool(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	got := s.create(pools, object{"name": "web", "partition": "P"})
	for name, want := range map[string]any{
		"kind": "tm:ltm:pool:poolstate", "fullPath": "/P/web", "selfLink": "https://localhost/mgmt/tm/ltm/pool/~P~web?ver=16.1.4",
		"allowNat": "yes", "allowSnat": "yes", "loadBalancingMode": "round-robin", "minActiveMembers": 0.0, "serviceDownAction": "none", "slowRampTime": 10.0,
		"queueDepthLimit": 0.0, "queueOnConnectionLimit": "disabled", "queueTimeLimit": 0.0, "reselectTries": 0.0, "ignorePersistedWeight": "disabled",
		"ipTosToClient": "pass-through", "linkQosToServer": "pass-through", "monitor": nil, "description": nil, "members": nil,
		"membersReference": object{"link": "https://localhost/mgmt/tm/ltm/pool/~P~web/members?ver=16.1.4", "isSubcollection": true},
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestDefaultsOfAMember(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:61000")))
	got := s.get(web + "/members/~P~10.0.0.1:61000").want(200).json()
	for name, want := range map[string]any{
		"kind": "tm:ltm:pool:members:membersstate", "name": "10.0.0.1:61000", "partition": "P", "fullPath": "/P/10.0.0.1:61000", "address": "10.0.0.1",
		"connectionLimit": 0.0, "dynamicRatio": 1.0, "ephemeral": "false", "inheritProfile": "enabled", "logging": "disabled", "monitor": "default",
		"priorityGroup": 0.0, "rateLimit": "disabled", "ratio": 1.0, "session": "user-enabled", "state": "unchecked", "description": nil, "metadata": nil,
		"selfLink": "https://localhost/mgmt/tm/ltm/pool/~P~web/members/~P~10.0.0.1:61000?ver=16.1.4",
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func settings(description string) object {
	return object{"name": "web", "partition": "P", "monitor": "/Common/tcp", "loadBalancingMode": "least-connections-member", "description": description, "metadata": []object{{"name": "owner", "value": "us"}}}
}

func TestPatchKeepsWhatItDoesNotName(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, settings("by hand"))
	got := s.patch(web, object{"members": []object{member("10.0.0.1:80")}}).want(200).json()
	if got["monitor"] != "/Common/tcp" || got["loadBalancingMode"] != "least-connections-member" || got["description"] != "by hand" || at(got, "metadata", 0, "persist") != "true" {
		t.Errorf("%v", got)
	}
	s.patch(web, object{"description": "", "monitor": "none"}).want(200)
	got = s.get(web).json()
	if got["description"] != nil || got["monitor"] != nil || s.get(web+"/members").names() != "10.0.0.1:80" {
		t.Errorf("%v", got)
	}
}

func TestPutResetsWhatItDoesNotName(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	body := settings("by hand")
	body["members"] = []object{member("10.0.0.1:80"), member("10.0.0.2:80")}
	s.create(pools, body)
	got := s.put(web, object{"members": []object{member("10.0.0.2:80")}}).want(200).json()
	if got["monitor"] != nil || got["loadBalancingMode"] != "round-robin" || got["description"] != nil || got["metadata"] != nil {
		t.Errorf("%v", got)
	}
	if names := s.get(web + "/members").names(); names != "10.0.0.2:80" {
		t.Errorf("members %q", names)
	}
	s.patch(web+"/members/~P~10.0.0.2:80", object{"ratio": 7, "session": "user-disabled"}).want(200)
	m := s.put(web+"/members/~P~10.0.0.2:80", object{"description": "x"}).want(200).json()
	if m["ratio"] != 1.0 || m["session"] != "user-enabled" || m["address"] != "10.0.0.2" {
		t.Errorf("%v", m)
	}
	s.put(web, object{"description": "x"}).want(200)
	if names := s.get(web + "/members").names(); names != "" {
		t.Errorf("members %q", names)
	}
}

func TestListOfMembersReplacesAll(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80"), member("10.0.0.2:80")))
	s.patch(web, object{"members": []any{"/P/10.0.0.2:80", member("10.0.0.3:80", "ratio", 3)}}).want(200)
	if names := s.get(web + "/members").names(); names != "10.0.0.2:80 10.0.0.3:80" {
		t.Errorf("members %q", names)
	}
	s.patch(web, object{"members": []object{}}).want(200)
	if _, there := s.get(web + "/members").json()["items"]; there {
		t.Error("items of a pool without members")
	}
	// A list with one bad entry changes nothing, and leaves no node behind.
	s.patch(web, object{"members": []object{member("10.0.0.4:80"), member("10.0.0.5:80", "state", "up")}}).want(400)
	s.get(nodes + "/~P~10.0.0.4").want(404)
}

// What an entry of a kept member leaves out.
func TestReplacedMemberLosesWhatItsEntryLeavesOut(t *testing.T) {
	for name, keeps := range map[string]bool{"reset": false, "kept": true} {
		t.Run(name, func(t *testing.T) {
			s := start(t, bigipsim.Config{Rules: bigipsim.Rules{ReplaceKeepsOmitted: keeps}}).login()
			s.create(pools, pool(member("10.0.0.1:80", "session", "user-disabled", "metadata", []object{{"name": "pod", "value": "uid"}})))
			s.patch(web, object{"members": []object{member("10.0.0.1:80")}}).want(200)
			got := s.get(web + "/members/~P~10.0.0.1:80").json()
			if (got["session"] == "user-disabled") != keeps || (got["metadata"] != nil) != keeps {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestReplacedMemberKeepsConnectionsAndHealth(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, object{"name": "web", "partition": "P", "monitor": "/Common/tcp", "members": []object{member("10.0.0.1:80")}})
	if err := s.l.SetConnections("/P/web", "/P/10.0.0.1:80", 5); err != nil {
		t.Fatal(err)
	}
	if err := s.l.SetHealth("/P/web", "/P/10.0.0.1:80", bigipsim.Unwell, "refused"); err != nil {
		t.Fatal(err)
	}
	s.patch(web, object{"members": []object{member("10.0.0.1:80", "session", "user-disabled"), member("10.0.0.2:80")}}).want(200)
	got := s.get(web + "/members/~P~10.0.0.1:80").json()
	if got["state"] != "down" || s.connections("/P/10.0.0.1:80") != 5.0 || s.connections("/P/10.0.0.2:80") != 0.0 {
		t.Errorf("%v", got)
	}
	s.remove(web + "/members/~P~10.0.0.1:80").want(200)
	if err := s.l.SetConnections("/P/web", "/P/10.0.0.1:80", 1); err == nil {
		t.Error("a member that is gone has connections")
	}
}

// connections are those of a member of P's pool web, by the stats.
func (s *session) connections(member string) any {
	s.l.t.Helper()
	for _, entry := range s.get(web + "/members/stats").want(200).json()["entries"].(object) {
		entries := at(entry, "nestedStats", "entries")
		if port := at(entries, "port", "value"); at(entries, "nodeName", "description").(string)+":80" == member && port == 80.0 {
			return at(entries, "serverside.curConns", "value")
		}
	}
	return nil
}

func TestSessionAndStateAreReadBackByMonitor(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	one := web + "/members/~P~10.0.0.1:80"
	reads := func(what, session, state string) {
		t.Helper()
		if got := s.get(one).want(200).json(); got["session"] != session || got["state"] != state {
			t.Errorf("%s: session %v, state %v, want %s, %s", what, got["session"], got["state"], session, state)
		}
	}
	s.create(pools, pool(member("10.0.0.1:80")))
	reads("no monitor", "user-enabled", "unchecked")
	s.patch(one, object{"session": "user-disabled"}).want(200)
	reads("no monitor, disabled", "user-disabled", "unchecked")
	s.patch(one, object{"session": "user-enabled"}).want(200)
	s.patch(web, object{"monitor": "/Common/tcp"}).want(200)
	reads("a new monitor", "monitor-enabled", "checking")
	l.pass(5 * time.Second)
	reads("after the first check", "monitor-enabled", "up")
	l.SetHealth("/P/web", "/P/10.0.0.1:80", bigipsim.Unwell, "")
	reads("the monitor failed", "monitor-enabled", "down")
	s.patch(one, object{"session": "user-disabled"}).want(200)
	reads("disabled and down", "user-disabled", "down")
	s.patch(one, object{"state": "user-down"}).want(200)
	reads("forced offline", "user-disabled", "user-down")
	s.patch(one, object{"state": "user-up", "session": "user-enabled"}).want(200)
	reads("enabled again", "monitor-enabled", "down")
	s.patch(one, object{"monitor": "/Common/none"}).want(200)
	reads("a member without monitor", "user-enabled", "unchecked")
	s.patch(one, object{"monitor": "/Common/http"}).want(200)
	reads("a monitor of its own", "monitor-enabled", "checking")
	s.patch(nodes+"/~P~10.0.0.1", object{"session": "user-disabled", "state": "user-down"}).want(200)
	reads("the node forced offline", "addr-disabled", "addr-down")
}

// A member that is made with a state is up before its monitor has looked.
func TestStateAtCreationSkipsTheMonitor(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, object{"name": "web", "partition": "P", "monitor": "/Common/tcp", "members": []object{member("10.0.0.1:80", "state", "user-up"), member("10.0.0.2:80")}})
	for name, want := range map[string]string{"10.0.0.1:80": "up", "10.0.0.2:80": "checking"} {
		if got := s.get(web + "/members/~P~" + name).json()["state"]; got != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	other := start(t, bigipsim.Config{Rules: bigipsim.Rules{HealthyAtOnce: true}}).login()
	other.create(pools, object{"name": "web", "partition": "P", "monitor": "/Common/tcp", "members": []object{member("10.0.0.2:80")}})
	if got := other.get(web + "/members/~P~10.0.0.2:80").json()["state"]; got != "up" {
		t.Errorf("state %v with HealthyAtOnce", got)
	}
}

// Without a partition the pool is looked for in Common: a 404 that is not true.
func TestMemberThatNamesNoPartition(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	s.post(web+"/members", object{"name": "10.0.0.1:80"}).refused(404, 3, "01020036:3: The requested pool (/Common/web) was not found.")
	s.post(web+"/members", object{"name": "/P/10.0.0.1:80"}).want(200)
	s.create(pools, object{"name": "web", "partition": "Common"})
	s.post(pools+"/web/members", object{"name": "10.0.0.2:80"}).want(200)
	other := start(t, bigipsim.Config{Rules: bigipsim.Rules{MemberWithoutPartition: true}}).login()
	other.create(pools, pool())
	if got := other.post(web+"/members", object{"name": "10.0.0.1:80"}).want(200).json(); got["fullPath"] != "/P/10.0.0.1:80" {
		t.Errorf("%v", got)
	}
}

func TestWritableFieldsOfAMember(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80")))
	got := s.patch(web+"/members/~P~10.0.0.1:80", object{
		"ratio": 5, "connectionLimit": 100, "priorityGroup": 2, "rateLimit": "10", "description": "a Pod", "metadata": []object{{"name": "b", "value": "2"}, {"name": "a", "persist": "false"}},
	}).want(200).json()
	want := []any{object{"name": "a", "persist": "false"}, object{"name": "b", "persist": "true", "value": "2"}}
	if got["ratio"] != 5.0 || got["connectionLimit"] != 100.0 || got["priorityGroup"] != 2.0 || got["rateLimit"] != "10" || got["description"] != "a Pod" || !reflect.DeepEqual(got["metadata"], want) {
		t.Errorf("%v", got)
	}
	s.patch(web+"/members/~P~10.0.0.1:80", object{"connectionLimit": 0, "metadata": []object{}}).want(200)
	if got := s.get(web + "/members/~P~10.0.0.1:80").json(); got["connectionLimit"] != 0.0 || got["metadata"] != nil {
		t.Errorf("%v", got)
	}
}

func TestStatsOfMembersAndPools(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, object{"name": "web", "partition": "P", "monitor": "/Common/tcp", "members": []object{member("10.0.0.1:80"), member("10.0.0.2%10:80", "session", "user-disabled")}})
	s.l.SetHealth("/P/web", "/P/10.0.0.1:80", bigipsim.Healthy, "")
	s.l.SetConnections("/P/web", "/P/10.0.0.1:80", 3)
	entries := s.get(web + "/members/stats").want(200).json()["entries"].(object)
	first := at(entries["https://localhost/mgmt/tm/ltm/pool/~P~web/members/~P~10.0.0.1:80/stats"], "nestedStats", "entries").(object)
	second := at(entries["https://localhost/mgmt/tm/ltm/pool/~P~web/members/~P~10.0.0.2%2510:80/stats"], "nestedStats", "entries").(object)
	for name, want := range map[string]any{
		"addr": "10.0.0.1", "nodeName": "/P/10.0.0.1", "poolName": "/P/web", "monitorStatus": "up", "sessionStatus": "enabled",
		"status.availabilityState": "available", "status.enabledState": "enabled",
	} {
		if got := at(first, name, "description"); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if at(first, "serverside.curConns", "value") != 3.0 || at(first, "port", "value") != 80.0 {
		t.Errorf("%v", first)
	}
	if at(second, "status.enabledState", "description") != "disabled" || at(second, "addr", "description") != "10.0.0.2%10" {
		t.Errorf("%v", second)
	}
	pool := s.get(web + "/stats").want(200).json()["entries"].(object)["https://localhost/mgmt/tm/ltm/pool/~P~web/stats"]
	if at(pool, "nestedStats", "entries", "activeMemberCnt", "value") != 1.0 || at(pool, "nestedStats", "entries", "serverside.curConns", "value") != 3.0 {
		t.Errorf("%v", pool)
	}
	s.create(pools, object{"name": "empty", "partition": "P"})
	if _, there := s.get(pools + "/~P~empty/members/stats").json()["entries"]; there {
		t.Error("entries of a pool without members")
	}
}

func TestMonitorOfAPool(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create("/mgmt/tm/ltm/monitor/tcp", object{"name": "a", "partition": "P"})
	for given, want := range map[string]string{
		"tcp": "/Common/tcp", "/P/a and /Common/http": "/Common/http and /P/a", "/P/a  and  http ": "/Common/http and /P/a",
		"min 1 of /P/a http": "min 1 of { /Common/http /P/a }",
	} {
		body := object{"name": "web", "partition": "P", "monitor": given}
		if got := s.create(pools, body); got["monitor"] != want {
			t.Errorf("%q is read back as %q, want %q", given, got["monitor"], want)
		}
		s.remove(web).want(200)
	}
	for _, bad := range []string{"min 1 of { /P/a /Common/http }", "/P/a and", "/P/a http", "min 3 of /P/a http", "min x of http"} {
		s.post(pools, object{"name": "web", "partition": "P", "monitor": bad}).want(400)
	}
	other := start(t, bigipsim.Config{Rules: bigipsim.Rules{BracesInMonitors: true, TrailingBlank: true}}).login()
	if got := other.create(pools, object{"name": "web", "partition": "P", "monitor": "min 1 of { http tcp }"}); got["monitor"] != "min 1 of { /Common/http /Common/tcp } " {
		t.Errorf("monitor %q", got["monitor"])
	}
}
