package loop

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Document is what the last pass found and did, for people. Its JSON form is stable.
type Document struct {
	Node      string          `json:"node"`
	At        time.Time       `json:"at"`              // when the pass began
	Error     string          `json:"error,omitempty"` // why it could not be completed
	Addresses []netip.Addr    `json:"addresses"`       // published, at most one of each family
	PortRange PortRange       `json:"portRange"`
	Mappings  []MappingStatus `json:"mappings"`
	Cooling   []CoolingStatus `json:"cooling"`
	Refusals  []RefusalStatus `json:"refusals"`
}

// PortRange is an inclusive range.
type PortRange struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

// MappingStatus is one node port in use.
type MappingStatus struct {
	Pod      string         `json:"pod"` // "namespace/name"; empty if the Pod is not known
	PodUID   string         `json:"podUID"`
	Services []string       `json:"services,omitempty"` // that ask for it, "namespace/name", sorted
	Protocol npl.Protocol   `json:"protocol"`
	Family   npl.Family     `json:"family"`
	NodePort uint16         `json:"nodePort"`
	Target   netip.AddrPort `json:"target"` // the Pod's address and port
	// State is "serving", "withdrawing", "withdrawn", "gone", or "hostPort" for a port that the container runtime serves.
	State string `json:"state"`
	// Programmed is whether the kernel leads there; always true of a host port.
	Programmed bool `json:"programmed"`
}

// CoolingStatus is one freed port that is not given to another Pod yet.
type CoolingStatus struct {
	Protocol npl.Protocol `json:"protocol"`
	Family   npl.Family   `json:"family"`
	NodePort uint16       `json:"nodePort"`
	Until    time.Time    `json:"until"` // not before
	// WaitingFor names what has to confirm that no load balancer lists the port; with portReuse confirmed only.
	WaitingFor []string `json:"waitingFor,omitempty"`
}

// RefusalStatus is one thing that is wanted and cannot be, and why.
type RefusalStatus struct {
	Reason  model.Reason `json:"reason"`
	Pod     string       `json:"pod"` // "namespace/name"; empty if it is about the Service alone
	Service string       `json:"service,omitempty"`
	Message string       `json:"message"`
}

// Document returns the document of the last pass.
func (l *Loop) Document() Document {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.document
}

// FirstSync returns nil once a pass has succeeded.
func (l *Loop) FirstSync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.completed:
		return nil
	case l.document.Error != "":
		return errors.New(l.document.Error)
	default:
		return errors.New("no pass over the Node has been made yet")
	}
}

// Kernel returns why the kernel did not take what the last pass wanted, or nil.
func (l *Loop) Kernel() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kernelErr
}

// report tells people, metrics and the status document what the pass came to.
func (l *Loop) report(now time.Time, v view, missing []model.ID, err, kernelErr error) {
	slices.SortFunc(v.refusals, model.Refusal.Compare)
	refusals := slices.Compact(slices.Clone(v.refusals))
	l.tell(now, refusals)
	cooling := l.alloc.Cooling()
	l.metrics.refusals(refusals)
	l.metrics.ports(l.settings.Range, census{owners: l.alloc.Owners(), cooling: cooling, hostPorts: v.model.HostPorts, missing: missing, joint: l.settings.JointPorts}, now)

	d := Document{
		Node: l.inventory.Node().Name, At: now, Addresses: []netip.Addr{}, PortRange: PortRange(l.settings.Range),
		Mappings: []MappingStatus{}, Cooling: []CoolingStatus{}, Refusals: []RefusalStatus{},
	}
	if err != nil {
		d.Error = err.Error()
	}
	for _, f := range l.settings.IPFamilies {
		if a, ok := l.settings.Addresses.Choose(l.inventory.Node(), f); ok {
			d.Addresses = append(d.Addresses, a)
		}
	}
	for _, k := range l.keys() {
		e := l.entries[k]
		d.Mappings = append(d.Mappings, MappingStatus{e.pod, e.id.PodUID, v.wants[e.id].Services, k.Protocol, k.Family, k.NodePort, e.target, string(e.phase), e.programmed()})
	}
	for _, p := range v.model.Pods {
		for _, w := range p.Wants {
			if w.HostPort != 0 {
				d.Mappings = append(d.Mappings, MappingStatus{p.Pod.String(), p.Pod.UID, w.Services, w.ID.Protocol, w.ID.Family, w.HostPort, w.Target, "hostPort", true})
			}
		}
	}
	for k, until := range cooling {
		d.Cooling = append(d.Cooling, CoolingStatus{k.Protocol, k.Family, k.NodePort, until, l.waitingFor(k)})
	}
	slices.SortFunc(d.Cooling, func(a, b CoolingStatus) int {
		return dataplane.Key{Protocol: a.Protocol, Family: a.Family, NodePort: a.NodePort}.Compare(dataplane.Key{Protocol: b.Protocol, Family: b.Family, NodePort: b.NodePort})
	})
	for _, r := range v.refusals {
		d.Refusals = append(d.Refusals, RefusalStatus{r.Reason, r.Pod, r.Service, r.Message})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.document, l.kernelErr = d, kernelErr
	l.completed = l.completed || err == nil
}
