package bigip

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// What a member's session can be told. Its state is never written: user-up would make a new member up before its monitor has looked, and user-down
// is the operator's.
const (
	sessionEnabled  = "user-enabled"
	sessionDisabled = "user-disabled"
	stateForced     = "user-down"
)

// memberObject is a member of a pool as the device has it.
type memberObject struct {
	Name        string   `json:"name"`
	Partition   string   `json:"partition,omitempty"`
	SubPath     string   `json:"subPath,omitempty"`
	FullPath    string   `json:"fullPath,omitempty"`
	Address     string   `json:"address,omitempty"`
	Session     string   `json:"session,omitempty"`
	State       string   `json:"state,omitempty"`
	Description string   `json:"description,omitempty"`
	Metadata    metadata `json:"metadata,omitempty"`
	Ratio       int64    `json:"ratio,omitempty"`
	Connections int64    `json:"connectionLimit"`
	Priority    int64    `json:"priorityGroup,omitempty"`
	RateLimit   string   `json:"rateLimit,omitempty"`
	Monitor     string   `json:"monitor,omitempty"`

	at netip.AddrPort // not valid for a member in another route domain, or with a name instead of an address
}

// locate fills in at. defaults are the default route domains of partitions, rd is ours.
func (m *memberObject) locate(defaults map[string]int, pool string, rd int) {
	partition := m.Partition
	if partition == "" {
		partition, _, _ = splitPath(pool)
	}
	_, port, ok := splitEndpoint(m.Name)
	a, ok2 := parseAddress(m.Address, defaults[partition])
	if ok && ok2 && a.rd == rd && port > 0 {
		m.at = netip.AddrPortFrom(a.addr, port)
	}
	if m.FullPath == "" {
		m.FullPath = "/" + partition + "/" + m.Name
	}
}

// node returns the path of the member's node.
func (m memberObject) node() string {
	host, _, _ := splitEndpoint(m.Name)
	if m.FullPath != "" {
		return strings.TrimSuffix(m.FullPath, m.Name) + host
	}
	return "/" + m.Partition + "/" + host
}

func (m memberObject) disabled() bool { return m.Session == sessionDisabled }
func (m memberObject) draining() bool { return m.disabled() && m.Metadata.get(markDraining) != "" }

// forced reports whether an operator forced the member offline, which a replacement of all members would undo.
func (m memberObject) forced() bool  { return m.State == stateForced }
func (m memberObject) blocked() bool { return (m.disabled() && !m.draining()) || m.forced() }

func (m memberObject) health() providers.Health {
	switch m.State {
	case "up":
		return providers.HealthUp
	case "down":
		return providers.HealthDown
	}
	return providers.HealthUnknown
}

// entry is the member as it is written in a list of all.
func (m memberObject) entry() map[string]any {
	out := m.patch(memberObject{})
	out["name"], out["partition"] = m.Name, m.Partition
	if m.SubPath != "" {
		out["subPath"] = m.SubPath
	}
	if m.Priority != 0 {
		out["priorityGroup"] = m.Priority
	}
	if m.RateLimit != "" && m.RateLimit != "disabled" {
		out["rateLimit"] = m.RateLimit
	}
	if m.Monitor != "" && m.Monitor != "default" {
		out["monitor"] = strings.TrimSpace(m.Monitor)
	}
	return out
}

// patch is what has to be written to make was this member; of nothing, all that we set.
func (m memberObject) patch(was memberObject) map[string]any {
	out := map[string]any{}
	all := was.Name == ""
	session := sessionEnabled
	if m.disabled() {
		session = sessionDisabled
	}
	if all || m.disabled() != was.disabled() {
		out["session"] = session
	}
	if all || m.Ratio != was.Ratio {
		out["ratio"] = max(m.Ratio, 1)
	}
	if all || m.Connections != was.Connections {
		out["connectionLimit"] = m.Connections
	}
	if all || m.Description != was.Description {
		out["description"] = m.Description
	}
	if all || !m.Metadata.sameOurs(was.Metadata) {
		out["metadata"] = m.Metadata
	}
	return out
}

// view reads members of a pool as those of one key.
type view struct {
	mark string // names.memberMark
	// own is true for a pool of ours, keep leaves members of others in it; in a pool of others they always stay.
	own, keep bool
	override  bool // enable what an operator disabled; what is forced offline stays, as states are never written
	limit     uint32
}

// uid returns whose member one is; ok is false for one that is none of ours to touch.
func (v view) uid(m memberObject) (uid string, ok bool) {
	if uid, ok := strings.CutPrefix(m.Metadata.get(markMember), v.mark); ok && uid != "" {
		return uid, true
	}
	return "", v.own && !v.keep
}

