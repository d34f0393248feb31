package avisim_test

import (
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

func TestEditByHandIsAChangeLikeAnyOther(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	p := b.create("pool", pool("p", server("10.0.0.1", 1), server("10.0.0.2", 1)))
	if err := l.Edit("pool", "p", func(o map[string]any) { o["servers"] = o["servers"].([]any)[:1] }); err != nil {
		t.Fatal(err)
	}
	b.put("/api/pool/"+p["uuid"].(string), object{"name": "p", "_last_modified": p["_last_modified"]}).want(412)
	if got := ips(l.Snapshot().Object("pool", "p")); len(got) != 1 {
		t.Errorf("%q", got)
	}
	for what, err := range map[string]error{
		"none": l.Edit("pool", "none", func(map[string]any) {}), "cloud_ref": l.Edit("pool", "p", func(o map[string]any) { o["cloud_ref"] = "/api/cloud?name=none" }),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestCreateAndDeleteByHand(t *testing.T) {
	l := start(t, avisim.Config{Tenants: []string{"shop"}})
	b := l.login()
	if _, err := l.Create("pool", "shop", pool("theirs")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Create("pool", "none", pool("x")); err == nil {
		t.Error("created in a tenant that is not there")
	}
	if _, err := l.Create("nonsense", "", pool("x")); err == nil {
		t.Error("created something of no type")
	}
	b.header.Set("X-Avi-Tenant", "shop")
	b.get("/api/pool?name=theirs").want(200).saying(`"count":1`)
	if err := l.Delete("pool", "theirs"); err != nil {
		t.Fatal(err)
	}
	if err := l.Delete("pool", "theirs"); err == nil {
		t.Error("deleted twice")
	}
}

func TestPageShowsVirtualServicesPoolsAndServers(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	off := server("10.0.0.2", 61001)
	off["enabled"] = false
	uuid := b.create("pool", pool("<b>", server("10.0.0.1", 61000), off, server("10.0.0.3", 61002)))["uuid"].(string)
	b.create("vsvip", vsvip("v"))
	b.create("virtualservice", virtualService("web", "v", "%3Cb%3E", 80))
	b.create("pool", pool("alone"))
	l.SetHealth(uuid, "10.0.0.3:61002", avisim.Health{State: avisim.OperDown, Reason: "connection refused"})
	got := l.anonymous().get("/").want(200).saying(
		"web", "192.0.2.10 80/TCP", "&lt;b&gt;", "2 of 3", "10.0.0.1:61000", "10.0.0.2:61001", "OPER_DISABLED", "OPER_DOWN", "connection refused",
		"Pools without a virtual service", "alone", `http-equiv="refresh"`)
	for _, outside := range []string{"<script", "src=", "href=", password} {
		if strings.Contains(string(got.body), outside) {
			t.Errorf("the page has %q", outside)
		}
	}
	l.anonymous().post("/", object{}).want(405)
}

func TestConfigurationThatCannotBe(t *testing.T) {
	for want, cfg := range map[string]avisim.Config{
		"username and password": {},
		"version":               {Username: "a", Password: "b", Version: "new"},
		"range":                 {Username: "a", Password: "b", Networks: []avisim.Network{{Name: "n"}}},
	} {
		if _, err := avisim.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want one about %s", err, want)
		}
	}
}

func TestStartTwice(t *testing.T) {
	l := start(t, avisim.Config{})
	if _, err := l.Start(); err == nil {
		t.Error("no error")
	}
}
