package avisim_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

func TestPostAnswersTheStoredObjectWithDefaults(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	got := b.post("/api/pool", pool("p", server("10.0.0.1", 61000))).want(201)
	p := got.json()
	uuid, _ := p["uuid"].(string)
	if len(uuid) != len("pool-00000000-0000-4000-8000-000000000000") || uuid[:5] != "pool-" || uuid[19] != '4' {
		t.Errorf("uuid %q is no pool-<UUID 4>", uuid)
	}
	if got.header.Get("Location") != b.url+"/api/pool/"+uuid {
		t.Errorf("Location %q", got.header.Get("Location"))
	}
	for field, want := range map[string]any{
		"default_server_port": 80.0, "lb_algorithm": "LB_ALGORITHM_LEAST_CONNECTIONS", "graceful_disable_timeout": 1.0, "graceful_hm_down_disable_timeout": -1.0,
		"server_disable_type": "DISALLOW_NEW_CONNECTION", "connection_ramp_duration": 10.0, "inline_health_monitor": true, "enabled": true, "sni_enabled": true,
		"_last_modified": strconv.FormatInt(l.clock.Now().UnixMicro()+int64(l.made()-1), 10), "url": b.url + "/api/pool/" + uuid + "#p",
		"tenant_ref": b.url + "/api/tenant/admin#admin",
	} {
		if p[field] != want {
			t.Errorf("%s is %v, want %v", field, p[field], want)
		}
	}
	if !strings.HasSuffix(fmt.Sprint(p["vrf_ref"]), "#global") || !strings.HasSuffix(fmt.Sprint(p["cloud_ref"]), "#Default-Cloud") {
		t.Errorf("refs %v, %v, want names", p["vrf_ref"], p["cloud_ref"])
	}
	s := at(p, "servers", 0)
	if at(s, "enabled") != true || at(s, "ratio") != 1.0 || at(s, "hostname") != "10.0.0.1" || at(s, "verify_network") != false || at(s, "static") != false {
		t.Errorf("server %v", s)
	}
	if at(b.get("/api/pool/"+uuid).json(), "servers", 0, "port") != 61000.0 {
		t.Error("a GET shows another port")
	}
}

// made is how many objects there are.
func (l *lab) made() int {
	n := 0
	for _, list := range l.Snapshot().Objects {
		n += len(list)
	}
	return n
}

func TestSlugForcesTheUUID(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.header.Set("Slug", "pool-forced")
	if got := b.create("pool", pool("p"))["uuid"]; got != "pool-forced" {
		t.Errorf("uuid %v", got)
	}
	b.post("/api/pool", pool("q")).want(409)
	b.header.Set("Slug", "a/b")
	b.post("/api/pool", pool("q")).want(400)
}

func TestBodyMustBeOneJSONObject(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	for _, body := range []string{"", "{", "[]", "null", `"x"`, "{} {}", `{"name":"a",}`} {
		if body == "" {
			body = " "
		}
		b.post("/api/pool", body).want(400)
	}
	b.header.Set("Content-Type", "text/plain")
	b.post("/api/pool", `{"name":"p"}`).want(415)
}

func TestFieldErrorsNameTheField(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	long := strings.Repeat("n", 256)
	for want, body := range map[string]object{
		`{"error":{"name":["name: this field is required"]}}`:             {},
		`name: 256 characters, a maximum of 255`:                          {"name": long},
		`name: a string is expected, not 5`:                               {"name": 5},
		`enabled: true or false is expected, not \"yes\"`:                 {"name": "p", "enabled": "yes"},
		`default_server_port: 70000 is outside of 1-65535`:                {"name": "p", "default_server_port": 70000},
		`default_server_port: an integer is expected, not \"80\"`:         {"name": "p", "default_server_port": "80"},
		`graceful_disable_timeout: 7201 is outside`:                       {"name": "p", "graceful_disable_timeout": 7201},
		`{"error":{"servers":["servers[0].ip: this field is required"]}}`: {"name": "p", "servers": []object{{"port": 1}}},
		`servers[1].ratio: 21 is outside of 1-20`:                         {"name": "p", "servers": []object{server("10.0.0.1", 1), {"ip": object{"addr": "10.0.0.2", "type": "V4"}, "ratio": 21}}},
		`servers[0].ip.type: \"V5\" is none of V4, V6, DNS`:               {"name": "p", "servers": []object{{"ip": object{"addr": "10.0.0.1", "type": "V5"}}}},
		`servers[0].port: 65536 is outside`:                               {"name": "p", "servers": []object{server("10.0.0.1", 65536)}},
		`Invalid IP address \"10.0.0\" of type V4`:                        {"name": "p", "servers": []object{server("10.0.0", 1)}},
		`Invalid IP address \"fd00::1\" of type V4`:                       {"name": "p", "servers": []object{server("fd00::1", 1)}},
		`lb_algorithm: \"FAIR\" is none of`:                               {"name": "p", "lb_algorithm": "FAIR"},
		`servers: a list is expected`:                                     {"name": "p", "servers": object{}},
		`fail_action: an object is expected`:                              {"name": "p", "fail_action": "close"},
		`{"error":{"colour":["colour: unknown field"]}}`:                  {"name": "p", "colour": "red"},
		`{"error":{"servers":["servers[0].colour: unknown field"]}}`:      {"name": "p", "servers": []object{{"ip": object{"addr": "10.0.0.1", "type": "V4"}, "colour": 1}}},
	} {
		b.post("/api/pool", body).want(400).saying(want)
	}
}