// members reads a pool's members. What cannot be a member of ours, such as a name, is left out.
func (v view) members(objects []memberObject) (members []providers.Member, status map[providers.MemberID]providers.MemberStatus, foreign []string) {
	status = map[providers.MemberID]providers.MemberStatus{}
	for _, o := range objects {
		uid, ok := v.uid(o)
		if !ok || !o.at.IsValid() {
			if v.own {
				foreign = append(foreign, o.FullPath)
			}
			continue
		}
		m := providers.Member{UID: uid, Address: o.at, State: providers.Enabled}
		if o.draining() || (v.override && o.blocked() && !o.forced()) {
			m.State = providers.Draining
		}
		if o.Ratio > 1 {
			m.Weight = uint8(min(o.Ratio, 255))
		}
		if uid != "" {
			m.Name = o.Description
		}
		members = append(members, m)
		status[m.ID()] = providers.MemberStatus{Connections: -1, Health: o.health(), Blocked: o.blocked() && (!v.override || o.forced())}
	}
	return members, status, foreign
}

// change is one member before and after.
type change struct{ was, now memberObject }

// memberEdit is what has to happen to a pool's members.
type memberEdit struct {
	add    []memberObject
	change []change
	remove []memberObject
	whole  []memberObject // all of them afterwards
	taken  []string       // addresses that stay with somebody else
	// single is true where not all members may be written at once: it would undo what somebody else did.
	single bool
}

func (e memberEdit) size() int { return len(e.add) + len(e.change) + len(e.remove) }

func (e memberEdit) err() error {
	if len(e.taken) == 0 {
		return nil
	}
	return &providers.Error{Kind: providers.Rejected, What: "members", Err: fmt.Errorf("members of somebody else stand at %s and are left alone; remove them there", e.taken)}
}

var errTwice = errors.New("a pool has one member per address and port")

// edit compares a pool's members with those wanted. place returns the node for a member.
func (v view) edit(actual []memberObject, wanted []providers.Member, place func(providers.Member) (nodeObject, error)) (memberEdit, error) {
	want := make(map[netip.AddrPort]providers.Member, len(wanted))
	for _, m := range wanted {
		if _, twice := want[m.Address]; twice {
			return memberEdit{}, fmt.Errorf("two members at %s: %w", m.Address, errTwice)
		}
		want[m.Address] = m
	}
	e := memberEdit{single: !v.own}
	for _, o := range actual {
		uid, ours := v.uid(o)
		m, wished := want[o.at]
		wished = wished && o.at.IsValid()
		switch {
		case !ours:
			e.single = true
			e.whole = append(e.whole, o)
			if wished {
				delete(want, o.at)
				e.taken = append(e.taken, o.at.String())
			}
		case !wished:
			e.remove = append(e.remove, o)
		default:
			delete(want, o.at)
			now := v.changed(o, uid, m)
			if len(now.patch(o)) > 0 && !v.same(o, uid, m) {
				e.change = append(e.change, change{o, now})
			} else {
				now = o
			}
			e.single = e.single || o.forced()
			e.whole = append(e.whole, now)
		}
	}
	for _, m := range wanted { // in their order
		if _, missing := want[m.Address]; !missing {
			continue
		}
		n, err := place(m)
		if err != nil {
			return memberEdit{}, err
		}
		o := v.object(m, n)
		e.add, e.whole = append(e.add, o), append(e.whole, o)
	}
	return e, nil
}

// same reports whether a member is as wanted; its description does not count, it is for people.
func (v view) same(o memberObject, uid string, m providers.Member) bool {
	now := v.changed(o, uid, m)
	return uid == m.UID && now.disabled() == o.disabled() && now.draining() == o.draining() && max(now.Ratio, 1) == max(o.Ratio, 1) && now.Connections == o.Connections
}

// changed returns the member as it is wanted.
func (v view) changed(o memberObject, uid string, m providers.Member) memberObject {
	now := o
	draining := m.State == providers.Draining
	blocked := o.disabled() && !o.draining() && uid == m.UID && (!v.override || o.forced())
	now.Session = sessionEnabled
	if draining || blocked {
		now.Session = sessionDisabled
	}
	now.Ratio = int64(max(m.Weight, 1))
	if v.own {
		now.Connections = int64(v.limit)
	}
	if m.Name != "" {
		now.Description = m.Name
	}
	now.Metadata = o.Metadata.with(v.metadata(m))
	return now
}

func (v view) metadata(m providers.Member) metadata {
	out := metadata{{markMember, "true", v.mark + m.UID}}
	if m.State == providers.Draining {
		out = append(out, metadatum{markDraining, "true", "true"})
	}
	return out
}

// object is a new member.
func (v view) object(m providers.Member, n nodeObject) memberObject {
	partition, folders, name := splitPath(n.FullPath)
	o := memberObject{
		Name: joinEndpoint(name, m.Address.Port()), Partition: partition, SubPath: folders, FullPath: joinEndpoint(n.FullPath, m.Address.Port()),
		Session: sessionEnabled, Description: m.Name, Metadata: v.metadata(m), Ratio: int64(max(m.Weight, 1)), at: m.Address,
	}
	if m.State == providers.Draining {
		o.Session = sessionDisabled
	}
	if v.own {
		o.Connections = int64(v.limit)
	}
	return o
}
