package bigip

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Mode says what several devices are to each other.
type Mode string

// The modes.
const (
	// Pair is devices that stand in for each other (sync-failover): the active one is written.
	Pair Mode = "pair"
	// Independent is devices that know nothing of each other: each is written.
	Independent Mode = "independent"
)

// Foreign says what happens to members in pools of ours that somebody else added.
type Foreign string

// The policies.
const (
	RemoveForeign Foreign = "remove"
	KeepForeign   Foreign = "keep"
)

// PartitionDomain as a route domain is the default one of the partition.
const PartitionDomain = -1

// Config says where the devices are, who we are there and where objects go. The zero value is not valid: start from DefaultConfig.
type Config struct {
	// URLs are https://host or https://host:port, one for each device; Mode says what several are.
	URLs []string
	Mode Mode
	// Username is the account's name, PasswordFile holds its password and is read again when it changes. BasicAuth sends the password with
	// every request instead of a token.
	Username, PasswordFile string
	BasicAuth              bool
	// CAFile has the certificates in PEM form that the devices' are checked against; empty takes the system's. ServerName is the name
	// that those certificates must have; empty is the host of the URL. Insecure takes any certificate.
	CAFile, ServerName string
	Insecure           bool
	// Partition is where objects are made. AllowCommon lets that be Common; CreatePartition makes it when it is not there.
	Partition                    string
	AllowCommon, CreatePartition bool
	// RouteDomain is the one of nodes and virtual servers, 0 to 65534; PartitionDomain leaves it to the partition.
	RouteDomain int
	// Prefix begins the name of every object: letters, digits, "-", "_" and ".", at most 40.
	Prefix string
	// ShareNodes makes nodes in Common, where other partitions can use them, too. CleanNodes deletes those that we made with their last member.
	ShareNodes, CleanNodes bool
	// SNAT is the source address translation of virtual servers: automap, none, or the path of a SNAT pool.
	SNAT string
	// TCPProfile, UDPProfile and SCTPProfile are paths of the protocol profiles of virtual servers.
	TCPProfile, UDPProfile, SCTPProfile string
	// ForeignMembers says what happens to members in pools of ours that somebody else added.
	ForeignMembers Foreign
	// OverrideDisabled enables members that an operator disabled; otherwise that is respected.
	OverrideDisabled bool
	// SaveDelay is how long after a change the configuration is saved to disk, 1s to 24h, 0 never. SyncDelay is how long after a change it is brought
	// to the other devices of the group, 1s to 1h, 0 never; where the group synchronises by itself, we do not.
	SaveDelay, SyncDelay time.Duration
	// RequestTimeout bounds one request, 1s to 10m; MaxInFlight is how many run at once on one device, 1 to 16.
	RequestTimeout time.Duration
	MaxInFlight    int
}

// DefaultConfig returns what holds for a new device.
func DefaultConfig() Config {
	return Config{
		Mode: Pair, Partition: "nplbridge", RouteDomain: PartitionDomain, Prefix: "nplbridge", CleanNodes: true, SNAT: "automap",
		TCPProfile: "/Common/tcp", UDPProfile: "/Common/udp", SCTPProfile: "/Common/sctp", ForeignMembers: RemoveForeign,
		SaveDelay: time.Minute, SyncDelay: 5 * time.Second, RequestTimeout: time.Minute, MaxInFlight: 2,
	}
}

var (
	prefixForm    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,39}$`)
	partitionForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
	pathForm      = regexp.MustCompile(`^(/[A-Za-z0-9_.:%-]+){2,}$`)
)

// Validate reports every setting that cannot be used, with its value and what would do.
func (c Config) Validate() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("bigip "+format, args...))
		}
	}
	wrong(len(c.URLs) == 0, "urls: empty; give https://host for each device")
	for _, text := range c.URLs {
		if base, err := url.Parse(text); err != nil || base.User != nil {
			wrong(true, "urls: one does not parse or holds a password; want https://host or https://host:port")
		} else {
			wrong(base.Scheme != "https" || base.Hostname() == "" || (base.Path != "" && base.Path != "/") || base.RawQuery != "",
				"urls: %q is not https://host or https://host:port", text)
		}
	}
	wrong(len(slices.Compact(slices.Sorted(slices.Values(c.URLs)))) != len(c.URLs), "urls: a device is named twice")
	wrong(c.Mode != Pair && c.Mode != Independent, "mode: %q is neither %s nor %s", c.Mode, Pair, Independent)
	wrong(c.Username == "", "username: empty; give the account that lbsync has on the devices")
	wrong(c.PasswordFile == "", "passwordFile: empty; give a file with the account's password")
	wrong(!partitionForm.MatchString(c.Partition), "partition: %q is not the name of one: a letter, then up to 63 letters, digits, dashes, underscores and dots", c.Partition)
	wrong(c.Partition == "Common" && !c.AllowCommon, "partition: Common belongs to everybody; give lbsync a partition of its own, or set bigip.allowCommon")
	wrong(c.RouteDomain < PartitionDomain || c.RouteDomain > 65534, "routeDomain: %d is not within 0 and 65534", c.RouteDomain)
	wrong(!prefixForm.MatchString(c.Prefix), "prefix: %q is not a letter and up to 39 letters, digits, dashes, underscores and dots", c.Prefix)
	wrong(checkSNAT(c.SNAT) != "", "snat: %q: %s", c.SNAT, checkSNAT(c.SNAT))
	for _, s := range []struct{ name, value string }{{"tcpProfile", c.TCPProfile}, {"udpProfile", c.UDPProfile}, {"sctpProfile", c.SCTPProfile}} {
		wrong(!pathForm.MatchString(s.value), "%s: %q is not the path of a profile such as /Common/tcp", s.name, s.value)
	}
	wrong(c.ForeignMembers != RemoveForeign && c.ForeignMembers != KeepForeign, "foreignMembers: %q is neither %s nor %s", c.ForeignMembers, RemoveForeign, KeepForeign)
	wrong(c.SaveDelay != 0 && (c.SaveDelay < time.Second || c.SaveDelay > 24*time.Hour), "saveDelay: %s is not within 1s and 24h, or 0s for never", c.SaveDelay)
	wrong(c.SyncDelay != 0 && (c.SyncDelay < time.Second || c.SyncDelay > time.Hour), "syncDelay: %s is not within 1s and 1h, or 0s for never", c.SyncDelay)
	wrong(c.RequestTimeout < time.Second || c.RequestTimeout > 10*time.Minute, "requestTimeout: %s is not within 1s and 10m", c.RequestTimeout)
	wrong(c.MaxInFlight < 1 || c.MaxInFlight > 16, "maxInFlight: %d is not within 1 and 16", c.MaxInFlight)
	return errors.Join(errs...)
}

// checkSNAT returns what a value should be instead, and "" for a good one.
func checkSNAT(value string) string {
	if value == "automap" || value == "none" || pathForm.MatchString(value) {
		return ""
	}
	return "write automap, none or the path of a SNAT pool such as /Common/pool"
}

// checkPaths returns what a list of paths should be instead, and "" for a good one.
func checkPaths(value string) string {
	for path := range strings.SplitSeq(value, ",") {
		if !pathForm.MatchString(path) {
			return "write paths such as /Common/name with commas between them"
		}
	}
	return ""
}
