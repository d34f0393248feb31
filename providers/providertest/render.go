package providertest

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// Render prints a State, Pool or VirtualServer for people and for comparison, one object or member a line. Member.Name
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
		fmt.Fprintf(&b, "pool %s", v.Key)
		if v.Attached != "" {
			fmt.Fprintf(&b, " attached to %q", v.Attached)
		}
		fmt.Fprintf(&b, "%s\n", renderSettings(v.Settings))
		for _, m := range v.Members {
			fmt.Fprintf(&b, "  %s %s %s", m.Address, m.State, m.UID)
			if m.Weight > 1 {
				fmt.Fprintf(&b, " weight %d", m.Weight)
			}
			b.WriteString("\n")
		}
	case providers.VirtualServer:
		fmt.Fprintf(&b, "virtual server %s at", v.Key)
		for _, vip := range v.VIPs {
			fmt.Fprintf(&b, " %s", vip)
		}
		fmt.Fprintf(&b, " port %d", v.Port)
		if v.Shared != "" {
			fmt.Fprintf(&b, " shared by %s", v.Shared)
		}
		fmt.Fprintf(&b, "%s\n", renderSettings(v.Settings))
	default:
		panic(fmt.Sprintf("Render of %T", v))
	}
	return b.String()
}

// renderSettings prints the fields of settings that are not zero.
func renderSettings(settings any) string {
	var b strings.Builder
	v := reflect.ValueOf(settings)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			fmt.Fprintf(&b, " %s=%v", v.Type().Field(i).Name, f.Interface())
		}
	}
	return b.String()
}
