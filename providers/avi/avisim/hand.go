package avisim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/query"
)

// Snapshot is what the Controller has stored, for tests.
type Snapshot struct {
	// Objects are by type, "pool", and sorted by name; each is as a GET with include_name shows it, from the host "controller".
	Objects map[string][]map[string]any
	// Logins and RejectedLogins are how often somebody logged in, Sessions how many of them live; Locked: the account is.
	Logins, RejectedLogins, Sessions int
	Locked                           bool
}

// Object returns the object of a type and name; nil if there is none.
func (s Snapshot) Object(kind, name string) map[string]any {
	for _, o := range s.Objects[kind] {
		if o["name"] == name {
			return o
		}
	}
	return nil
}

// Snapshot returns what is stored.
func (s *Server) Snapshot() Snapshot {
	out := Snapshot{Objects: map[string][]map[string]any{}}
	s.mu.RLock()
	show := s.administrator()
	for _, kind := range slices.Sorted(maps.Keys(s.store.byKind)) {
		for _, o := range s.store.of(kind) {
			out.Objects[kind] = append(out.Objects[kind], show.object(o))
		}
	}
	s.mu.RUnlock()
	a := s.accounts
	a.mu.Lock()
	defer a.mu.Unlock()
	out.Logins, out.RejectedLogins, out.Sessions, out.Locked = a.logins, a.rejected, len(a.sessions), a.cfg.Now().Before(a.lockedUntil)
	return out
}

func (s *Server) administrator() renderer {
	return renderer{s.store, "controller", s.version, query.View{IncludeName: true}}
}

// Create makes an object as an administrator would, in a tenant ("" is admin), and returns its UUID.
func (s *Server) Create(kind, tenant string, body map[string]any) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uuid, ok := s.store.names[nameKey{"tenant", adminTenant, "", tenant}]
	switch {
	case tenant == "":
		uuid = adminTenant
	case !ok:
		return "", fmt.Errorf("create %s: no tenant %q", kind, tenant)
	}
	o, err := s.createAs(kind, "", body, by{version: s.version, tenant: uuid})
	if err != nil {
		return "", err
	}
	return o.uuid, nil
}

// Edit changes an object, found by name or UUID, as an administrator would by hand. change gets the object as a GET shows it, with Go's numbers.
func (s *Server) Edit(kind, name string, change func(object map[string]any)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.lookUp(kind, name)
	if old == nil {
		return fmt.Errorf("edit %s %q: there is none", kind, name)
	}
	body := s.administrator().object(old)
	delete(body, "_last_modified")
	change(body)
	in, err := asRequest(body)
	if err != nil {
		return fmt.Errorf("edit %s %q: %w", kind, name, err)
	}
	if _, refused := s.replace(old, in, by{version: s.version, tenant: old.tenant}); refused != nil {
		return fmt.Errorf("edit %s %q: %w", kind, name, refused)
	}
	return nil
}

// Delete deletes an object, found by name or UUID, as an administrator would.
func (s *Server) Delete(kind, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.lookUp(kind, name)
	if o == nil {
		return fmt.Errorf("delete %s %q: there is none", kind, name)
	}
	if refused := s.remove(o); refused != nil {
		return fmt.Errorf("delete %s %q: %w", kind, name, refused)
	}
	return nil
}

func (s *Server) lookUp(kind, name string) *object {
	for _, o := range s.store.of(kind) {
		if o.name() == name || o.uuid == name {
			return o
		}
	}
	return nil
}

// SetPassword changes the user's password; sessions go on.
func (s *Server) SetPassword(password string) {
	s.accounts.mu.Lock()
	defer s.accounts.mu.Unlock()
	s.accounts.password = password
}

// EndSessions ends every session, as a restart of the Controller does.
func (s *Server) EndSessions() { s.accounts.endAll() }

// changed wakes who watches. The caller holds the lock.
func (s *Server) changed() {
	close(s.watch)
	s.watch = make(chan struct{})
}
