package bigipsim_test

import (
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

func TestRebootForgetsWhatWasNotSaved(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.basic()
	s.create(pools, pool(member("10.0.0.1:80")))
	if got := s.post("/mgmt/tm/sys/config", object{"command": "save"}).want(200).json(); got["kind"] != "tm:sys:config:savestate" || got["command"] != "save" {
		t.Errorf("%v", got)
	}
	s.patch(web, object{"members": []object{member("10.0.0.2:80")}}).want(200)
	s.create(pools, object{"name": "later", "partition": "P"})
	id := s.begin()
	l.Reboot()
	if names := s.get(web + "/members").names(); names != "10.0.0.1:80" {
		t.Errorf("members %q", names)
	}
	s.get(pools + "/~P~later").want(404)
	s.get(nodes + "/~P~10.0.0.2").want(404)
	s.get("/mgmt/tm/transaction/" + id).want(404)
	// Nodes are those of the saved configuration again, also by their addresses.
	s.create(nodes, object{"name": "10.0.0.2", "partition": "Q"})
	s.post(nodes, object{"name": "10.0.0.1", "partition": "Q"}).want(400)
}

func TestLoadGoesBackToWhatWasSaved(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	s.post("/mgmt/tm/sys/config", object{"command": "load"}).want(200)
	s.get(web).want(404)
	s.post("/mgmt/tm/sys/config", object{"command": "burn"}).want(400)
}

func TestSaveAsATask(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.basic()
	s.create(pools, pool())
	const tasks = "/mgmt/tm/task/sys/config"
	made := s.post(tasks, object{"command": "save"}).want(200)
	if made.json()["_taskState"] != "STARTED" {
		t.Errorf("%s", made.body)
	}
	_, rest, _ := strings.Cut(made.body, `"_taskId":`)
	id := rest[:strings.IndexAny(rest, ",}")]
	l.Reboot() // before it was started
	s.get(web).want(404)
	s.get(tasks + "/" + id).want(404)

	s.create(pools, pool())
	made = s.post(tasks, object{"command": "save"}).want(200)
	_, rest, _ = strings.Cut(made.body, `"_taskId":`)
	id = rest[:strings.IndexAny(rest, ",}")]
	if got := s.put(tasks+"/"+id, object{"_taskState": "VALIDATING"}).want(200).json(); got["_taskState"] != "VALIDATING" {
		t.Errorf("%v", got)
	}
	if got := s.get(tasks + "/" + id).want(200).json(); got["_taskState"] != "COMPLETED" {
		t.Errorf("%v", got)
	}
	l.Reboot()
	s.get(web).want(200)
}

func TestVersionAndNameOfTheDevice(t *testing.T) {
	s := start(t, bigipsim.Config{Hostname: "lb.example.com", Version: "17.1.0"}).login()
	got := s.get("/mgmt/tm/sys/version").want(200).json()
	if v := at(got, "entries", "https://localhost/mgmt/tm/sys/version/0", "nestedStats", "entries", "Version", "description"); v != "17.1.0" {
		t.Errorf("%v", got)
	}
	if got := s.get("/mgmt/tm/sys/global-settings").want(200).json(); got["hostname"] != "lb.example.com" {
		t.Errorf("%v", got)
	}
	s.get("/mgmt/tm/sys/ready").want(200)
	s.post("/mgmt/tm/sys/version", object{}).want(400)
}

func TestDeviceByItself(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	if got := s.status("cm/sync-status"); got != "Standalone" {
		t.Errorf("sync status %v", got)
	}
	if got := s.status("cm/failover-status"); got != "ACTIVE" {
		t.Errorf("failover status %v", got)
	}
	s.sync("g").refused(400, 3, "01070734:3: Configuration error: Device group (g) not found in device group sync")
}

// status is the description of a thing that there is one of.
func (s *session) status(path string) any {
	s.l.t.Helper()
	return at(s.get("/mgmt/tm/"+path).want(200).json(), "entries", "https://localhost/mgmt/tm/"+path+"/0", "nestedStats", "entries", "status", "description")
}

func (s *session) sync(group string) *answer {
	s.l.t.Helper()
	return s.post("/mgmt/tm/cm", object{"command": "run", "utilCmdArgs": "config-sync to-group " + group})
}

func TestPageShowsWhatThereIs(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	s.create(pools, object{"name": "web", "partition": "P", "monitor": "/Common/tcp", "description": "of shop", "members": []object{member("10.0.0.1:80", "session", "user-disabled")}})
	s.create(pools, object{"name": "alone", "partition": "P"})
	s.create(virtuals, virtual("front", "192.0.2.1:80", "pool", "/P/web"))
	page := l.anonymous().get("/").want(200)
	for _, text := range []string{"/P/front", "/P/192.0.2.1:80", "/P/web", "/P/10.0.0.1:80", "user-disabled", "checking", "/P/alone", "bigip-a.example.com", "active", "not saved", "of shop"} {
		if !strings.Contains(page.body, text) {
			t.Errorf("the page does not show %q", text)
		}
	}
	s.post("/mgmt/tm/sys/config", object{"command": "save"}).want(200)
	s.post(pools, pool()).want(409)
	if strings.Contains(l.anonymous().get("/").body, "not saved") {
		t.Error("not saved after a save and a refused write")
	}
	s.remove(pools + "/~P~alone").want(200)
	if !strings.Contains(l.anonymous().get("/").body, "not saved") {
		t.Error("saved after a removal")
	}
	l.anonymous().post("/", object{}).want(405)
	if v := l.VirtualServers(); len(v) != 1 || v[0].Pool.Name != "/P/web" || v[0].Pool.Up != 0 {
		t.Errorf("%+v", v)
	}
	if p := l.Pools(); len(p) != 1 || p[0].Members[0].Session != "user-disabled" {
		t.Errorf("%+v", p)
	}
}
