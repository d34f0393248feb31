package client

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/nplbridge/nplbridge/providers"
)

func TestErrors(t *testing.T) {
	icrd := func(code int, message string, api int) string {
		text, _ := json.Marshal(map[string]any{"code": code, "message": message, "errorStack": []string{}, "apiError": api})
		return string(text)
	}
	restjavad := func(code int, message string) string {
		text, _ := json.Marshal(map[string]any{"code": code, "message": message, "referer": "Unknown", "restOperationId": 1234, "kind": ":resterrorresponse"})
		return string(text)
	}
	for _, c := range []struct {
		status    int
		body      string
		code      string
		message   string // begins with
		kind      providers.Kind
		temporary bool
		notFound  bool
	}{
		{404, icrd(404, "01020036:3: The requested Pool (/P/x) was not found.", 3), CodeNotFound, "01020036:3: The requested Pool", providers.Conflict, false, true},
		{404, icrd(404, "Object not found - /P/10.0.0.1:80", 1), "", "Object not found", providers.Conflict, false, true},
		{400, icrd(400, "01070734:3: Configuration error: Can't associate Pool Member (x) folder does not exist", 3), CodeNoFolder, "01070734", providers.Misconfigured, false, false},
		{400, icrd(400, "01070734:3: Configuration error: Device group (G) not found in device group sync", 3), CodeNoFolder, "01070734", providers.Rejected, false, false},
		{400, icrd(400, "The requested folder (/P) was not found.", 26214401), "", "The requested folder", providers.Misconfigured, false, false},
		{409, icrd(409, "01020066:3: The requested Pool (/P/x) already exists in partition P.", 3), CodeExists, "01020066", providers.Conflict, false, false},
		{400, icrd(400, "01070110:3: Node address '/P/n' is referenced by a member of pool '/P/p'.", 3), CodeNodeInUse, "01070110", providers.Rejected, false, false},
		{400, icrd(400, "transaction failed:01070333:3: Virtual Server A illegally shares", 2), CodeVirtualClash, "transaction failed:01070333", providers.Rejected, false, false},
		{400, icrd(400, "0107176C:3: Invalid Node, the IP address X already exists.", 3), CodeAddressTaken, "0107176C", providers.Rejected, false, false},
		{400, icrd(400, "one or more properties must be specified", 26214401), "", "one or more", providers.Rejected, false, false},
		{500, icrd(500, "The connection to mcpd has been lost, try again.", 32768001), "", "The connection", providers.Unavailable, true, false},
		{503, icrd(503, "There is an active asynchronous task executing.", 32964609), "", "There is", providers.Unavailable, true, false},
		{404, restjavad(404, "URI path /mgmt/tm/ltm not registered.  Please verify URI is supported and wait for /available suffix to be responsive."), "", "URI path", providers.Unavailable, true, false},
		{404, restjavad(404, "Public URI path not registered: /tm/ltm"), "", "Public URI", providers.Unavailable, true, false},
		{401, restjavad(401, "X-F5-Auth-Token has expired."), "", "X-F5-Auth-Token", providers.Misconfigured, false, false},
		{503, "<html><head><title>503</title></head><body><h1>Configuration Utility restarting...</h1></body></html>", "", "Configuration Utility restarting...", providers.Unavailable, true, false},
		{502, "", "", "Bad Gateway", providers.Unavailable, false, false},
		{429, "slow down", "", "slow down", providers.Throttled, false, false},
		{503, `{"code":503,"message":"There is an active asyn`, "", "There is an active asyn", providers.Unavailable, true, false},
		{400, `{"code":400,"message":"01070333:3: Virtual \"x\" illeg`, CodeVirtualClash, `01070333:3: Virtual "x" illeg`, providers.Rejected, false, false},
		{302, "moved", "", "moved", providers.Unavailable, false, false},
		{400, `{"apiError": "x", "message": 7}`, "", "", providers.Rejected, false, false},
	} {
		e := decodeError("GET x", c.status, []byte(c.body))
		if e.Code != c.code || !strings.HasPrefix(e.Message, c.message) || e.kind() != c.kind || e.temporary() != c.temporary || NotFound(e) != c.notFound {
			t.Errorf("%d %s:\n%+v kind %s, temporary %v, not found %v", c.status, c.body, e, e.kind(), e.temporary(), NotFound(e))
		}
	}
}

func FuzzDecodeError(f *testing.F) {
	f.Add(400, []byte(`{"code":400,"message":"01070333:3: x","errorStack":[],"apiError":3}`))
	f.Add(503, []byte("<html><body>x"))
	f.Add(500, []byte(`{"message":"cut \u00`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		e := decodeError("GET x", status, body, "secret")
		if len(e.Message) > 512 || !utf8.ValidString(e.Message) || strings.Contains(e.Message, "secret") || (e.Code != "" && len(e.Code) != 8) {
			t.Errorf("%+v", e)
		}
		_ = e.kind()
	})
}

