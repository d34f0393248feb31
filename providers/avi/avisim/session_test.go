package avisim_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim"
)

func TestLoginGivesThreeCookiesAndTheVersion(t *testing.T) {
	b := start(t, avisim.Config{}).anonymous()
	got := b.post("/login", object{"username": username, "password": password}).want(200)
	cookies := map[string]*http.Cookie{}
	for _, c := range (&http.Response{Header: got.header}).Cookies() {
		cookies[c.Name] = c
	}
	id, old, csrf := cookies["avi-sessionid"], cookies["sessionid"], cookies["csrftoken"]
	if id == nil || old == nil || csrf == nil {
		t.Fatalf("cookies %v, want csrftoken, avi-sessionid and sessionid", cookies)
	}
	if id.Value != old.Value || !id.HttpOnly || !id.Secure || id.MaxAge != 86400 || csrf.HttpOnly || csrf.MaxAge != 365*86400 {
		t.Errorf("cookies %v", cookies)
	}
	body := got.json()
	if at(body, "version", "Version") != "31.1.1" || body["session_cookie_name"] != "avi-sessionid" || at(body, "controller", "api_idle_timeout") != 15.0 {
		t.Errorf("body %v", body)
	}
	for _, key := range []string{"user_initialized", "user", "tenants", "system_config"} {
		if body[key] == nil {
			t.Errorf("no %s in %v", key, body)
		}
	}
}

func TestLoginTakesAForm(t *testing.T) {
	b := start(t, avisim.Config{}).anonymous()
	b.header.Set("Content-Type", "application/x-www-form-urlencoded")
	b.post("/login", "username="+username+"&password="+password).want(200)
	b.post("/login", "username="+username+"&password=wrong").want(401)
}

func TestLoginRefusesAWrongPassword(t *testing.T) {
	b := start(t, avisim.Config{}).anonymous()
	for _, body := range []object{{"username": username, "password": "wrong"}, {"username": "nobody", "password": password}, {"username": username, "token": "wrong"}, {}} {
		b.post("/login", body).want(401).saying("Invalid credentials")
	}
	b.post("/login", "{").want(400)
	b.get("/login").want(405).saying("Method 'GET' not allowed.")
}

func TestLoginRejectedWith403WhereTheBuildDoesSo(t *testing.T) {
	b := start(t, avisim.Config{Rules: avisim.Rules{RejectedLogin: 403}}).anonymous()
	b.post("/login", object{"username": username, "password": "wrong"}).want(403).saying("Invalid credentials")
}

func TestTwentyRejectedLoginsLockTheAccount(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.anonymous()
	for range 20 {
		b.post("/login", object{"username": username, "password": "wrong"}).want(401)
	}
	right := object{"username": username, "password": password}
	b.post("/login", right).want(401).saying("locked")
	l.pass(30*time.Minute - time.Second)
	b.post("/login", right).want(401).saying("locked")
	l.pass(time.Second)
	b.post("/login", right).want(200)
	if s := l.Snapshot(); s.Logins != 1 || s.RejectedLogins != 22 || s.Locked {
		t.Errorf("%d logins, %d rejected, locked %t", s.Logins, s.RejectedLogins, s.Locked)
	}
}

func TestASuccessfulLoginForgetsTheFailures(t *testing.T) {
	b := start(t, avisim.Config{MaxLoginFailures: 2}).anonymous()
	for range 3 {
		b.post("/login", object{"username": username, "password": "wrong"}).want(401)
		b.post("/login", object{"username": username, "password": password}).want(200)
	}
}

func TestNothingWithoutASession(t *testing.T) {
	b := start(t, avisim.Config{}).anonymous()
	for _, path := range []string{"/api/pool", "/api/cluster/runtime", "/api/user-token", "/api/nonsense"} {
		b.get(path).want(401)
	}
	b.post("/api/pool", pool("p")).want(401)
	b.get("/api/initial-data").want(200).saying(`"Version":"31.1.1"`)
	b.header.Set("Cookie", "avi-sessionid=made-up; sessionid=made-up")
	b.get("/api/pool").want(401)
}

