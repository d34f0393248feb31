package avisim_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

// ips are the addresses of a pool's servers.
func ips(p object) []string {
	out := []string{}
	list, _ := p["servers"].([]any)
	for _, s := range list {
		out = append(out, at(s, "ip", "addr").(string))
	}
	return out
}

func TestPatchAddAppendsServers(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", object{"name": "p", "description": "kept", "servers": []object{server("10.0.0.1", 1)}})
	add := object{"add": object{"name": "p", "tenant_ref": p["tenant_ref"], "cloud_ref": p["cloud_ref"], "servers": []object{server("10.0.0.2", 1)}}}
	got := b.patch("/api/pool/"+p["uuid"].(string), add).want(200).json()
	if !slices.Equal(ips(got), []string{"10.0.0.1", "10.0.0.2"}) || got["description"] != "kept" || got["_last_modified"] == p["_last_modified"] {
		t.Errorf("%v", got)
	}
	if at(got, "servers", 1, "enabled") != true || at(got, "servers", 1, "hostname") != "10.0.0.2" {
		t.Errorf("the new server has no defaults: %v", at(got, "servers", 1))
	}
}

func TestPatchAddOfAServerThatIsThere(t *testing.T) {
	for rule, want := range map[avisim.Duplicates]int{avisim.RefuseDuplicates: 0, avisim.MergeDuplicates: 1, avisim.KeepDuplicates: 2} {
		b := start(t, avisim.Config{Rules: avisim.Rules{Duplicates: rule}}).login()
		path := "/api/pool/" + b.create("pool", pool("p", server("10.0.0.1", 1)))["uuid"].(string)
		again := server("10.0.0.1", 1)
		again["ratio"] = 5
		got := b.patch(path, object{"add": object{"servers": []object{again}}})
		if want == 0 {
			got.want(400).saying("duplicate server")
			continue
		}
		servers := got.want(200).json()["servers"].([]any)
		if len(servers) != want || at(servers[len(servers)-1], "ratio") != 5.0 {
			t.Errorf("rule %d: %v", rule, servers)
		}
	}
}

func TestPatchDeleteWantsTheServerAsItWasRead(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", pool("p", server("10.0.0.1", 1), server("10.0.0.2", 1)))
	path := "/api/pool/" + p["uuid"].(string)
	partly := server("10.0.0.1", 1)
	partly["hostname"] = "10.0.0.1"
	got := b.patch(path, object{"delete": object{"servers": []object{server("10.0.0.1", 1), partly}}}).want(200).json()
	if len(ips(got)) != 2 {
		t.Errorf("%q: a part of a server took it out", ips(got))
	}
	got = b.patch(path, object{"delete": object{"servers": []any{at(p, "servers", 0)}}}).want(200).json()
	if !slices.Equal(ips(got), []string{"10.0.0.2"}) {
		t.Errorf("%q", ips(got))
	}
	got = b.patch(path, object{"delete": object{"servers": []any{at(p, "servers", 1)}}}).want(200).json()
	if len(ips(got)) != 0 {
		t.Errorf("%q", ips(got))
	}
}

func TestPatchDeleteByAddressWhereTheRuleSaysSo(t *testing.T) {
	b := start(t, avisim.Config{Rules: avisim.Rules{DeleteByAddress: true}}).login()
	p := b.create("pool", pool("p", server("10.0.0.1", 1), server("10.0.0.1", 2)))
	got := b.patch("/api/pool/"+p["uuid"].(string), object{"delete": object{"servers": []object{server("10.0.0.1", 1)}}}).want(200).json()
	if len(ips(got)) != 1 || at(got, "servers", 0, "port") != 2.0 {
		t.Errorf("%v", got["servers"])
	}
}

func TestPatchReplaceIsOneLevelDeep(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", object{"name": "p", "description": "kept", "servers": []object{server("10.0.0.1", 1), server("10.0.0.2", 1)}})
	got := b.patch("/api/pool/"+p["uuid"].(string), object{"replace": object{"servers": []object{server("10.0.0.3", 1)}, "enabled": false}}).want(200).json()
	if !slices.Equal(ips(got), []string{"10.0.0.3"}) || got["enabled"] != false || got["description"] != "kept" {
		t.Errorf("%v", got)
	}
	got = b.patch("/api/pool/"+p["uuid"].(string), object{"replace": object{"servers": []object{}}}).want(200).json()
	if got["servers"] != nil {
		t.Errorf("%v", got["servers"])
	}
}

func TestPatchAddOfAScalarReplacesAndDeleteRestoresTheDefault(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	path := "/api/pool/" + b.create("pool", pool("p"))["uuid"].(string)
	got := b.patch(path, object{"add": object{"description": "x", "default_server_port": 81}}).want(200).json()
	if got["description"] != "x" || got["default_server_port"] != 81.0 {
		t.Errorf("%v", got)
	}
	got = b.patch(path, object{"delete": object{"description": "x", "default_server_port": 81, "name": "p"}}).want(200).json()
	if got["description"] != nil || got["default_server_port"] != 80.0 || got["name"] != "p" {
		t.Errorf("%v", got)
	}
}

func TestPatchOperationsTogether(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", pool("p", server("10.0.0.1", 1)))
	got := b.patch("/api/pool/"+p["uuid"].(string), object{
		"add": object{"servers": []object{server("10.0.0.2", 1)}}, "delete": object{"servers": []any{at(p, "servers", 0)}}, "replace": object{"description": "x"},
	}).want(200).json()
	if !slices.Equal(ips(got), []string{"10.0.0.2"}) || got["description"] != "x" {
		t.Errorf("%v", got)
	}
}

func TestJSONPatch(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	p := b.create("pool", pool("p", server("10.0.0.1", 1), server("10.0.0.2", 1)))
	path := "/api/pool/" + p["uuid"].(string)
	var ops []any
	if err := json.Unmarshal([]byte(`[{"op":"test","path":"/name","value":"p"},{"op":"remove","path":"/servers/0"},{"op":"replace","path":"/enabled","value":false}]`), &ops); err != nil {
		t.Fatal(err)
	}
	got := b.patch(path, object{"json_patch": ops}).want(200).json()
	if !slices.Equal(ips(got), []string{"10.0.0.2"}) || got["enabled"] != false {
		t.Errorf("%v", got)
	}
	b.patch(path, object{"json_patch": []object{{"op": "test", "path": "/name", "value": "q"}}}).want(400)
	b.patch(path, object{"json_patch": []object{{"op": "remove", "path": "/none"}}}).want(400)
	b.patch(path, object{"json_patch": "x"}).want(400)
	b.patch(path, object{"json_patch": ops, "add": object{}}).want(400)
}

func TestPatchThatIsNone(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	path := "/api/pool/" + b.create("pool", pool("p"))["uuid"].(string)
	for _, body := range []object{{}, {"name": "q"}, {"add": []int{}}, {"merge": object{}}, {"add": object{"colour": "red"}}, {"add": object{"enabled": "x"}}} {
		b.patch(path, body).want(400)
	}
}
