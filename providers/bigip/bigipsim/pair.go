package bigipsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/naming"
)

// Pair is two devices in one sync-failover group. A is active in the beginning. Each takes writes, whatever its state.
type Pair struct {
	A, B    *Sim
	cluster *cluster
}

// NewPair returns two devices with what cfg says, in sync. cfg.Hostname is that of A.
func NewPair(cfg Config) (*Pair, error) {
	a, err := New(cfg)
	if err != nil {
		return nil, err
	}
	cfg.Hostname, cfg.Address = "bigip-b.example.com", cfg.PeerAddress
	b, err := New(cfg)
	if err != nil {
		return nil, err
	}
	c := a.cluster
	c.members, b.cluster = []*Sim{a, b}, c
	for _, s := range c.members {
		group := map[string]any{"name": s.cfg.DeviceGroup, "autoSync": "disabled", "saveOnAutoSync": fmt.Sprint(cfg.SaveOnAutoSync)}
		if cfg.AutoSync {
			group["autoSync"] = "enabled"
		}
		if _, err := s.config.Create(mcp.Lookup("cm/device-group"), group, mcp.User{}); err != nil {
			return nil, fmt.Errorf("bigipsim: device group: %w", err)
		}
		for _, folder := range s.config.List("sys/folder") {
			if folder.Partition == "/" {
				s.config.Modify(folder.Kind, folder.FullPath(), map[string]any{"deviceGroup": "/Common/" + s.cfg.DeviceGroup}, false, mcp.User{}) //nolint:errcheck // it is there, and so is the property
			}
		}
		s.keep()
	}
	return &Pair{a, b, c}, nil
}

// Failover makes the other device active for these traffic groups, by their names in Common; without any for all.
func (p *Pair) Failover(trafficGroups ...string) {
	p.cluster.failover(trafficGroups)
}

// Active returns the device that is active for a traffic group, by its name in Common; empty is traffic-group-1.
func (p *Pair) Active(trafficGroup string) *Sim {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	return p.cluster.activeFor("/Common/" + orDefault(trafficGroup))
}

// Disconnect cuts the devices off from each other, or lets them see each other again. Meanwhile nothing is synchronised.
func (p *Pair) Disconnect(cut bool) {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	p.cluster.disconnected = cut
}

func orDefault(trafficGroup string) string {
	if trafficGroup == "" {
		return "traffic-group-1"
	}
	return trafficGroup
}

// cluster is what the devices of a group share; a device by itself is one, too. Its lock is taken before that of a Sim.
type cluster struct {
	mu           sync.Mutex
	members      []*Sim
	moved        map[string]bool // traffic groups that the second one is active for
	pending      []*Sim          // with changes that the others lack
	disconnected bool
}

func newCluster(s *Sim) *cluster { return &cluster{members: []*Sim{s}, moved: map[string]bool{}} }

func (c *cluster) activeFor(group string) *Sim {
	if c.moved[group] && len(c.members) > 1 {
		return c.members[1]
	}
	return c.members[0]
}

func (c *cluster) groups() []string {
	s := c.members[0]
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []string
	for _, o := range s.config.List("cm/traffic-group") {
		if o.Name != "traffic-group-local-only" {
			out = append(out, o.FullPath())
		}
	}
	return out
}

func (c *cluster) failover(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, group := range c.groups() {
		if len(names) == 0 || slices.Contains(names, strings.TrimPrefix(group, "/Common/")) {
			c.moved[group] = !c.moved[group]
		}
	}
	c.endTokens()
	c.wake()
}

// wake tells who watches the devices that something is other.
func (c *cluster) wake() {
	for _, s := range c.members {
		s.mu.Lock()
		s.changed()
		s.mu.Unlock()
	}
}

// endTokens is what a failover does to logins.
func (c *cluster) endTokens() {
	for _, s := range c.members {
		if !s.cfg.Rules.TokensSurviveFailover {
			s.EndTokens()
		}
	}
}

