// Package bigipsim is a BIG-IP's iControl REST interface as far as nplbridge needs it, in memory. It is not an echo: it refuses what a device refuses, with
// the same statuses and bodies, makes and keeps nodes by itself, queues transactions, lets tokens expire, forgets at a reboot what was not saved, and
// writes one after the other. What is known of the real one and what is inferred stands in docs/reference/bigipsim.md; what is inferred can be switched
// by Rules.
package bigipsim

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

// Config is what a device's administrator has set up.
type Config struct {
	// Username and Password are of the one user there is; both must be given.
	Username, Password string
	// UserPartition limits the user to one partition; it can read Common. Empty is the administrator of all.
	UserPartition string
	// Address is where Start listens; empty is a free port of 127.0.0.1.
	Address string
	// PeerAddress is that of the second of a pair.
	PeerAddress string
	// Hostname of the device; empty is bigip-a.example.com, and bigip-b.example.com for the second of a pair.
	Hostname string
	// Version of TMOS; empty is 16.1.4.
	Version string
	// Partitions exist from the start, beside Common.
	Partitions []Partition
	// RouteDomains exist from the start, beside 0.
	RouteDomains []int
	// TrafficGroups exist from the start, beside traffic-group-1.
	TrafficGroups []string
	// VLANs are names in Common.
	VLANs []string
	// Clock tells the time; nil is the real one. Every expiry and the first health of a member follow it.
	Clock clock.PassiveClock
	// Delay is how long each call takes beyond its work; it is real time, whatever Clock says. Writes take it one after the other.
	Delay time.Duration
	// DeviceGroup is the name of a pair's sync-failover group; empty is sync-failover. AutoSync and SaveOnAutoSync are its settings.
	DeviceGroup              string
	AutoSync, SaveOnAutoSync bool
	Rules                    Rules
	// Observe is called after each call, by several goroutines.
	Observe func(Call)
}

// Partition is one beside Common.
type Partition struct {
	Name               string
	DefaultRouteDomain int
	// TrafficGroup is a name in Common, or "none"; empty is traffic-group-1.
	TrafficGroup string
	// AS3 has the marks that Application Services 3 leaves: an application's folder in the partition, and its tenant in the declaration.
	AS3 bool
}

// Rules are the switches for what is inferred, not known, of a device. The zero value is the strictest that seemed likely.
type Rules struct {
	// UnknownProperties are kept; otherwise they are refused with 400.
	UnknownProperties bool
	// BracesInMonitors are taken in a pool's monitor; otherwise what a GET shows of "min 1 of { a b }" is refused in a write.
	BracesInMonitors bool
	// TrailingBlank ends the monitor of a pool with a blank when it is read.
	TrailingBlank bool
	// ShowDefaultRouteDomain shows a partition's default route domain in addresses; otherwise it is left out.
	ShowDefaultRouteDomain bool
	// ReplaceKeepsOmitted lets a member that a pool's new list names keep what its entry leaves out; otherwise that is reset.
	ReplaceKeepsOmitted bool
	// MemberWithoutPartition takes a POST of a member that names no partition; otherwise its pool is looked for in Common.
	MemberWithoutPartition bool
	// MonitorInTransaction lets a transaction delete a monitor that it has taken from the last pool.
	MonitorInTransaction bool
	// TokensSurviveFailover and TokensSurviveRestart keep tokens; otherwise both end them.
	TokensSurviveFailover, TokensSurviveRestart bool
	// TokenFromStart counts the timeout that a token is given by PATCH from its login; otherwise it counts from the PATCH.
	TokenFromStart bool
	// MaxTokens is how many a user other than admin may have; 0 is 100.
	MaxTokens int
	// MaxLoginFailures in a row lock the user for LockTime (0 is 10 minutes); 0 never does.
	MaxLoginFailures int
	LockTime         time.Duration
	// TransactionTimeout ends a transaction that is not committed; 0 is 120s.
	TransactionTimeout time.Duration
	// EmptyItems shows items: [] in an empty collection; otherwise it is left out.
	EmptyItems bool
	// Shuffle gives collections in another order each time; otherwise they are in order of path.
	Shuffle bool
	// HealthyAtOnce lets a new member with a monitor be up; otherwise it is checking for the monitor's interval.
	HealthyAtOnce bool
	// SelfDeviceFlag shows selfDevice as true; otherwise it is "true".
	SelfDeviceFlag bool
	// MissingMember200 answers 200 without an address for a member that is not there, as TMOS 11 does; otherwise it is a 404.
	MissingMember200 bool
}

func (c Config) withDefaults() Config {
	c.Address = cmp.Or(c.Address, "127.0.0.1:0")
	c.Hostname = cmp.Or(c.Hostname, "bigip-a.example.com")
	c.Version = cmp.Or(c.Version, "16.1.4")
	c.DeviceGroup = cmp.Or(c.DeviceGroup, "sync-failover")
	c.Rules.MaxTokens = cmp.Or(c.Rules.MaxTokens, 100)
	c.Rules.LockTime = cmp.Or(c.Rules.LockTime, 10*time.Minute)
	c.Rules.TransactionTimeout = cmp.Or(c.Rules.TransactionTimeout, 2*time.Minute)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

func (c Config) validate() error {
	var all []error
	if c.Username == "" || c.Password == "" {
		all = append(all, errors.New("username and password: both must be given"))
	}
	if c.Delay < 0 {
		all = append(all, fmt.Errorf("delay %s: use 0 or more", c.Delay))
	}
	for _, p := range c.Partitions {
		if p.Name == "" || p.Name == "Common" {
			all = append(all, fmt.Errorf("partition %q: give it a name other than Common, which is always there", p.Name))
		}
	}
	return errors.Join(all...)
}