func TestSessionEndsWhenIdle(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	for range 4 {
		l.pass(15*time.Minute - time.Second)
		b.get("/api/pool").want(200)
	}
	l.pass(15 * time.Minute)
	b.get("/api/pool").want(401)
	b.get("/api/pool").want(401)
}

func TestSessionEndsAfterADayOfUse(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	for range 24*6 - 1 {
		l.pass(10 * time.Minute)
		b.get("/api/pool").want(200)
	}
	l.pass(10 * time.Minute)
	b.get("/api/pool").want(401)
}

func TestLogoutEndsTheSession(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.get("/logout").want(405)
	b.post("/logout", object{}).want(200)
	b.get("/api/pool").want(401)
}

func TestTheOldestSessionGoesWhenThereAreTooMany(t *testing.T) {
	l := start(t, avisim.Config{MaxSessions: 2})
	first := l.login()
	l.pass(time.Second)
	second := l.login()
	l.pass(time.Second)
	third := l.login()
	first.get("/api/pool").want(401)
	second.get("/api/pool").want(200)
	third.get("/api/pool").want(200)
}

func TestWritesNeedTheCSRFToken(t *testing.T) {
	l := start(t, avisim.Config{})
	for name, spoil := range map[string]func(*browser){
		"no header":        func(b *browser) { b.header.Del("X-CSRFToken") },
		"another token":    func(b *browser) { b.header.Set("X-CSRFToken", strings.Repeat("x", 32)) },
		"of another login": func(b *browser) { b.header.Set("X-CSRFToken", l.login().header.Get("X-CSRFToken")) },
		"no cookie":        func(b *browser) { b.setCSRFCookie("") },
		"another cookie":   func(b *browser) { b.setCSRFCookie("csrftoken=" + strings.Repeat("x", 32)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := l.login()
			spoil(b)
			got := b.post("/api/pool", pool("p")).want(401)
			if string(got.body) != "CSRF token missing or incorrect." || !strings.HasPrefix(got.header.Get("Content-Type"), "text/plain") {
				t.Errorf("%q as %s, want plain text", got.body, got.header.Get("Content-Type"))
			}
			for _, method := range []string{"PUT", "PATCH", "DELETE"} {
				b.do(method, "/api/pool/x", object{}).want(401)
			}
			b.get("/api/pool").want(200)
		})
	}
}

// setCSRFCookie replaces the cookie csrftoken; "" leaves it out.
func (b *browser) setCSRFCookie(cookie string) {
	cookies := []string{cookie}
	for _, c := range b.cookies() {
		if c.Name != "csrftoken" {
			cookies = append(cookies, c.Name+"="+c.Value)
		}
	}
	b.http.Jar = nil
	b.header.Set("Cookie", strings.Trim(strings.Join(cookies, "; "), "; "))
}

func TestWritesNeedARefererOfTheSameHost(t *testing.T) {
	l := start(t, avisim.Config{})
	for _, referer := range []string{"", "https://elsewhere.example/", strings.Replace(l.url, "https", "http", 1) + "/", "::"} {
		b := l.login()
		b.header.Set("Referer", referer)
		if referer == "" {
			b.header.Del("Referer")
		}
		b.post("/api/pool", pool("p")).want(401).saying("Referer checking failed")
		b.get("/api/pool").want(200)
	}
}

func TestReadsNeedTheCSRFTokenWhereTheRuleSaysSo(t *testing.T) {
	b := start(t, avisim.Config{Rules: avisim.Rules{CSRFOnReads: true}}).login()
	b.get("/api/pool").want(200)
	b.header.Del("X-CSRFToken")
	b.get("/api/pool").want(401)
}

func TestBasicAuthenticationOnlyWhereItIsAllowed(t *testing.T) {
	for allowed, status := range map[bool]int{false: 401, true: 200} {
		b := start(t, avisim.Config{BasicAuth: allowed}).anonymous()
		request, _ := http.NewRequest(http.MethodGet, b.url, nil)
		request.SetBasicAuth(username, password)
		b.header.Set("Authorization", request.Header.Get("Authorization"))
		b.get("/api/pool").want(status)
		request.SetBasicAuth(username, "wrong")
		b.header.Set("Authorization", request.Header.Get("Authorization"))
		b.get("/api/pool").want(401)
	}
}

