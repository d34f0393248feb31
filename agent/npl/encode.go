package npl

import (
	"encoding/json"
	"net/netip"
	"slices"
)

// wireMapping has Antrea's field names in Antrea's order (v2.6 and later).
type wireMapping struct {
	PodPort  uint16     `json:"podPort"`
	NodeIP   netip.Addr `json:"nodeIP"`
	NodePort uint16     `json:"nodePort"`
	Protocol Protocol   `json:"protocol"`
	IPFamily Family     `json:"ipFamily"`
}

// Encode returns the value of Annotation for ms: sorted, without duplicates, so that equal sets give equal strings. No
// mappings give "[]"; a Pod without mappings should not have the annotation at all.
func Encode(ms []Mapping) string {
	wire := make([]wireMapping, 0, len(ms))
	for _, m := range Canonical(ms) {
		wire = append(wire, wireMapping{m.PodPort, m.NodeIP, m.NodePort, m.Protocol, m.Family})
	}
	b, err := json.Marshal(wire)
	if err != nil { // numbers, addresses and plain strings always marshal
		panic("npl: encoding mappings: " + err.Error())
	}
	return string(b)
}

// Canonical returns a sorted copy of ms without duplicates.
func Canonical(ms []Mapping) []Mapping {
	out := slices.Clone(ms)
	slices.SortFunc(out, Mapping.Compare)
	return slices.Compact(out)
}

// Equal reports whether a and b hold the same set of mappings; order and repetition do not matter.
func Equal(a, b []Mapping) bool { return slices.Equal(Canonical(a), Canonical(b)) }