// TestBIGIP44TransactionNumbers: sixteen digits are more than a float64 prints as they are.
func TestBIGIP44TransactionNumbers(t *testing.T) {
	for body, want := range map[string]int64{
		`{"transId": 1389812351123456, "state": "STARTED"}`: 1389812351123456,
		`{"transId": 9007199254740993}`:                     9007199254740993, // the first that a float64 cannot hold
		`{"transId": 9223372036854775807}`:                  9223372036854775807,
	} {
		if id, err := transactionID([]byte(body)); err != nil || id != want {
			t.Errorf("%s: %d, %v", body, id, err)
		}
	}
	for _, body := range []string{`{}`, `{"transId": 0}`, `{"transId": -1}`, `{"transId": 1.5e15}`, `{"transId": "x"}`, `[]`, ``} {
		if id, err := transactionID([]byte(body)); err == nil {
			t.Errorf("%s: %d", body, id)
		}
	}
}

func TestTokens(t *testing.T) {
	for body, want := range map[string]tokenItem{
		`{"username":"u","token":{"token":"T","name":"T","timeout":1200,"kind":"shared:authz:tokens:authtokenitemstate"}}`: {"T", 1200},
		`{"token":"T","name":"T","userName":"u","timeout":36000}`:                                                          {"T", 36000},
	} {
		if got, err := decodeToken([]byte(body)); err != nil || got != want {
			t.Errorf("%s: %v, %v", body, got, err)
		}
	}
	for _, body := range []string{`{}`, `{"token":{}}`, `{"token":7}`, `{"token":""}`, `[]`, `<html>`, ``} {
		if got, err := decodeToken([]byte(body)); err == nil {
			t.Errorf("%s: %v", body, got)
		}
	}
}

func FuzzDecodeToken(f *testing.F) {
	f.Add([]byte(`{"token":{"token":"T","timeout":1200}}`))
	f.Add([]byte(`{"token":"T","timeout":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, err := decodeToken(body); err == nil && got.Token == "" {
			t.Error("a token that is none")
		}
	})
}

func FuzzDecodeStats(f *testing.F) {
	f.Add([]byte(`{"entries":{"https://localhost/x/stats":{"nestedStats":{"entries":{"addr":{"description":"10.0.0.1"},"port":{"value":80}}}}}}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		stats, _ := decodeStats(body)
		for _, s := range stats {
			_ = s.Text("addr")
		}
	})
}

func TestPaths(t *testing.T) {
	for got, want := range map[string]string{
		Pools.Object("/P/web"):                            "/mgmt/tm/ltm/pool/~P~web",
		Pools.Object("/P/app/web"):                        "/mgmt/tm/ltm/pool/~P~app~web",
		Nodes.Object("/P/10.0.0.1%2"):                     "/mgmt/tm/ltm/node/~P~10.0.0.1%252",
		Member("/P/web", "/P/10.0.0.1%2:61000"):           "/mgmt/tm/ltm/pool/~P~web/members/~P~10.0.0.1%252:61000",
		Member("/P/web", "/Common/2001:db8::1.61000"):     "/mgmt/tm/ltm/pool/~P~web/members/~Common~2001:db8::1.61000",
		Partitions.Object("P"):                            "/mgmt/tm/auth/partition/P",
		Monitors("tcp-half-open").Path():                  "/mgmt/tm/ltm/monitor/tcp-half-open",
		endpoint(Member("/P/web", "/P/10.0.0.1:61000")):   "ltm/pool/members",
		endpoint("/mgmt/tm/ltm/pool?$top=200"):            "ltm/pool",
		endpoint("/mgmt/tm/transaction/1389812351123456"): "transaction",
		endpoint("/mgmt/shared/authz/tokens/SECRET"):      "token",
		endpoint(Partitions.Object("secret-name")):        "auth/partition",
		endpoint("/mgmt/shared/appsvcs/declare/tenant"):   "as3",
		endpoint(Monitors("gateway-icmp").Object("/P/m")): "ltm/monitor/gateway-icmp",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestPathsRoundTrip: a server that decodes an element once gets the name back, whatever is in it.
func TestPathsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := "/P/" + rapid.StringMatching(`[A-Za-z0-9_.:% ?#&;+-]{1,40}`).Draw(t, "name")
		u, err := url.Parse("https://device" + Pools.Object(name) + "?expandSubcollections=true")
		if err != nil {
			t.Fatal(err)
		}
		raw := u.EscapedPath()
		text, err := url.PathUnescape(raw[strings.LastIndexByte(raw, '/')+1:])
		if err != nil || strings.ReplaceAll(text, "~", "/") != name || u.RawQuery != "expandSubcollections=true" {
			t.Fatalf("%q became %q (%v)", name, text, err)
		}
		if strings.Contains(endpoint(Pools.Object(name)), name[3:]) && len(name) > 8 {
			t.Fatalf("%q stands in the endpoint %q", name, endpoint(Pools.Object(name)))
		}
	})
}

func TestErrorText(t *testing.T) {
	e := &StatusError{Status: 400, What: "GET x", Message: "no"}
	if got := fmt.Sprint(e); got != "GET x: 400 no" {
		t.Error(got)
	}
}