func TestFreshCookiesBy419(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	before := b.header.Get("X-CSRFToken")
	l.Fail(avisim.Fault{Kind: avisim.RefreshSession, Method: "POST"})
	b.post("/api/pool", pool("p")).want(419)
	b.post("/api/pool", pool("p")).want(401) // the token is of the cookie before
	b.adopt()
	if b.header.Get("X-CSRFToken") == before {
		t.Error("the CSRF token is the same")
	}
	b.post("/api/pool", pool("p")).want(201)
	if n := l.Snapshot().Logins; n != 1 {
		t.Errorf("%d logins, want the one", n)
	}
}

func TestUserTokenLogsIn(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	made := b.post("/api/user-token", object{"hours": 2}).want(201).json()
	byToken := object{"username": username, "token": made["token"]}
	l.anonymous().post("/login", byToken).want(200)
	l.anonymous().post("/login", object{"username": "nobody", "token": made["token"]}).want(401)
	l.pass(2*time.Hour - time.Second)
	l.anonymous().post("/login", byToken).want(200)
	l.pass(time.Second)
	l.anonymous().post("/login", byToken).want(401)
	if made["expires_at"] == nil || made["username"] != username {
		t.Errorf("%v", made)
	}
}

func TestUserTokenOfNoHoursIsForOneLogin(t *testing.T) {
	l := start(t, avisim.Config{})
	made := l.login().post("/api/user-token", object{"hours": 0}).want(201).json()
	l.anonymous().post("/login", object{"username": username, "token": made["token"]}).want(200)
	l.anonymous().post("/login", object{"username": username, "token": made["token"]}).want(401)
}

func TestUserTokenIsListedWithoutItsSecretAndDeleted(t *testing.T) {
	l := start(t, avisim.Config{})
	b := l.login()
	made := b.post("/api/user-token", object{"hours": 87600}).want(201).json()
	for _, hours := range []any{87601, -1, "1", nil} {
		b.post("/api/user-token", object{"hours": hours}).want(400)
	}
	list := b.get("/api/user-token").want(200)
	if list.json()["count"] != 1.0 || strings.Contains(string(list.body), made["token"].(string)) {
		t.Errorf("%s", list.body)
	}
	uuid := made["uuid"].(string)
	b.remove("/api/user-token/" + uuid).want(204)
	b.remove("/api/user-token/" + uuid).want(404)
	l.anonymous().post("/login", object{"username": username, "token": made["token"]}).want(401)
}

func TestTenantMustExist(t *testing.T) {
	b := start(t, avisim.Config{Tenants: []string{"shop"}}).login()
	b.header.Set("X-Avi-Tenant", "nobody")
	b.get("/api/pool").want(403).saying("Tenant 'nobody' does not exist!")
	b.header.Set("X-Avi-Tenant", "shop")
	b.create("pool", pool("p"))
	b.header.Del("X-Avi-Tenant")
	if got := b.get("/api/pool").want(200).names(); len(got) != 0 {
		t.Errorf("admin sees %q of shop", got)
	}
	uuid := at(b.get("/api/tenant?name=shop").want(200).json(), "results", 0, "uuid").(string)
	b.header.Set("X-Avi-Tenant-UUID", uuid)
	if got := b.get("/api/pool").want(200).names(); !slices.Equal(got, []string{"p"}) {
		t.Errorf("by UUID: %q, want p", got)
	}
	b.header.Set("X-Avi-Tenant-UUID", "tenant-none")
	b.get("/api/pool").want(403)
}

func TestAllTenantsAreForReading(t *testing.T) {
	b := start(t, avisim.Config{Tenants: []string{"shop"}}).login()
	b.create("pool", pool("a"))
	b.header.Set("X-Avi-Tenant", "shop")
	b.create("pool", pool("b"))
	b.header.Set("X-Avi-Tenant", "*")
	if got := b.get("/api/pool").want(200).names(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q, want both", got)
	}
	b.post("/api/pool", pool("c")).want(400)
}

