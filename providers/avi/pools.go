package avi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi/internal/client"
)

// wholeLimit is up to how many servers a pool is written whole when members both come and go: one request instead of two. A larger pool
// gets two that carry the difference.
const wholeLimit = 200

// writePool makes a pool of ours as wanted, with what it needs beside it.
func (p *Provider) writePool(ctx context.Context, inv *inventory, want providers.Pool) error {
	what := fmt.Sprintf("pool %s of %s", p.names.pool(want.Key), want.Key)
	if name := want.Settings.Monitor.Name; name != "" {
		what += fmt.Sprintf(" with monitor %q", name)
	}
	plan, err := p.names.draw(want.Key, want.Settings)
	if err != nil {
		return fail(providers.Rejected, what, err)
	}
	for _, h := range plan.helpers {
		if err := p.writeHelper(ctx, inv, want.Key, h); err != nil {
			return p.classify(fmt.Sprintf("%s %s for %s", h.typ, h.name, want.Key), err)
		}
	}
	f, err := p.place(ctx)
	if err != nil {
		return err
	}
	now := inv.pool(want.Key)
	if now.UUID == "" {
		if now, err = p.createPool(ctx, f, want, plan); err != nil {
			return p.classify("create "+what, err)
		}
		inv.setPool(want.Key, now)
	}
	fields := p.poolFields(want, plan)
	if drift := p.poolDrift(decoded[pool](now), want.Key, want.Settings, plan); drift != "" {
		now, err = p.client.Update(ctx, now, func(o client.Object) (map[string]any, error) {
			edit, err := p.viewOf(want.Key).edit(decoded[pool](o).Servers, want.Members)
			fields["servers"] = orNil(edit.whole)
			return fields, err
		})
		if err != nil {
			return p.classify("change "+what+", whose "+drift+" differs", err)
		}
		inv.setPool(want.Key, now)
	} else if now, err = p.writeMembers(ctx, now, p.viewOf(want.Key), want.Members); err != nil {
		return p.classify("members of "+what, err)
	}
	inv.setPool(want.Key, now)
	return p.dropHelpers(ctx, inv, want.Key, plan)
}

func (p *Provider) viewOf(k providers.Key) view { return view{mark: p.names.memberMark(k), own: true} }

// createPool makes a pool with its members, or finds the one that an earlier attempt made.
func (p *Provider) createPool(ctx context.Context, f *facts, want providers.Pool, plan blueprint) (client.Object, error) {
	name := p.names.pool(want.Key)
	body := p.poolFields(want, plan)
	body["name"], body["cloud_ref"] = name, f.cloud
	if f.vrf != "" {
		body["vrf_ref"] = f.vrf
	}
	edit, err := p.viewOf(want.Key).edit(nil, want.Members)
	if err != nil {
		return client.Object{}, fail(providers.Rejected, "members", err)
	}
	body["servers"] = orNil(edit.add)
	o, _, err := p.client.Create(ctx, typePool, name, withoutNil(body), p.names.owns)
	return o, err
}

// poolFields are the fields that we set, nil for those that go back to their default; without servers, name and place.
func (p *Provider) poolFields(want providers.Pool, plan blueprint) map[string]any {
	fields := map[string]any{
		"lb_algorithm":                        plan.algorithm,
		"lb_algorithm_hash":                   orNothing(plan.hash),
		"graceful_disable_timeout":            p.graceful(),
		"connection_ramp_duration":            nil,
		"health_monitor_refs":                 nil,
		"application_persistence_profile_ref": nil,
		"created_by":                          p.names.createdBy(),
		"markers": p.names.markers(marker{markService, []string{serviceOf(want.Key).String()}},
			marker{markPort, []string{fmt.Sprintf("%d/%s", want.Key.Port, want.Key.Protocol)}}, marker{markSettings, encodeSettings(want.Settings)}),
	}
	if plan.ramp > 0 {
		fields["connection_ramp_duration"] = plan.ramp
	}
	var monitors []string
	for _, name := range plan.monitors {
		monitors = append(monitors, client.RefByName(typeMonitor, name))
	}
	fields["health_monitor_refs"] = orNil(monitors)
	if plan.persistence != "" {
		fields["application_persistence_profile_ref"] = client.RefByName(typePersistence, plan.persistence)
	}
	return fields
}

