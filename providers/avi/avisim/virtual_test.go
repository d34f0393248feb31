package avisim_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

func network(name, vrf, first, last string) avisim.Network {
	f := netip.MustParseAddr(first)
	prefix, _ := f.Prefix(24)
	if f.Is6() {
		prefix, _ = f.Prefix(64)
	}
	return avisim.Network{Name: name, VRF: vrf, Prefix: prefix, First: f, Last: netip.MustParseAddr(last)}
}

func address(v object, field string) any { return at(v, "vip", 0, field, "addr") }

func TestVIPIsAllocatedInTheAnswerToPost(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	v := b.create("vsvip", vsvip("a"))
	if got := address(v, "ip_address"); got != "192.0.2.10" || at(v, "vip", 0, "avi_allocated_vip") != true {
		t.Errorf("%v", v)
	}
	if got := address(b.create("vsvip", vsvip("b")), "ip_address"); got != "192.0.2.11" {
		t.Errorf("the second is %v", got)
	}
}

func TestVIPsRunOutAndComeBack(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	for _, name := range []string{"a", "b", "c"} {
		b.create("vsvip", vsvip(name))
	}
	b.post("/api/vsvip", vsvip("d")).want(400).saying("No available free IPs")
	uuid := at(b.get("/api/vsvip?name=b").json(), "results", 0, "uuid").(string)
	b.remove("/api/vsvip/" + uuid).want(204)
	if got := address(b.create("vsvip", vsvip("d")), "ip_address"); got != "192.0.2.11" {
		t.Errorf("%v, want the one that was given back", got)
	}
}

func TestPreferredVIPIsTakenOrRefused(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	prefer := func(name, addr string) object {
		v := vsvip(name)
		v["vip"].([]object)[0]["ip_address"] = object{"addr": addr, "type": "V4"}
		return v
	}
	if got := address(b.create("vsvip", prefer("a", "192.0.2.12")), "ip_address"); got != "192.0.2.12" {
		t.Errorf("%v", got)
	}
	b.post("/api/vsvip", prefer("b", "192.0.2.12")).want(400).saying("192.0.2.12 is not available")
	b.post("/api/vsvip", prefer("b", "192.0.2.99")).want(400).saying("192.0.2.99 is not available")
}

func TestVIPOfAFamilyThatTheNetworkHasNot(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	v := vsvip("a")
	v["vip"].([]object)[0]["auto_allocate_ip_type"] = "V4_V6"
	b.post("/api/vsvip", v).want(400).saying("No static IP range for VIPs of type V6")
}

func TestDualStackVIP(t *testing.T) {
	b := start(t, avisim.Config{Networks: []avisim.Network{network("four", "", "192.0.2.10", "192.0.2.12"), network("six", "", "2001:db8::10", "2001:db8::12")}}).login()
	v := b.create("vsvip", object{"name": "a", "vip": []object{{"vip_id": "0", "auto_allocate_ip": true, "auto_allocate_ip_type": "V4_V6"}}})
	if address(v, "ip_address") != "192.0.2.10" || address(v, "ip6_address") != "2001:db8::10" {
		t.Errorf("%v", v["vip"])
	}
}

func TestVIPNetworkThatIsNotThere(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	v := vsvip("a")
	at(v["vip"].([]object)[0], "ipam_network_subnet").(object)["network_ref"] = "/api/network?name=none"
	b.post("/api/vsvip", v).want(400).saying("Network object not found")
}

func static(name, addr string) object {
	return object{"name": name, "vip": []object{{"vip_id": "0", "ip_address": object{"addr": addr, "type": "V4"}}}}
}

func TestStaticVIPIsUsedOnce(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.create("vsvip", static("a", "203.0.113.1"))
	b.post("/api/vsvip", static("b", "203.0.113.1")).want(400).saying("203.0.113.1 is already used by VsVip a")
	b.create("vsvip", vsvip("auto"))
	b.post("/api/vsvip", static("b", "192.0.2.10")).want(400).saying("already used by VsVip auto")
	b.post("/api/vsvip", static("b", "192.0.2")).want(400)
	b.post("/api/vsvip", object{"name": "b", "vip": []object{{"vip_id": "0"}}}).want(400)
	b.post("/api/vsvip", object{"name": "b"}).want(400).saying("has no vip")
}