func TestObjectsOfAdminAreSeenByTenantsAndNotChanged(t *testing.T) {
	b := start(t, avisim.Config{Tenants: []string{"shop"}}).login()
	b.header.Set("X-Avi-Tenant", "shop")
	uuid := at(b.get("/api/healthmonitor?name=System-TCP").want(200).json(), "results", 0, "uuid").(string)
	b.patch("/api/healthmonitor/"+uuid, object{"replace": object{"send_interval": 1}}).want(403)
	b.remove("/api/healthmonitor/" + uuid).want(403)
}

func TestRoleLimitsWhatTheUserMayDo(t *testing.T) {
	b := start(t, avisim.Config{Role: []avisim.Privilege{
		{Type: "WRITE_ACCESS", Resource: "PERMISSION_POOL"}, {Type: "READ_ACCESS", Resource: "PERMISSION_CLOUD"}, {Type: "NO_ACCESS", Resource: "PERMISSION_NETWORK"},
	}}).login()
	b.create("pool", pool("p"))
	b.get("/api/cloud").want(200)
	b.post("/api/cloud", object{"name": "c"}).want(403).saying("PERMISSION_CLOUD")
	b.get("/api/network").want(403).saying("PERMISSION_NETWORK")
	b.get("/api/virtualservice").want(403).saying("PERMISSION_VIRTUALSERVICE")
}

func TestVersionOfTheRequestChoosesTheSchema(t *testing.T) {
	b := start(t, avisim.Config{Version: "31.2.1"}).login()
	b.header.Set("X-Avi-Version", "31.2.1")
	p := b.create("pool", object{"name": "p", "graceful_disable_timeout_sec": 90})
	if p["graceful_disable_timeout"] != nil || p["graceful_disable_timeout_sec"] != 90.0 {
		t.Errorf("31.2.1 shows %v minutes, %v seconds", p["graceful_disable_timeout"], p["graceful_disable_timeout_sec"])
	}
	b.header.Set("X-Avi-Version", "22.1.3")
	old := b.get("/api/pool/" + p["uuid"].(string)).want(200).json()
	if old["graceful_disable_timeout"] != 2.0 || old["graceful_disable_timeout_sec"] != nil || old["graceful_hm_down_disable_timeout"] != nil {
		t.Errorf("22.1.3 shows %v", old)
	}
}

func TestFieldOfALaterVersionIsRefused(t *testing.T) {
	b := start(t, avisim.Config{}).login()
	b.header.Set("X-Avi-Version", "22.1.3")
	b.post("/api/pool", object{"name": "p", "graceful_hm_down_disable_timeout": 5}).want(400).saying("graceful_hm_down_disable_timeout", "30.2.1", "22.1.3")
	b.header.Del("X-Avi-Version") // the oldest
	b.post("/api/pool", object{"name": "p", "markers": []object{{"key": "a"}}}).want(400).saying("markers", "20.1.5")
	kept := start(t, avisim.Config{Rules: avisim.Rules{LaterFields: true}}).login()
	kept.header.Set("X-Avi-Version", "22.1.3")
	kept.post("/api/pool", object{"name": "p", "graceful_hm_down_disable_timeout": 5}).want(201)
}

func TestFieldThatIsGoneIsRefused(t *testing.T) {
	b := start(t, avisim.Config{Version: "31.2.1"}).login()
	b.header.Set("X-Avi-Version", "31.2.1")
	b.post("/api/pool", object{"name": "p", "graceful_disable_timeout": 1}).want(400).saying("graceful_disable_timeout", "31.2.1")
}

func TestVersionNewerThanTheControllerIsRefused(t *testing.T) {
	b := start(t, avisim.Config{Version: "22.1.3"}).login()
	for _, version := range []string{"30.2.1", "new", "22.1"} {
		b.header.Set("X-Avi-Version", version)
		b.get("/api/pool").want(400).saying(version, "22.1.3")
	}
}