// yield makes the other device active for everything that s is active for.
func (c *cluster) yield(s *Sim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) < 2 {
		return
	}
	for _, group := range c.groups() {
		if c.activeFor(group) == s {
			c.moved[group] = s == c.members[0]
		}
	}
	c.wake()
}

// wrote notes that s has changes, and synchronises them where the group does so by itself.
func (c *cluster) wrote(s *Sim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) < 2 {
		return
	}
	if !slices.Contains(c.pending, s) {
		c.pending = append(c.pending, s)
	}
	s.mu.RLock()
	group := s.config.Find("cm/device-group", "/Common/"+s.cfg.DeviceGroup)
	s.mu.RUnlock()
	if group != nil && group.Text("autoSync") == "enabled" && !c.disconnected {
		c.push(s, group.Text("saveOnAutoSync") == "true")
	}
}

// push makes the configuration of the others that of s.
func (c *cluster) push(s *Sim, save bool) {
	s.mu.RLock()
	config := s.config.Snapshot()
	s.mu.RUnlock()
	for _, other := range c.members {
		if other == s {
			continue
		}
		other.mu.Lock()
		other.config.Restore(config, false)
		if save {
			other.keep()
		}
		other.settle()
		other.changed()
		other.mu.Unlock()
	}
	c.pending = nil
}

// run answers POST /mgmt/tm/cm.
func (c *cluster) run(s *Sim, r *request) *reply {
	if r.Method != http.MethodPost {
		return unregistered(r)
	}
	body, bad := r.object()
	if bad != nil {
		return bad
	}
	if body["command"] != "run" {
		return icrd(http.StatusBadRequest, mcp.APIInvalid, "invalid property value \"command\":%q", fmt.Sprint(body["command"]))
	}
	if answer := c.sync(s, body); answer != nil {
		return answer
	}
	body["kind"] = "tm:cm:runstate"
	return ok(body)
}

// sync carries out "config-sync to-group G" or "from-group G"; nil is good.
func (c *cluster) sync(s *Sim, body map[string]any) *reply {
	text, _ := body["utilCmdArgs"].(string)
	words := slices.DeleteFunc(strings.Fields(text), func(w string) bool { return w == "config-sync" || w == "force-full-load-push" })
	if options, ok := body["options"].([]any); ok && len(options) == 1 {
		fields, _ := options[0].(map[string]any)
		for name, value := range fields {
			words = []string{name, fmt.Sprint(value)}
		}
	}
	if len(words) != 2 || (words[0] != "to-group" && words[0] != "from-group") {
		return icrd(http.StatusBadRequest, mcp.APIInvalid, "one or more properties must be specified: to-group or from-group")
	}
	group := strings.TrimPrefix(words[1], "/Common/")
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.members) < 2 || group != s.cfg.DeviceGroup {
		return icrd(http.StatusBadRequest, mcp.APIRefused, "01070734:3: Configuration error: Device group (%s) not found in device group sync", group)
	}
	if c.disconnected {
		return icrd(http.StatusBadRequest, mcp.APIRefused, "01071488:3: Remote transaction for device group /Common/%s failed: no device of it can be reached", group)
	}
	from := s
	if words[0] == "from-group" {
		from = c.members[1-slices.Index(c.members, s)]
	}
	c.push(from, false)
	return nil
}

// syncStatus are the entries of /mgmt/tm/cm/sync-status.
func (c *cluster) syncStatus() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	status, color, mode, summary := "In Sync", "green", "high-availability", "All devices in the device group are in sync"
	switch {
	case len(c.members) < 2:
		status, mode, summary = "Standalone", "standalone", " "
	case c.disconnected:
		status, color, summary = "Disconnected", "red", "The device cannot reach the others of its group"
	case len(c.pending) > 0:
		status, color, summary = "Changes Pending", "yellow", "There is a possible change conflict"
		if len(c.pending) == 1 {
			summary = c.pending[0].cfg.Hostname + " has changes that the others lack"
		}
	}
	return map[string]any{"status": description(status), "color": description(color), "mode": description(mode), "summary": description(summary)}
}

