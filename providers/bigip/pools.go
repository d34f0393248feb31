package bigip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip/internal/client"
)

// smallPool is up to how many members all are written at once when two change; a larger pool gets one call for each.
const smallPool = 50

// defaultRamp is slowRampTime of a new pool (tmsh reference).
const defaultRamp = 10

func (d *device) viewOf(k providers.Key, s providers.PoolSettings) view {
	return view{mark: d.names.memberMark(k), own: true, keep: d.cfg.ForeignMembers == KeepForeign, override: d.cfg.OverrideDisabled, limit: s.MemberConnections}
}

func (d *device) poolMark(k providers.Key, s providers.PoolSettings) metadata {
	return d.names.mark(metadatum{Name: markKey, Value: k.String()}, metadatum{Name: markSettings, Value: encodePool(s)})
}

// placer returns the node for a new member of a pool in a partition, making it where there is none.
func (d *device) placer(ctx context.Context, inv *inventory, partition string) func(providers.Member) (nodeObject, error) {
	return func(m providers.Member) (nodeObject, error) {
		a := address{m.Address.Addr().Unmap(), d.domainOf(inv)}
		if n, known := inv.node(a); known {
			return n, reachable(n, a, partition)
		}
		unlock, err := d.keyed.Lock(ctx, "node "+a.text(0))
		if err != nil {
			return nodeObject{}, err
		}
		defer unlock()
		if n, known := inv.node(a); known {
			return n, reachable(n, a, partition)
		}
		if d.cfg.ShareNodes {
			partition = "Common"
		}
		n := nodeObject{Partition: partition, Name: a.text(inv.defaultDomain(partition)), Address: a.text(inv.defaultDomain(partition)), Metadata: d.names.mark()}
		n.FullPath = "/" + n.Partition + "/" + n.Name
		if err := d.run(ctx, client.Command{Method: http.MethodPost, Path: client.Nodes.Path(), Body: map[string]any{
			"name": n.Name, "partition": n.Partition, "address": n.Address, "description": "made by nplbridge", "metadata": n.Metadata,
		}}); err != nil {
			return nodeObject{}, fmt.Errorf("node %s: %w", n.FullPath, err)
		}
		inv.setNode(a, n)
		return n, nil
	}
}

// reachable says whether a pool in a partition can have members at a node.
func reachable(n nodeObject, a address, partition string) error {
	if n.Partition == partition || n.Partition == "Common" {
		return nil
	}
	return fail(providers.Rejected, "members", fmt.Errorf(
		"%s is node %s of partition %s, which no other partition can use, and an address can be in one node only; move that node to Common", a.text(0), n.FullPath, n.Partition))
}

// run carries out commands and remembers that there is something to save.
func (d *device) run(ctx context.Context, commands ...client.Command) error {
	err := d.client.Run(ctx, commands...)
	if err == nil && len(commands) > 0 {
		d.keeper.changed(ctx)
	}
	return err
}

// newPool is the request that makes a pool with its members, and the pool as it then is.
func (d *device) newPool(ctx context.Context, inv *inventory, want providers.Pool, plan blueprint) (client.Command, poolObject, error) {
	e, err := d.viewOf(want.Key, want.Settings).edit(nil, want.Members, d.placer(ctx, inv, d.cfg.Partition))
	if err != nil {
		return client.Command{}, poolObject{}, err
	}
	p := poolObject{
		Name: d.names.pool(want.Key), Partition: d.cfg.Partition, Mode: plan.mode(weighed(e.whole)), Monitor: plan.monitor.text(), Ramp: plan.ramp,
		Metadata: d.poolMark(want.Key, want.Settings),
	}
	p.FullPath, p.Members.Items = d.names.path(p.Name), e.whole
	body := map[string]any{
		"name": p.Name, "partition": p.Partition, "description": "made by nplbridge; changes of members are undone", "loadBalancingMode": p.Mode,
		"metadata": p.Metadata, "members": entries(e.whole),
	}
	if p.Monitor != "" {
		body["monitor"] = p.Monitor
	}
	if p.Ramp > 0 {
		body["slowRampTime"] = p.Ramp
	}
	return client.Command{Method: http.MethodPost, Path: client.Pools.Path(), Body: body}, p, nil
}

