package bigip

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
)

// inventory is what of ours is on a device, as it was read or written last. Its values are replaced, never changed.
type inventory struct {
	mu        sync.Mutex
	partition bool           // it is there
	defaults  map[string]int // default route domain by partition; never changed once they are read
	pools     map[providers.Key]poolObject
	virtuals  map[providers.Key]map[string]virtualObject // by name
	helpers   map[providers.Key]map[string]helperObject  // by collection and name
	nodes     map[address]nodeObject                     // everybody's
	uses      map[string]int                             // members in pools of ours, by path of the node
	attached  map[string]poolObject                      // pools of others by path
}

func newInventory() *inventory {
	return &inventory{
		defaults: map[string]int{}, pools: map[providers.Key]poolObject{}, virtuals: map[providers.Key]map[string]virtualObject{},
		helpers: map[providers.Key]map[string]helperObject{}, nodes: map[address]nodeObject{}, uses: map[string]int{}, attached: map[string]poolObject{},
	}
}

func locked[T any](i *inventory, f func() T) T {
	i.mu.Lock()
	defer i.mu.Unlock()
	return f()
}

// pool returns a pool of ours; one without a name is not there.
func (i *inventory) pool(k providers.Key) poolObject {
	return locked(i, func() poolObject { return i.pools[k] })
}

// setPool enters a pool of ours, without a name takes it out, and returns the nodes that no member uses any more.
func (i *inventory) setPool(k providers.Key, p poolObject) (unused []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, m := range p.Members.Items {
		i.uses[m.node()]++
	}
	for _, m := range i.pools[k].Members.Items {
		node := m.node()
		if i.uses[node]--; i.uses[node] <= 0 {
			delete(i.uses, node)
			unused = append(unused, node)
		}
	}
	set(i.pools, k, p, p.Name != "")
	return unused
}

// virtualsOf returns the virtual servers of a key by name.
func (i *inventory) virtualsOf(k providers.Key) map[string]virtualObject {
	return locked(i, func() map[string]virtualObject { return maps.Clone(i.virtuals[k]) })
}

func (i *inventory) setVirtual(k providers.Key, name string, v virtualObject) {
	i.mu.Lock()
	defer i.mu.Unlock()
	put(i.virtuals, k, name, v, v.Name != "")
}

func helperKey(collection client.Collection, name string) string {
	return string(collection) + " " + name
}

func (i *inventory) helpersOf(k providers.Key) map[string]helperObject {
	return locked(i, func() map[string]helperObject { return maps.Clone(i.helpers[k]) })
}

func (i *inventory) setHelper(k providers.Key, collection client.Collection, name string, h helperObject) {
	i.mu.Lock()
	defer i.mu.Unlock()
	put(i.helpers, k, helperKey(collection, name), h, h.Name != "")
}

// node returns the node of an address.
func (i *inventory) node(a address) (nodeObject, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, ok := i.nodes[a]
	return n, ok
}

func (i *inventory) setNode(a address, n nodeObject) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.nodes[a] = n
}

// nodeAt returns the address of a node by its path, and the node.
func (i *inventory) nodeAt(path string, rd int) (address, nodeObject, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	partition, _, name := splitPath(path)
	a, ok := parseAddress(name, i.defaults[partition])
	n := i.nodes[a]
	return a, n, ok && n.FullPath == path && i.uses[path] == 0 && a.rd == rd
}

func (i *inventory) dropNode(a address) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.nodes, a)
}

// attachedPool returns a pool of somebody else by its path, if it was read.
func (i *inventory) attachedPool(path string) (poolObject, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	p, ok := i.attached[path]
	return p, ok
}

func (i *inventory) defaultDomain(partition string) int {
	return locked(i, func() int { return i.defaults[partition] })
}

func set[K comparable, V any](m map[K]V, k K, v V, there bool) {
	if there {
		m[k] = v
	} else {
		delete(m, k)
	}
}

