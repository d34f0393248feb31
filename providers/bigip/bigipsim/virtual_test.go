package bigipsim_test

import (
	"reflect"
	"testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

const front = virtuals + "/~P~front"

func TestDefaultsOfAVirtualServer(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	got := s.create(virtuals, virtual("front", "/P/192.0.2.1:443", "pool", "/P/web"))
	for name, want := range map[string]any{
		"kind": "tm:ltm:virtual:virtualstate", "destination": "/P/192.0.2.1:443", "mask": "255.255.255.255", "ipProtocol": "tcp", "pool": "/P/web",
		"poolReference": object{"link": "https://localhost/mgmt/tm/ltm/pool/~P~web?ver=16.1.4"}, "sourceAddressTranslation": object{"type": "none"},
		"source": "0.0.0.0/0", "enabled": true, "disabled": nil, "vlansDisabled": true, "vlansEnabled": nil, "translateAddress": "enabled", "translatePort": "enabled",
		"profiles": nil, "rules": nil, "persist": nil, "vlans": nil,
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}

func TestDestinationOfAVirtualServer(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	for given, want := range map[string][2]string{
		"192.0.2.1:80":          {"/P/192.0.2.1:80", "255.255.255.255"},
		"/P/192.0.2.2:any":      {"/P/192.0.2.2:0", "255.255.255.255"},
		"/Common/192.0.2.3:80":  {"/Common/192.0.2.3:80", "255.255.255.255"},
		"/P/2001:DB8::0:1.443":  {"/P/2001:db8::1.443", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		"/P/192.0.2.1%2:80":     {"/P/192.0.2.1%2:80", "255.255.255.255"},
		"/P/2001:db8::1%10.443": {"/P/2001:db8::1%10.443", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
	} {
		got := s.create(virtuals, virtual("front", given))
		if got["destination"] != want[0] || got["mask"] != want[1] {
			t.Errorf("%s: %v %v", given, got["destination"], got["mask"])
		}
		s.remove(front).want(200)
	}
	for _, bad := range []string{"192.0.2.1", "web:80", "/Q/192.0.2.1:80", "/P/2001:db8::1:443", "192.0.2.1:70000"} {
		s.post(virtuals, virtual("front", bad)).want(400)
	}
	s.post(virtuals, object{"name": "front", "partition": "P"}).want(400)
}

func TestProfilesAreReadBackInTheirCollectionOnly(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	got := s.create(virtuals, virtual("front", "192.0.2.1:80", "profiles", []any{object{"name": "http", "partition": "Common"}, object{"name": "/Common/tcp-lan-optimized", "context": "serverside"}, "/Common/tcp"}))
	if got["profiles"] != nil || at(got, "profilesReference", "isSubcollection") != true {
		t.Errorf("%v", got)
	}
	list := s.get(front + "/profiles")
	if list.names() != "http tcp tcp-lan-optimized" || at(list.json(), "items", 2, "context") != "serverside" || at(list.json(), "items", 0, "context") != "all" {
		t.Errorf("%s", list.body)
	}
	if got := s.get(front + "?expandSubcollections=true").json(); at(got, "profilesReference", "items", 0, "fullPath") != "/Common/http" {
		t.Errorf("%v", got)
	}
	s.patch(front, object{"profiles": []any{"udp"}}).refused(400, 3, "01070095:3: Virtual server /P/front lists incompatible profiles.")
	s.patch(front, object{"profiles": []any{"none-such"}}).refused(404, 3, "01020036:3: The requested profile (/Common/none-such) was not found.")
	s.patch(front, object{"profiles": []any{"tcp"}}).want(200)
	if names := s.get(front + "/profiles").names(); names != "tcp" {
		t.Errorf("profiles %q", names)
	}
}

func TestProfileOfTheProtocolIsAdded(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	for protocol, want := range map[string]string{"tcp": "tcp", "udp": "udp", "sctp": "sctp", "any": "fastL4"} {
		s.create(virtuals, virtual("front", "192.0.2.1:80", "ipProtocol", protocol))
		if names := s.get(front + "/profiles").names(); names != want {
			t.Errorf("%s: profiles %q, want %q", protocol, names, want)
		}
		s.remove(front).want(200)
	}
	s.post(virtuals, virtual("front", "192.0.2.1:80", "ipProtocol", "udp", "profiles", []any{"http"})).want(400)
}

func TestVirtualAddressComesAndGoes(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	const address = "/mgmt/tm/ltm/virtual-address/~P~192.0.2.1"
	s.create(virtuals, virtual("front", "192.0.2.1:80"))
	s.create(virtuals, virtual("second", "192.0.2.1:81"))
	got := s.get(address).want(200).json()
	if got["autoDelete"] != "true" || got["trafficGroup"] != "/Common/traffic-group-1" || got["address"] != "192.0.2.1" {
		t.Errorf("%v", got)
	}
	s.remove(address).want(400)
	s.remove(virtuals + "/~P~second").want(200)
	s.get(address).want(200)
	s.patch(front, object{"destination": "192.0.2.2:80"}).want(200)
	s.get(address).want(404)
	s.get("/mgmt/tm/ltm/virtual-address/~P~192.0.2.2").want(200)
	// One of another partition cannot have the address.
	s.post(virtuals, object{"name": "front", "partition": "Q", "destination": "192.0.2.2:81", "ipProtocol": "tcp"}).
		refused(400, 3, "0107176c:3: Invalid Virtual Address, the IP address 192.0.2.2 already exists.")
	s.create("/mgmt/tm/ltm/virtual-address", object{"name": "kept", "partition": "P", "address": "192.0.2.9", "autoDelete": "false"})
}

func TestEnabledOrDisabled(t *testing.T) {
	s := start(t, bigipsim.Config{VLANs: []string{"inside"}}).login()
	s.create(virtuals, virtual("front", "192.0.2.1:80"))
	if got := s.patch(front, object{"disabled": true}).want(200).json(); got["disabled"] != true || got["enabled"] != nil {
		t.Errorf("%v", got)
	}
	if got := s.patch(front, object{"description": "x"}).want(200).json(); got["disabled"] != true || got["enabled"] != nil {
		t.Errorf("%v", got)
	}
	if got := s.patch(front, object{"enabled": true}).want(200).json(); got["enabled"] != true || got["disabled"] != nil {
		t.Errorf("%v", got)
	}
	s.patch(front, object{"enabled": true, "disabled": true}).want(400)
	s.patch(front, object{"enabled": false}).want(400)
	got := s.patch(front, object{"vlansEnabled": true, "vlans": []string{"inside"}}).want(200).json()
	if got["vlansEnabled"] != true || got["vlansDisabled"] != nil || at(got, "vlans", 0) != "/Common/inside" || at(got, "vlansReference", 0, "link") != "https://localhost/mgmt/tm/net/vlan/~Common~inside?ver=16.1.4" {
		t.Errorf("%v", got)
	}
	s.patch(front, object{"vlans": []string{"/Common/none-such"}}).refused(404, 3, "01020036:3: The requested VLAN (/Common/none-such) was not found.")
	if got := s.patch(front, object{"vlansDisabled": true, "vlans": []string{}}).want(200).json(); got["vlansDisabled"] != true || got["vlans"] != nil {
		t.Errorf("%v", got)
	}
}

func TestSourceAddressTranslation(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create("/mgmt/tm/ltm/snatpool", object{"name": "out", "partition": "P", "members": []string{"/P/192.0.2.77"}})
	s.create(virtuals, virtual("front", "192.0.2.1:80", "sourceAddressTranslation", object{"type": "automap"}))
	if got := at(s.get(front).json(), "sourceAddressTranslation", "type"); got != "automap" {
		t.Errorf("type %v", got)
	}
	got := s.patch(front, object{"sourceAddressTranslation": object{"type": "snat", "pool": "/P/out"}}).want(200).json()
	if at(got, "sourceAddressTranslation", "pool") != "/P/out" || at(got, "sourceAddressTranslation", "poolReference", "link") != "https://localhost/mgmt/tm/ltm/snatpool/~P~out?ver=16.1.4" {
		t.Errorf("%v", got)
	}
	s.remove("/mgmt/tm/ltm/snatpool/~P~out").want(400)
	for _, bad := range []object{{"type": "snat"}, {"type": "automap", "pool": "/P/out"}, {"type": "lsn"}, {"type": "snat", "pool": "/P/none-such"}} {
		if got := s.patch(front, object{"sourceAddressTranslation": bad}); got.status != 400 && got.status != 404 {
			t.Errorf("%v: %d %s", bad, got.status, got.body)
		}
	}
	s.patch(front, object{"sourceAddressTranslation": object{"type": "none"}}).want(200)
	s.remove("/mgmt/tm/ltm/snatpool/~P~out").want(200)
}

func TestPersistence(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create("/mgmt/tm/ltm/persistence/source-addr", object{"name": "an-hour", "partition": "P", "defaultsFrom": "/Common/source_addr", "timeout": 3600})
	s.create(virtuals, virtual("front", "192.0.2.1:80"))
	got := s.patch(front, object{"persist": []any{object{"name": "an-hour", "partition": "P"}}}).want(200).json()
	want := object{"name": "an-hour", "partition": "P", "tmDefault": "yes", "nameReference": object{"link": "https://localhost/mgmt/tm/ltm/persistence/source-addr/~P~an-hour?ver=16.1.4"}}
	if !reflect.DeepEqual(at(got, "persist", 0), want) {
		t.Errorf("%v, want %v", at(got, "persist", 0), want)
	}
	s.remove("/mgmt/tm/ltm/persistence/source-addr/~P~an-hour").want(400)
	s.patch(front, object{"persist": []any{"/Common/cookie"}}).
		refused(400, 3, "01070309:3: Cookie persistence requires an HTTP or FastHTTP profile to be associated with the virtual server")
	s.patch(front, object{"persist": []any{"/Common/cookie"}, "profiles": []any{"http"}}).want(200)
	s.patch(front, object{"persist": []any{"/Common/none-such"}}).want(404)
	if got := s.patch(front, object{"persist": []any{}}).want(200).json(); got["persist"] != nil {
		t.Errorf("%v", got["persist"])
	}
}

func TestRulesByReference(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create("/mgmt/tm/ltm/rule", object{"name": "r", "partition": "P", "apiAnonymous": "when HTTP_REQUEST { HTTP::respond 200 content \"<b>hi</b>\" }"})
	got := s.create(virtuals, virtual("front", "192.0.2.1:80", "rules", []string{"/P/r"}))
	if at(got, "rules", 0) != "/P/r" || at(got, "rulesReference", 0, "link") != "https://localhost/mgmt/tm/ltm/rule/~P~r?ver=16.1.4" {
		t.Errorf("%v", got)
	}
	s.remove("/mgmt/tm/ltm/rule/~P~r").refused(400, 3, "01070265:3: The rule (/P/r) cannot be deleted because it is in use by a Virtual Server (/P/front).")
	s.patch(front, object{"rules": []string{"/P/none-such"}}).refused(404, 3, "01020036:3: The requested rule (/P/none-such) was not found.")
	s.patch(front, object{"rules": []string{}}).want(200)
	s.remove("/mgmt/tm/ltm/rule/~P~r").want(200)
}

func TestSourceIsOfTheDestinationsFamily(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	if got := s.create(virtuals, virtual("front", "/P/2001:db8::1.80")); got["source"] != "::/0" {
		t.Errorf("source %v", got["source"])
	}
	s.patch(front, object{"source": "10.0.0.0/8"}).want(400)
	if got := s.patch(front, object{"source": "2001:DB8:1::/48"}).want(200).json(); got["source"] != "2001:db8:1::/48" {
		t.Errorf("source %v", got["source"])
	}
	s.patch(front, object{"source": "10.0.0.1"}).want(400)
}

func TestMonitors(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	for kind, parent := range map[string]string{"tcp": "tcp", "http": "http", "https": "https", "udp": "udp", "gateway-icmp": "gateway_icmp", "tcp-half-open": "tcp_half_open"} {
		place := "/mgmt/tm/ltm/monitor/" + kind
		got := s.create(place, object{"name": "m", "partition": "Q"})
		for name, want := range map[string]any{"destination": "*:*", "interval": 5.0, "timeout": 16.0, "upInterval": 0.0, "timeUntilUp": 0.0, "defaultsFrom": "/Common/" + parent, "kind": "tm:ltm:monitor:" + kind + ":" + kind + "state"} {
			if got[name] != want {
				t.Errorf("%s: %s is %v, want %v", kind, name, got[name], want)
			}
		}
		s.remove(place + "/~Q~m").want(200)
	}
	got := s.create("/mgmt/tm/ltm/monitor/http", object{"name": "m", "partition": "P", "send": `GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n`, "recv": "200", "interval": 10, "timeout": 31})
	if got["send"] != `GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n` || got["recv"] != "200" || got["interval"] != 10.0 || got["timeout"] != 31.0 {
		t.Errorf("%v", got)
	}
	derived := s.create("/mgmt/tm/ltm/monitor/http", object{"name": "n", "partition": "P", "defaultsFrom": "/P/m"})
	if derived["recv"] != "200" || derived["interval"] != 10.0 {
		t.Errorf("%v", derived)
	}
	s.post("/mgmt/tm/ltm/monitor/http", object{"name": "o", "partition": "P", "defaultsFrom": "/Common/tcp"}).want(404)
	if got := s.put("/mgmt/tm/ltm/monitor/http/~P~n", object{"interval": 7}).want(200).json(); got["interval"] != 7.0 || got["defaultsFrom"] != "/P/m" {
		t.Errorf("%v", got)
	}
	if items := s.get("/mgmt/tm/ltm/monitor").want(200).json()["items"].([]any); len(items) < 6 || at(items, 0, "reference", "link") == nil {
		t.Errorf("%v", items)
	}
}

func TestDataGroups(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	const groups = "/mgmt/tm/ltm/data-group/internal"
	got := s.create(groups, object{"name": "d", "partition": "P", "type": "string", "records": []object{{"name": "b"}, {"name": "a", "data": "1"}}})
	if want := []any{object{"name": "a", "data": "1"}, object{"name": "b"}}; !reflect.DeepEqual(got["records"], want) || got["kind"] != "tm:ltm:data-group:internal:internalstate" {
		t.Errorf("%v", got)
	}
	s.patch(groups+"/~P~d", object{"records": []object{{"name": "c", "data": "3"}}}).want(200)
	if got := s.get(groups + "/~P~d").json(); at(got, "records", 0, "name") != "c" || len(got["records"].([]any)) != 1 || got["type"] != "string" {
		t.Errorf("%v", got)
	}
	s.patch(groups+"/~P~d", object{"type": "ip"}).want(400)
	s.patch(groups+"/~P~d", object{"records": []object{{"name": "c"}, {"name": "c"}}}).want(409)
	s.post(groups, object{"name": "e", "partition": "P"}).want(400)
	s.post(groups, object{"name": "e", "partition": "P", "type": "float"}).want(400)
}

func TestPartitionsAndTheirFolders(t *testing.T) {
	s := start(t, bigipsim.Config{Partitions: []bigipsim.Partition{{Name: "P"}, {Name: "T", TrafficGroup: "none"}, {Name: "A", AS3: true}}}).login()
	got := s.create("/mgmt/tm/auth/partition", object{"name": "N", "description": "made by hand"})
	if got["fullPath"] != "N" || got["defaultRouteDomain"] != 0.0 || got["kind"] != "tm:auth:partition:partitionstate" || got["partition"] != nil {
		t.Errorf("%v", got)
	}
	s.post("/mgmt/tm/auth/partition", object{"name": "N"}).want(409)
	for folder, group := range map[string]string{"~N": "/Common/traffic-group-1", "~T": "none"} {
		if got := s.get("/mgmt/tm/sys/folder/" + folder).want(200).json(); got["trafficGroup"] != group || got["deviceGroup"] != "none" {
			t.Errorf("%s: %v", folder, got)
		}
	}
	if got := s.get("/mgmt/tm/sys/folder/~T").json(); got["inheritedTrafficGroup"] != "false" || got["fullPath"] != "/T" || got["partition"] != "/" {
		t.Errorf("%v", got)
	}
	s.get("/mgmt/tm/sys/folder/~A~Shared").want(200)
	if got := s.get("/mgmt/shared/appsvcs/declare").want(200).json(); at(got, "A", "class") != "Tenant" || got["P"] != nil {
		t.Errorf("%v", got)
	}
	s.get("/mgmt/shared/appsvcs/info").want(200)
	start(t, bigipsim.Config{}).login().get("/mgmt/shared/appsvcs/declare").denied(404, "Public URI path not registered: /shared/appsvcs/declare")
}
