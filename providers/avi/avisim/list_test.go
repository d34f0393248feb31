package avisim_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

func TestNothingIsAnEmptyList(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	if got := string(b.get("/api/pool").want(200).body); got != `{"count":0,"results":[]}` {
		t.Errorf("%s", got)
	}
	b.get("/api/pool?name=none").want(200).saying(`"count":0`)
}

func TestListIsPagedWithAnAbsoluteNext(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	for i := range 60 {
		b.create("pool", pool(fmt.Sprintf("p%02d", i)))
	}
	var names []string
	path, pages := "/api/pool?page_size=25&fields=name", 0
	for path != "" {
		got := b.get(path).want(200)
		names = append(names, got.names()...)
		pages++
		if got.json()["count"] != 60.0 {
			t.Errorf("count %v, want the total", got.json()["count"])
		}
		path = ""
		if next, ok := got.json()["next"].(string); ok {
			u, err := url.Parse(next)
			if err != nil || u.Scheme != "https" || !strings.HasSuffix(b.url, u.Host) || u.Query().Get("fields") != "name" {
				t.Fatalf("next %q: %v", next, err)
			}
			path = u.RequestURI()
		}
	}
	if pages != 3 || len(names) != 60 || !slices.IsSorted(names) || len(slices.Compact(names)) != 60 {
		t.Errorf("%d pages, names %q", pages, names)
	}
	if n := len(b.get("/api/pool").want(200).names()); n != 25 {
		t.Errorf("a page without page_size has %d", n)
	}
}

func TestNextMayNameAnotherHost(t *testing.T) {
	b := start(t, avisim.Config{URLHost: "controller.example:8443"}).login()
	b.create("pool", pool("a"))
	b.create("pool", pool("b"))
	got := b.get("/api/pool?page_size=1").want(200).json()
	for _, text := range []any{got["next"], at(got, "results", 0, "url"), at(got, "results", 0, "cloud_ref")} {
		if u, err := url.Parse(fmt.Sprint(text)); err != nil || u.Host != "controller.example:8443" {
			t.Errorf("%v", text)
		}
	}
}

func TestPageSizeIsTwoHundredAtMost(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.get("/api/pool?page_size=200").want(200)
	for _, query := range []string{"page_size=201", "page_size=0", "page_size=x", "page=0", "page=-1", "limit_by=0"} {
		b.get("/api/pool?" + query).want(400)
	}
}

func TestPageAfterTheLast(t *testing.T) {
	start(t, avisim.Config{}).login().get("/api/pool?page=2").want(404)
	start(t, avisim.Config{Rules: avisim.Rules{EmptyPages: true}}).login().get("/api/pool?page=2").want(200).saying(`"results":[]`)
}