func put[V any](m map[providers.Key]map[string]V, k providers.Key, name string, v V, there bool) {
	if m[k] == nil {
		m[k] = map[string]V{}
	}
	set(m[k], name, v, there)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

// helperCollections are where objects can be that a pool has beside it.
func helperCollections() []client.Collection {
	out := []client.Collection{client.SourceAddrs}
	for _, kind := range []string{"tcp", "http", "https", "udp", "gateway-icmp", "tcp-half-open"} {
		out = append(out, client.Monitors(kind))
	}
	return out
}

// list reads a collection.
func list[T any](ctx context.Context, d *device, collection client.Collection, o client.ListOptions) ([]T, error) {
	raw, err := d.client.List(ctx, collection, o)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(raw))
	for n := range raw {
		if err := json.Unmarshal(raw[n], &out[n]); err != nil {
			return nil, fail(providers.Unavailable, "read "+string(collection), err)
		}
	}
	return out, nil
}

// load reads everything of ours. strays are objects that stand among ours without our mark, or beside the one that counts.
func (d *device) load(ctx context.Context) (inv *inventory, strays []string, err error) {
	inv = newInventory()
	if err := d.readPartitions(ctx, inv); err != nil || !inv.partition {
		return inv, nil, err
	}
	var pools []poolObject
	var virtuals []virtualObject
	collections := helperCollections()
	helpers := make([][]helperObject, len(collections))
	group, ctx := errgroup.WithContext(ctx)
	here := client.ListOptions{Partition: d.cfg.Partition}
	expanded := client.ListOptions{Partition: d.cfg.Partition, Expand: true}
	group.Go(func() (err error) { pools, err = list[poolObject](ctx, d, client.Pools, expanded); return err })
	group.Go(func() (err error) { virtuals, err = list[virtualObject](ctx, d, client.Virtuals, expanded); return err })
	group.Go(func() error { return d.readNodes(ctx, inv) })
	for n, collection := range collections {
		group.Go(func() (err error) { helpers[n], err = list[helperObject](ctx, d, collection, here); return err })
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for _, p := range pools {
		k, ok := d.keyOf(p.Metadata)
		if !ok || p.Name != d.names.pool(k) { // a renamed copy must not take the place of the one that we made
			strays = append(strays, "pool "+p.FullPath)
			continue
		}
		d.locate(inv, &p)
		inv.setPool(k, p)
	}
	for _, v := range virtuals {
		if k, ok := d.keyOf(v.Metadata); ok {
			inv.setVirtual(k, v.Name, v)
		} else {
			strays = append(strays, "virtual server "+v.FullPath)
		}
	}
	for n, found := range helpers {
		for _, h := range found {
			if k, ok := d.keyOf(h.Metadata); ok {
				inv.setHelper(k, collections[n], h.Name, h)
			}
		}
	}
	slices.Sort(strays)
	return inv, strays, nil
}

// keyOf returns the key that an object of ours is marked with.
func (d *device) keyOf(m metadata) (providers.Key, bool) {
	k, ok := parseKey(m.get(markKey))
	return k, ok && d.names.owns(m)
}

// locate works out where a pool's members are.
func (d *device) locate(inv *inventory, p *poolObject) {
	for n := range p.Members.Items {
		p.Members.Items[n].locate(inv.defaults, p.FullPath, d.domainOf(inv))
	}
	slices.SortFunc(p.Members.Items, func(a, b memberObject) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.FullPath, b.FullPath))
	})
}

func (d *device) readPartitions(ctx context.Context, inv *inventory) error {
	type partition struct {
		Name   string `json:"name"`
		Domain int    `json:"defaultRouteDomain"`
	}
	all, err := list[partition](ctx, d, client.Partitions, client.ListOptions{})
	if err != nil {
		return err
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for _, p := range all {
		inv.defaults[p.Name] = p.Domain
		inv.partition = inv.partition || p.Name == d.cfg.Partition
	}
	return nil
}

// readNodes reads the nodes that the account can see, in every partition: an address can be in one node only.
func (d *device) readNodes(ctx context.Context, inv *inventory) error {
	all, err := list[nodeObject](ctx, d, client.Nodes, client.ListOptions{Select: []string{"name", "partition", "fullPath", "address", "metadata"}})
	if err != nil {
		return err
	}
	inv.mu.Lock()
	defer inv.mu.Unlock()
	clear(inv.nodes)
	for _, n := range all {
		if a, ok := parseAddress(n.Address, inv.defaults[n.Partition]); ok {
			inv.nodes[a] = n
		}
	}
	return nil
}