// failoverStatus are the entries of /mgmt/tm/cm/failover-status.
func (c *cluster) failoverStatus(s *Sim) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	details := map[string]any{}
	for n, group := range c.activeGroups(s) {
		details[s.view(nil).link(fmt.Sprintf("cm/failoverStatus/0/details/%d", n))] = map[string]any{"nestedStats": map[string]any{"entries": map[string]any{"details": description("active for " + group)}}}
	}
	status, color := "STANDBY", "gray"
	if len(details) > 0 {
		status, color = "ACTIVE", "green"
	}
	return map[string]any{
		"status": description(status), "color": description(color), "summary": description(fmt.Sprintf("%d/%d active", len(details), len(c.groups()))),
		s.view(nil).link("cm/failoverStatus/0/details"): map[string]any{"nestedStats": map[string]any{"entries": details}},
	}
}

func (c *cluster) activeGroups(s *Sim) []string {
	return slices.DeleteFunc(c.groups(), func(group string) bool { return c.activeFor(group) != s })
}

// isActive reports whether s is active for a traffic group; "none" is every device.
func (c *cluster) isActive(s *Sim, group string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return group == "none" || c.activeFor(group) == s
}

// standby reports whether s is active for nothing.
func (c *cluster) standby(s *Sim) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.activeGroups(s)) == 0
}

func failoverState(active bool) string {
	if active {
		return "active"
	}
	return "standby"
}

// devices answers /mgmt/tm/cm/device.
func (c *cluster) devices(s *Sim, r *request) *reply {
	if r.Method != http.MethodGet {
		return unregistered(r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := s.view(r)
	var items []any
	for n, d := range c.members {
		device := map[string]any{
			"kind": "tm:cm:device:devicestate", "name": d.cfg.Hostname, "partition": "Common", "fullPath": "/Common/" + d.cfg.Hostname, "generation": 1,
			"selfLink": v.url("cm/device/" + naming.Escape("/Common/"+d.cfg.Hostname)), "hostname": d.cfg.Hostname, "managementIp": fmt.Sprintf("192.0.2.%d", 11+n),
			"failoverState": failoverState(len(c.activeGroups(d)) > 0), "version": d.cfg.Version, "product": "BIG-IP", "selfDevice": fmt.Sprint(d == s),
		}
		if s.cfg.Rules.SelfDeviceFlag {
			device["selfDevice"] = d == s
		}
		items = append(items, v.selected(device))
	}
	return v.listed("tm:cm:device:device", v.self("cm/device"), items, nil)
}

// trafficGroup answers /mgmt/tm/cm/traffic-group/<group>/stats.
func (c *cluster) trafficGroup(s *Sim, r *request, group string) *reply {
	s.mu.RLock()
	o := s.config.Find("cm/traffic-group", group)
	s.mu.RUnlock()
	if o == nil {
		return refusal(mcp.Missing(mcp.Lookup("cm/traffic-group"), group))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := s.view(r)
	entries := map[string]any{}
	for _, d := range c.members {
		at := place(o) + "/" + naming.Escape(group) + ":" + naming.Escape("/Common/"+d.cfg.Hostname) + "/stats"
		entries[v.link(at)] = v.nested(o.Kind, at, map[string]any{
			"deviceName": description("/Common/" + d.cfg.Hostname), "trafficGroup": description(group),
			"failoverState": description(failoverState(c.activeFor(group) == d)), "nextActive": description(fmt.Sprint(c.activeFor(group) != d)), "activeReason": description("-"),
		})
	}
	return readOnly(r, v.stats(place(o)+"/stats", o.Kind, entries))
}
