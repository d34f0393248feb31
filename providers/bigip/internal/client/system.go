package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// Save writes the running configuration to the disk, so that a reboot keeps it. It takes seconds where there is a lot.
func (c *Client) Save(ctx context.Context) error {
	_, err := c.Post(ctx, "/mgmt/tm/sys/config", map[string]string{"command": "save"})
	return err
}

// SyncToGroup brings this device's configuration to the others of a device group.
func (c *Client) SyncToGroup(ctx context.Context, group string) error {
	_, err := c.Post(ctx, "/mgmt/tm/cm", map[string]string{"command": "run", "utilCmdArgs": "config-sync to-group " + group})
	return err
}

// Declared reports whether AS3 owns a partition: it says so itself, or, where it is not installed or the account may not ask it, there is the
// folder of an application that every tenant of AS3 may share.
func (c *Client) Declared(ctx context.Context, partition string) (bool, error) {
	body, err := c.exchange(ctx, rest.Request{Method: http.MethodGet, Path: "/mgmt/shared/appsvcs/declare/" + url.PathEscape(partition)}, 1)
	if err == nil {
		return len(body) > 0, nil
	}
	if status := Status(err); status < 400 || status >= 500 {
		return false, err
	}
	_, err = c.Get(ctx, Folders.Object("/"+partition+"/Shared"))
	if NotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Group is a device group whose devices stand in for each other.
type Group struct {
	Name     string
	AutoSync bool
}

// Role is what a device is among those that stand in for each other.
type Role struct {
	Hostname     string
	TrafficGroup string // full path of the partition's; "none" or empty where it has none
	Active       bool   // for that traffic group
	State        string // of the device as a whole, such as "active"
	Peers        int    // other devices of its trust domain
	Groups       []Group
}

// TrafficGroup asks for the traffic group of a partition, which is that of its folder.
func (c *Client) TrafficGroup(ctx context.Context, partition string) (string, error) {
	folder, err := c.Get(ctx, Folders.Object("/"+partition)+"?$select=trafficGroup,inheritedTrafficGroup,name,fullPath")
	if err != nil {
		return "", err
	}
	var f struct {
		TrafficGroup string `json:"trafficGroup"`
	}
	if err := json.Unmarshal(folder, &f); err != nil {
		return "", unreadable("folder of partition "+partition, err)
	}
	return f.TrafficGroup, nil
}

// Role asks which device this is and whether it is active for the traffic group of a partition.
func (c *Client) Role(ctx context.Context, partition string) (Role, error) {
	var r Role
	var devices, groups []json.RawMessage
	var errs [2]error
	var asking sync.WaitGroup // not with the context of a group: an answer that is not waited for costs its connection
	asking.Go(func() { r.TrafficGroup, errs[0] = c.TrafficGroup(ctx, partition) })
	asking.Go(func() { devices, errs[1] = c.List(ctx, Devices, ListOptions{}) })
	asking.Wait()
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		return Role{}, err
	}
	for _, raw := range devices {
		var d struct {
			Name     string          `json:"name"`
			Hostname string          `json:"hostname"`
			Self     json.RawMessage `json:"selfDevice"` // "true" or true
			State    string          `json:"failoverState"`
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return Role{}, unreadable("devices", err)
		}
		if strings.Trim(string(d.Self), `"`) == "true" {
			r.Hostname, r.State = d.Hostname, d.State
			if r.Hostname == "" {
				r.Hostname = d.Name
			}
		} else {
			r.Peers++
		}
	}
	if r.Peers == 0 {
		r.Active = true
		return r, nil
	}
	asking.Go(func() { r.Active, errs[0] = c.ActiveFor(ctx, r.TrafficGroup, r.Hostname, r.State) })
	asking.Go(func() { groups, errs[1] = c.List(ctx, DeviceGroups, ListOptions{}) })
	asking.Wait()
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		return Role{}, err
	}
	for _, raw := range groups {
		var g struct {
			Name string `json:"name"`
			Type string `json:"type"`
			Auto string `json:"autoSync"`
		}
		if err := json.Unmarshal(raw, &g); err != nil {
			return Role{}, unreadable("device groups", err)
		}
		if g.Type == "sync-failover" {
			r.Groups = append(r.Groups, Group{g.Name, g.Auto == "enabled"})
		}
	}
	return r, nil
}

// ActiveFor asks whether a device is active for a traffic group. Without one, the state of the device as a whole counts, which
// fallback is.
func (c *Client) ActiveFor(ctx context.Context, group, hostname, fallback string) (bool, error) {
	if group == "" || group == "none" {
		return fallback == "active", nil
	}
	body, err := c.Get(ctx, "/mgmt/tm/cm/traffic-group/"+element(group)+"/stats")
	if err != nil {
		return false, err
	}
	stats, err := decodeStats(body)
	if err != nil {
		return false, unreadable("traffic group "+group, err)
	}
	for _, s := range stats {
		if device := s.Text("deviceName"); device[strings.LastIndexByte(device, '/')+1:] == hostname {
			return s.Text("failoverState") == "active", nil
		}
	}
	return false, unreadable("traffic group "+group, fmt.Errorf("it does not name device %s", hostname))
}
