// Package avisim is an Avi (NSX ALB) Controller's REST API as far as nplbridge needs it, on loopback and in memory. It is not an echo: it refuses what a
// Controller refuses, with the same statuses and bodies, lets sessions expire, resolves references, fills defaults and allocates addresses. What is known
// of the real one and what is inferred stands in docs/reference/avisim.md; what is inferred can be switched by Rules.
package avisim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/avisim/internal/schema"
)

// Config is what a Controller's administrator has set up.
type Config struct {
	// Username and Password are of the one user there is; both must be given.
	Username, Password string
	// Role limits what the user may do; nil is the administrator, who may do everything.
	Role []Privilege
	// Address is where Start listens; empty is a free port of 127.0.0.1.
	Address string
	// Version is the Controller's version; empty is 31.1.1.
	Version string
	// Tenants, beside admin, and Clouds, beside Default-Cloud, exist from the start. Every cloud has a VRF global and an SE group Default-Group.
	Tenants, Clouds []string
	// Networks have addresses for VIPs.
	Networks []Network
	// Now tells the time; nil is time.Now. Every expiry follows it.
	Now func() time.Time
	// Delay is how long each call takes beyond its work; it is real time, whatever Now says.
	Delay time.Duration
	// URLHost, as "controller.example:443", is the host of every URL in answers; empty is the host that the client named.
	URLHost string
	// IdleTimeout and ForceTimeout end sessions; 0 is 15 minutes and 24 hours.
	IdleTimeout, ForceTimeout time.Duration
	// MaxLoginFailures in a row lock the account for LockTime; 0 is 20 and 30 minutes.
	MaxLoginFailures int
	LockTime         time.Duration
	// MaxSessions is how many sessions the user may have at once; 0 is no limit.
	MaxSessions int
	// BasicAuth admits Authorization: Basic, as allow_basic_authentication does.
	BasicAuth bool
	Rules     Rules
	// Observe is called after each call, by several goroutines.
	Observe func(Call)
}

// Privilege is one line of a role: Type is WRITE_ACCESS, READ_ACCESS or NO_ACCESS, Resource is as PERMISSION_POOL.
type Privilege struct {
	Type     string `json:"type"`
	Resource string `json:"resource"`
}

// Network is one with addresses for VIPs.
type Network struct {
	Name  string
	Cloud string // empty is Default-Cloud
	VRF   string // empty is global; made if it is not there
	// First and Last are the range, of one family; Prefix is the subnet they are in.
	Prefix      netip.Prefix
	First, Last netip.Addr
}

// Rules are the switches for what is inferred, not known, of a Controller. The zero value is the strictest that seemed likely.
type Rules struct {
	// UnknownFields are kept; otherwise they are refused with 400.
	UnknownFields bool
	// LaterFields are taken whatever version the request names; otherwise they are refused with 400.
	LaterFields bool
	// OldestVersion is the API version of a request without X-Avi-Version; empty is 18.2.6.
	OldestVersion string
	// CSRFOnReads demands X-CSRFToken and Referer of GETs, too.
	CSRFOnReads bool
	// RejectedLogin is the status of a wrong password; 0 is 401, some builds answer 403.
	RejectedLogin int
	// MissingReference is the status when a reference leads nowhere; 0 is 400.
	MissingReference int
	// NameReserved is how long a deleted object's name answers 409.
	NameReserved time.Duration
	// Duplicates says what happens to two servers of the same address and port in one pool.
	Duplicates Duplicates
	// DeleteByAddress makes PATCH delete find servers by address and port; otherwise the whole server must be equal.
	DeleteByAddress bool
	// EmptyPages answers a page after the last with no results; otherwise it is a 404.
	EmptyPages bool
	// PageSize is that of a list without page_size; 0 is 25.
	PageSize int
	// SameObject leaves _last_modified as it is when a PUT or PATCH changes nothing.
	SameObject bool
	// SharedPorts admits two virtual services with the same port and protocol on one VsVip.
	SharedPorts bool
	// WrappedRuntime answers /runtime/server with {"count": ..., "results": [...]} instead of a bare list.
	WrappedRuntime bool
}

// Duplicates is what a pool does with a server that it has already.
type Duplicates int

// What a pool may do: refuse the request with 400, let the later one replace the earlier one, or keep both.
const (
	RefuseDuplicates Duplicates = iota
	MergeDuplicates
	KeepDuplicates
)

func (c Config) withDefaults() Config {
	c.Address = cmp.Or(c.Address, "127.0.0.1:0")
	c.Version = cmp.Or(c.Version, "31.1.1")
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 15*time.Minute)
	c.ForceTimeout = cmp.Or(c.ForceTimeout, 24*time.Hour)
	c.MaxLoginFailures = cmp.Or(c.MaxLoginFailures, 20)
	c.LockTime = cmp.Or(c.LockTime, 30*time.Minute)
	c.Rules.OldestVersion = cmp.Or(c.Rules.OldestVersion, "18.2.6")
	c.Rules.RejectedLogin = cmp.Or(c.Rules.RejectedLogin, 401)
	c.Rules.MissingReference = cmp.Or(c.Rules.MissingReference, 400)
	c.Rules.PageSize = cmp.Or(c.Rules.PageSize, 25)
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	var all []error
	if c.Username == "" || c.Password == "" {
		all = append(all, errors.New("username and password: both must be given"))
	}
	for name, version := range map[string]string{"version": c.Version, "oldest version": c.Rules.OldestVersion} {
		if _, err := schema.ParseVersion(version); err != nil {
			all = append(all, fmt.Errorf("%s: %w", name, err))
		}
	}
	for _, n := range c.Networks {
		if !n.First.IsValid() || n.First.Is4() != n.Last.Is4() || n.Last.Less(n.First) || !n.Prefix.Contains(n.First) || !n.Prefix.Contains(n.Last) {
			all = append(all, fmt.Errorf("network %q: the range %s-%s is none, or not within %s", n.Name, n.First, n.Last, n.Prefix))
		}
	}
	return errors.Join(all...)
}
