package akoimport

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nplbridge/nplbridge/providers/avi"
)

func notNeeded(why string) judge {
	return func(im *importer, at string, value any) {
		im.add(Key{Key: at, Value: show(value), Verdict: NotNeeded, Note: why})
	}
}

func notSupported(what string) judge {
	return func(im *importer, at string, value any) { im.refused(at, value, what) }
}

// offOr takes a switch that is off, or a list or text that is empty; what to do when it is on.
func offOr(what string) judge { return switched(false, what) }

// onOr takes a switch that is on.
func onOr(what string) judge { return switched(true, what) }

func switched(fine bool, what string) judge {
	return func(im *importer, at string, value any) {
		value, note := fromText(value)
		if on, ok := truth(value); empty(value) || ok && on == fine {
			im.add(Key{Key: at, Value: show(value), Verdict: NotNeeded, Note: join("as it is here", note)})
			return
		}
		im.refused(at, value, join(what, note))
	}
}

// given wraps a judge of values that mean something: an empty one means AKO's default.
func given(j judge) judge {
	return func(im *importer, at string, value any) {
		if empty(value) {
			im.add(Key{Key: at, Verdict: NotNeeded, Note: "empty"})
			return
		}
		j(im, at, value)
	}
}

// text takes a text as it is.
func text(to string) judge {
	return given(func(im *importer, at string, value any) {
		set := show(value)
		if _, isText := value.(string); !isText {
			if _, isNumber := value.(float64); !isNumber {
				im.refused(at, value, "a text belongs here")
				return
			}
		}
		im.mapped(at, value, to, set, "")
	})
}

// controller takes [scheme://]address[:port].
func controller(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		address, note := textOf(value), ""
		switch scheme, rest, found := strings.Cut(address, "://"); {
		case found && scheme == "http":
			address, note = rest, "https instead of http: lbsync sends no password in the clear"
		case found && scheme == "https":
			address = rest
		}
		if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
			address = "[" + address + "]"
		}
		parsed, err := url.Parse("https://" + address)
		if err == nil && parsed.User != nil {
			im.add(Key{Key: at, Value: "(not shown)", Verdict: NotSupported, Note: "it holds an account; give lbsync.config.avi.url without, https://host"})
			return
		}
		if err == nil {
			err = aviTakes(func(c *avi.Config) { c.URL = parsed.String() })
		}
		if _, port, splitErr := net.SplitHostPort(address); err == nil && splitErr == nil {
			if n, e := strconv.ParseUint(port, 10, 16); e != nil || n == 0 {
				err = fmt.Errorf("port %q is not within 1 and 65535", port)
			}
		}
		if err != nil {
			im.add(Key{Key: at, Value: "(not shown)", Verdict: NotSupported, Note: "no address of a Controller; give lbsync.config.avi.url, https://host"})
			return
		}
		im.mapped(at, value, "lbsync.config.avi.url", parsed.String(), note)
	})(im, at, value)
}

func apiVersion(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		version := show(value)
		if err := aviTakes(func(c *avi.Config) { c.APIVersion = version }); err != nil {
			im.refused(at, value, fmt.Sprintf("%v; the default %s stays", err, avi.DefaultConfig().APIVersion))
			return
		}
		im.mapped(at, value, "lbsync.config.avi.apiVersion", version, "")
	})(im, at, value)
}

// aviTakes asks lbsync's own configuration about one setting.
func aviTakes(set func(*avi.Config)) error {
	c := avi.DefaultConfig()
	c.URL, c.Username, c.PasswordFile = "https://controller", DefaultUsername, "/password"
	set(&c)
	return c.Validate()
}

func serviceType(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		if !slices.Contains(serviceTypes, show(value)) {
			im.refused(at, value, "want one of "+strings.Join(serviceTypes, ", "))
			return
		}
		im.mapped(at, value, "serviceType", value, "")
	})(im, at, value)
}

var serviceTypes = []string{"NodePortLocal", "NodePort", "ClusterIP"}

// effectiveServiceType is the type that AKO uses, or "" where the input has something else there.
func (im *importer) effectiveServiceType() string {
	value := im.lookup("L7Settings.serviceType")
	if empty(value) {
		if im.source.form == operator {
			return "NodePort" // the operator's own default
		}
		return "ClusterIP"
	}
	if !slices.Contains(serviceTypes, show(value)) {
		return ""
	}
	return show(value)
}

const antrea = "antrea"

func cniPlugin(im *importer, at string, value any) {
	if show(value) != antrea {
		im.add(Key{Key: at, Value: show(value), Verdict: NotNeeded, Note: "npl-agent works with every CNI"})
		return
	}
	im.antrea(at, show(value))
}

