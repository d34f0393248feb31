package document

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers"
)

// Changes describes changes, sorted by key; of one key the pool comes first.
func Changes(c providers.Changes) []Change {
	var out []Change
	for _, p := range c.Pools {
		out = append(out, poolChange(p))
	}
	for _, v := range c.VirtualServers {
		out = append(out, virtualServerChange(v))
	}
	slices.SortStableFunc(out, func(a, b Change) int { return cmp.Compare(a.Key, b.Key) })
	return out
}

func poolChange(p providers.PoolChange) Change {
	out := Change{Key: p.Key.String(), Object: PoolObject, Op: op(p.Old == nil, p.New == nil)}
	var before, after []setting
	had := map[providers.MemberID]providers.Member{}
	if p.Old != nil {
		before = poolSettings(*p.Old)
		for _, m := range p.Old.Members {
			had[m.ID()] = m
		}
	}
	if p.New != nil {
		after = poolSettings(*p.New)
	} else if p.Old != nil {
		for _, m := range p.Old.Members {
			out.Steps = append(out.Steps, Step{Op: "-", What: memberText(m)})
		}
	}
	out.Steps = append(differences(before, after), out.Steps...)
	for _, m := range p.Members {
		out.Steps = append(out.Steps, memberStep(m, had[m.Member.ID()]))
	}
	return out
}

func memberStep(m providers.MemberChange, before providers.Member) Step {
	step := Step{What: memberText(m.Member)}
	switch m.Op {
	case providers.AddMember:
		step.Op = "+"
		if m.Member.State != providers.Enabled {
			step.What += " " + string(m.Member.State)
		}
	case providers.RemoveMember:
		step.Op = "-"
	case providers.WeighMember:
		step.Op, step.What = "~", step.What+" weight"
		step.From, step.To = fmt.Sprint(max(1, before.Weight)), fmt.Sprint(max(1, m.Member.Weight))
	case providers.EnableMember, providers.DrainMember:
		step.Op, step.From, step.To = "~", string(before.State), string(m.Member.State)
	}
	return step
}

func memberText(m providers.Member) string {
	return strings.TrimSpace(m.Address.String() + " " + cmp.Or(m.Name, m.UID))
}

func virtualServerChange(v providers.VirtualServerChange) Change {
	var before, after []setting
	if v.Old != nil {
		before = virtualServerSettings(*v.Old)
	}
	if v.New != nil {
		after = virtualServerSettings(*v.New)
	}
	return Change{Key: v.Key.String(), Object: VirtualServerObject, Op: op(v.Old == nil, v.New == nil), Steps: differences(before, after)}
}

func op(creates, deletes bool) string {
	switch {
	case creates:
		return Create
	case deletes:
		return Delete
	default:
		return Modify
	}
}

// setting is one setting that is not as the provider likes.
type setting struct{ name, value string }

func poolSettings(p providers.Pool) (out []setting) {
	s := p.Settings
	add := adder(&out)
	add("attached", p.Attached)
	add("algorithm", string(s.Algorithm))
	add("persistence", string(s.Persistence.Kind))
	add("persistence timeout", duration(s.Persistence.Timeout))
	add("monitor", string(s.Monitor.Type))
	add("monitor name", s.Monitor.Name)
	add("monitor path", s.Monitor.Path)
	add("monitor host", s.Monitor.Host)
	add("monitor interval", duration(s.Monitor.Interval))
	add("monitor timeout", duration(s.Monitor.Timeout))
	add("monitor rise", count(int(s.Monitor.Rise)))
	add("monitor fall", count(int(s.Monitor.Fall)))
	add("PROXY protocol", string(s.ProxyProtocol))
	add("slow start", duration(s.SlowStart))
	add("member connections", count(int(s.MemberConnections)))
	options(add, s.Options)
	return out
}

func virtualServerSettings(v providers.VirtualServer) (out []setting) {
	s := v.Settings
	add := adder(&out)
	add("addresses", list(v.VIPs))
	add("port", fmt.Sprint(v.Port))
	add("shared by", v.Shared)
	add("source ranges", list(s.SourceRanges))
	add("idle timeout", duration(s.IdleTimeout))
	if s.AcceptProxyProtocol {
		add("takes PROXY protocol", "true")
	}
	options(add, s.Options)
	return out
}

func adder(out *[]setting) func(name, value string) {
	return func(name, value string) {
		if value != "" {
			*out = append(*out, setting{name, value})
		}
	}
}

func options(add func(name, value string), values map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		add("option "+name, values[name])
	}
}

func duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

func count(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func list[T fmt.Stringer](values []T) string {
	texts := make([]string, 0, len(values))
	for _, v := range values {
		texts = append(texts, v.String())
	}
	return strings.Join(texts, ", ")
}

// differences returns the steps from one list of settings to another, in their order.
func differences(before, after []setting) []Step {
	var steps []Step
	find := func(in []setting, name string) (string, bool) {
		i := slices.IndexFunc(in, func(s setting) bool { return s.name == name })
		if i < 0 {
			return "", false
		}
		return in[i].value, true
	}
	for _, s := range after {
		switch was, had := find(before, s.name); {
		case !had:
			steps = append(steps, Step{Op: "+", What: s.name + " " + s.value})
		case was != s.value:
			steps = append(steps, Step{Op: "~", What: s.name, From: was, To: s.value})
		}
	}
	for _, s := range before {
		if _, has := find(after, s.name); !has {
			steps = append(steps, Step{Op: "-", What: s.name + " " + s.value})
		}
	}
	return steps
}
