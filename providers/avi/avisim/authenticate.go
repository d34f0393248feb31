package avisim

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// request is a call to /api after it was admitted.
type request struct {
	*http.Request
	path    []string // below /api
	query   url.Values
	body    []byte
	session session // zero with basic authentication
	version schema.Version
	tenant  string // UUID of the tenant
	all     bool   // X-Avi-Tenant: *
}

func (r *request) host(s *Server) string {
	if s.cfg.URLHost != "" {
		return s.cfg.URLHost
	}
	return r.Host
}

// login answers /login.
func (s *Server) login(r *http.Request, body []byte) *reply {
	if r.Method != http.MethodPost {
		return notAllowed(r.Method, "POST").reply
	}
	c, ok := readCredentials(r.Header.Get("Content-Type"), body)
	if !ok {
		return refuse(http.StatusBadRequest, "Malformed login request").reply
	}
	session, locked := s.accounts.login(c)
	switch {
	case locked:
		return refuse(s.cfg.Rules.RejectedLogin, "Account is locked after too many failed logins").reply
	case session == nil:
		return refuse(s.cfg.Rules.RejectedLogin, "Invalid credentials").reply
	}
	out := jsonReply(http.StatusOK, s.welcome())
	session.setCookies(out.header)
	return out
}

func (s *Server) logout(r *http.Request) *reply {
	if r.Method != http.MethodPost {
		return notAllowed(r.Method, "POST").reply
	}
	session, err := s.sessionOf(r)
	if err != nil {
		return err.reply
	}
	if err := checkCSRF(r, session); err != nil {
		return err.reply
	}
	s.accounts.end(session.id)
	return jsonReply(http.StatusOK, map[string]any{})
}

// admit checks session, CSRF token, version and tenant.
func (s *Server) admit(r *http.Request, body []byte) (*request, *refusal) {
	out := &request{Request: r, body: body, query: r.URL.Query()}
	if !s.accounts.basic(r) {
		session, err := s.sessionOf(r)
		if err != nil {
			return nil, err
		}
		out.session = session
		if writes(r.Method) || s.cfg.Rules.CSRFOnReads {
			if err := checkCSRF(r, session); err != nil {
				return nil, err
			}
		}
	}
	text := r.Header.Get("X-Avi-Version")
	if text == "" {
		text = s.cfg.Rules.OldestVersion
	}
	version, err := schema.ParseVersion(text)
	if err != nil || version.After(s.version) {
		return nil, refuse(http.StatusBadRequest, "X-Avi-Version %.40q is not supported by this Controller, whose version is %s", text, s.version)
	}
	out.version = version
	return out, s.enterTenant(out)
}

func (s *Server) sessionOf(r *http.Request) (session, *refusal) {
	var ids []string
	for _, c := range r.Cookies() {
		if c.Name == sessionCookie || c.Name == oldSessionCookie {
			ids = append(ids, c.Value)
		}
	}
	if ids = slices.Compact(ids); len(ids) == 1 {
		if session, ok := s.accounts.touch(ids[0]); ok {
			return session, nil
		}
	}
	return session{}, refuseDetail(http.StatusUnauthorized, "Authentication credentials were not provided.")
}

func writes(method string) bool {
	return !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, method)
}

// checkCSRF wants the token of the cookie in the header, too, and a Referer of the same host. Its answers are plain text.
func checkCSRF(r *http.Request, session session) *refusal {
	text := func(message string) *refusal { return &refusal{textReply(http.StatusUnauthorized, message)} }
	cookie, err := r.Cookie(csrfCookie)
	if err != nil || cookie.Value != session.csrf || r.Header.Get("X-CSRFToken") != session.csrf {
		return text("CSRF token missing or incorrect.")
	}
	referer, err := url.Parse(r.Header.Get("Referer"))
	switch {
	case r.Header.Get("Referer") == "":
		return text("Referer checking failed - no Referer.")
	case err != nil || referer.Scheme != "https":
		return text("Referer checking failed - Referer is insecure while host is secure.")
	case !strings.EqualFold(referer.Host, r.Host):
		return text("Referer checking failed - Referer does not match any trusted origins.")
	}
	return nil
}

// enterTenant finds the tenant that the request is for; without a header it is admin.
func (s *Server) enterTenant(r *request) *refusal {
	name, uuid := r.Header.Get("X-Avi-Tenant"), r.Header.Get("X-Avi-Tenant-UUID")
	if name == "*" || uuid == "*" {
		r.all, r.tenant = true, adminTenant
		if writes(r.Method) {
			return refuse(http.StatusBadRequest, "A tenant is required to change objects, * is for reading")
		}
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if uuid == "" && name == "" {
		name = "admin"
	}
	for _, t := range s.store.byKind["tenant"] {
		if (uuid != "" && t.uuid == uuid) || (uuid == "" && t.name() == name) {
			r.tenant = t.uuid
			return nil
		}
	}
	if uuid != "" {
		name = uuid
	}
	return refuse(http.StatusForbidden, "Tenant '%s' does not exist!", name)
}

// permit asks the user's role.
func (s *Server) permit(r *request, k *schema.Kind) *refusal {
	if s.cfg.Role == nil {
		return nil
	}
	for _, p := range s.cfg.Role {
		if p.Resource == k.Resource && (p.Type == "WRITE_ACCESS" || p.Type == "READ_ACCESS" && !writes(r.Method)) {
			return nil
		}
	}
	return refuse(http.StatusForbidden, "User does not have permission %s to %s %s", k.Resource, r.Method, k.Type)
}

func notAllowed(method, allow string) *refusal {
	r := refuseDetail(http.StatusMethodNotAllowed, "Method '%s' not allowed.", method)
	r.reply.with("Allow", allow)
	return r
}