// antrea leaves the node ports to Antrea's agent.
func (im *importer) antrea(at, value string) {
	im.set("admissionPolicies.annotationWriters", []any{"system:serviceaccount:kube-system:antrea-agent"})
	im.mapped(at, value, "agent.enabled", false, "Antrea's agent gives the node ports, so admissionPolicies.annotationWriters names it; agent.config.portRange must be its "+
		"nodePortLocal.portRange. Where its NodePortLocal is off, or the CNI is another, set agent.enabled=true and admissionPolicies.annotationWriters=[]")
}

func staticRoutes(im *importer, at string, value any) {
	if off, ok := truth(value); im.kind == "ClusterIP" && ok && !off {
		im.refused(at, value, "lbsync writes no routes: the service engines must reach the Pods by themselves; better use serviceType=NodePortLocal")
		return
	}
	notNeeded(noRoutes)(im, at, value)
}

// fullSync takes seconds.
func fullSync(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		const least, most = 10, 24 * 60 * 60
		seconds, err := strconv.Atoi(show(value))
		switch {
		case err != nil:
			im.refused(at, value, "no number of seconds; the default 5m stays")
		case seconds < least || seconds > most:
			im.refused(at, value, "lbsync reads the Controller back every 10s to 24h; the default 5m stays")
		default:
			im.mapped(at, value, "lbsync.config.resync", duration(time.Duration(seconds)*time.Second), "")
		}
	})(im, at, value)
}

// duration writes 30m, not 30m0s.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func logLevel(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		level := strings.ToLower(show(value))
		if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
			im.refused(at, value, "want one of DEBUG, INFO, WARN, ERROR; the default info stays")
			return
		}
		im.mapped(at, value, "lbsync.config.logLevel", level, "")
	})(im, at, value)
}

func replicas(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		n, err := strconv.Atoi(show(value))
		if err != nil || n < 1 || n > 10 {
			im.refused(at, value, "want 1 to 10; the chart's default stays")
			return
		}
		im.mapped(at, value, "lbsync.replicas", n, "one leads, others wait to take over")
	})(im, at, value)
}

func ipFamily(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		families, ok := map[string][]any{"V4": {"IPv4"}, "V6": {"IPv6"}, "V4_V6": {"IPv4", "IPv6"}}[show(value)]
		if !ok {
			im.refused(at, value, "want one of V4, V6, V4_V6; the default is both")
			return
		}
		im.mapped(at, value, "agent.config.ipFamilies", families, "lbsync follows the families of each Service")
	})(im, at, value)
}

func clusterName(im *importer, at string, value any) {
	note := "what is ours is known by the cluster's UID, not by a name"
	if name := show(value); len(validation.IsValidLabelValue(name)) == 0 && name != "" {
		note += fmt.Sprintf("; to keep AKO's virtual services, set lbsync.config.avi.takeOver=ako-%s once AKO has stopped, see docs/how-to/move-from-ako.md", name)
	}
	notNeeded(note)(im, at, value)
}

func defaultController(im *importer, at string, value any) {
	value, note := fromText(value)
	on, ok := truth(value)
	if !ok && !empty(value) {
		im.refused(at, value, "want true or false")
		return
	}
	if on {
		note = join("false for now, or AKO and lbsync would both serve Services without a class: set it to true when AKO has stopped", note)
	}
	im.mapped(at, value, "lbsync.config.handleUnclassed", false, note)
}

func domain(im *importer, at string, value any) {
	offOr("lbsync makes no DNS records; let external-dns do it")(im, at, value)
}

func autoFQDN(im *importer, at string, value any) {
	if show(value) == "disabled" {
		value = ""
	}
	domain(im, at, value)
}

func pullSecrets(im *importer, at string, value any) {
	given(func(im *importer, at string, value any) {
		list, _ := value.([]any)
		var names []any
		for _, item := range list {
			object, _ := item.(map[string]any)
			name := textOf(object["name"])
			if len(validation.IsDNS1123Subdomain(name)) > 0 || len(object) != 1 {
				im.refused(at, value, "want a list of {name: ...}")
				return
			}
			names = append(names, map[string]any{"name": name})
		}
		if names == nil {
			im.refused(at, value, "want a list of {name: ...}")
			return
		}
		im.mapped(at, value, "imagePullSecrets", names, "the Secrets must be in namespace "+im.options.Namespace+", too")
	})(im, at, value)
}

// truth reads a boolean, also one that was written as a text.
func truth(value any) (on, ok bool) {
	switch value := value.(type) {
	case bool:
		return value, true
	case string:
		on, err := strconv.ParseBool(value)
		return on, err == nil
	default:
		return false, false
	}
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; ")
}

var errNotAList = errors.New("want a list")