func TestUnknownFieldsAreKeptWhereTheRuleSaysSo(t *testing.T) {
	b := start(t, avisim.Config{Rules: avisim.Rules{UnknownFields: true}}).login()
	if got := b.create("pool", object{"name": "p", "colour": "red"}); got["colour"] != "red" {
		t.Errorf("%v", got)
	}
}

func TestPoolHasFiveThousandServersAtMost(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	servers := make([]object, 5001)
	for i := range servers {
		servers[i] = server("10.0.0.1", i+1)
	}
	b.post("/api/pool", pool("p", servers...)).want(400).saying("a maximum of 5000 items")
	uuid := b.create("pool", pool("p", servers[:5000]...))["uuid"].(string)
	b.patch("/api/pool/"+uuid, object{"add": object{"servers": servers[5000:]}}).want(400).saying("a maximum of 5000 items")
}

func TestPutReplacesEverything(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", object{"name": "p", "description": "x", "default_server_port": 81, "servers": []object{server("10.0.0.1", 1)}})
	got := b.put("/api/pool/"+p["uuid"].(string), object{"name": "q"}).want(200).json()
	if got["description"] != nil || got["default_server_port"] != 80.0 || got["servers"] != nil || got["name"] != "q" || got["uuid"] != p["uuid"] {
		t.Errorf("%v", got)
	}
	if got["_last_modified"] == p["_last_modified"] {
		t.Error("_last_modified is the same")
	}
	b.create("pool", pool("p")) // the name is free again
}

func TestStalePutIs412(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", pool("p"))
	path := "/api/pool/" + p["uuid"].(string)
	b.put(path, object{"name": "p", "description": "somebody else", "_last_modified": p["_last_modified"]}).want(200)
	b.put(path, object{"name": "p", "description": "late", "_last_modified": p["_last_modified"]}).want(412).saying("Pool", "reload object data")
	if got := b.get(path).json()["description"]; got != "somebody else" {
		t.Errorf("%v", got)
	}
	b.put(path, object{"name": "p", "description": "blind"}).want(200) // without it a PUT always wins
}

func TestLastModifiedGrowsThoughTheClockStands(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", pool("p"))
	before := p["_last_modified"].(string)
	for range 5 {
		now := b.put("/api/pool/"+p["uuid"].(string), pool("p")).want(200).json()["_last_modified"].(string)
		if now <= before {
			t.Errorf("%s after %s", now, before)
		}
		before = now
	}
}

func TestSameObjectRule(t *testing.T) {
	b := start(t, avisim.Config{Rules: avisim.Rules{SameObject: true}}).login()
	p := b.create("pool", pool("p"))
	if got := b.put("/api/pool/"+p["uuid"].(string), pool("p")).want(200).json(); got["_last_modified"] != p["_last_modified"] {
		t.Error("_last_modified changed")
	}
	if got := b.put("/api/pool/"+p["uuid"].(string), pool("q")).want(200).json(); got["_last_modified"] == p["_last_modified"] {
		t.Error("_last_modified did not change")
	}
}

func TestNameIsTakenOnceInTenantAndCloud(t *testing.T) {
	b := start(t, avisim.Config{Clouds: []string{"other"}, Tenants: []string{"shop"}}).login()
	b.create("pool", pool("p"))
	b.post("/api/pool", pool("p")).want(409).saying(`{"error":"Pool with this Name, Tenant ref and Cloud ref already exists."}`)
	b.create("pool", object{"name": "p", "cloud_ref": "/api/cloud?name=other"})
	b.create("vsvip", vsvip("p")) // another type
	q := b.create("pool", pool("q"))
	b.put("/api/pool/"+q["uuid"].(string), pool("p")).want(409)
	b.create("healthmonitor", object{"name": "h", "type": "HEALTH_MONITOR_TCP"})
	b.post("/api/healthmonitor", object{"name": "h", "type": "HEALTH_MONITOR_TCP"}).want(409).saying("with this Name and Tenant ref already exists.")
	b.header.Set("X-Avi-Tenant", "shop")
	b.create("pool", pool("p"))
}

