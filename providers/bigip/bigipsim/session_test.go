package bigipsim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

func TestLoginAnswersANestedToken(t *testing.T) {
	l := start(t, bigipsim.Config{})
	got := l.anonymous().post("/mgmt/shared/authn/login", credentials).want(200).json()
	if got["username"] != username || got["loginProviderName"] != "tmos" || at(got, "loginReference", "link") == nil || got["generation"] != 0.0 || got["lastUpdateMicros"] != 0.0 {
		t.Errorf("%v", got)
	}
	token := at(got, "token").(object)
	id := token["token"].(string)
	for name, want := range map[string]any{
		"name": id, "userName": username, "authProviderName": "tmos", "timeout": 1200.0, "partition": "[All]", "kind": "shared:authz:tokens:authtokenitemstate",
		"selfLink": "https://localhost/mgmt/shared/authz/tokens/" + id, "expirationMicros": float64(l.clock.Now().Add(20 * time.Minute).UnixMicro()),
	} {
		if token[name] != want {
			t.Errorf("token.%s is %v, want %v", name, token[name], want)
		}
	}
	if token["startTime"] == nil || token["address"] == nil || at(token, "user", "link") == nil {
		t.Errorf("token %v", token)
	}
}

func TestTokenLives1200Seconds(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	l.pass(1199 * time.Second)
	s.get(pools).want(200)
	l.pass(time.Second)
	s.get(pools).denied(401, "X-F5-Auth-Token has expired.")
}

func TestTokenThatDoesNotExist(t *testing.T) {
	s := start(t, bigipsim.Config{}).anonymous()
	s.header.Set("X-F5-Auth-Token", "NONSENSE")
	s.get(pools).denied(401, "X-F5-Auth-Token does not exist.")
}

func TestNoCredentialsAtAll(t *testing.T) {
	start(t, bigipsim.Config{}).anonymous().get(pools).
		denied(401, "Authorization failed: no user authentication header or token detected. Uri:http://localhost:8100/mgmt/tm/ltm/pool Referrer:")
}

// The answer is the token itself, not what a login answers.
func TestPatchOfATokenAnswersAFlatToken(t *testing.T) {
	for name, rules := range map[string]bigipsim.Rules{"from the patch": {}, "from the login": {TokenFromStart: true}} {
		t.Run(name, func(t *testing.T) {
			l := start(t, bigipsim.Config{Rules: rules})
			s := l.login()
			place := "/mgmt/shared/authz/tokens/" + s.header.Get("X-F5-Auth-Token")
			l.pass(1000 * time.Second)
			got := s.patch(place, object{"timeout": 2000}).want(200).json()
			if got["token"] != s.header.Get("X-F5-Auth-Token") || got["timeout"] != 2000.0 || got["kind"] != "shared:authz:tokens:authtokenitemstate" {
				t.Errorf("%v", got)
			}
			if flat := s.get(place).want(200).json(); flat["token"] != got["token"] {
				t.Errorf("GET %v", flat)
			}
			l.pass(1500 * time.Second)
			want := 200
			if rules.TokenFromStart {
				want = 401
			}
			s.get(pools).want(want)
		})
	}
}

func TestTokenLives36000SecondsAtMost(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	place := "/mgmt/shared/authz/tokens/" + s.header.Get("X-F5-Auth-Token")
	s.patch(place, object{"timeout": 36001}).denied(406, "Auth-token absolute timeout (36000 seconds) exceeded")
	s.patch(place, object{"timeout": "long"}).want(400)
	s.patch(place, object{"timeout": 36000}).want(200)
	l.pass(30000 * time.Second)
	s.patch(place, object{"timeout": 36000}).want(200) // ends 36000 seconds after the login all the same
	l.pass(6000 * time.Second)
	s.get(pools).want(401)
}

func TestLogout(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.remove("/mgmt/shared/authz/tokens/" + s.header.Get("X-F5-Auth-Token")).want(200)
	s.get(pools).denied(401, "X-F5-Auth-Token does not exist.")
	if _, _, tokens := s.l.Logins(); tokens != 0 {
		t.Errorf("%d tokens are left", tokens)
	}
}

func TestHundredTokensForAUser(t *testing.T) {
	l := start(t, bigipsim.Config{})
	var last *session
	for range 100 {
		last = l.login()
	}
	l.anonymous().post("/mgmt/shared/authn/login", credentials).denied(400, "user lb has reached maximum active login tokens")
	last.get(pools).want(200)
	last.remove("/mgmt/shared/authz/tokens/" + last.header.Get("X-F5-Auth-Token")).want(200)
	l.login()
	l.pass(1200 * time.Second)
	l.login() // the others have expired
}

func TestAdminHasAnyNumberOfTokens(t *testing.T) {
	l := start(t, bigipsim.Config{Username: "admin"})
	for range 101 {
		l.anonymous().post("/mgmt/shared/authn/login", object{"username": "admin", "password": password}).want(200)
	}
}

func TestWrongPassword(t *testing.T) {
	l := start(t, bigipsim.Config{Rules: bigipsim.Rules{MaxLoginFailures: 3}})
	wrong := object{"username": username, "password": "wrong", "loginProviderName": "tmos"}
	l.anonymous().post("/mgmt/shared/authn/login", wrong).denied(401, "Authentication failed.")
	s := l.basic()
	s.user[1] = "wrong"
	if got := s.get(pools).want(401); !strings.Contains(got.body, "<html>") || got.header.Get("WWW-Authenticate") == "" {
		t.Errorf("%v %s", got.header, got.body)
	}
	l.login() // counts from the beginning
	for range 3 {
		l.anonymous().post("/mgmt/shared/authn/login", wrong).want(401)
	}
	l.anonymous().post("/mgmt/shared/authn/login", credentials).want(401) // locked
	l.pass(10 * time.Minute)
	l.login()
	l.anonymous().post("/mgmt/shared/authn/login", object{"username": username, "password": password, "loginProviderName": "nobody"}).want(401)
}

func TestBasicAuthenticationWorksOnEveryCall(t *testing.T) {
	s := start(t, bigipsim.Config{}).basic()
	s.create(pools, pool())
	s.get(web).want(200)
	if _, _, tokens := s.l.Logins(); tokens != 0 {
		t.Errorf("%d tokens", tokens)
	}
}

func TestTokensEndWithARestart(t *testing.T) {
	for _, survive := range []bool{false, true} {
		t.Run(fmt.Sprint(survive), func(t *testing.T) {
			s := start(t, bigipsim.Config{Rules: bigipsim.Rules{TokensSurviveRestart: survive}}).login()
			s.l.Reboot()
			want := 401
			if survive {
				want = 200
			}
			s.get(pools).want(want)
		})
	}
}

// No answer, no page and no call that is remembered has the password.
func TestPasswordIsNowhere(t *testing.T) {
	l := start(t, bigipsim.Config{})
	s := l.login()
	s.create("/mgmt/tm/ltm/monitor/http", object{"name": "m", "partition": "P", "username": "probe", "password": "monitor-password"})
	seen := s.get("/mgmt/tm/ltm/monitor/http").body + l.anonymous().get("/").body
	for _, c := range l.Calls() {
		if strings.Contains(c.Path, "/authn/") {
			seen += fmt.Sprint(c)
		}
	}
	if strings.Contains(seen, password) || strings.Contains(seen, "monitor-password") {
		t.Error("a password is shown")
	}
}
