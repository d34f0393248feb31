package avisim_test

import (
	"testing"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

func TestSmoke(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	p := b.create("pool", pool("a", server("10.0.0.1", 61000)))
	t.Log(p)
	b.create("vsvip", vsvip("a"))
	vs := b.create("virtualservice", virtualService("a", "a", "a", 80))
	t.Log(vs)
	t.Log(string(b.get("/").want(200).body))
	t.Log(b.get("//api/pool/?include_name&name=a").want(200).json())
	b.patch("/api/pool/"+p["uuid"].(string), object{"add": object{"servers": []object{server("10.0.0.2", 61000)}}}).want(200)
	t.Log(string(b.get("/api/pool/" + p["uuid"].(string) + "/runtime/server").want(200).body))
	b.remove("/api/pool/" + p["uuid"].(string)).want(400).saying("referred by: ['VirtualService a']")
}
