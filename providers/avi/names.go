package avi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// maxName is the longest name of an object (swagger), maxReadable how much of that is for people.
const (
	maxName     = 255
	maxReadable = maxName - 2 - 16
)

// The keys of our markers.
const (
	markCluster  = "nplbridge-cluster"
	markInstance = "nplbridge-instance"
	markService  = "nplbridge-service"  // namespace/name
	markPort     = "nplbridge-port"     // of a pool, "80/TCP"
	markPorts    = "nplbridge-ports"    // of a virtual service, see encodePort
	markSettings = "nplbridge-settings" // of a pool, see encodeSettings
	markShared   = "nplbridge-shared"   // VirtualServer.Shared
	markGroup    = "nplbridge-group"    // of an address that the Controller allocated, VIPRequest.Group
)

// marker is one label of an object.
type marker struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
}

// names makes names and marks. A name is for people to read and a hash of the owner and of what it stands for, so that neither a dash in a
// namespace, nor a long name, nor a second cluster with the same prefix makes two things share one.
type names struct {
	prefix string
	owner  providers.Owner
}

func (n names) hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{n.owner.ClusterUID, n.owner.Instance}, parts...), "\x00")))
	return hex.EncodeToString(sum[:8])
}

// name joins words for people and the hash of what it stands for.
func (n names) name(readable string, identity ...string) string {
	readable = n.prefix + "--" + readable
	return fmt.Sprintf("%s--%s", readable[:min(len(readable), maxReadable)], n.hash(identity...))
}

func (n names) pool(k providers.Key) string {
	return n.name(fmt.Sprintf("%s-%s-%s-%d", k.Namespace, k.Service, k.Protocol, k.Port), "pool", k.String())
}

// service names the virtual service and its policy set.
func (n names) service(s service) string {
	return n.name(s.namespace+"-"+s.name, "service", s.String())
}

// ofPool names what a pool has beside it, such as a monitor of one type.
func (n names) ofPool(k providers.Key, what string) string {
	return n.name(fmt.Sprintf("%s-%s-%s-%d-%s", k.Namespace, k.Service, k.Protocol, k.Port, what), what, k.String())
}

func (n names) vip(readable string, identity ...string) string {
	return n.name(readable, append([]string{"vip"}, identity...)...)
}

// createdBy is the value of created_by, of the objects that have one.
func (n names) createdBy() string { return "nplbridge/" + n.owner.String() }

// markers are those of every object with what it is beside.
func (n names) markers(more ...marker) []marker {
	out := []marker{{markCluster, []string{n.owner.ClusterUID}}, {markInstance, []string{n.owner.Instance}}}
	for _, m := range more {
		if len(m.Values) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// hasCreatedBy are the types with such a field that we write.
var hasCreatedBy = []string{typePool, typeVirtualService, typeL4PolicySet}

// owns reports whether an object carries our mark: both markers exactly, and created_by where there is one. A name proves nothing.
func (n names) owns(o client.Object) bool {
	var m struct {
		CreatedBy string   `json:"created_by"`
		Markers   []marker `json:"markers"`
	}
	if o.Decode(&m) != nil {
		return false
	}
	if slices.Contains(hasCreatedBy, o.Type) && m.CreatedBy != n.createdBy() {
		return false
	}
	return marked(m.Markers, markCluster) == n.owner.ClusterUID && marked(m.Markers, markInstance) == n.owner.Instance
}

// marked returns the value of a marker that has exactly one.
func marked(markers []marker, key string) string {
	if values := markedAll(markers, key); len(values) == 1 {
		return values[0]
	}
	return ""
}

func markedAll(markers []marker, key string) []string {
	for _, m := range markers {
		if m.Key == key {
			return m.Values
		}
	}
	return nil
}

// memberMark begins the external_uuid of our members in the pool of a key; the Pod's UID follows. It differs for each key, so two
// Services may be in the same pool of somebody else.
func (n names) memberMark(k providers.Key) string {
	return "nplbridge:" + n.hash("member", k.String()) + ":"
}

// service is the unit of virtual services: all ports of one Service.
type service struct{ namespace, name string }

func serviceOf(k providers.Key) service { return service{k.Namespace, k.Service} }

func (s service) String() string { return s.namespace + "/" + s.name }

// parseService reads String's form.
func parseService(text string) (service, bool) {
	namespace, name, ok := strings.Cut(text, "/")
	return service{namespace, name}, ok && namespace != "" && name != ""
}
