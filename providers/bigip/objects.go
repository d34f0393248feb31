package bigip

import (
	"encoding/json"
	"slices"
	"strings"
)

// nodeObject is a node.
type nodeObject struct {
	Name      string   `json:"name"`
	Partition string   `json:"partition"`
	FullPath  string   `json:"fullPath"`
	Address   string   `json:"address"`
	Metadata  metadata `json:"metadata"`
}

// poolObject is a pool.
type poolObject struct {
	Name      string   `json:"name"`
	Partition string   `json:"partition"`
	FullPath  string   `json:"fullPath"`
	Mode      string   `json:"loadBalancingMode"`
	Monitor   string   `json:"monitor"`
	Ramp      int64    `json:"slowRampTime"`
	Metadata  metadata `json:"metadata"`
	Members   struct {
		Items []memberObject `json:"items"` // absent when there are none
	} `json:"membersReference"`
}

// weighed reports whether the weights of members differ.
func (p poolObject) weighed() bool {
	return slices.ContainsFunc(p.Members.Items, func(m memberObject) bool { return m.Ratio > 1 })
}

// virtualObject is a virtual server.
type virtualObject struct {
	Name        string      `json:"name"`
	Partition   string      `json:"partition"`
	FullPath    string      `json:"fullPath"`
	Destination string      `json:"destination"`
	Source      string      `json:"source"`
	Protocol    string      `json:"ipProtocol"`
	Pool        string      `json:"pool"`
	SNAT        snat        `json:"sourceAddressTranslation"`
	Rules       []string    `json:"rules"`
	Persist     []reference `json:"persist"`
	VLANs       []string    `json:"vlans"`
	VLANsOnly   bool        `json:"vlansEnabled"`
	Metadata    metadata    `json:"metadata"`
	Profiles    struct {
		Items []reference `json:"items"`
	} `json:"profilesReference"`
}

type snat struct {
	Type string `json:"type"`
	Pool string `json:"pool,omitempty"`
}

// reference is how a virtual server names a profile.
type reference struct {
	Name      string `json:"name"`
	Partition string `json:"partition,omitempty"`
	FullPath  string `json:"fullPath,omitempty"`
	Default   string `json:"tmDefault,omitempty"`
}

func (r reference) path() string {
	if r.FullPath != "" {
		return r.FullPath
	}
	if strings.HasPrefix(r.Name, "/") {
		return r.Name
	}
	return "/" + r.Partition + "/" + r.Name
}

// referTo is a profile by its path.
func referTo(path string) reference {
	partition, _, name := splitPath(path)
	return reference{Name: name, Partition: partition}
}

// helperObject is a monitor or a persistence profile.
type helperObject struct {
	Name     string   `json:"name"`
	FullPath string   `json:"fullPath"`
	Metadata metadata `json:"metadata"`

	all map[string]any
}

func (h *helperObject) UnmarshalJSON(text []byte) error {
	type plain helperObject
	if err := json.Unmarshal(text, (*plain)(h)); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	return d.Decode(&h.all)
}
