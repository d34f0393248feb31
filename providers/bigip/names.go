package bigip

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// maxName is the longest name of an object, with some room below what a device takes.
const (
	maxName     = 240
	maxReadable = maxName - 2 - 16
)

// The names of our metadata.
const (
	markCluster  = "nplbridge-cluster"
	markInstance = "nplbridge-instance"
	markKey      = "nplbridge-key"      // "namespace/name:80/TCP", of all but nodes
	markSettings = "nplbridge-settings" // of a pool, see encodePool
	markVirtual  = "nplbridge-virtual"  // of a virtual server, see encodeVirtual
	markMember   = "nplbridge-member"   // "<hash of owner and key>:<UID>"
	markDraining = "nplbridge-draining" // of a member that we disabled; one that is disabled without it was disabled by an operator
)

// metadatum is one pair of an object's metadata.
type metadatum struct {
	Name    string `json:"name"`
	Persist string `json:"persist,omitempty"`
	Value   string `json:"value,omitempty"`
}

type metadata []metadatum

func (m metadata) get(name string) string {
	for _, d := range m {
		if d.Name == name {
			return d.Value
		}
	}
	return ""
}

// with returns the metadata with ours in place of what was ours; pairs of others stay.
func (m metadata) with(ours metadata) metadata {
	out := slices.DeleteFunc(slices.Clone(m), func(d metadatum) bool { return strings.HasPrefix(d.Name, "nplbridge-") })
	return append(out, ours...)
}

// ours are the pairs of ours, sorted.
func (m metadata) ours() metadata {
	out := slices.DeleteFunc(slices.Clone(m), func(d metadatum) bool { return !strings.HasPrefix(d.Name, "nplbridge-") })
	for i := range out {
		out[i].Persist = ""
	}
	slices.SortFunc(out, func(a, b metadatum) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (m metadata) sameOurs(o metadata) bool { return slices.Equal(m.ours(), o.ours()) }

// names makes names and marks. A name is for people to read and a hash of the owner and of what it stands for, so that neither a dash in a
// namespace, nor a long name, nor a second cluster with the same prefix makes two things share one.
type names struct {
	prefix, partition string
	owner             providers.Owner
}

func (n names) hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{n.owner.ClusterUID, n.owner.Instance}, parts...), "\x00")))
	return hex.EncodeToString(sum[:8])
}

// of returns the name of what a key has of one kind.
func (n names) of(k providers.Key, kind, suffix string) string {
	readable := fmt.Sprintf("%s--%s-%s-%s-%d%s", n.prefix, k.Namespace, k.Service, k.Protocol, k.Port, suffix)
	return readable[:min(len(readable), maxReadable)] + "--" + n.hash(kind, k.String())
}

// path is a name in our partition.
func (n names) path(name string) string { return "/" + n.partition + "/" + name }

func (n names) pool(k providers.Key) string { return n.of(k, "pool", "") }

// virtual names the virtual server of one family and source range; an invalid range is everybody.
func (n names) virtual(k providers.Key, is4 bool, from netip.Prefix) string {
	family, kind := "-v6", "virtual"
	if is4 {
		family = "-v4"
	}
	if from.IsValid() {
		kind += " " + from.String()
	}
	return n.of(k, kind+family, family)
}

// mark is the metadata of every object of ours.
func (n names) mark(more ...metadatum) metadata {
	out := metadata{{markCluster, "true", n.owner.ClusterUID}, {markInstance, "true", n.owner.Instance}}
	for _, m := range more {
		if m.Value != "" {
			m.Persist = "true"
			out = append(out, m)
		}
	}
	return out
}

// owns reports whether an object carries our mark. A name proves nothing.
func (n names) owns(m metadata) bool {
	return m.get(markCluster) == n.owner.ClusterUID && m.get(markInstance) == n.owner.Instance
}

// memberMark begins the mark of our members in the pool of a key; the UID follows. It differs for each key, so two Services may be in the same
// pool of somebody else.
func (n names) memberMark(k providers.Key) string { return n.hash("member", k.String()) + ":" }

// parseKey reads Key.String's form; ok is false for any other.
func parseKey(text string) (k providers.Key, ok bool) {
	text, protocol, ok1 := cutLast(text, "/")
	text, port, ok2 := cutLast(text, ":")
	namespace, service, ok3 := strings.Cut(text, "/")
	number, err := strconv.ParseUint(port, 10, 16)
	k = providers.Key{Namespace: namespace, Service: service, Port: uint16(number), Protocol: providers.Protocol(protocol)}
	return k, ok1 && ok2 && ok3 && err == nil && number > 0 && k.String() == text+":"+port+"/"+protocol
}

func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// encodeVirtual writes what a virtual server was asked to be as one value.
func encodeVirtual(v providers.VirtualServer) string {
	q := url.Values{"port": {strconv.Itoa(int(v.Port))}}
	for _, vip := range v.VIPs {
		q.Add("vip", vip.String())
	}
	for _, from := range v.Settings.SourceRanges {
		q.Add("from", from.String())
	}
	if v.Shared != "" {
		q.Set("shared", v.Shared)
	}
	for name, value := range v.Settings.Options {
		q.Set("option."+name, value)
	}
	return q.Encode()
}

// decodeVirtual reads encodeVirtual's form. What it does not know is an error: the mark was edited.
func decodeVirtual(k providers.Key, text string) (providers.VirtualServer, error) {
	v := providers.VirtualServer{Key: k}
	q, err := url.ParseQuery(text)
	if err != nil {
		return v, err
	}
	port, err := strconv.ParseUint(q.Get("port"), 10, 16)
	if err != nil || port == 0 {
		return v, fmt.Errorf("port %q", q.Get("port"))
	}
	v.Port, v.Shared = uint16(port), q.Get("shared")
	for _, text := range q["vip"] {
		vip, err := netip.ParseAddr(text)
		if err != nil {
			return v, err
		}
		v.VIPs = append(v.VIPs, vip)
	}
	for _, text := range q["from"] {
		from, err := netip.ParsePrefix(text)
		if err != nil {
			return v, err
		}
		v.Settings.SourceRanges = append(v.Settings.SourceRanges, from)
	}
	for name, values := range q {
		option, is := strings.CutPrefix(name, "option.")
		switch {
		case is && len(values) == 1:
			if v.Settings.Options == nil {
				v.Settings.Options = map[string]string{}
			}
			v.Settings.Options[option] = values[0]
		case name != "port" && name != "vip" && name != "from" && name != "shared":
			return v, fmt.Errorf("unknown %q", name)
		}
	}
	if encodeVirtual(v) != text {
		return v, fmt.Errorf("%q is not as we write it", text)
	}
	return v, nil
}