// graceful is DrainTimeout as the Controller has it: minutes, -1 never ends.
func (p *Provider) graceful() int64 {
	if p.cfg.DrainTimeout == 0 {
		return -1
	}
	return int64(p.cfg.DrainTimeout.Minutes())
}

// poolDrift returns which part of a pool is not what settings mean; empty for none.
func (p *Provider) poolDrift(now pool, k providers.Key, want providers.PoolSettings, plan blueprint) string {
	wanted := p.poolFields(providers.Pool{Key: k, Settings: want}, plan)
	switch {
	case now.Algorithm != plan.algorithm, plan.hash != "" && now.Hash != plan.hash:
		return "algorithm"
	case !slices.EqualFunc(now.Monitors, plan.monitors, func(ref, name string) bool { return refers(ref, "", name) }):
		return "monitor"
	case (now.Persistence == "") != (plan.persistence == ""), plan.persistence != "" && !refers(now.Persistence, "", plan.persistence):
		return "persistence"
	case plan.ramp != 0 && (now.Ramp == nil || *now.Ramp != plan.ramp):
		return "slow start"
	case now.Graceful == nil || *now.Graceful != p.graceful():
		return "graceful_disable_timeout"
	case !slices.EqualFunc(now.Markers, wanted["markers"].([]marker), func(a, b marker) bool { return a.Key == b.Key && slices.Equal(a.Values, b.Values) }):
		return "marker"
	}
	return ""
}

// writeMembers makes the servers of a pool, ours or somebody else's, those that are wanted, with as few and as small requests as
// can be. Servers at addresses that belong to somebody else are left, and told by an error once everything else is done.
func (p *Provider) writeMembers(ctx context.Context, o client.Object, v view, want []providers.Member) (client.Object, error) {
	edit, err := v.edit(decoded[pool](o).Servers, want)
	if err != nil {
		return o, fail(providers.Rejected, "members", err)
	}
	taken := func(e serverEdit) error {
		if len(e.taken) == 0 {
			return nil
		}
		return fail(providers.Rejected, "members", fmt.Errorf("servers of somebody else stand at %s and are left alone; remove them there", e.taken))
	}
	if len(edit.whole) > maxMembers {
		return o, fail(providers.Rejected, "members", fmt.Errorf("%d servers, Avi has at most %d in a pool", len(edit.whole), maxMembers))
	}
	if edit.empty() {
		return o, taken(edit)
	}
	if steps := p.steps(edit); steps != nil {
		for _, s := range steps {
			o2, err := p.client.Patch(ctx, o, s.op, map[string]any{"servers": s.servers})
			if client.Status(err) == http.StatusBadRequest {
				p.noUpsert.CompareAndSwap(false, s.op == client.PatchAdd && len(edit.change) > 0)
				break // written whole below, which says what is wrong if that is refused, too
			}
			if err != nil {
				return o, err
			}
			o = o2
		}
		// The reply is the pool as it is now, so it shows whether the Controller understood what we meant.
		if edit, err = v.edit(decoded[pool](o).Servers, want); err != nil || edit.empty() {
			return o, errors.Join(err, taken(edit))
		}
	}
	var last serverEdit
	o, err = p.client.Update(ctx, o, func(now client.Object) (map[string]any, error) {
		var err error
		if last, err = v.edit(decoded[pool](now).Servers, want); err != nil || last.empty() {
			return nil, err
		}
		return map[string]any{"servers": orNil(last.whole)}, nil
	})
	return o, errors.Join(err, taken(last))
}

type step struct {
	op      client.PatchOp
	servers []server
}

// steps are the requests that carry only the difference; nil where writing the pool whole is better: when members change and the
// pool is small, and when most of a pool changes.
func (p *Provider) steps(e serverEdit) []step {
	var steps []step
	if up := slices.Concat(e.add, e.change); len(up) > 0 {
		steps = append(steps, step{client.PatchAdd, up})
	}
	if len(e.remove) > 0 {
		steps = append(steps, step{client.PatchDelete, e.remove})
	}
	size := len(e.whole) + len(e.remove)
	changes := len(e.add) + len(e.change) + len(e.remove)
	switch {
	case size > wholeLimit && changes > size/2, size <= wholeLimit && (len(e.change) > 0 || len(steps) > 1), len(e.change) > 0 && p.noUpsert.Load():
		return nil
	}
	return steps
}