func TestVIPDoesNotChange(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	auto, fixed := b.create("vsvip", vsvip("auto")), b.create("vsvip", static("fixed", "203.0.113.1"))
	other := vsvip("auto")
	other["vip"].([]object)[0]["ip_address"] = object{"addr": "192.0.2.12", "type": "V4"}
	b.put("/api/vsvip/"+auto["uuid"].(string), other).want(400).saying("If a new preferred IP is needed, please recreate the VIP")
	b.put("/api/vsvip/"+fixed["uuid"].(string), static("fixed", "203.0.113.2")).want(400).saying("please recreate the VIP")
	renamed := static("fixed", "203.0.113.1")
	renamed["vip"].([]object)[0]["vip_id"] = "1"
	b.put("/api/vsvip/"+fixed["uuid"].(string), renamed).want(400).saying("Changing an existing VIP's vip_id is not supported")
	kept := b.put("/api/vsvip/"+auto["uuid"].(string), vsvip("auto")).want(200).json()
	if address(kept, "ip_address") != address(auto, "ip_address") {
		t.Errorf("the address became %v", address(kept, "ip_address"))
	}
}

func TestVirtualServiceFillsInWhatItDerives(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.create("pool", pool("p"))
	b.create("vsvip", vsvip("v"))
	vs := b.create("virtualservice", object{"name": "x", "vsvip_ref": "/api/vsvip?name=v", "pool_ref": "/api/pool?name=p", "services": []object{{"port": 80}}})
	for field, name := range map[string]string{
		"cloud_ref": "Default-Cloud", "vrf_context_ref": "global", "se_group_ref": "Default-Group", "network_profile_ref": "System-TCP-Proxy", "application_profile_ref": "System-HTTP",
	} {
		if ref, _ := vs[field].(string); !strings.HasSuffix(ref, "#"+name) {
			t.Errorf("%s is %q, want %s", field, ref, name)
		}
	}
	if at(vs, "services", 0, "port_range_end") != 80.0 || vs["type"] != "VS_TYPE_NORMAL" || vs["enabled"] != true || vs["traffic_enabled"] != true {
		t.Errorf("%v", vs)
	}
}

func TestVirtualServiceNeedsVsVipAndServices(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.create("vsvip", vsvip("v"))
	b.post("/api/virtualservice", object{"name": "x", "services": []object{{"port": 80}}}).want(400).saying("vsvip_ref")
	b.post("/api/virtualservice", object{"name": "x", "vsvip_ref": "/api/vsvip?name=v"}).want(400).saying("services")
	b.post("/api/virtualservice", object{"name": "x", "vsvip_ref": "/api/vsvip?name=none", "services": []object{{"port": 80}}}).want(400).saying("VsVip object not found!")
}

func TestVRFOfPoolAndVirtualServiceMustBeTheSame(t *testing.T) {
	b := start(t, avisim.Config{Networks: []avisim.Network{network("vips", "", "192.0.2.10", "192.0.2.12"), network("red", "red", "198.51.100.1", "198.51.100.9")}}).login()
	b.create("pool", object{"name": "p", "vrf_ref": "/api/vrfcontext?name=red"})
	b.create("vsvip", vsvip("v"))
	b.post("/api/virtualservice", virtualService("x", "v", "p", 80)).want(400).saying("VRF Context for VS x and pool p different")

	rule := object{"name": "r", "index": 1, "action": object{"select_pool": object{"action_type": "L4_RULE_ACTION_SELECT_POOL", "pool_ref": "/api/pool?name=p"}}}
	b.create("l4policyset", object{"name": "s", "l4_connection_policy": object{"rules": []object{rule}}})
	vs := virtualService("x", "v", "p", 80)
	delete(vs, "pool_ref")
	vs["l4_policies"] = []object{{"index": 1, "l4_policy_set_ref": "/api/l4policyset?name=s"}}
	b.post("/api/virtualservice", vs).want(400).saying("VRF Context for VS x and pool p different")

	vs["vrf_context_ref"] = "/api/vrfcontext?name=red"
	b.post("/api/virtualservice", vs).want(400).saying("VRF Context for VS x and VsVip v different")
}

func TestCloudOfEverythingMustBeTheSame(t *testing.T) {
	b := start(t, avisim.Config{Clouds: []string{"other"}}).login()
	b.create("pool", object{"name": "p", "cloud_ref": "/api/cloud?name=other"})
	b.create("vsvip", vsvip("v"))
	b.post("/api/virtualservice", virtualService("x", "v", "p", 80)).want(400).saying("Cloud for VS x and pool p different")
}

