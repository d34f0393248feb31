package providertest

import (
	"fmt"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// Render prints a State, Pool or VirtualServer for people and for comparison, one object or member a line. Member.Pod
// is left out, because a provider need not read it back.
func Render(v any) string {
	var b strings.Builder
	switch v := v.(type) {
	case providers.State:
		for _, p := range v.Pools {
			b.WriteString(Render(p))
		}
		for _, vs := range v.VirtualServers {
			b.WriteString(Render(vs))
		}
	case providers.Pool:
		fmt.Fprintf(&b, "pool %s %s\n", v.Key, v.Algorithm)
		for _, m := range v.Members {
			fmt.Fprintf(&b, "  %s %s %s\n", m.Address, m.State, m.PodUID)
		}
	case providers.VirtualServer:
		fmt.Fprintf(&b, "virtual server %s at", v.Key)
		for _, vip := range v.VIPs {
			fmt.Fprintf(&b, " %s", vip)
		}
		fmt.Fprintf(&b, " port %d\n", v.Port)
	default:
		panic(fmt.Sprintf("Render of %T", v))
	}
	return b.String()
}
