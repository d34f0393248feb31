package program

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// socketPathLimit is the longest path of a unix socket on Linux: sun_path has 108 bytes with the final zero, unix(7).
const socketPathLimit = 107

func wantNotNegative(value any) string {
	if value.(time.Duration) < 0 {
		return "want 0s or more"
	}
	return ""
}

// wantAddress is for what net.Listen takes, with a port as a number; empty is good.
func wantAddress(value any) string {
	const want = "want ADDRESS:PORT or :PORT, the port from 0 to 65535"
	text := value.(string)
	if text == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return want
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return want
	}
	ip, _, _ := strings.Cut(host, "%")
	if host != "" && net.ParseIP(ip) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
		return want
	}
	return ""
}

// wantSocket is for the path of a unix socket; empty is good.
func wantSocket(value any) string {
	switch path := value.(string); {
	case path != "" && !filepath.IsAbs(path):
		return "want an absolute path"
	case len(path) > socketPathLimit:
		return fmt.Sprintf("want a path of %d bytes at most", socketPathLimit)
	default:
		return ""
	}
}

// WantNodeName is a settings.Setting's Want for the name of a Node; empty is good.
func WantNodeName(value any) string {
	if name := value.(string); name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "want the name of a Node: lower-case letters, digits, dashes and dots"
	}
	return ""
}

// WantWord is a settings.Setting's Want for a name that people read in lists and logs; empty is good.
func WantWord(value any) string {
	if strings.ContainsFunc(value.(string), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return "want a name without blanks"
	}
	return ""
}
