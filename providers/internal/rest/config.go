package rest

import (
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Config says which server a Client talks to and how hard it may press. BaseURL is required; the rest has defaults.
type Config struct {
	// BaseURL is https://host or https://host:port, without a path.
	BaseURL string
	// CAFile is a PEM file with the certificates that the server's is checked against, read again when it changes. Empty takes the
	// system's.
	CAFile string
	// ServerName is the name that the server's certificate must have; empty is the host of BaseURL.
	ServerName string
	// Insecure takes any certificate. Then anybody on the way can read the password.
	Insecure bool
	// Timeout bounds one request from its first byte to the last of the answer, without the time it waits for its turn; 1s to 10m;
	// 0 is 30s.
	Timeout time.Duration
	// MaxInFlight is how many requests may run at once, 1 to 64; 0 is 8.
	MaxInFlight int
	// Rate is how many requests may start per second on average, up to 1000; 0 is no limit.
	Rate float64
	// Burst is how many may start at once beyond Rate, 1 to 1000; 0 is MaxInFlight.
	Burst int
	// UserAgent is sent with every request.
	UserAgent string
	// Observe, if not nil, is told about each request that was made; status is 0 when there was no answer. It must not block.
	Observe func(method, endpoint string, status int, took time.Duration)
}

// withDefaults fills in what is empty.
func (c Config) withDefaults() Config {
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 8
	}
	if c.Burst == 0 {
		c.Burst = c.MaxInFlight
	}
	return c
}

// validate reports everything that cannot be used, with its value and what would do.
func (c Config) validate() (*url.URL, error) {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	base, err := url.Parse(c.BaseURL)
	if err != nil || base.Scheme != "https" || base.Hostname() == "" || base.User != nil || (base.Path != "" && base.Path != "/") || base.RawQuery != "" {
		shown := c.BaseURL
		if err != nil || base.User != nil {
			shown = "..." // it may hold a password
		}
		wrong(true, "base URL: %q is not https://host or https://host:port", shown)
	}
	wrong(c.Timeout < time.Second || c.Timeout > 10*time.Minute, "timeout: %s is not within 1s and 10m", c.Timeout)
	wrong(c.MaxInFlight < 1 || c.MaxInFlight > 64, "requests in flight: %d is not within 1 and 64", c.MaxInFlight)
	wrong(!(c.Rate >= 0 && c.Rate <= 1000), "rate: %g is not within 0 and 1000 a second", c.Rate)
	wrong(c.Burst < 1 || c.Burst > 1000, "burst: %d is not within 1 and 1000", c.Burst)
	return base, errors.Join(errs...)
}