func weighed(members []memberObject) bool {
	return slices.ContainsFunc(members, func(m memberObject) bool { return m.Ratio > 1 })
}

func entries(members []memberObject) []map[string]any {
	out := []map[string]any{}
	for _, m := range members {
		out = append(out, m.entry())
	}
	return out
}

// poolDiffers returns the properties by which a pool is not what settings mean. What no Service asks for, or asked for before, is the operator's.
func (d *device) poolDiffers(now poolObject, k providers.Key, s providers.PoolSettings, plan blueprint, weighed bool) map[string]any {
	out := map[string]any{}
	mark := d.poolMark(k, s)
	if !now.Metadata.sameOurs(mark) {
		out["metadata"] = now.Metadata.with(mark)
		before, err := decodePool(now.Metadata.get(markSettings))
		was, err2 := d.names.draw(k, before)
		unknown := err != nil || err2 != nil
		plan.asked.algorithm = plan.asked.algorithm || was.asked.algorithm || unknown
		plan.asked.monitor = plan.asked.monitor || was.asked.monitor || unknown
		if plan.ramp == 0 && (was.ramp > 0 || unknown) {
			plan.ramp = defaultRamp
		}
	}
	if !plan.sameMode(now.Mode, weighed) {
		out["loadBalancingMode"] = plan.mode(weighed)
	}
	if plan.asked.monitor && !parseRule(now.Monitor).equal(plan.monitor) {
		out["monitor"] = plan.monitor.text()
	}
	if plan.ramp > 0 && now.Ramp != plan.ramp {
		out["slowRampTime"] = plan.ramp
	}
	return out
}

// changePool makes a pool that is there what is wanted.
func (d *device) changePool(ctx context.Context, inv *inventory, want providers.Pool, plan blueprint) error {
	now := inv.pool(want.Key)
	e, err := d.viewOf(want.Key, want.Settings).edit(now.Members.Items, want.Members, d.placer(ctx, inv, d.cfg.Partition))
	if err != nil {
		return err
	}
	fields := d.poolDiffers(now, want.Key, want.Settings, plan, weighed(e.whole))
	set := func(p poolObject) { d.clean(ctx, inv, inv.setPool(want.Key, p)) }
	whole := !e.single && (e.size() > 2 || (e.size() == 2 && len(now.Members.Items) <= smallPool) || (e.size() > 0 && len(fields) > 0))
	if whole {
		fields["members"] = entries(e.whole)
	}
	if len(fields) > 0 {
		if err := d.run(ctx, client.Command{Method: http.MethodPatch, Path: client.Pools.Object(now.FullPath), Body: fields}); err != nil {
			return err
		}
		now = afterwards(now, fields)
		if whole {
			now.Members.Items = e.whole
		}
		set(now)
	}
	if !whole {
		if err := d.editMembers(ctx, now, e, set); err != nil {
			return err
		}
	}
	return e.err()
}

// afterwards is a pool after these properties were written.
func afterwards(p poolObject, fields map[string]any) poolObject {
	if v, is := fields["loadBalancingMode"].(string); is {
		p.Mode = v
	}
	if v, is := fields["monitor"].(string); is {
		p.Monitor = v
	}
	if v, is := fields["slowRampTime"].(int64); is {
		p.Ramp = v
	}
	if v, is := fields["metadata"].(metadata); is {
		p.Metadata = v
	}
	return p
}