// deletePool removes a pool and what it has beside it.
func (p *Provider) deletePool(ctx context.Context, inv *inventory, k providers.Key) error {
	o := inv.pool(k)
	if o.UUID != "" {
		if err := p.client.Delete(ctx, typePool, o.UUID); err != nil {
			return p.classify(fmt.Sprintf("delete pool %s of %s", o.Name, k), err)
		}
		inv.setPool(k, client.Object{})
	}
	return p.dropHelpers(ctx, inv, k, blueprint{})
}

// writeHelper makes a monitor or a profile as wanted.
func (p *Provider) writeHelper(ctx context.Context, inv *inventory, k providers.Key, h helper) error {
	o := inv.helper(k, h.typ, h.name)
	if o.UUID == "" {
		body := map[string]any{"name": h.name, "markers": p.names.markers(marker{markService, []string{serviceOf(k).String()}},
			marker{markPort, []string{fmt.Sprintf("%d/%s", k.Port, k.Protocol)}})}
		maps.Copy(body, h.fields)
		var err error
		if o, _, err = p.client.Create(ctx, h.typ, h.name, body, p.names.owns); err != nil {
			return err
		}
		inv.setHelper(k, h.typ, h.name, o)
	}
	if !helperDiffers(o, h) {
		return nil
	}
	fields := map[string]any{"send_interval": nil, "receive_timeout": nil, "successful_checks": nil, "failed_checks": nil}
	if h.typ == typePersistence {
		fields = map[string]any{}
	}
	maps.Copy(fields, h.fields)
	o, err := p.client.Update(ctx, o, func(client.Object) (map[string]any, error) { return fields, nil })
	if err == nil {
		inv.setHelper(k, h.typ, h.name, o)
	}
	return err
}

// The Controller's defaults of a health monitor (swagger, HealthMonitor).
const (
	defaultInterval = 10
	defaultTimeout  = 4
	defaultChecks   = 2
)

// helperDiffers compares what we set, with the Controller's defaults for what we did not.
func helperDiffers(o client.Object, h helper) bool {
	if h.typ == typePersistence {
		now := decoded[persistence](o)
		return now.Type != h.fields["persistence_type"] || now.IP == nil || now.IP.Timeout != h.fields["ip_persistence_profile"].(map[string]any)["ip_persistent_timeout"]
	}
	now := decoded[monitor](o)
	number := func(name string, fallback int64) int64 {
		if n, ok := h.fields[name].(int64); ok {
			return n
		}
		return fallback
	}
	if now.Type != h.fields["type"] || now.Interval != number("send_interval", defaultInterval) || now.Timeout != number("receive_timeout", defaultTimeout) ||
		now.Rise != number("successful_checks", defaultChecks) || now.Fall != number("failed_checks", defaultChecks) {
		return true
	}
	want, http := h.fields["http_monitor"].(map[string]any)
	return http && (now.HTTP == nil || now.HTTP.Request != want["http_request"] || !slices.Equal(now.HTTP.Codes, want["http_response_code"].([]string)))
}

// dropHelpers deletes what a pool had beside it and needs no more.
func (p *Provider) dropHelpers(ctx context.Context, inv *inventory, k providers.Key, plan blueprint) error {
	for _, o := range inv.helpersOf(k) {
		if slices.ContainsFunc(plan.helpers, func(h helper) bool { return h.typ == o.Type && h.name == o.Name }) {
			continue
		}
		if err := p.client.Delete(ctx, o.Type, o.UUID); err != nil {
			return p.classify(fmt.Sprintf("delete %s %s of %s", o.Type, o.Name, k), err)
		}
		inv.setHelper(k, o.Type, o.Name, client.Object{})
	}
	return nil
}

// orNil makes an empty list a field that is left out.
func orNil[T any](list []T) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

func orNothing(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func withoutNil(fields map[string]any) map[string]any {
	for name, value := range fields {
		if value == nil {
			delete(fields, name)
		}
	}
	return fields
}
