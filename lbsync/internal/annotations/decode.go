package annotations

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// Decode reads what the annotations of a Service and the fields of its spec ask for. What cannot be read is a Problem, never a failure of
// the rest; Wishes.Kept and Wishes.Unservable say what follows from it. Problems are sorted by Key. instances are the names of the provider
// instances; without any, every name is one.
//
// An annotation of ours goes before its aliases, those before the field that means the same. An alias that cannot be read is passed over,
// except that a pool keeps its settings: it never takes a Service out of service.
func Decode(values map[string]string, spec Spec, instances []string) (Wishes, []Problem) {
	d := &decoder{values: values, spec: spec, instances: instances, read: map[string]bool{}}
	d.fields()
	d.words()
	d.aliases()
	d.monitor()
	d.persistence()
	d.options()
	d.attached()
	d.unknown()
	switch value, set := values[npl.EnabledAnnotation]; {
	case set && value == "true":
		d.Enabled = Enabled
	case set:
		d.Enabled = Disabled
	}
	slices.SortFunc(d.problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Message, b.Message)) })
	return d.Wishes, d.problems
}

type decoder struct {
	Wishes
	values    map[string]string
	spec      Spec
	instances []string

	read       map[string]bool // words that are there, readable or not
	timeout    time.Duration   // PersistenceTimeout
	restricted Problem         // where SourceRanges were read from; without a message
	problems   []Problem
}

func (d *decoder) problem(key, value string, err error) {
	d.problems = append(d.problems, Problem{Key: key, Value: shorten(value), Message: err.Error()})
}

// fields reads what is not an annotation; annotations come after it and replace it.
func (d *decoder) fields() {
	if d.spec.SessionAffinity {
		d.Pool.Persistence = providers.Persistence{Kind: providers.SourceAddress, Timeout: d.spec.AffinityTimeout.Truncate(time.Second)}
	}
}

// words reads our own annotations. One that is empty is as if it were not there, except a restriction.
func (d *decoder) words() {
	for _, w := range vocabulary {
		value, set := d.values[w.Name]
		value = strings.TrimSpace(value)
		if w.read == nil || !set || value == "" && w.Name != SourceRanges {
			continue
		}
		d.read[w.Name] = true
		if w.Name == SourceRanges {
			d.restricted = Problem{Key: w.Name, Value: value}
		}
		if err := w.read(d, value); err != nil {
			d.problem(w.Name, value, err)
			if w.keep != nil {
				w.keep(&d.Wishes)
			}
		}
	}
}

// aliases reads the annotations of others, and the fields, that stand for words that are not there.
func (d *decoder) aliases() {
	taken := map[string]string{} // by word, the alias
	for _, a := range aliases {
		value := strings.TrimSpace(d.values[a.Name])
		if value == "" || d.ours(a.Word) {
			continue
		}
		if other := taken[a.Word]; other != "" {
			if value != strings.TrimSpace(d.values[other]) {
				d.problem(a.Name, value, fmt.Errorf("%q is not used, because %s is %q; remove one of them", shorten(value), other, shorten(d.values[other])))
			}
			continue
		}
		read := a.read
		if read == nil {
			read = wordOf(a.Word).read
		}
		if err := read(d, value); err != nil {
			d.problem(a.Name, value, err)
			d.Kept.Pool = d.Kept.Pool || a.Word == Monitor
			continue
		}
		taken[a.Word] = a.Name
	}
	if d.spec.LoadBalancerIP != "" && !d.read[LoadBalancerIPs] && taken[LoadBalancerIPs] == "" {
		addrs, err := ParseAddresses(d.spec.LoadBalancerIP)
		if err != nil {
			d.problem("spec.loadBalancerIP", d.spec.LoadBalancerIP, err)
			keepAddresses(&d.Wishes)
		}
		d.Addresses = addrs
	}
	d.restriction()
}

