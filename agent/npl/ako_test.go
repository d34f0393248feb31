package npl_test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/nplbridge/nplbridge/agent/npl"
)

// What AKO decodes of the annotation with cniPlugin antrea: three fields, whatever else is there.
type akoMapping struct {
	PodPort  int    `json:"podPort"`
	NodeIP   string `json:"nodeIP"`
	NodePort int    `json:"nodePort"`
}

func TestAVI52StockAKOReadsTheAnnotation(t *testing.T) {
	var got []akoMapping
	text := npl.Encode([]npl.Mapping{
		{PodPort: 8080, NodeIP: netip.MustParseAddr("198.51.100.11"), NodePort: 61000, Protocol: npl.TCP, Family: npl.IPv4},
		{PodPort: 8081, NodeIP: netip.MustParseAddr("198.51.100.11"), NodePort: 61001, Protocol: npl.TCP, Family: npl.IPv4},
	})
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != (akoMapping{8080, "198.51.100.11", 61000}) || got[1] != (akoMapping{8081, "198.51.100.11", 61001}) {
		t.Errorf("%s is read as %v", text, got)
	}
}
