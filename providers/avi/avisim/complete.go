package avisim

import (
	"net/http"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// The UUIDs of what every Controller has.
const (
	adminTenant  = "admin"
	defaultCloud = "cloud-00000000-0000-4000-8000-000000000001"
)

// complete fills in what the Controller derives from other objects. body may share nested values with what is stored: only new ones are changed.
func (s *Server) complete(k *schema.Kind, body map[string]any, who by) *refusal {
	tenant, given := body["tenant_ref"].(schema.Reference)
	switch {
	case !given:
		body["tenant_ref"] = schema.Reference{Kind: "tenant", UUID: who.tenant}
	case tenant.UUID != who.tenant:
		return refuse(http.StatusBadRequest, "tenant_ref %s differs from the tenant of the request, %s", s.store.nameOf(tenant), who.tenant)
	}
	if !k.InCloud {
		return nil
	}
	if body["cloud_ref"] == nil {
		body["cloud_ref"] = schema.Reference{Kind: "cloud", UUID: defaultCloud}
	}
	cloud := body["cloud_ref"].(schema.Reference)
	switch k.Name {
	case "pool":
		s.fill(body, "vrf_ref", "vrfcontext", "global", cloud)
		completePool(body, who.version)
	case "virtualservice":
		s.fill(body, "vrf_context_ref", "vrfcontext", "global", cloud)
		s.fill(body, "se_group_ref", "serviceenginegroup", "Default-Group", cloud)
		s.fill(body, "network_profile_ref", "networkprofile", "System-TCP-Proxy", schema.Reference{})
		s.fill(body, "application_profile_ref", "applicationprofile", "System-HTTP", schema.Reference{})
		for _, service := range messages(body, "services") {
			if service["port_range_end"] == nil {
				service["port_range_end"] = service["port"]
			}
		}
	case "vsvip", "network":
		s.fill(body, "vrf_context_ref", "vrfcontext", "global", cloud)
	}
	return nil
}

// fill sets an absent reference to the object of that name, in the cloud where it belongs to one.
func (s *Server) fill(body map[string]any, field, kind, name string, cloud schema.Reference) {
	if body[field] != nil {
		return
	}
	if uuid, ok := s.store.names[nameKey{kind, adminTenant, cloud.UUID, name}]; ok {
		body[field] = schema.Reference{Kind: kind, UUID: uuid}
	}
}

// secondsSince is the version from which the time to disable a server is given in seconds.
var secondsSince = schema.Version{Major: 31, Minor: 2, Patch: 1}

func completePool(body map[string]any, version schema.Version) {
	minutes, _ := body["graceful_disable_timeout"].(int64)
	seconds, _ := body["graceful_disable_timeout_sec"].(int64)
	switch inSeconds := !secondsSince.After(version); {
	case inSeconds && seconds > 0:
		body["graceful_disable_timeout"] = (seconds + 59) / 60
	case inSeconds:
		body["graceful_disable_timeout"] = seconds
	case minutes > 0:
		body["graceful_disable_timeout_sec"] = minutes * 60
	default:
		body["graceful_disable_timeout_sec"] = minutes
	}
	for _, server := range messages(body, "servers") {
		if ip, ok := server["ip"].(map[string]any); ok && server["hostname"] == nil {
			server["hostname"] = ip["addr"]
		}
	}
}

// messages returns the objects in a list.
func messages(body map[string]any, field string) []map[string]any {
	list, _ := body[field].([]any)
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// at follows names into nested objects.
func at(value any, names ...string) any {
	for _, name := range names {
		m, _ := value.(map[string]any)
		value = m[name]
	}
	return value
}