func TestPortOfAVsVipIsServedOnce(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	b.create("pool", pool("p"))
	b.create("vsvip", vsvip("v"))
	b.create("virtualservice", virtualService("x", "v", "p", 80, 443))
	b.post("/api/virtualservice", virtualService("y", "v", "p", 443)).want(400).saying("already has service port 443/TCP")
	udp := virtualService("y", "v", "p", 443)
	udp["network_profile_ref"] = "/api/networkprofile?name=System-UDP-Fast-Path"
	b.create("virtualservice", udp)
	b.post("/api/virtualservice", virtualService("z", "v", "p", 90, 90)).want(400).saying("duplicate service port 90/TCP")
	mixed := virtualService("z", "v", "p", 90, 90)
	mixed["services"].([]object)[1]["override_network_profile_ref"] = "/api/networkprofile?name=System-UDP-Fast-Path"
	b.create("virtualservice", mixed)
	ranged := virtualService("w", "v", "p", 70)
	ranged["services"].([]object)[0]["port_range_end"] = 60
	b.post("/api/virtualservice", ranged).want(400).saying("port_range_end")
}

func TestPortsMayBeSharedWhereTheRuleSaysSo(t *testing.T) {
	b := start(t, avisim.Config{Rules: avisim.Rules{SharedPorts: true}}).login()
	b.create("pool", pool("p"))
	b.create("vsvip", vsvip("v"))
	b.create("virtualservice", virtualService("x", "v", "p", 80))
	b.create("virtualservice", virtualService("y", "v", "p", 80))
}

func TestL4PolicySetRules(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.create("pool", pool("p"))
	rule := func(change func(object)) object {
		r := object{
			"name": "r", "index": 1, "match": object{"port": object{"match_criteria": "IS_IN", "ports": []int{80}}, "protocol": object{"match_criteria": "IS_IN", "protocol": "PROTOCOL_TCP"}},
			"action": object{"select_pool": object{"action_type": "L4_RULE_ACTION_SELECT_POOL", "pool_ref": "/api/pool?name=p"}},
		}
		change(r)
		return r
	}
	set := func(rules ...object) object {
		return object{"name": "s", "l4_connection_policy": object{"rules": rules}}
	}
	good := rule(func(object) {})
	for want, body := range map[string]object{
		"stands twice":          set(good, good),
		"selects no pool":       set(rule(func(r object) { delete(at(r, "action", "select_pool").(object), "pool_ref") })),
		"index: this field":     set(rule(func(r object) { delete(r, "index") })),
		"match_criteria":        set(rule(func(r object) { delete(at(r, "match", "port").(object), "match_criteria") })),
		"ports[0]: 0 is":        set(rule(func(r object) { at(r, "match", "port").(object)["ports"] = []int{0} })),
		"protocol: \\\"TCP\\\"": set(rule(func(r object) { at(r, "match", "protocol").(object)["protocol"] = "TCP" })),
	} {
		b.post("/api/l4policyset", body).want(400).saying(want)
	}
	got := b.create("l4policyset", set(good))
	if at(got, "l4_connection_policy", "rules", 0, "enable") != true || got["is_internal_policy"] != false {
		t.Errorf("%v", got)
	}
}

func TestRuntimeTellsWhichServersAreUp(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	disabled := server("10.0.0.3", 1)
	disabled["enabled"] = false
	uuid := b.create("pool", pool("p", server("10.0.0.1", 1), server("10.0.0.2", 1), disabled))["uuid"].(string)
	b.create("vsvip", vsvip("v"))
	vs := b.create("virtualservice", virtualService("x", "v", "p", 80))["uuid"].(string)
	l.SetHealth(uuid, "10.0.0.2:1", avisim.Health{State: avisim.OperDown, Reason: "refused"})
	for _, path := range []string{"/runtime/server", "/runtime/server/detail/"} {
		b.get("/api/pool/"+uuid+path).want(200).saying(
			`"hostname":"10.0.0.1"`, `{"state":"OPER_UP"}`, `{"reason":["refused"],"state":"OPER_DOWN"}`, `{"state":"OPER_DISABLED"}`)
	}
	runtime := b.get("/api/pool/" + uuid + "/runtime").want(200).json()
	if at(runtime, "oper_status", "state") != "OPER_UP" || runtime["num_servers"] != 3.0 || runtime["num_servers_enabled"] != 2.0 || runtime["num_servers_up"] != 1.0 {
		t.Errorf("%v", runtime)
	}
	l.SetHealth(uuid, "10.0.0.1:1", avisim.Health{State: avisim.OperDown})
	b.get("/api/virtualservice/" + vs + "/runtime").want(200).saying("OPER_DOWN")
	wrapped := start(t, avisim.Config{Rules: avisim.Rules{WrappedRuntime: true}}).login()
	q := wrapped.create("pool", pool("q", server("10.0.0.1", 1)))["uuid"].(string)
	wrapped.get("/api/pool/" + q + "/runtime/server").want(200).saying(`{"count":1,"results":[`)
}