func TestNameStaysReservedShortlyAfterDelete(t *testing.T) {
	l := start(t, avisim.Config{Rules: avisim.Rules{NameReserved: 5 * time.Second}})
	b := l.login()
	p := b.create("pool", pool("p"))
	b.remove("/api/pool/" + p["uuid"].(string)).want(204)
	b.post("/api/pool", pool("p")).want(409)
	if got := b.get("/api/pool?name=p").names(); len(got) != 0 {
		t.Errorf("a GET finds %q", got)
	}
	l.pass(5 * time.Second)
	b.create("pool", pool("p"))
}

func TestDeleteAnswers204WithoutABody(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", pool("p"))
	got := b.remove("/api/pool/" + p["uuid"].(string)).want(204)
	if len(got.body) != 0 || got.header.Get("Server-Timing") == "" {
		t.Errorf("%q, %v", got.body, got.header)
	}
	b.remove("/api/pool/" + p["uuid"].(string)).want(404)
}

func TestWhatIsReferredToCannotBeDeleted(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.create("healthmonitor", object{"name": "hm", "type": "HEALTH_MONITOR_TCP"})
	p := b.create("pool", object{"name": "p", "health_monitor_refs": []string{"/api/healthmonitor?name=hm"}})
	v := b.create("vsvip", vsvip("v"))
	rule := object{"name": "r", "index": 1, "action": object{"select_pool": object{"action_type": "L4_RULE_ACTION_SELECT_POOL", "pool_ref": "/api/pool?name=p"}}}
	set := b.create("l4policyset", object{"name": "s", "l4_connection_policy": object{"rules": []object{rule}}})
	vs := virtualService("x", "v", "p", 80)
	vs["l4_policies"] = []object{{"index": 1, "l4_policy_set_ref": "/api/l4policyset?name=s"}}
	x := b.create("virtualservice", vs)
	path := func(o object, kind string) string { return "/api/" + kind + "/" + o["uuid"].(string) }
	b.remove(path(p, "pool")).want(400).saying(`{"error":"Cannot delete, object is referred by: ['L4PolicySet s', 'VirtualService x']"}`)
	b.remove(path(v, "vsvip")).want(400).saying("['VirtualService x']")
	b.remove(path(set, "l4policyset")).want(400).saying("['VirtualService x']")
	b.remove(path(x, "virtualservice")).want(204)
	b.remove(path(p, "pool")).want(400).saying("['L4PolicySet s']")
	b.remove(path(set, "l4policyset")).want(204)
	b.remove(path(p, "pool")).want(204)
	b.remove(path(v, "vsvip")).want(204)
}

func TestReferencesInEverySpelling(t *testing.T) {
	b := start(t, avisim.Config{Clouds: []string{"other"}}).login()
	uuid := b.create("healthmonitor", object{"name": "h m", "type": "HEALTH_MONITOR_TCP"})["uuid"].(string)
	for i, ref := range []string{
		"/api/healthmonitor?name=h%20m", "/api/healthmonitor/?name=h+m", "/api/healthmonitor/" + uuid, "/api/healthmonitor/" + uuid + "#h m", uuid,
		b.url + "/api/healthmonitor/" + uuid + "#h m", "https://elsewhere.example/api/healthmonitor/" + uuid, b.url + "/api/healthmonitor/?name=h%20m",
	} {
		p := b.create("pool", object{"name": fmt.Sprint("p", i), "health_monitor_refs": []string{ref}})
		if got := at(p, "health_monitor_refs", 0); got != b.url+"/api/healthmonitor/"+uuid+"#h m" {
			t.Errorf("%s became %v", ref, got)
		}
	}
	odd := b.create("healthmonitor", object{"name": "50%/x", "type": "HEALTH_MONITOR_TCP"}) // its name is not escaped behind the #
	b.create("pool", object{"name": "odd", "health_monitor_refs": []any{odd["url"]}})
	p := b.create("pool", object{"name": "c", "cloud_ref": "/api/cloud?name=other", "vrf_ref": "/api/vrfcontext/?name=global&cloud=other"})
	vrf := b.get("/api/vrfcontext?name=global&cloud_ref.name=other").want(200).json()
	if p["vrf_ref"] != at(vrf, "results", 0, "url").(string)+"#global" {
		t.Errorf("vrf_ref %v, want %v", p["vrf_ref"], vrf)
	}
}

