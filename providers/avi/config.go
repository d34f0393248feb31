package avi

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"time"

	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// Config says where a Controller is, who we are there and where objects go. The zero value is not valid: start from DefaultConfig.
type Config struct {
	// URL is https://host or https://host:port of the Controller or its cluster address.
	URL string
	// Username is the account's name. PasswordFile or TokenFile holds its password or a user token, exactly one of them; the file is
	// read again when it changes.
	Username, PasswordFile, TokenFile string
	// CAFile has the certificates in PEM form that the Controller's is checked against; empty takes the system's. ServerName is the name
	// that certificate must have; empty is the host of URL. Insecure takes any certificate.
	CAFile, ServerName string
	Insecure           bool
	// APIVersion is the version of the object schema that requests name, 22.1.3 or later, before 31.2.1, and not later than the Controller's.
	APIVersion string
	// Tenant, Cloud, SEGroup and VRF are names of what exists. Empty VRF is the cloud's default.
	Tenant, Cloud, SEGroup, VRF string
	// Network is where the Controller takes addresses for VIPs from; empty leaves the choice to the cloud's IPAM profile. Subnets narrow it, at
	// most one per family.
	Network string
	Subnets []netip.Prefix
	// Prefix begins the name of every object: letters, digits, "-", "_" and ".", at most 40.
	Prefix string
	// TCPProfile, UDPProfile and ApplicationProfile are names of the profiles of virtual services.
	TCPProfile, UDPProfile, ApplicationProfile string
	// DrainTimeout is after how long the Controller itself closes the connections of a draining member; whole minutes up to 120h, 0
	// never does. lbsync removes such members earlier.
	DrainTimeout time.Duration
	// TakeOver is the created_by of another controller, such as "ako-prod": members that it left in pools to which Services attach are treated as
	// ours. Only while that controller does not run.
	TakeOver string
	// RequestTimeout bounds one request, 1s to 10m; MaxInFlight is how many run at once, 1 to 64; Rate is how many start a second, 1 to 1000.
	RequestTimeout time.Duration
	MaxInFlight    int
	Rate           int
}

// DefaultConfig returns what holds for a new Controller.
func DefaultConfig() Config {
	return Config{
		APIVersion: "22.1.3", Tenant: "admin", Cloud: "Default-Cloud", SEGroup: "Default-Group", Prefix: "nplbridge",
		TCPProfile: "System-TCP-Proxy", UDPProfile: "System-UDP-Fast-Path", ApplicationProfile: "System-L4-Application",
		DrainTimeout: time.Hour, RequestTimeout: 30 * time.Second, MaxInFlight: 8, Rate: 100,
	}
}

// oldest is the first version of the API with every field that we use, tooNew the first that renamed one (graceful_disable_timeout).
const (
	oldest = "22.1.3"
	tooNew = "31.2.1"
)

var (
	prefixForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$`)
	versionForm = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+$`)
)

// Validate reports every setting that cannot be used, with its value and what would do.
func (c Config) Validate() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("avi "+format, args...))
		}
	}
	if base, err := url.Parse(c.URL); err != nil || base.User != nil {
		wrong(true, "url: it does not parse or holds a password; want https://host or https://host:port")
	} else {
		wrong(base.Scheme != "https" || base.Hostname() == "" || (base.Path != "" && base.Path != "/") || base.RawQuery != "",
			"url: %q is not https://host or https://host:port", c.URL)
	}
	wrong(c.Username == "", "username: empty; give the account that lbsync has on the Controller")
	wrong((c.PasswordFile == "") == (c.TokenFile == ""), "passwordFile: %q and tokenFile %q: give exactly one of them", c.PasswordFile, c.TokenFile)
	wrong(!versionForm.MatchString(c.APIVersion) || client.CompareVersions(c.APIVersion, oldest) < 0 || client.CompareVersions(c.APIVersion, tooNew) >= 0,
		"apiVersion: %q is not %s or later and before %s; later Controllers take these, too", c.APIVersion, oldest, tooNew)
	for _, s := range []struct{ name, value string }{
		{"tenant", c.Tenant}, {"cloud", c.Cloud}, {"seGroup", c.SEGroup}, {"tcpProfile", c.TCPProfile}, {"udpProfile", c.UDPProfile},
		{"applicationProfile", c.ApplicationProfile},
	} {
		wrong(s.value == "", "%s: empty; give the name of one on the Controller", s.name)
	}
	wrong(c.Tenant == "*", "tenant: %q is no tenant; name the one that objects are made in", c.Tenant)
	families := map[bool]int{}
	for _, s := range c.Subnets {
		wrong(s != s.Masked(), "subnets: %s has bits behind its mask; want %s", s, s.Masked())
		families[s.Addr().Is4()]++
	}
	wrong(families[true] > 1 || families[false] > 1, "subnets: %s are more than one per family", c.Subnets)
	wrong(len(c.Subnets) > 0 && c.Network == "", "subnets: %s without a network; set avi.network", c.Subnets)
	wrong(!prefixForm.MatchString(c.Prefix), "prefix: %q is not 1 to 40 letters, digits, dashes, underscores and dots", c.Prefix)
	wrong(c.DrainTimeout < 0 || c.DrainTimeout > 120*time.Hour || c.DrainTimeout%time.Minute != 0, "drainTimeout: %s is not whole minutes within 0s and 120h", c.DrainTimeout)
	wrong(c.RequestTimeout < time.Second || c.RequestTimeout > 10*time.Minute, "requestTimeout: %s is not within 1s and 10m", c.RequestTimeout)
	wrong(c.MaxInFlight < 1 || c.MaxInFlight > 64, "maxInFlight: %d is not within 1 and 64", c.MaxInFlight)
	wrong(c.Rate < 1 || c.Rate > 1000, "rate: %d is not within 1 and 1000", c.Rate)
	return errors.Join(errs...)
}
