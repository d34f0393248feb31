package bigipsim_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

// Whatever is sent, the answer is one that a client is to blame for, or a good one; and a GET of everything works afterwards.
func FuzzCalls(f *testing.F) {
	for _, seed := range [][3]string{
		{"POST", pools, `{"name":"web","partition":"P","monitor":"min 1 of http","members":[{"name":"10.0.0.1:80"},"/P/x:1"]}`},
		{"PATCH", web, `{"members":[{"name":"2001:db8::1.80","session":"user-disabled","metadata":[{"name":"a"}]}]}`},
		{"PUT", web + "/members/~P~10.0.0.1:80", `{"ratio":"3"}`},
		{"DELETE", nodes + "/~P~10.0.0.1", ``},
		{"POST", virtuals, `{"name":"v","partition":"P","destination":"192.0.2.1:80","profiles":["http",{"name":"tcp"}],"persist":["cookie"],"sourceAddressTranslation":{"type":"snat"},"rules":[1],"vlans":[null]}`},
		{"POST", "/mgmt/tm/ltm/data-group/internal", `{"name":"d","type":"string","records":[{"name":1,"data":2}]}`},
		{"POST", "/mgmt/tm/transaction", `{}`},
		{"POST", "/mgmt/tm/cm", `{"command":"run","options":[{"to-group":1}]}`},
		{"PATCH", "/mgmt/tm/auth/partition/P", `{"defaultRouteDomain":2}`},
		{"POST", "/mgmt/tm/task/sys/config", `{"command":"save"}`},
		{"GET", pools + "?$filter=partition&$top=-1&$skip=x&$select=,", ``},
		{"GET", "/mgmt/tm/ltm/pool/~P~web/members/stats", ``},
		{"GET", "/mgmt/tm/cm/traffic-group/x/stats", ``},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		cfg := bigipsim.Config{}
		prepare(&cfg)
		s, err := bigipsim.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.Admin("POST", pools, `{"name":"web","partition":"P","members":[{"name":"10.0.0.1:80"}]}`)
		call := func(method, path, body string) int {
			request, err := http.NewRequest(method, "https://localhost"+path, strings.NewReader(body))
			if err != nil {
				return 400 // it cannot be sent
			}
			request.SetBasicAuth(username, password)
			w := httptest.NewRecorder()
			s.ServeHTTP(w, request)
			return w.Code
		}
		if status := call(method, path, body); status >= 500 {
			t.Errorf("%s %s %s: %d", method, path, body, status)
		}
		for _, place := range []string{pools, virtuals, nodes} {
			if status := call("GET", place+"?expandSubcollections=true", ""); status != 200 {
				t.Errorf("%s: %d after %s %s %s", place, status, method, path, body)
			}
		}
		if status := call("GET", "/", ""); status != 200 {
			t.Errorf("the page: %d after %s %s %s", status, method, path, body)
		}
	})
}
