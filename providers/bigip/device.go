package bigip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
	"github.com/nplbridge/nplbridge/providers/internal/locks"
	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// device is one BIG-IP. What it is told is in force there when its methods return.
type device struct {
	cfg    Config
	url    string
	names  names
	log    *zap.Logger
	clock  clock.Clock
	client *client.Client
	keeper *keeper
	keyed  locks.Named
	turns  chan struct{} // one for each key that is worked on
	signs  chan struct{} // of life: it has answered something

	known     atomic.Pointer[inventory]
	nodesKept atomic.Int64 // nodes of ours that could not be deleted because somebody uses them

	mu      sync.Mutex
	role    client.Role
	seen    time.Time       // when role was asked last
	orphans []providers.Key // with monitors and profiles and without a pool
}

// domain is the route domain of nodes and virtual servers, defaultDomain that of our partition, as far as they were read.
func (d *device) domain() int { return d.domainOf(d.known.Load()) }

func (d *device) domainOf(inv *inventory) int {
	if d.cfg.RouteDomain != PartitionDomain || inv == nil {
		return max(d.cfg.RouteDomain, 0)
	}
	return inv.defaults[d.cfg.Partition] // which never change once they were read
}

func (d *device) defaultDomain() int {
	if inv := d.known.Load(); inv != nil {
		return inv.defaultDomain(d.cfg.Partition)
	}
	return 0
}

// newDevice opens nothing.
func newDevice(cfg Config, url string, owner providers.Owner, log *zap.Logger, s settings) (*device, error) {
	signs := make(chan struct{}, 1)
	observe := func(method, endpoint string, status int, took time.Duration) {
		if status != 0 {
			select {
			case signs <- struct{}{}:
			default:
			}
		}
		if s.observe != nil {
			s.observe(method, endpoint, status, took)
		}
	}
	c, err := client.New(client.Config{
		REST: rest.Config{
			BaseURL: url, CAFile: cfg.CAFile, ServerName: cfg.ServerName, Insecure: cfg.Insecure, Timeout: cfg.RequestTimeout,
			MaxInFlight: cfg.MaxInFlight, UserAgent: "nplbridge", Observe: observe,
		},
		Username: cfg.Username, PasswordFile: cfg.PasswordFile, Basic: cfg.BasicAuth, Clock: s.clock,
	})
	if err != nil {
		return nil, err
	}
	d := &device{cfg: cfg, url: url, names: names{cfg.Prefix, cfg.Partition, owner}, log: log.With(zap.String("device", url)), clock: s.clock, client: c, keyed: locks.Named{Owner: "bigip"},
		turns: make(chan struct{}, cfg.MaxInFlight), signs: signs}
	d.keeper = newKeeper(s.clock, d.log,
		&job{what: "config-sync", delay: cfg.SyncDelay, run: d.syncToGroup},
		&job{what: "save the configuration", delay: cfg.SaveDelay, run: d.client.Save})
	return d, nil
}

func (d *device) close() {
	d.keeper.close()
	d.client.Close()
}

