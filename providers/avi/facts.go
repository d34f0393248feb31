package avi

import (
	"context"
	"fmt"
	"net/url"

	"github.com/nplbridge/nplbridge/providers"
)

// facts are references to what the settings name.
type facts struct {
	cloud, seGroup, vrf, network string // empty where the setting is
}

// learn looks up what the settings name. The error says which setting is wrong and how to mend it.
func (p *Provider) learn(ctx context.Context) (*facts, error) {
	var f facts
	for _, s := range []struct {
		setting, typ, name string
		inCloud            bool
		to                 *string
	}{
		{"avi.cloud", "cloud", p.cfg.Cloud, false, &f.cloud},
		{"avi.seGroup", "serviceenginegroup", p.cfg.SEGroup, true, &f.seGroup},
		{"avi.vrf", "vrfcontext", p.cfg.VRF, true, &f.vrf},
		{"avi.network", "network", p.cfg.Network, true, &f.network},
	} {
		if s.name == "" {
			continue
		}
		q := url.Values{"name": {s.name}, "fields": {"name,uuid"}}
		if s.inCloud {
			q.Set("cloud_ref.name", p.cfg.Cloud)
		}
		found, err := p.client.List(ctx, s.typ, q)
		if err != nil {
			return nil, p.classify(fmt.Sprintf("look up %s %q", s.setting, s.name), err)
		}
		if len(found) != 1 || found[0].Name != s.name {
			where := fmt.Sprintf("in tenant %q", p.cfg.Tenant)
			if s.inCloud {
				where += fmt.Sprintf(" and cloud %q", p.cfg.Cloud)
			}
			return nil, fail(providers.Misconfigured, fmt.Sprintf("%s %q", s.setting, s.name),
				fmt.Errorf("the Controller has %d of that name %s; set it to one that exists", len(found), where))
		}
		*s.to = found[0].Ref()
	}
	return &f, nil
}

// place returns the facts, looking them up when nobody has.
func (p *Provider) place(ctx context.Context) (*facts, error) {
	if f := p.facts.Load(); f != nil {
		return f, nil
	}
	unlock, err := p.keyed.Lock(ctx, "what the settings name")
	if err != nil {
		return nil, err
	}
	defer unlock()
	if f := p.facts.Load(); f != nil {
		return f, nil
	}
	f, err := p.learn(ctx)
	if err != nil {
		return nil, err
	}
	p.facts.Store(f)
	return f, nil
}