// editMembers changes members one by one, those that bring capacity first, and tells set of each pool on the way.
func (d *device) editMembers(ctx context.Context, now poolObject, e memberEdit, set func(poolObject)) error {
	step := func(command client.Command, items []memberObject) error {
		if err := d.run(ctx, command); err != nil && (command.Method != http.MethodDelete || !client.NotFound(err)) {
			return err
		}
		now.Members.Items = items
		set(now)
		return nil
	}
	for _, m := range e.add {
		if err := step(client.Command{Method: http.MethodPost, Path: client.Members(now.FullPath), Body: m.entry()}, append(slices.Clone(now.Members.Items), m)); err != nil {
			return err
		}
	}
	slices.SortStableFunc(e.change, func(a, b change) int { return order(a) - order(b) })
	for _, c := range e.change {
		items := slices.Clone(now.Members.Items)
		items[slices.IndexFunc(items, func(m memberObject) bool { return m.FullPath == c.was.FullPath })] = c.now
		if err := step(client.Command{Method: http.MethodPatch, Path: client.Member(now.FullPath, c.was.FullPath), Body: c.now.patch(c.was)}, items); err != nil {
			return err
		}
	}
	for _, gone := range e.remove {
		items := slices.DeleteFunc(slices.Clone(now.Members.Items), func(m memberObject) bool { return m.FullPath == gone.FullPath })
		if err := step(client.Command{Method: http.MethodDelete, Path: client.Member(now.FullPath, gone.FullPath)}, items); err != nil {
			return err
		}
	}
	return nil
}

// order puts members that are enabled ahead of those that are disabled.
func order(c change) int {
	if c.now.disabled() {
		return 1
	}
	return 0
}

// clean deletes nodes that we made and that no member uses any more. One that somebody else has come to use stays.
func (d *device) clean(ctx context.Context, inv *inventory, unused []string) {
	if !d.cfg.CleanNodes {
		return
	}
	for _, path := range unused {
		a, n, ok := inv.nodeAt(path, d.domainOf(inv))
		if !ok || !d.names.owns(n.Metadata) {
			continue
		}
		if err := d.client.Delete(ctx, client.Nodes.Object(path)); err != nil {
			d.nodesKept.Add(1)
			d.log.Debug("a node that none of our pools uses stays", zap.String("node", path), zap.Error(err))
			continue
		}
		d.keeper.changed(ctx)
		inv.dropNode(a)
	}
}

// deletePool removes a pool and then, as calls of their own, what it has beside it.
func (d *device) deletePool(ctx context.Context, inv *inventory, k providers.Key) error {
	if now := inv.pool(k); now.Name != "" {
		if err := d.client.Delete(ctx, client.Pools.Object(now.FullPath)); err != nil {
			return err
		}
		d.keeper.changed(ctx)
		unused := inv.setPool(k, poolObject{})
		if err := d.dropHelpers(ctx, inv, k, blueprint{}); err != nil {
			return err
		}
		d.clean(ctx, inv, unused)
		return nil
	}
	return d.dropHelpers(ctx, inv, k, blueprint{})
}

// writeHelper makes a monitor or a profile as wanted.
func (d *device) writeHelper(ctx context.Context, inv *inventory, k providers.Key, h helper) error {
	now, known := inv.helpersOf(k)[helperKey(h.collection, h.name)]
	fields := map[string]any{}
	command := client.Command{Method: http.MethodPost, Path: h.collection.Path(), Body: fields}
	if known {
		command = client.Command{Method: http.MethodPatch, Path: h.collection.Object(now.FullPath), Body: fields}
		for _, name := range helperDiffers(now, h) {
			fields[name] = h.fields[name]
		}
		if len(fields) == 0 {
			return nil
		}
	} else {
		maps.Copy(fields, h.fields)
		now = helperObject{Name: h.name, FullPath: d.names.path(h.name), Metadata: d.names.mark(metadatum{Name: markKey, Value: k.String()})}
		fields["name"], fields["partition"], fields["metadata"], fields["description"] = h.name, d.cfg.Partition, now.Metadata, "made by nplbridge"
	}
	if err := d.run(ctx, command); err != nil {
		return fmt.Errorf("%s %s: %w", h.collection, h.name, err)
	}
	now.all = h.fields
	inv.setHelper(k, h.collection, h.name, now)
	return nil
}

// helperDiffers returns the names of the fields that are not as we set them. What an object inherits from cannot be changed.
func helperDiffers(now helperObject, h helper) []string {
	var out []string
	for _, name := range sortedKeys(h.fields) {
		if name != "defaultsFrom" && fmt.Sprint(now.all[name]) != fmt.Sprint(h.fields[name]) {
			out = append(out, name)
		}
	}
	return out
}

