package avisim

import (
	"net/http"
	"time"
)

// Mode is the state of the Controller as a whole.
type Mode int

// The modes: up; while it starts everything answers 503 with an HTML page; while it is upgraded every write answers 403.
const (
	Up Mode = iota
	Starting
	Upgrading
)

// SetMode changes the mode.
func (s *Server) SetMode(m Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
}

// SetDelay changes how long each call takes beyond its work.
func (s *Server) SetDelay(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = d
}

func (s *Server) versionInfo() map[string]any {
	return map[string]any{
		"Version": s.version.String(), "Tag": s.version.String() + "-9000-simulated", "build": 9000, "Date": "2026-01-01T00:00:00+00:00",
		"min_version": 18.2, "ProductName": "controller", "Product": "controller",
	}
}

// welcome is the body of a login.
func (s *Server) welcome() map[string]any {
	s.mu.RLock()
	defer s.mu.RUnlock()
	tenants := []any{}
	for _, t := range s.store.of("tenant") {
		tenants = append(tenants, map[string]any{"uuid": t.uuid, "name": t.name(), "url": "https://controller/api/tenant/" + t.uuid})
	}
	return map[string]any{
		"user_initialized": true, "version": s.versionInfo(), "tenants": tenants, "session_cookie_name": sessionCookie,
		"user":          map[string]any{"username": s.cfg.Username, "name": s.cfg.Username, "is_superuser": s.cfg.Role == nil},
		"controller":    map[string]any{"api_idle_timeout": int(s.cfg.IdleTimeout.Minutes())},
		"system_config": map[string]any{"default_license_tier": "ENTERPRISE"},
	}
}

// initialData answers before login, too.
func (s *Server) initialData(r *http.Request) *reply {
	if r.Method != http.MethodGet {
		return notAllowed(r.Method, "GET").reply
	}
	return jsonReply(http.StatusOK, map[string]any{"version": s.versionInfo(), "setup_completed": true, "user_initialized": true})
}

// clusterUUID is the Controller's own.
const clusterUUID = "cluster-00000000-0000-4000-8000-000000000002"

func (s *Server) system(r *request) (*reply, *refusal) {
	if r.Method != http.MethodGet {
		return nil, notAllowed(r.Method, "GET")
	}
	switch joined(r.path) {
	case "cluster":
		return jsonReply(http.StatusOK, map[string]any{
			"uuid": clusterUUID, "name": "cluster-0-1", "url": "https://" + r.host(s) + "/api/cluster",
			"nodes": []any{map[string]any{"name": "node1", "ip": map[string]any{"addr": "127.0.0.1", "type": "V4"}}},
		}), nil
	case "cluster/runtime":
		const since = "2026-01-01 00:00:00"
		return jsonReply(http.StatusOK, map[string]any{
			"cluster_state": map[string]any{"state": "CLUSTER_UP_NO_HA", "progress": 100, "up_since": since},
			"node_states":   []any{map[string]any{"name": "node1", "role": "CLUSTER_LEADER", "state": "CLUSTER_ACTIVE", "up_since": since}},
			"node_info":     map[string]any{"uuid": "node-0", "version": s.version.String(), "cluster_uuid": clusterUUID},
		}), nil
	case "cluster/version":
		return jsonReply(http.StatusOK, s.versionInfo()), nil
	case "systemconfiguration":
		return jsonReply(http.StatusOK, map[string]any{
			"uuid": "default", "url": "https://" + r.host(s) + "/api/systemconfiguration", "default_license_tier": "ENTERPRISE",
			"portal_configuration": map[string]any{"allow_basic_authentication": s.cfg.BasicAuth},
		}), nil
	}
	return nil, &refusal{htmlReply(http.StatusNotFound, "Not Found")}
}

func (s *Server) userToken(r *request) (*reply, *refusal) {
	switch {
	case len(r.path) == 1 && r.Method == http.MethodGet:
		tokens := s.accounts.listTokens()
		results := make([]any, len(tokens))
		for i, t := range tokens {
			results[i] = t
		}
		return jsonReply(http.StatusOK, map[string]any{"count": len(tokens), "results": results}), nil
	case len(r.path) == 1 && r.Method == http.MethodPost:
		in, err := r.decode()
		if err != nil {
			return nil, err
		}
		hours, ok := wholeNumber(in["hours"])
		if !ok || hours < 0 || hours > maxTokenHours {
			return nil, refuse(http.StatusBadRequest, "hours must be a number from 0 to %d", maxTokenHours)
		}
		return jsonReply(http.StatusCreated, s.accounts.addToken(hours)), nil
	case len(r.path) == 2 && r.Method == http.MethodDelete:
		if !s.accounts.dropToken(r.path[1]) {
			return nil, refuse(http.StatusNotFound, "UserToken object not found!")
		}
		return &reply{status: http.StatusNoContent, header: http.Header{}}, nil
	}
	return nil, notAllowed(r.Method, "GET, POST, DELETE")
}