// ask finds out which role the device has.
func (d *device) ask(ctx context.Context) (client.Role, error) {
	r, err := d.client.Role(ctx, d.cfg.Partition)
	if client.NotFound(err) { // of the folder: the partition is not there yet, and belongs to the default group then
		r, err = d.client.Role(ctx, "Common")
	}
	if err != nil {
		return client.Role{}, d.classify("ask for its role", err)
	}
	if r.Peers > 0 && r.TrafficGroup == "none" {
		return client.Role{}, fail(providers.Misconfigured, "partition "+d.cfg.Partition,
			errors.New("its folder has no traffic group, so no device is the active one for it; give it one, such as traffic-group-1"))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.role, d.seen = r, d.clock.Now()
	return r, nil
}

// roleAge is how long a device counts as active after it said so.
const roleAge = time.Second

// active asks whether the device still is the active one, unless it said so a moment ago.
func (d *device) active(ctx context.Context) (bool, error) {
	d.mu.Lock()
	r, seen := d.role, d.seen
	d.mu.Unlock()
	if r.Peers == 0 || (r.Active && d.clock.Since(seen) < roleAge) {
		return r.Active, nil
	}
	if r.TrafficGroup == "" { // then it is the device's own state that tells, which ask reads
		now, err := d.ask(ctx)
		return now.Active, err
	}
	var group string
	var active bool
	var errs [2]error
	var asking sync.WaitGroup
	asking.Go(func() { group, errs[0] = d.client.TrafficGroup(ctx, d.cfg.Partition) })
	asking.Go(func() { active, errs[1] = d.client.ActiveFor(ctx, r.TrafficGroup, r.Hostname, r.State) })
	asking.Wait()
	if client.NotFound(errs[0]) || client.NotFound(errs[1]) || (errs[0] == nil && group != r.TrafficGroup) {
		now, err := d.ask(ctx)
		return now.Active, err
	}
	if err := firstOf(errs[:]); err != nil {
		return false, d.classify("ask for its role", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.role.Active, d.seen = active, d.clock.Now()
	return active, nil
}

// syncToGroup brings the configuration to the other devices, from the active one only and where they do not do so by themselves.
func (d *device) syncToGroup(ctx context.Context) error {
	r, err := d.ask(ctx)
	if err != nil || !r.Active {
		return err
	}
	var errs []error
	for _, g := range r.Groups {
		if !g.AutoSync {
			errs = append(errs, d.client.SyncToGroup(ctx, g.Name))
		}
	}
	return errors.Join(errs...)
}

// read reads everything, makes it what is known, and returns it.
func (d *device) read(ctx context.Context) (*inventory, []string, error) {
	var declared bool
	var asked error
	var asking sync.WaitGroup
	asking.Go(func() { declared, asked = d.client.Declared(ctx, d.cfg.Partition) })
	inv, strays, err := d.load(ctx)
	asking.Wait()
	if err == nil && !inv.partition && !d.cfg.CreatePartition {
		err = fail(providers.Misconfigured, fmt.Sprintf("bigip.partition %q", d.cfg.Partition),
			errors.New("there is no such partition, or the account may not see it; create it, correct the name, or set bigip.createPartition"))
	}
	if err == nil && inv.partition {
		if declared {
			err = fail(providers.Misconfigured, fmt.Sprintf("bigip.partition %q", d.cfg.Partition),
				errors.New("it belongs to AS3, which undoes what it did not do itself; give lbsync a partition of its own"))
		} else if asked != nil {
			err = asked
		}
	}
	if err != nil {
		d.known.Store(nil)
		return nil, nil, d.classify("read what is there", err)
	}
	d.known.Store(inv)
	return inv, strays, nil
}

// ready returns what is known, reading it when nothing is, and makes the partition if that is allowed.
func (d *device) ready(ctx context.Context) (*inventory, error) {
	unlock, err := d.keyed.Lock(ctx, "inventory")
	if err != nil {
		return nil, err
	}
	defer unlock()
	inv := d.known.Load()
	if inv == nil {
		if inv, _, err = d.read(ctx); err != nil {
			return nil, err
		}
	}
	if inv.partition {
		return inv, nil
	}
	what := fmt.Sprintf("create bigip.partition %q", d.cfg.Partition)
	if _, err := d.client.Post(ctx, client.Partitions.Path(), map[string]any{"name": d.cfg.Partition, "description": "made by nplbridge"}); err != nil && client.Code(err) != client.CodeExists {
		return nil, d.classify(what, err)
	}
	d.keeper.changed(ctx)
	inv, _, err = d.read(ctx)
	if err == nil && !inv.partition {
		err = fail(providers.Conflict, what, errors.New("it was created and is not there"))
	}
	return inv, err
}

// reread reads anew what is known of one key, and the nodes.
func (d *device) reread(ctx context.Context, inv *inventory, k providers.Key) error {
	if err := d.readNodes(ctx, inv); err != nil {
		return err
	}
	pool, err := find[poolObject](ctx, d, client.Pools, d.names.pool(k))
	if err != nil {
		return err
	}
	if pool.Name != "" && !d.names.owns(pool.Metadata) {
		return foreign("pool", pool.FullPath)
	}
	d.locate(inv, &pool)
	inv.setPool(k, pool)
	virtuals, err := list[virtualObject](ctx, d, client.Virtuals, client.ListOptions{Partition: d.cfg.Partition, Expand: true})
	if err != nil {
		return err
	}
	found := map[string]virtualObject{}
	for _, v := range virtuals {
		if of, ours := d.keyOf(v.Metadata); ours && of == k {
			found[v.Name] = v
		}
	}
	for name := range inv.virtualsOf(k) {
		inv.setVirtual(k, name, found[name])
	}
	for name, v := range found {
		inv.setVirtual(k, name, v)
	}
	for _, collection := range helperCollections() {
		known := inv.helpersOf(k)
		all, err := list[helperObject](ctx, d, collection, client.ListOptions{Partition: d.cfg.Partition})
		if err != nil {
			return err
		}
		here := map[string]helperObject{}
		for _, h := range all {
			if of, ours := d.keyOf(h.Metadata); ours && of == k {
				here[helperKey(collection, h.Name)] = h
				inv.setHelper(k, collection, h.Name, h)
			}
		}
		for key, h := range known {
			if _, still := here[key]; !still && key == helperKey(collection, h.Name) {
				inv.setHelper(k, collection, h.Name, helperObject{})
			}
		}
	}
	return nil
}

// find reads one object of our partition, whole; one without a name is not there.
func find[T any](ctx context.Context, d *device, collection client.Collection, name string) (out T, err error) {
	return read[T](ctx, d, collection, d.names.path(name))
}

func read[T any](ctx context.Context, d *device, collection client.Collection, path string) (out T, err error) {
	raw, err := d.client.Get(ctx, collection.Object(path)+"?expandSubcollections=true")
	if client.NotFound(err) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, fail(providers.Unavailable, "read "+path, err)
	}
	return out, nil
}

// stale reports whether err says that something is not as it was known.
func stale(err error) bool {
	switch client.Code(err) {
	case client.CodeNotFound, client.CodeExists, client.CodeNodeByOther, client.CodeAddressTaken:
		return true
	}
	return client.NotFound(err) || client.Status(err) == 409
}

func foreign(kind, path string) error {
	return fail(providers.Conflict, kind+" "+path, errors.New("it belongs to somebody else and is left alone; rename or delete it"))
}

// classify gives an error of the client its kind and says what was attempted.
func (d *device) classify(what string, err error) error {
	if err == nil {
		return nil
	}
	kind, wait := providers.KindOf(err), providers.RetryAfter(err)
	if e, ok := errors.AsType[*providers.Error](err); ok && (e.What == "bigip") {
		err = e.Err // the outer one says all of it
	}
	return &providers.Error{Kind: kind, What: "bigip: " + what, Err: err, RetryAfter: wait}
}

func fail(kind providers.Kind, what string, err error) error {
	return &providers.Error{Kind: kind, What: "bigip: " + what, Err: err}
}

// sortedKeys are the keys of a map by name.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
