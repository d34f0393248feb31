// Package npl is the contract between whoever opens node ports for Pods and whoever reads them: two annotation keys, the
// Mapping they speak of, a decoder that accepts every form Antrea ever wrote, and one canonical encoder.
//
// It uses the standard library only, so that any consumer can import it.
package npl

import (
	"cmp"
	"fmt"
	"net/netip"
)

const (
	// EnabledAnnotation on a Service asks for node ports for the Pods it selects. Only the value "true" counts; see Enabled.
	EnabledAnnotation = "nodeportlocal.antrea.io/enabled"
	// Annotation on a Pod lists its node ports; see Decode and Encode.
	Annotation = "nodeportlocal.antrea.io"
)

// Enabled reports whether a Service with these annotations asks for node ports. As in Antrea the value must be exactly
// "true": "True", "1" or " true" do not count.
func Enabled(annotations map[string]string) bool { return annotations[EnabledAnnotation] == "true" }

// Protocol is a transport protocol as the annotation spells it: in lower case.
type Protocol string

// The protocols a mapping can have. Antrea itself writes only TCP and UDP.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// Family is an IP family as the annotation and Service.spec.ipFamilies spell it.
type Family string

// The two IP families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// FamilyOf returns the family of a; an IPv4 address written as IPv6 (::ffff:192.0.2.1) is IPv4.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// Mapping says that NodeIP:NodePort leads to PodPort of the annotated Pod. PodPort, Protocol and Family together are its
// identity within the Pod.
type Mapping struct {
	PodPort  uint16     // 1..65535
	NodeIP   netip.Addr // an address of the Pod's Node, of Family, without zone
	NodePort uint16     // 1..65535
	Protocol Protocol
	Family   Family
}

// Compare orders mappings by PodPort, Protocol, Family, NodeIP and NodePort: the order Encode writes.
func (m Mapping) Compare(o Mapping) int {
	return cmp.Or(
		cmp.Compare(m.PodPort, o.PodPort),
		cmp.Compare(m.Protocol, o.Protocol),
		cmp.Compare(m.Family, o.Family),
		m.NodeIP.Compare(o.NodeIP),
		cmp.Compare(m.NodePort, o.NodePort),
	)
}

// String returns "nodeIP:nodePort->podPort/protocol".
func (m Mapping) String() string {
	return fmt.Sprintf("%s->%d/%s", netip.AddrPortFrom(m.NodeIP, m.NodePort), m.PodPort, m.Protocol)
}
