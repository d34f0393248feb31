package bigipsim_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

func TestTransactionHasAnIDOfSixteenDigits(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	a := s.post("/mgmt/tm/transaction", object{}).want(200)
	if !regexp.MustCompile(`"transId":[0-9]{16}[,}]`).MatchString(a.body) {
		t.Errorf("%s", a.body)
	}
	got := a.json()
	for name, want := range map[string]any{
		"state": "STARTED", "timeoutSeconds": 120.0, "asyncExecution": false, "validateOnly": false, "executionTimeout": 300.0, "executionTime": 0.0,
		"failureReason": "", "kind": "tm:transactionstate",
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	first, second := s.begin(), s.begin()
	if first == second {
		t.Error("two transactions with one ID")
	}
	s.get("/mgmt/tm/transaction/" + first).want(200)
}

// Queued, not run; a GET, too.
func TestCallsOfATransactionAreQueued(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	id := s.begin()
	got := s.within(id).post(pools, pool(member("10.0.0.1:80"))).want(200).json()
	if got["method"] != "POST" || got["uri"] != "https://localhost/mgmt/tm/ltm/pool" || at(got, "body", "name") != "web" || got["evalOrder"] != 1.0 || got["commandId"] != 1.0 || got["kind"] != "tm:transaction:commandsstate" {
		t.Errorf("%v", got)
	}
	if got := s.within(id).get(pools).want(200).json(); got["method"] != "GET" || got["commandId"] != 2.0 || got["items"] != nil {
		t.Errorf("a GET was answered at once: %v", got)
	}
	if list := s.get("/mgmt/tm/transaction/" + id + "/commands").want(200).json(); len(list["items"].([]any)) != 2 {
		t.Errorf("%v", list)
	}
	s.get(web).want(404)
	s.get(nodes + "/~P~10.0.0.1").want(404)
	if got := s.commit(id).want(200).json(); got["state"] != "COMPLETED" || got["kind"] != "tm:transactionstate" {
		t.Errorf("%v", got)
	}
	s.get(web).want(200)
	s.get(nodes + "/~P~10.0.0.1").want(200)
	s.commit(id).want(400)
}

func TestTransactionIsAllOrNothing(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(virtuals, virtual("taken", "192.0.2.1:80"))
	id := s.begin()
	tx := s.within(id)
	tx.post("/mgmt/tm/ltm/monitor/tcp", object{"name": "m", "partition": "P"}).want(200)
	tx.post(pools, object{"name": "web", "partition": "P", "monitor": "/P/m", "members": []object{member("10.0.0.1:80")}}).want(200)
	tx.post(virtuals, virtual("front", "192.0.2.1:80", "pool", "/P/web")).want(200)
	s.commit(id).refused(400, 2, "transaction failed:01070333:3: Virtual Server /P/front illegally shares destination address, source address, service port, ip-protocol, and vlan with Virtual Server /P/taken.")
	for _, place := range []string{web, nodes + "/~P~10.0.0.1", "/mgmt/tm/ltm/monitor/tcp/~P~m", virtuals + "/~P~front"} {
		s.get(place).want(404)
	}
	if got := s.get("/mgmt/tm/transaction/" + id).want(200).json(); got["state"] != "FAILED" || !strings.Contains(got["failureReason"].(string), "01070333") {
		t.Errorf("%v", got)
	}
	// The refusal's status is that of what was refused.
	id = s.begin()
	s.within(id).remove(web).want(200)
	s.commit(id).refused(404, 2, "transaction failed:01020036:3: The requested Pool (/P/web) was not found.")
}

func TestMoveOfAVirtualServerInOneTransaction(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(virtuals, virtual("a", "192.0.2.1:80"))
	s.create(virtuals, virtual("b", "192.0.2.2:80"))
	id := s.begin()
	s.within(id).patch(virtuals+"/~P~a", object{"destination": "192.0.2.3:80"}).want(200)
	s.within(id).patch(virtuals+"/~P~b", object{"destination": "192.0.2.1:80"}).want(200)
	s.commit(id).want(200)
	if got := s.get("/mgmt/tm/ltm/virtual-address").names(); got != "192.0.2.1 192.0.2.3" {
		t.Errorf("virtual addresses %q", got)
	}
}

func TestCommitCarriesNoHeader(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	id := s.begin()
	s.within(id).post(pools, pool()).want(200)
	s.within(id).commit(id).want(400)
	s.get(web).want(404)
	s.commit(id).want(200)
}

func TestCommitOfNothing(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.commit(s.begin()).refused(404, 1, "there is no command to commit in the transaction.")
}

func TestTransactionExpires(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	id := s.begin()
	s.within(id).post(pools, pool()).want(200)
	l.pass(119 * time.Second)
	s.within(id).get(pools).want(200)
	l.pass(time.Second)
	s.within(id).get(pools).want(404)
	s.commit(id).want(404)
	s.get(web).want(404)
	s.within("none").post(pools, pool()).want(404)
}

func TestTransactionIsDropped(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	id := s.begin()
	s.within(id).post(pools, pool()).want(200)
	s.remove("/mgmt/tm/transaction/" + id).want(200)
	s.commit(id).want(404)
}

func TestNotEverythingJoinsATransaction(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	tx := s.within(s.begin())
	tx.post("/mgmt/tm/sys/config", object{"command": "save"}).want(400)
	tx.post("/mgmt/tm/cm", object{"command": "run"}).want(400)
	tx.post(pools, `{"name":`).refused(400, 1, "Found invalid JSON body in the request.")
}
