package avi

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// inventory is what of ours is on the Controller, as it was read or written last. Its values are replaced, never changed.
type inventory struct {
	mu       sync.Mutex
	pools    map[providers.Key]client.Object
	helpers  map[providers.Key]map[string]client.Object // by helperKey
	services map[service]virtual
	vips     map[string]address // VsVips by UUID
}

// virtual is a virtual service and the policy set that belongs to it; either may be missing.
type virtual struct {
	service, policies client.Object
	vsVip             string // UUID of the one that the virtual service leads to
}

func (v *virtual) setService(o client.Object) {
	v.service, v.vsVip = o, client.ParseRef(decoded[virtualService](o).VsVip).UUID
}

// address is a VsVip with what is looked for among them.
type address struct {
	client.Object
	addrs []netip.Addr // sorted
	group string       // VIPRequest.Group of one that the Controller allocated, else empty
}

func addressOf(o client.Object) address {
	v := decoded[vsVip](o)
	return address{o, v.addresses(), marked(v.Markers, markGroup)}
}

func helperKey(typ, name string) string { return typ + "/" + name }

func newInventory() *inventory {
	return &inventory{
		pools: map[providers.Key]client.Object{}, helpers: map[providers.Key]map[string]client.Object{},
		services: map[service]virtual{}, vips: map[string]address{},
	}
}

func locked[T any](i *inventory, f func() T) T {
	i.mu.Lock()
	defer i.mu.Unlock()
	return f()
}

func (i *inventory) pool(k providers.Key) client.Object {
	return locked(i, func() client.Object { return i.pools[k] })
}

// setPool enters a pool; one without UUID is none.
func (i *inventory) setPool(k providers.Key, o client.Object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	set(i.pools, k, o, o.UUID != "")
}

func (i *inventory) helper(k providers.Key, typ, name string) client.Object {
	return locked(i, func() client.Object { return i.helpers[k][helperKey(typ, name)] })
}

// setHelper enters what a pool has beside it; an object without UUID is none.
func (i *inventory) setHelper(k providers.Key, typ, name string, o client.Object) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.helpers[k] == nil {
		i.helpers[k] = map[string]client.Object{}
	}
	set(i.helpers[k], helperKey(typ, name), o, o.UUID != "")
	if len(i.helpers[k]) == 0 {
		delete(i.helpers, k)
	}
}

// helpersOf returns all that a pool has beside it.
func (i *inventory) helpersOf(k providers.Key) []client.Object {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []client.Object
	for _, name := range slices.Sorted(maps.Keys(i.helpers[k])) {
		out = append(out, i.helpers[k][name])
	}
	return out
}

func (i *inventory) virtual(s service) virtual {
	return locked(i, func() virtual { return i.services[s] })
}

func (i *inventory) setVirtual(s service, change func(*virtual)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	v := i.services[s]
	change(&v)
	set(i.services, s, v, v.service.UUID != "" || v.policies.UUID != "")
}

func (i *inventory) setVip(o client.Object) address {
	a := addressOf(o)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.vips[o.UUID] = a
	return a
}

func (i *inventory) dropVip(uuid string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.vips, uuid)
}

// findVips returns the VsVips that match accepts, in the order of names.
func (i *inventory) findVips(match func(address) bool) []address {
	i.mu.Lock()
	defer i.mu.Unlock()
	var out []address
	for _, a := range i.vips {
		if match(a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b address) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// vipUsed reports whether a virtual service of ours leads to a VsVip.
func (i *inventory) vipUsed(uuid string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, v := range i.services {
		if v.vsVip == uuid {
			return true
		}
	}
	return false
}

func set[K comparable, V any](m map[K]V, k K, v V, there bool) {
	if there {
		m[k] = v
	} else {
		delete(m, k)
	}
}

// decoded reads an object that was readable before.
func decoded[T any](o client.Object) T {
	var v T
	if o.UUID != "" {
		_ = o.Decode(&v) // it was read as JSON when it arrived; a field of another type stays zero and shows as a difference
	}
	return v
}

// keyOf returns the key that a pool's or helper's markers name; zero if they name none.
func keyOf(o client.Object) providers.Key {
	var m struct {
		Markers []marker `json:"markers"`
	}
	_ = o.Decode(&m) // without markers there is no key
	s, ok := parseService(marked(m.Markers, markService))
	port, protocol, _ := strings.Cut(marked(m.Markers, markPort), "/")
	number, err := strconv.ParseUint(port, 10, 16)
	if !ok || err != nil || number == 0 || protocol == "" {
		return providers.Key{}
	}
	return providers.Key{Namespace: s.namespace, Service: s.name, Port: uint16(number), Protocol: providers.Protocol(protocol)}
}

// serviceMarker returns the Service that a virtual service's or policy set's markers name.
func serviceMarker(o client.Object) (service, bool) {
	var m struct {
		Markers []marker `json:"markers"`
	}
	_ = o.Decode(&m)
	return parseService(marked(m.Markers, markService))
}

// load reads everything of ours. foreign are objects with our mark that stand beside the one that counts.
func (p *Provider) load(ctx context.Context) (inv *inventory, strays []string, err error) {
	lists := []struct{ typ, fields, join string }{
		{typePool, poolFields, "runtime"}, {typeVirtualService, virtualServiceFields, ""}, {typeVsVip, vsVipFields, ""},
		{typeL4PolicySet, policySetFields, ""}, {typeMonitor, monitorFields, ""}, {typePersistence, persistenceFields, ""},
	}
	results := make([][]client.Object, len(lists))
	group, ctx := errgroup.WithContext(ctx)
	for n, l := range lists {
		group.Go(func() (err error) {
			results[n], err = p.list(ctx, l.typ, l.fields, l.join)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	inv = newInventory()
	stray := func(o client.Object) { strays = append(strays, o.Type+" "+o.Name) }
	for _, o := range slices.Concat(results...) {
		switch o.Type {
		case typePool:
			k := keyOf(o)
			// A renamed copy must not take the place of the one that we made.
			if old, taken := inv.pools[k]; k == (providers.Key{}) || (taken && old.Name == p.names.pool(k)) {
				stray(o)
			} else {
				if taken {
					stray(old)
				}
				inv.pools[k] = o
			}
		case typeVirtualService, typeL4PolicySet:
			s, ok := serviceMarker(o)
			v := inv.services[s]
			old, place := v.service, v.setService
			if o.Type == typeL4PolicySet {
				old, place = v.policies, func(o client.Object) { v.policies = o }
			}
			if !ok || old.Name == p.names.service(s) {
				stray(o)
				continue
			}
			if old.UUID != "" {
				stray(old)
			}
			place(o)
			inv.services[s] = v
		case typeVsVip:
			inv.vips[o.UUID] = addressOf(o)
		default:
			inv.setHelper(keyOf(o), o.Type, o.Name, o)
		}
	}
	return inv, strays, nil
}

// list returns the objects of a type that carry our mark. The Controller filters by cluster, we by all of it.
func (p *Provider) list(ctx context.Context, typ, fields, join string) ([]client.Object, error) {
	q := url.Values{"fields": {fields}, "label_key": {markCluster}, "label_value": {p.owner.ClusterUID}}
	if join != "" {
		q.Set("join_subresources", join)
	}
	all, err := p.client.List(ctx, typ, q)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(o client.Object) bool { return !p.names.owns(o) }), nil
}