func TestReferencesThatLeadNowhere(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	for _, ref := range []string{"/api/healthmonitor?name=none", "/api/healthmonitor/healthmonitor-none", "healthmonitor-none", "/api/healthmonitor"} {
		b.post("/api/pool", object{"name": "p", "health_monitor_refs": []string{ref}}).want(400).saying("HealthMonitor object not found!")
	}
	for _, ref := range []string{"/api/pool?name=x", "", "/healthmonitor", "/api/nonsense/x", "/api/healthmonitor/a/b", "::"} {
		b.post("/api/pool", object{"name": "p", "health_monitor_refs": []string{ref}}).want(400)
	}
	start(t, avisim.Config{Rules: avisim.Rules{MissingReference: 404}}).login().
		post("/api/pool", object{"name": "p", "health_monitor_refs": []string{"none"}}).want(404)
}

func TestReferencesOfAnotherTenantAreNotFound(t *testing.T) {
	b := start(t, avisim.Config{Tenants: []string{"shop"}}).login()
	b.header.Set("X-Avi-Tenant", "shop")
	uuid := b.create("healthmonitor", object{"name": "mine", "type": "HEALTH_MONITOR_TCP"})["uuid"].(string)
	b.create("pool", object{"name": "p", "health_monitor_refs": []string{"/api/healthmonitor?name=mine", "/api/healthmonitor?name=System-TCP"}})
	b.header.Del("X-Avi-Tenant")
	b.post("/api/pool", object{"name": "p", "health_monitor_refs": []string{uuid}}).want(400).saying("not found")
	b.post("/api/pool", object{"name": "p", "tenant_ref": "/api/tenant?name=shop"}).want(400).saying("tenant_ref")
}

func TestWhatNeverChanges(t *testing.T) {
	b := start(t, avisim.Config{
		Clouds: []string{"other"}, Tenants: []string{"shop"},
		Networks: []avisim.Network{network("vips", "", "192.0.2.10", "192.0.2.12"), network("red", "red", "198.51.100.1", "198.51.100.9")},
	}).login()
	p := b.create("pool", pool("p"))
	path := "/api/pool/" + p["uuid"].(string)
	for field, ref := range map[string]string{"cloud_ref": "/api/cloud?name=other", "vrf_ref": "/api/vrfcontext?name=red"} {
		b.put(path, object{"name": "p", field: ref}).want(400).saying(field, "cannot be changed")
		b.patch(path, object{"replace": object{field: ref}}).want(400).saying(field, "cannot be changed")
	}
	b.put(path, object{"name": "p", "tenant_ref": "/api/tenant?name=shop"}).want(400).saying("tenant_ref")
	b.put(path, object{"name": "p", "uuid": "pool-x"}).want(400).saying("uuid")
	b.put(path, object{"name": "p", "cloud_ref": "/api/cloud?name=Default-Cloud", "vrf_ref": p["vrf_ref"], "uuid": p["uuid"], "url": p["url"]}).want(200)
	h := b.create("healthmonitor", object{"name": "h", "type": "HEALTH_MONITOR_TCP"})
	b.put("/api/healthmonitor/"+h["uuid"].(string), object{"name": "h", "type": "HEALTH_MONITOR_UDP"}).want(400).saying("type")
}

func TestPutMayLeaveOutWhatNeverChanges(t *testing.T) {
	b := start(t, avisim.Config{Networks: []avisim.Network{network("red", "red", "198.51.100.1", "198.51.100.9")}}).login()
	p := b.create("pool", object{"name": "p", "vrf_ref": "/api/vrfcontext?name=red"})
	if got := b.put("/api/pool/"+p["uuid"].(string), object{"name": "p"}).want(200).json()["vrf_ref"]; got != p["vrf_ref"] {
		t.Errorf("vrf_ref became %v", got)
	}
}

func TestPoolRefusesTheSameServerTwice(t *testing.T) {
	twice := pool("p", server("10.0.0.1", 1), server("10.0.0.1", 1))
	start(t, avisim.Config{}).login().post("/api/pool", twice).want(400).saying("duplicate server 10.0.0.1:1")
	b := start(t, avisim.Config{Rules: avisim.Rules{Duplicates: avisim.KeepDuplicates}}).login()
	if got := b.create("pool", twice); len(got["servers"].([]any)) != 2 {
		t.Errorf("%v", got["servers"])
	}
}
