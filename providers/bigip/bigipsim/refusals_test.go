package bigipsim_test

import (
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

func TestMissingPool(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	const message = "01020036:3: The requested Pool (/P/web) was not found."
	s.get(web).refused(404, 3, message)
	s.remove(web).refused(404, 3, message)
	s.patch(web, object{"description": "x"}).refused(404, 3, message)
	s.get(web+"/members").refused(404, 3, message)
}

func TestMissingMemberOfAPoolThatIsThere(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	s.get(web+"/members/~P~10.0.0.1:80").refused(404, 1, "Object not found - /P/10.0.0.1:80")
	const message = "01020036:3: The requested Pool Member (/P/web /P/10.0.0.1 80) was not found."
	s.patch(web+"/members/~P~10.0.0.1:80", object{"session": "user-disabled"}).refused(404, 3, message)
	s.remove(web+"/members/~P~10.0.0.1:80").refused(404, 3, message)
}

// As TMOS 11 answers.
func TestMissingMemberCanBeA200WithoutAddress(t *testing.T) {
	s := start(t, bigipsim.Config{Rules: bigipsim.Rules{MissingMember200: true}}).login()
	s.create(pools, pool())
	if got := s.get(web + "/members/~P~10.0.0.1:80").want(200).json(); got["address"] != nil || got["kind"] != "tm:ltm:pool:members:membersstate" {
		t.Errorf("%v", got)
	}
}

func TestMemberForAPoolThatIsMissing(t *testing.T) {
	start(t, bigipsim.Config{}).login().post(web+"/members", member("10.0.0.1:80")).
		refused(404, 3, "01020036:3: The requested pool (/P/web) was not found.")
}

func TestMemberInAnUnknownPartition(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	s.post(web+"/members", object{"name": "10.0.0.1:80", "partition": "Z"}).
		refused(400, 3, "01070734:3: Configuration error: Can't associate Pool Member (/Z/10.0.0.1:80) folder does not exist")
}

func TestPoolInAnUnknownPartition(t *testing.T) {
	start(t, bigipsim.Config{}).login().post(pools, object{"name": "web", "partition": "Z"}).
		refused(400, 26214401, "The requested folder (/Z) was not found.")
}

func TestSecondPoolOfOneName(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	s.post(pools, pool()).refused(409, 3, "01020066:3: The requested Pool (/P/web) already exists in partition P.")
	s.create(pools, object{"name": "web", "partition": "Q"})
}

// The partition that is named is the pool's, also when the node is in Common.
func TestSecondMemberOfOneName(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80")))
	const message = "01020066:3: The requested Pool Member (/P/web /P/10.0.0.1 80) already exists in partition P."
	s.post(web+"/members", member("10.0.0.1:80")).refused(409, 3, message)
	s.patch(web, object{"members": []object{member("10.0.0.2:80"), member("10.0.0.1:80"), member("10.0.0.1:80")}}).refused(409, 3, message)
	s.create(nodes, object{"name": "worker", "partition": "Common", "address": "10.0.0.9"})
	s.post(web+"/members", object{"name": "worker:80", "partition": "Common"}).want(200)
	s.post(web+"/members", object{"name": "worker:80", "partition": "Common"}).
		refused(409, 3, "01020066:3: The requested Pool Member (/P/web /Common/worker 80) already exists in partition P.")
	if got := s.get(web + "/members").names(); got != "worker:80 10.0.0.1:80" {
		t.Errorf("members %q: a refused list changed something", got)
	}
}

func TestPoolInUseStays(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	s.create(virtuals, virtual("front", "/P/192.0.2.1:80", "pool", "/P/web"))
	s.remove(web).refused(400, 3, "01070265:3: The Pool (/P/web) cannot be deleted because it is in use by a Virtual Server (/P/front).")
	s.patch(virtuals+"/~P~front", object{"pool": "none"}).want(200)
	s.create(virtuals, virtual("web", "/P/192.0.2.2:80", "pool", "/P/web")) // of the same name
	s.remove(web).want(400)
	s.remove(virtuals + "/~P~web").want(200)
	s.remove(web).want(200)
}

func TestMonitorInUseStays(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	for _, name := range []string{"a", "b", "c", "d"} {
		s.create("/mgmt/tm/ltm/monitor/tcp", object{"name": name, "partition": "P"})
	}
	s.create("/mgmt/tm/ltm/monitor/tcp", object{"name": "e", "partition": "P", "defaultsFrom": "/P/d"})
	s.create(pools, object{"name": "web", "partition": "P", "monitor": "/P/a and /Common/http", "members": []object{member("10.0.0.1:80", "monitor", "min 1 of /P/b /P/c")}})
	for _, name := range []string{"a", "b", "c", "d"} {
		s.remove("/mgmt/tm/ltm/monitor/tcp/~P~"+name).refused(400, 3, "01070083:3: Monitor /P/"+name+" is in use.")
	}
	s.remove("/mgmt/tm/ltm/monitor/tcp/~P~e").want(200)
}

// The device looks at what was in use before the transaction.
func TestTransactionThatTakesAMonitorFromItsPoolCannotDeleteIt(t *testing.T) {
	for name, rules := range map[string]bigipsim.Rules{"refused": {}, "switched": {MonitorInTransaction: true}} {
		t.Run(name, func(t *testing.T) {
			s := start(t, bigipsim.Config{Rules: rules}).login()
			s.create("/mgmt/tm/ltm/monitor/tcp", object{"name": "m", "partition": "P"})
			s.create(pools, object{"name": "web", "partition": "P", "monitor": "/P/m"})
			id := s.begin()
			s.within(id).patch(web, object{"monitor": "none"}).want(200)
			s.within(id).remove("/mgmt/tm/ltm/monitor/tcp/~P~m").want(200)
			if rules.MonitorInTransaction {
				s.commit(id).want(200)
				return
			}
			s.commit(id).refused(400, 2, "transaction failed:01070083:3: Monitor /P/m is in use.")
			if got := s.get(web).json()["monitor"]; got != "/P/m" {
				t.Errorf("monitor %v after a transaction that failed", got)
			}
		})
	}
}

func TestUnknownMonitor(t *testing.T) {
	start(t, bigipsim.Config{}).login().post(pools, object{"name": "web", "partition": "P", "monitor": "/Common/http and /P/none-such"}).
		refused(400, 3, "01070022:3: The monitor template /P/none-such was not found.")
}

func TestVirtualServersClash(t *testing.T) {
	s := start(t, bigipsim.Config{VLANs: []string{"inside", "outside"}}).login()
	s.create(virtuals, virtual("a", "/P/192.0.2.1:80"))
	const message = "01070333:3: Virtual Server /P/b illegally shares destination address, source address, service port, ip-protocol, and vlan with Virtual Server /P/a."
	s.post(virtuals, virtual("b", "192.0.2.1:80")).refused(400, 3, message)
	for name, other := range map[string]object{
		"port":     virtual("port", "192.0.2.1:81"),
		"protocol": virtual("protocol", "192.0.2.1:80", "ipProtocol", "udp"),
		"source":   virtual("source", "192.0.2.1:80", "source", "10.0.0.0/8"),
		"domain":   virtual("domain", "192.0.2.1%2:80"),
	} {
		if got := s.post(virtuals, other); got.status != 200 {
			t.Errorf("another %s: %d %s", name, got.status, got.body)
		}
	}
	s.patch(virtuals+"/~P~port", object{"destination": "192.0.2.1:80"}).
		refused(400, 3, strings.Replace(message, "/P/b", "/P/port", 1))
	s.create(virtuals, virtual("in", "192.0.2.2:80", "vlansEnabled", true, "vlans", []string{"/Common/inside"}))
	s.create(virtuals, virtual("out", "192.0.2.2:80", "vlansEnabled", true, "vlans", []string{"/Common/outside"}))
	s.post(virtuals, virtual("both", "192.0.2.2:80", "vlansEnabled", true, "vlans", []string{"/Common/outside"})).want(400)
}

func TestReferencesIntoAnotherPartition(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create("/mgmt/tm/ltm/monitor/tcp", object{"name": "m", "partition": "Q"})
	s.create(pools, object{"name": "web", "partition": "Q"})
	s.post(pools, object{"name": "web", "partition": "P", "monitor": "/Q/m"}).
		refused(400, 3, "01070726:3: Pool /P/web in partition P cannot reference monitor /Q/m in partition Q")
	s.post(virtuals, virtual("front", "192.0.2.1:80", "pool", "/Q/web")).
		refused(400, 3, "01070726:3: Virtual Server /P/front in partition P cannot reference Pool /Q/web in partition Q")
}

func TestPartitionWithSomethingInItStays(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80")))
	got := s.remove("/mgmt/tm/auth/partition/P").want(400).json()
	if m, _ := got["message"].(string); !strings.HasPrefix(m, "0107082a:3: All objects must be removed from a partition (P) before the partition may be removed, type ID (") {
		t.Errorf("%v", got)
	}
	s.remove(web).want(200)
	s.remove("/mgmt/tm/auth/partition/P").want(400) // the node is left
	s.remove(nodes + "/~P~10.0.0.1").want(200)
	s.remove("/mgmt/tm/auth/partition/P").want(200)
	s.get("/mgmt/tm/sys/folder/~P").want(404)
	s.remove("/mgmt/tm/auth/partition/Common").want(400)
}

func TestPatchOfNothing(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80")))
	const message = "one or more properties must be specified"
	s.patch(web, object{}).refused(400, 26214401, message)
	s.patch(web, object{"name": "web", "kind": "tm:ltm:pool:poolstate"}).refused(400, 26214401, message)
	s.patch(web+"/members/~P~10.0.0.1:80", object{}).refused(400, 26214401, message)
}

func TestBodyThatIsNoJSON(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	for _, body := range []string{`{"name":`, `[]`, `"text"`, `{} {}`, ``} {
		s.post(pools, body).refused(400, 1, "Found invalid JSON body in the request.")
	}
}

func TestValueOutOfItsChoices(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80")))
	one := web + "/members/~P~10.0.0.1:80"
	s.patch(one, object{"state": "up"}).refused(400, 0, `invalid property value "state":"up"`)
	s.patch(one, object{"session": "monitor-enabled"}).refused(400, 0, `invalid property value "session":"monitor-enabled"`)
	s.patch(one, object{"ratio": 0}).refused(400, 0, `invalid property value "ratio":0`)
	s.patch(web, object{"loadBalancingMode": "fair"}).refused(400, 0, `invalid property value "loadBalancingMode":"fair"`)
	s.patch(web, object{"members": []object{member("10.0.0.1:80", "session", "enabled")}}).refused(400, 0, `invalid property value "session":"enabled"`)
}

func TestPropertyThatCannotChange(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80")))
	s.create("/mgmt/tm/ltm/monitor/tcp", object{"name": "base", "partition": "P"})
	s.create("/mgmt/tm/ltm/monitor/tcp", object{"name": "m", "partition": "P"})
	begins := func(a *answer, property string) {
		t.Helper()
		message, _ := a.want(400).json()["message"].(string)
		if !strings.HasPrefix(message, `"`+property+`" may not be specified in the context of the "modify" command.`) {
			t.Errorf("%s: %s", a.call, message)
		}
	}
	one := web + "/members/~P~10.0.0.1:80"
	begins(s.patch(one, object{"address": "10.0.0.1"}), "address")
	begins(s.patch(one, object{"ephemeral": "false"}), "ephemeral")
	begins(s.patch(nodes+"/~P~10.0.0.1", object{"address": "10.0.0.2"}), "address")
	begins(s.patch("/mgmt/tm/ltm/monitor/tcp/~P~m", object{"defaultsFrom": "/P/base"}), "defaultsFrom")
	begins(s.patch(web, object{"name": "other", "description": "x"}), "name")
	s.patch("/mgmt/tm/ltm/monitor/tcp/~P~m", object{"defaultsFrom": "/Common/tcp", "interval": 9}).want(200)
}

func TestMarkupInURLOrBody(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	const message = "HTML Tag-like Content in the Request URL/Body"
	s.post(pools, object{"name": "web", "partition": "P", "description": "a"}).want(200)
	s.patch(web, `{"description":"<b>web</b>"}`).refused(400, 26214401, message)
	s.get(pools+"/~P~%3Cscript%3E").refused(400, 26214401, message)
	s.remove(web+"/members/~P~%3Cb%3E:80").refused(400, 26214401, message)
	s.patch(web, `{"description":"1 < 2"}`).want(200)
}

func TestTextThatIsTooLong(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	s.patch(web, object{"description": strings.Repeat("x", 65536)}).
		refused(400, 3, "01020057:3: The string with more than 65535 characters cannot be stored in a message.")
	s.patch(web, object{"metadata": []object{{"name": "n", "value": strings.Repeat("x", 65536)}}}).want(400)
	s.patch(web, object{"description": strings.Repeat("x", 65535)}).want(200)
	s.post("/mgmt/tm/ltm/data-group/internal", object{"name": "d", "partition": "P", "type": "string", "records": []object{{"name": "k", "data": strings.Repeat("x", 65521)}}}).
		refused(400, 3, "01070712:3: The value of record k is too long (max:65520)")
}

func TestPropertyThatDoesNotExist(t *testing.T) {
	start(t, bigipsim.Config{}).login().post(pools, object{"name": "web", "partition": "P", "colour": "red"}).
		refused(400, 26214401, `"colour" unknown property`)
	s := start(t, bigipsim.Config{Rules: bigipsim.Rules{UnknownProperties: true}}).login()
	if got := s.create(pools, object{"name": "web", "partition": "P", "colour": "red"}); got["colour"] != "red" {
		t.Errorf("%v", got)
	}
}

func TestUnknownPlaces(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.get("/mgmt/tm/ltm/nonsense").denied(404, "Public URI path not registered: /tm/ltm/nonsense")
	s.get("/mgmt/shared/nonsense").denied(404, "Public URI path not registered: /shared/nonsense")
	if got := s.get("/elsewhere").want(404); !strings.Contains(got.body, "<html>") {
		t.Errorf("%s", got.body)
	}
	s.patch(pools, object{"description": "x"}).want(400)
	s.do("POST", web, object{"description": "x"}).want(400)
}

func TestUserOfOnePartition(t *testing.T) {
	s := start(t, bigipsim.Config{UserPartition: "P"}).login()
	s.create(pools, pool(member("10.0.0.1:80")))
	s.post(pools, object{"name": "web", "partition": "Common"}).
		refused(403, 3, "01070822:3: Access Denied: User (lb) may not change objects in partition (Common)")
	s.post(pools, object{"name": "web", "partition": "Q"}).want(403)
	s.remove(nodes + "/~P~10.0.0.1").want(400)
	s.l.Admin("POST", pools, `{"name":"web","partition":"Q"}`)
	s.get(pools + "/~Q~web").want(404)
	if got := s.get(pools).names(); got != "web" {
		t.Errorf("pools %q", got)
	}
	if got := s.get("/mgmt/tm/auth/partition").names(); got != "Common P" {
		t.Errorf("partitions %q", got)
	}
	if s.get("/mgmt/tm/ltm/monitor/tcp/tcp").want(200).json()["name"] != "tcp" {
		t.Error("Common cannot be read")
	}
}