func TestFilters(t *testing.T) {
	l := start(t, avisim.Config{Clouds: []string{"other"}})
	b := l.login()
	marked := func(name, cluster string) object {
		return object{"name": name, "created_by": "npl-" + cluster, "markers": []object{{"key": "cluster", "values": []string{cluster}}}, "description": "of " + cluster}
	}
	a := b.create("pool", marked("prod--a", "prod"))
	b.create("pool", marked("dev-prod--B", "dev-prod"))
	other := object{"name": "third", "cloud_ref": "/api/cloud?name=other"}
	c := b.create("pool", other)
	hm := b.create("healthmonitor", object{"name": "hm", "type": "HEALTH_MONITOR_TCP"})
	b.patch("/api/pool/"+a["uuid"].(string), object{"add": object{"health_monitor_refs": []string{"/api/healthmonitor?name=hm"}}}).want(200)
	cloud := strings.TrimPrefix(c["cloud_ref"].(string), b.url+"/api/cloud/")
	cloud, _, _ = strings.Cut(cloud, "#")
	for query, want := range map[string][]string{
		"name=prod--a":                       {"prod--a"},
		"name=prod":                          {},
		"name.contains=prod--":               {"dev-prod--B", "prod--a"},
		"name.contains=b":                    {},
		"name.icontains=--b":                 {"dev-prod--B"},
		"name.in=third,prod--a":              {"prod--a", "third"},
		"uuid.in=" + a["uuid"].(string):      {"prod--a"},
		"search=prod--a":                     {"prod--a"},
		"isearch=PROD--A":                    {"prod--a"},
		"isearch=(name,THIRD)":               {"third"},
		"created_by=npl-prod":                {"prod--a"},
		"created_by=npl":                     {},
		"label_key=cluster&label_value=prod": {"prod--a"},
		"label_key=cluster":                  {"dev-prod--B", "prod--a"},
		"cloud_ref.name=other":               {"third"},
		"cloud_ref.uuid=" + cloud:            {"third"},
		"cloud_ref=" + url.QueryEscape(c["cloud_ref"].(string)): {"third"},
		"refers_to=healthmonitor:" + hm["uuid"].(string):        {"prod--a"},
		"description.contains=dev":                              {"dev-prod--B"},
		"name.contains=prod&created_by=npl-dev-prod":            {"dev-prod--B"},
	} {
		if got := b.get("/api/pool?" + query).want(200).names(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if got := b.get("/api/healthmonitor?referred_by=pool:" + a["uuid"].(string)).want(200).names(); !slices.Equal(got, []string{"hm"}) {
		t.Errorf("referred_by: %q", got)
	}
	for _, query := range []string{"colour=red", "name.like=x", "refers_to=pool", "cloud_ref.contains=x", "isearch=(name", "sort=colour"} {
		b.get("/api/pool?" + query).want(400)
	}
}

func TestSortAndLimit(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	for i, name := range []string{"b", "c", "a"} {
		b.create("pool", object{"name": name, "default_server_port": []int{9, 80, 443}[i]})
	}
	for query, want := range map[string][]string{
		"":                                     {"a", "b", "c"},
		"sort=-name":                           {"c", "b", "a"},
		"sort=_last_modified":                  {"b", "c", "a"},
		"sort=default_server_port":             {"b", "c", "a"},
		"sort=-default_server_port&limit_by=2": {"a", "c"},
	} {
		if got := b.get("/api/pool?" + query).want(200).names(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

func TestFieldsExcludeAndSkipDefault(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	uuid := b.create("pool", object{"name": "p", "created_by": "me", "default_server_port": 81})["uuid"].(string)
	keys := func(path string) string {
		got := b.get(path).want(200).json()
		if results, ok := got["results"].([]any); ok {
			got = results[0].(object)
		}
		names := []string{}
		for name := range got {
			names = append(names, name)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if got := keys("/api/pool?fields=created_by"); got != "created_by name url uuid" {
		t.Errorf("fields: %s", got)
	}
	if got := keys("/api/pool/" + uuid + "?fields=created_by,_last_modified"); got != "_last_modified created_by name url uuid" {
		t.Errorf("fields of one: %s", got)
	}
	if got := keys("/api/pool?exclude=lb_algorithm,created_by"); strings.Contains(got, "lb_algorithm ") || strings.Contains(got, "created_by") || !strings.Contains(got, "enabled") {
		t.Errorf("exclude: %s", got)
	}
	if got := keys("/api/pool?skip_default"); got != "_last_modified cloud_ref created_by default_server_port name tenant_ref url uuid vrf_ref" {
		t.Errorf("skip_default: %s", got)
	}
}

func TestIncludeName(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	uuid := b.create("pool", pool("p"))["uuid"].(string)
	for query, want := range map[string]bool{"": false, "?include_name": true, "?include_name=true": true, "?&include_name=true": true, "?include_name=false": false} {
		ref := b.get("/api/pool/" + uuid + query).want(200).json()["cloud_ref"].(string)
		if strings.HasSuffix(ref, "#Default-Cloud") != want || !strings.HasPrefix(ref, b.url+"/api/cloud/cloud-") {
			t.Errorf("%s: %s", query, ref)
		}
	}
}

func TestJoinRuntime(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.create("pool", pool("p", server("10.0.0.1", 61000)))
	got := b.get("/api/pool?join_subresources=runtime").want(200).json()
	if state := at(got, "results", 0, "runtime", "oper_status", "state"); state != "OPER_UP" {
		t.Errorf("%v", got)
	}
}

func TestURLQuirks(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	uuid := b.create("pool", pool("p"))["uuid"].(string)
	for _, path := range []string{
		"//api/pool/", "/api/pool/", "/api//pool", "/api/pool?include_name&name=p", "/api/pool/?&include_name=true&name=p", "//api/pool/?name=p&", "/api/pool/?name=p&export_key",
	} {
		if got := b.get(path).want(200).names(); !slices.Equal(got, []string{"p"}) {
			t.Errorf("%s: %q", path, got)
		}
	}
	b.get("//api/pool/" + uuid + "/").want(200)
	b.get("//api//pool//" + uuid + "?include_name").want(200)
	b.patch("//api/pool/"+uuid+"/", object{"replace": object{"description": "x"}}).want(200)
	b.remove("//api/pool/" + uuid + "/").want(204)
}

func TestUnknownPlaces(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.get("/api/nonsense").want(404)
	b.get("/api").want(404)
	b.get("/elsewhere").want(404)
	b.get("/api/pool/pool-none").want(404).saying(`{"error":"Pool object not found!"}`)
	b.put("/api/pool/pool-none", pool("p")).want(404)
	b.patch("/api/pool/pool-none", object{"add": object{}}).want(404)
	b.remove("/api/pool/pool-none").want(404)
	b.get("/api/pool/pool-none/runtime").want(404)
}

func TestMethodsThatAreNotAllowed(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	uuid := b.create("pool", pool("p"))["uuid"].(string)
	for _, call := range [][2]string{
		{"DELETE", "/api/pool"}, {"PUT", "/api/pool"}, {"POST", "/api/pool/" + uuid}, {"POST", "/api/cluster/runtime"}, {"PATCH", "/api/user-token"},
		{"POST", "/api/pool/" + uuid + "/runtime"}, {"DELETE", "/api/pool/" + uuid + "/runtime/server"},
	} {
		got := b.do(call[0], call[1], object{}).want(405).saying(`{"detail":"Method '` + call[0] + `' not allowed."}`)
		if got.header.Get("Allow") == "" {
			t.Errorf("%v: no Allow", call)
		}
	}
}

func TestClusterAndSystem(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.get("/api/cluster").want(200).saying(`"uuid"`)
	got := b.get("/api/cluster/runtime").want(200).json()
	if at(got, "cluster_state", "state") != "CLUSTER_UP_NO_HA" || at(got, "node_states", 0, "role") != "CLUSTER_LEADER" {
		t.Errorf("%v", got)
	}
	b.get("/api/systemconfiguration").want(200).saying(`"default_license_tier":"ENTERPRISE"`)
	b.get("/api/cluster/nonsense").want(404)
	if h := b.get("/api/pool").header; h.Get("AVI_API_VERSION") == "" || h.Get("Cache-Control") == "" || h.Get("Strict-Transport-Security") == "" {
		t.Errorf("headers %v", h)
	}
}

func TestSeeds(t *testing.T) {
	b := start(t, avisim.Config{Clouds: []string{"other"}, Tenants: []string{"shop"}}).login()
	for path, want := range map[string][]string{
		"/api/tenant": {"admin", "shop"}, "/api/cloud": {"Default-Cloud", "other"}, "/api/network": {"vips"},
		"/api/vrfcontext?cloud_ref.name=other": {"global", "management"}, "/api/serviceenginegroup": {"Default-Group", "Default-Group"},
		"/api/networkprofile?name.contains=Proxy": {"System-SCTP-Proxy", "System-TCP-Proxy"},
		"/api/healthmonitor?name=System-TCP":      {"System-TCP"}, "/api/applicationprofile?name=System-L4-Application": {"System-L4-Application"},
	} {
		if got := b.get(path).want(200).names(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	uuid := at(b.get("/api/healthmonitor?name=System-TCP").json(), "results", 0, "uuid").(string)
	b.remove("/api/healthmonitor/" + uuid).want(400).saying("Cannot delete system default object")
}