// restriction reads the fields that restrict clients. Whoever writes one of them relies on it.
func (d *decoder) restriction() {
	if d.read[SourceRanges] {
		return
	}
	key, fields := "spec.loadBalancerSourceRanges", d.spec.SourceRanges
	if value := strings.TrimSpace(d.values[legacyRanges]); len(fields) == 0 && value != "" {
		key, fields = legacyRanges, strings.Split(value, ",")
	}
	if len(fields) == 0 {
		return
	}
	d.restricted = Problem{Key: key, Value: strings.Join(fields, ",")}
	ranges, err := prefixes(fields, true)
	if err != nil {
		d.problem(key, d.restricted.Value, err)
		d.Kept.Virtual, d.Unservable = true, true
	}
	d.Virtual.SourceRanges = ranges
}

// legacyRanges is Kubernetes' own older form of spec.loadBalancerSourceRanges.
const legacyRanges = "service.beta.kubernetes.io/load-balancer-source-ranges"

// ours reports whether an annotation of ours says what an alias of word does.
func (d *decoder) ours(word string) bool {
	if word == Monitor {
		return slices.ContainsFunc(slices.Collect(maps.Keys(d.read)), isMonitor)
	}
	return d.read[word]
}

func isMonitor(word string) bool { return word == Monitor || strings.HasPrefix(word, Monitor+"-") }

// monitor checks that the parts of a monitor fit together. They are one wish: half of it could be a monitor that takes every member out.
func (d *decoder) monitor() {
	m := &d.Pool.Monitor
	bad := slices.ContainsFunc(d.problems, func(p Problem) bool { return isMonitor(p.Key) })
	wants := func(word string, fits bool, what string) {
		if d.read[word] && !fits && !bad {
			d.problem(word, d.values[word], fmt.Errorf("%q has no effect: %s; set that, or remove this", shorten(strings.TrimSpace(d.values[word])), what))
		}
	}
	before := len(d.problems)
	isHTTP := m.Type == providers.MonitorHTTP || m.Type == providers.MonitorHTTPS
	looks := m.Type != providers.MonitorNone && m.Type != providers.MonitorExisting
	wants(MonitorPath, isHTTP, "it goes with "+Monitor+" HTTP or HTTPS")
	wants(MonitorHost, isHTTP, "it goes with "+Monitor+" HTTP or HTTPS")
	wants(MonitorName, m.Type == providers.MonitorExisting, "it goes with "+Monitor+" Existing")
	for _, word := range []string{MonitorInterval, MonitorTimeout, MonitorRise, MonitorFall} {
		wants(word, looks, "it goes with a "+Monitor+" other than None and Existing")
	}
	wants(MonitorTimeout, m.Interval == 0 || m.Timeout <= m.Interval, "it is longer than "+MonitorInterval+", and a look must end before the next; it goes with a longer one")
	wants(Monitor, m.Type != providers.MonitorExisting || m.Name != "", "it goes with "+MonitorName+", which says which monitor")
	if bad || len(d.problems) > before {
		*m = providers.Monitor{}
		d.Kept.Pool = true
	}
}

func (d *decoder) persistence() {
	switch {
	case d.timeout == 0:
	case d.Pool.Persistence.Kind == "":
		if !d.Kept.Pool { // else it may be what cannot be read
			d.problem(PersistenceTimeout, d.values[PersistenceTimeout], fmt.Errorf("%q has no effect: it goes with %s or spec.sessionAffinity; set that, or remove this",
				shorten(strings.TrimSpace(d.values[PersistenceTimeout])), Persistence))
		}
	default:
		d.Pool.Persistence.Timeout = d.timeout
	}
}

// options collects the options of the kinds of load balancer.
func (d *decoder) options() {
	for _, key := range slices.Sorted(maps.Keys(d.values)) {
		prefix, name, ok := strings.Cut(key, "/")
		kind, ours := strings.CutSuffix(prefix, optionSuffix)
		switch value := d.values[key]; {
		case !ok || !ours:
		case kind != inMemory && !slices.Contains(Kinds(), kind):
			d.problem(key, value, fmt.Errorf("%q has no effect: %s is not a kind of load balancer%s; there are %s",
				shorten(value), shorten(kind), meant(kind, Kinds()), strings.Join(Kinds(), ", ")))
		case !optionSyntax.MatchString(name):
			d.problem(key, value, fmt.Errorf("%q has no effect: %q is not the name of an option; write lower-case words with dashes between them",
				shorten(value), shorten(name)))
		default:
			if d.Options == nil {
				d.Options = map[string]map[string]string{}
			}
			if d.Options[kind] == nil {
				d.Options[kind] = map[string]string{}
			}
			d.Options[kind][name] = strings.TrimSpace(value)
		}
	}
}