// dropHelpers deletes what a pool had beside it and needs no more. What somebody else has come to use stays.
func (d *device) dropHelpers(ctx context.Context, inv *inventory, k providers.Key, plan blueprint) error {
	have := inv.helpersOf(k)
	for _, collection := range helperCollections() {
		for _, key := range sortedKeys(have) {
			h := have[key]
			if key != helperKey(collection, h.Name) || slices.ContainsFunc(plan.helpers, func(w helper) bool { return helperKey(w.collection, w.name) == key }) {
				continue
			}
			err := d.client.Delete(ctx, collection.Object(h.FullPath))
			switch {
			case err == nil:
				d.keeper.changed(ctx)
			case client.Status(err) == http.StatusBadRequest:
				d.log.Debug("an object that nothing of ours needs stays", zap.String("object", h.FullPath), zap.Error(err))
				continue
			default:
				return fmt.Errorf("%s %s: %w", collection, h.Name, err)
			}
			inv.setHelper(k, collection, h.Name, helperObject{})
		}
	}
	return nil
}

// attachedPath is the full path of a pool that a Service names.
func (d *device) attachedPath(name string) (string, error) {
	path := name
	if len(name) > 0 && name[0] != '/' {
		path = d.names.path(name)
	}
	if !pathForm.MatchString(path) {
		return "", fmt.Errorf("pool %q is not the path of one, such as /partition/pool", name)
	}
	return path, nil
}

// readAttached reads a pool of somebody else; one without a name is not there. A pool of ours is not for attaching: we would be two masters.
func (d *device) readAttached(ctx context.Context, inv *inventory, name string) (poolObject, error) {
	path, err := d.attachedPath(name)
	if err != nil {
		return poolObject{}, nil //nolint:nilerr // a pool that cannot be is not there; writing to it says so
	}
	p, err := read[poolObject](ctx, d, client.Pools, path)
	if err != nil || p.Name == "" || d.names.owns(p.Metadata) {
		return poolObject{}, err
	}
	d.locate(inv, &p)
	return p, nil
}

// writeAttached makes our members in a pool of somebody else those that are wanted, one by one.
func (d *device) writeAttached(ctx context.Context, inv *inventory, k providers.Key, name string, want []providers.Member) error {
	path, err := d.attachedPath(name)
	if err != nil {
		return fail(providers.Rejected, "members", err)
	}
	unlock, err := d.keyed.Lock(ctx, "pool "+path)
	if err != nil {
		return err
	}
	defer unlock()
	now, known := inv.attachedPool(path)
	if !known {
		if now, err = d.readAttached(ctx, inv, name); err != nil {
			return err
		}
	}
	if now.Name == "" {
		if len(want) == 0 {
			return nil
		}
		return fail(providers.Rejected, "members", fmt.Errorf("there is no pool %s of somebody else; create it or correct the annotation", path))
	}
	v := view{mark: d.names.memberMark(k), override: d.cfg.OverrideDisabled}
	var e memberEdit
	if len(want) > 0 {
		if err := d.notDeclared(ctx, now.Partition); err != nil {
			return err
		}
	}
	if e, err = v.edit(now.Members.Items, want, d.placer(ctx, inv, now.Partition)); err != nil {
		return err
	}
	err = d.editMembers(ctx, now, e, func(p poolObject) {
		inv.mu.Lock()
		inv.attached[path] = p
		inv.mu.Unlock()
	})
	if stale(err) { // somebody else works there, too
		inv.mu.Lock()
		delete(inv.attached, path)
		inv.mu.Unlock()
	}
	var unused []string
	for _, m := range e.remove {
		unused = append(unused, m.node())
	}
	d.clean(ctx, inv, unused)
	return errors.Join(err, e.err())
}

// notDeclared refuses a partition that AS3 owns.
func (d *device) notDeclared(ctx context.Context, partition string) error {
	if partition == "Common" {
		return nil
	}
	declared, err := d.client.Declared(ctx, partition)
	if err == nil && declared {
		err = fail(providers.Rejected, "members", fmt.Errorf(
			"partition %s belongs to AS3, which removes members that it did not add; let AS3 leave the pool's members to others by moving the pool elsewhere", partition))
	}
	return err
}
