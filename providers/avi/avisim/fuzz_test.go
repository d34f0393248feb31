package avisim_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

// fuzzed is a Controller with a pool and a VsVip, and a user who needs no session.
type fuzzed struct {
	*avisim.Server
	t *testing.T
}

func startFuzzed(t *testing.T) fuzzed {
	s, err := avisim.New(avisim.Config{Username: "admin", Password: "secret", BasicAuth: true, Networks: []avisim.Network{network("vips", "", "192.0.2.10", "192.0.2.12")}})
	if err != nil {
		t.Fatal(err)
	}
	f := fuzzed{s, t}
	for _, o := range [][3]string{
		{"pool", "pool-1", `{"name":"p","servers":[{"ip":{"addr":"10.0.0.9","type":"V4"},"port":9}]}`},
		{"vsvip", "vsvip-1", `{"name":"v","vip":[{"vip_id":"0","auto_allocate_ip":true}]}`},
	} {
		if code := f.call("POST", "/api/"+o[0], o[2], o[1]); code != 201 {
			t.Fatalf("create %s: %d", o[0], code)
		}
	}
	return f
}

// call returns the status; 0 when no client can send that.
func (f fuzzed) call(method, target, body, slug string) int {
	r, err := http.NewRequest(method, "https://controller"+target, strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.SetBasicAuth("admin", "secret")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Avi-Version", "31.1.1")
	if slug != "" {
		r.Header.Set("Slug", slug)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w.Code
}

// answers wants an answer that is no 5xx, and a Controller that can still show and serve what it has stored.
func (f fuzzed) answers(method, target, body string) {
	if code := f.call(method, target, body, ""); code >= 500 {
		f.t.Errorf("%s %s answers %d", method, target, code)
	}
	f.Snapshot()
	f.Traffic()
	if code := f.call("GET", "/", "", ""); code != 200 {
		f.t.Errorf("the page answers %d", code)
	}
}

// FuzzBody sends any body to the places that read one.
func FuzzBody(f *testing.F) {
	places := [][2]string{
		{"POST", "/login"}, {"POST", "/api/pool"}, {"PATCH", "/api/pool/pool-1"}, {"PUT", "/api/pool/pool-1"}, {"POST", "/api/vsvip"}, {"PUT", "/api/vsvip/vsvip-1"},
		{"PATCH", "/api/vsvip/vsvip-1"}, {"POST", "/api/virtualservice"}, {"POST", "/api/l4policyset"}, {"POST", "/api/network"}, {"POST", "/api/user-token"},
		{"POST", "/api/healthmonitor"},
	}
	for _, seed := range []struct {
		place uint
		body  string
	}{
		{0, `{"username":"admin","password":"x"}`},
		{1, `{"name":"p","servers":[{"ip":{"addr":"10.0.0.1","type":"V4"},"port":1}]}`},
		{2, `{"add":{"servers":[{"ip":{"addr":"10.0.0.1","type":"V4"},"port":1}]}}`},
		{2, `{"delete":{"servers":[{"ip":{"addr":"10.0.0.9","type":"V4"}}],"name":null}}`},
		{2, `{"json_patch":[{"op":"move","from":"/servers","path":"/x"},{"op":"copy","from":"","path":"/a"}]}`},
		{3, `{"name":"p","graceful_disable_timeout":-1}`},
		{4, `{"name":"v","vip":[{"vip_id":"0","auto_allocate_ip":true,"auto_allocate_ip_type":"V4_V6","ip_address":{"addr":"::","type":"V6"}}]}`},
		{5, `{"name":"v","vip":[{"vip_id":"1","ip6_address":{"addr":"fe80::1%x","type":"V6"}}]}`},
		{7, `{"name":"x","vsvip_ref":"vsvip-1","services":[{"port":80,"port_range_end":65535}],"l4_policies":[{"index":1,"l4_policy_set_ref":"/api/l4policyset?name=s"}]}`},
		{8, `{"name":"s","l4_connection_policy":{"rules":[{"name":"r","index":1,"action":{"select_pool":{"action_type":"L4_RULE_ACTION_SELECT_POOL","pool_ref":"pool-1"}}}]}}`},
		{9, `{"name":"n","configured_subnets":[{"prefix":{"ip_addr":{"addr":"x","type":"V4"},"mask":99},"static_ip_ranges":[{"range":{"begin":{"addr":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe","type":"V6"},"end":{"addr":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff","type":"V6"}}}]}]}`},
		{10, `{"hours":1e3}`},
		{11, `{"name":"h","type":"HEALTH_MONITOR_TCP","tcp_monitor":{"tcp_half_open":1}}`},
	} {
		f.Add(seed.place, seed.body)
	}
	f.Fuzz(func(t *testing.T, place uint, body string) {
		to := places[place%uint(len(places))]
		startFuzzed(t).answers(to[0], to[1], body)
	})
}

// FuzzTarget asks for any path and query.
func FuzzTarget(f *testing.F) {
	for _, target := range []string{
		"/api/pool?sort=-name&page=1&fields=a,b&search=(name,x)&label_key=a&label_value=b", "//api/pool/pool-1/?include_name&skip_default", "/api/pool/pool-1/runtime/server/detail/",
		"/api/pool?refers_to=pool:x&referred_by=a:b&name.in=p,q&cloud_ref.name=x&uuid.in=pool-1&limit_by=3&page_size=200", "/api/cluster/runtime", "/",
	} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		startFuzzed(t).answers("GET", "/"+strings.TrimPrefix(target, "/"), "")
	})
}