// optionSuffix follows the kind of load balancer in an option's key.
const optionSuffix = ".nplbridge.io"

// Kinds lists the kinds of load balancer, as providers.Capabilities names them.
func Kinds() []string { return []string{"avi", "bigip", "haproxy"} }

// inMemory is the kind that tests have.
const inMemory = "memory"

// attached says what has no effect, because pool and virtual server are somebody else's. A restriction is not let go of silently.
func (d *decoder) attached() {
	if len(d.Attachments) == 0 {
		return
	}
	none := func(key, value string) {
		if !slices.ContainsFunc(d.problems, func(p Problem) bool { return p.Key == key }) {
			d.problem(key, value, fmt.Errorf("%q has no effect: with %s, pool and virtual server are somebody else's; remove one of them", shorten(value), Pool))
		}
	}
	for _, w := range vocabulary {
		if d.read[w.Name] && !w.foreign && w.Name != SourceRanges {
			none(w.Name, d.values[w.Name])
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(d.Options)) {
		for _, name := range slices.Sorted(maps.Keys(d.Options[kind])) {
			none(kind+optionSuffix+"/"+name, d.Options[kind][name])
		}
	}
	if len(d.Virtual.SourceRanges) > 0 {
		d.Unservable = true
		d.problem(d.restricted.Key, d.restricted.Value, fmt.Errorf("%q cannot be enforced: with %s, the virtual server is somebody else's, so the Service is not "+
			"served; remove one of them", shorten(d.restricted.Value), Pool))
	}
	d.Addresses, d.AddressPool, d.SharedVIP, d.Providers, d.Options = nil, "", "", nil, nil
	d.Pool, d.Virtual = providers.PoolSettings{}, providers.VirtualServerSettings{}
	d.Kept = Kept{Structure: d.Kept.Structure}
}

// unknown finds annotations of ours that are none.
func (d *decoder) unknown() {
	for key, value := range d.values {
		if !strings.HasPrefix(key, ClassPrefix) {
			continue
		}
		switch on := where[key]; on {
		case "Service":
		case "":
			d.problem(key, value, fmt.Errorf("%q has no effect: there is no annotation of this name%s; mend the name, or remove it",
				shorten(value), meant(key, slices.Sorted(maps.Keys(where)))))
		default:
			d.problem(key, value, fmt.Errorf("%q has no effect on a Service; set it on the %s", shorten(value), on))
		}
	}
}

// where says on which object each annotation of ours stands, also those that lbsync sets.
var where = func() map[string]string {
	out := map[string]string{AssignedIPs: "Service", AttachedTo: "Service", ManagedBy: "Service", EnabledBy: "Service"}
	for _, w := range vocabulary {
		out[w.Name] = w.On
	}
	return out
}()

// wordOf returns the entry of a Word.
func wordOf(name string) entry {
	return vocabulary[slices.IndexFunc(vocabulary, func(w entry) bool { return w.Name == name })]
}

// ParseWeight reads Weight, 1 to 20; nil is no Problem.
func ParseWeight(value string) (uint8, *Problem) {
	n, err := count(strings.TrimSpace(value), 1, mostWeight)
	if err != nil {
		return 0, &Problem{Key: Weight, Value: shorten(value), Message: err.Error()}
	}
	return uint8(n), nil
}

// mostWeight is the most that every load balancer can weigh.
const mostWeight = 20

// ParseDrain reads Drain; empty is false. nil is no Problem.
func ParseDrain(value string) (bool, *Problem) {
	value = strings.TrimSpace(value)
	if value == "" {
		return false, nil
	}
	drain, err := truth(value)
	if err != nil {
		return false, &Problem{Key: Drain, Value: shorten(value), Message: err.Error()}
	}
	return drain, nil
}
