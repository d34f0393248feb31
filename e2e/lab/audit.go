package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// AuditEvent is a line of the API server's audit log: who did what to which object, and how that ended.
type AuditEvent struct {
	Stage, Verb, UserAgent string
	User                   struct{ Username string }
	ObjectRef              struct{ Namespace, Name, APIGroup, Resource, Subresource string }
	ResponseStatus         struct {
		Code    int
		Message string
	}
	Annotations map[string]string
	Line        string `json:"-"`
}

// Resource is spelt as in a rule of RBAC, with its group behind.
func (e AuditEvent) Resource() string {
	out := e.ObjectRef.Resource
	if e.ObjectRef.Subresource != "" {
		out += "/" + e.ObjectRef.Subresource
	}
	if e.ObjectRef.APIGroup != "" {
		out += "." + e.ObjectRef.APIGroup
	}
	return out
}

// Forbidden says that the authorizers have refused it, RBAC among them.
func (e AuditEvent) Forbidden() bool {
	return e.Annotations["authorization.k8s.io/decision"] == "forbid"
}

// RefusedByPolicy says that a ValidatingAdmissionPolicy has refused it.
func (e AuditEvent) RefusedByPolicy() bool {
	return strings.Contains(e.ResponseStatus.Message, "ValidatingAdmissionPolicy")
}

// Audit reads the audit log from its beginning. The last line may be half written; it is left out then.
func (l *Lab) Audit() ([]AuditEvent, error) {
	file, err := os.Open(l.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	defer file.Close() //nolint:errcheck // opened for reading
	var out []AuditEvent
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e AuditEvent
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			e.Line = lines.Text()
			out = append(out, e)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	return out, nil
}
