package applied

import (
	"bytes"
	"context"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/lbsync/internal/loop"
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
)

const (
	// pause is the least time between two heartbeats.
	pause = time.Second
	// rate is how many heartbeats a second all processes write together when each has something to say, as long as Interval allows.
	rate = 100
	// again is how long a content stays without being looked at: one that somebody changed or deleted is mended then, and Changes go into it.
	again = 10 * time.Minute
	// soon is the same after a write that failed, which may still be carried out.
	soon = time.Minute
	// mostChanges is how many bytes of Changes a heartbeat takes; with more of them the content is written.
	mostChanges = 4 << 10
)

// Source is the loop beside the load balancer.
type Source interface {
	// Standing returns the resourceVersion of Pods up to which everything was taken up, and the Services that are not as they should be,
	// with the problem.
	Standing() (seen string, pending map[model.ServiceKey]string)
	Reports() map[model.ServiceKey]loop.Report
}

// Publisher publishes what one process has applied to one local load balancer. It is run once.
type Publisher struct {
	Client                       kubernetes.Interface
	Namespace                    string
	Heartbeat, Content           string // names of the ConfigMaps
	Instance, Identity, Provider string
	Owner                        *metav1.OwnerReference // with whom the ConfigMaps go; nil if with nobody
	Node                         string                 // see Standing
	Holds                        func(netip.Addr) bool  // whether an address is on this host; nil where that does not matter
	Instances                    func() int             // how many processes like this one there may be, at least one; nil where they are few
	Clock                        clock.WithTicker
	Log                          *zap.Logger

	changed chan struct{}
	failure string // the last one that was logged

	beats  bool                     // the heartbeat was there
	beaten string                   // resourceVersion of it as of the last answer
	base   map[string]onnode.Served // what the content says, see known
	holds  []netip.Addr
	digest string // of it; empty where it says nothing and need not be there
	known  bool   // what it says; not before the API server has confirmed what was written last
	lookAt time.Time
	failed bool // the last write of it
}

// Init prepares the Publisher; Changed may be called after it.
func (p *Publisher) Init() { p.changed = make(chan struct{}, 1) }

// Changed has it published soon. It does not block.
func (p *Publisher) Changed() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context, source Source) {
	for ctx.Err() == nil {
		p.publish(ctx, source)
		pause := p.pause()
		select {
		case <-ctx.Done():
		case <-p.Clock.After(pause):
		}
		select {
		case <-ctx.Done():
		case <-p.changed:
		case <-p.Clock.After(Interval - pause):
		}
	}
}

// pause returns the least time between two heartbeats. A Pod that changes is news to every process at once.
func (p *Publisher) pause() time.Duration {
	if p.Instances == nil {
		return pause
	}
	return min(max(pause, time.Duration(p.Instances())*time.Second/rate), Interval)
}

func (p *Publisher) publish(ctx context.Context, source Source) {
	s := Standing{Instance: p.Instance, Identity: p.Identity, Provider: p.Provider, Node: p.Node, At: p.Clock.Now()}
	var pending map[model.ServiceKey]string
	if s.Seen, pending = source.Standing(); s.Seen == "" {
		return
	}
	for key, problem := range pending {
		s.Pending = append(s.Pending, Pending{key.String(), problem})
	}
	serves, holds := p.confirmed(source)
	ctx, cancel := context.WithTimeout(ctx, Interval)
	defer cancel()
	err := p.put(ctx, s, serves, holds)
	switch {
	case err == nil:
		p.failure = ""
	case ctx.Err() == nil && err.Error() != p.failure:
		p.failure = err.Error()
		p.Log.Warn("cannot publish what was applied; Services count as not programmed here meanwhile",
			zap.String("configMap", p.Namespace+"/"+p.Heartbeat), zap.Error(err))
	}
}

// confirmed returns what the load balancer has confirmed, where anybody asks for it.
func (p *Publisher) confirmed(source Source) (serves map[string]onnode.Served, holds []netip.Addr) {
	if p.Node == "" && p.Holds == nil {
		return nil, nil
	}
	serves = map[string]onnode.Served{}
	for key, report := range source.Reports() {
		has := onnode.Of(report)
		if p.Node != "" && !has.Empty() {
			serves[key.String()] = has
		}
		for _, addr := range has.At {
			if p.Holds != nil && p.Holds(addr) {
				holds = append(holds, addr)
			}
		}
	}
	slices.SortFunc(holds, netip.Addr.Compare)
	return serves, slices.Compact(holds)
}

// put writes the content, where that is due, and then the heartbeat that goes with it. If the content could not be written there is no
// heartbeat either: what it would name is not there.
func (p *Publisher) put(ctx context.Context, s Standing, serves map[string]onnode.Served, holds []netip.Addr) error {
	changes := changesOf(p.base, serves)
	if !p.known || !s.At.Before(p.lookAt) || !slices.Equal(holds, p.holds) || len(marshal(changes)) > mostChanges {
		if err := p.store(ctx, s.At, serves, holds); err != nil {
			return err
		}
		changes = nil
	}
	s.Content, s.Changes = p.digest, changes
	return p.beat(ctx, s)
}

// store writes the content. Until the API server has confirmed it, it may say what it said before, or this.
func (p *Publisher) store(ctx context.Context, now time.Time, serves map[string]onnode.Served, holds []netip.Addr) error {
	p.known = false
	digest := ""
	if len(serves)+len(holds) > 0 {
		var packed []byte
		packed, digest = NewContent(p.Instance, p.Identity, p.Provider, serves, holds).Pack()
		if err := p.replace(ctx, packed); err != nil {
			p.failed = true
			return err
		}
	}
	p.base, p.holds, p.digest, p.known, p.lookAt = serves, holds, digest, true, now.Add(again)
	if p.failed {
		p.failed, p.lookAt = false, now.Add(soon)
	}
	return nil
}

// changesOf returns the Services of which now says something else than base; an empty one is there no more.
func changesOf(base, now map[string]onnode.Served) map[string]onnode.Served {
	out := map[string]onnode.Served{}
	for service, has := range now {
		if !has.Equal(base[service]) {
			out[service] = has
		}
	}
	for service := range base {
		if _, there := now[service]; !there {
			out[service] = onnode.Served{}
		}
	}
	return out
}

// replace writes the content unless it is there already. It names the version that it replaces, so that a request that was given up and is on
// its way still cannot undo a later one.
func (p *Publisher) replace(ctx context.Context, packed []byte) error {
	objects := p.Client.CoreV1().ConfigMaps(p.Namespace)
	object := p.object(p.Content)
	object.BinaryData = map[string][]byte{ContentKey: packed}
	there, err := objects.Get(ctx, p.Content, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = objects.Create(ctx, object, metav1.CreateOptions{})
	case err == nil && bytes.Equal(there.BinaryData[ContentKey], packed) && there.Labels[Label] == LabelValue &&
		slices.EqualFunc(there.OwnerReferences, object.OwnerReferences, func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }):
	case err == nil:
		object.ResourceVersion = there.ResourceVersion
		_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}

// beat replaces the heartbeat, whatever it is, naming the version as replace does. It is read only where another version turns out to be there.
func (p *Publisher) beat(ctx context.Context, s Standing) error {
	objects := p.Client.CoreV1().ConfigMaps(p.Namespace)
	object := p.object(p.Heartbeat)
	object.Data = map[string]string{DataKey: Encode(s)}
	var there *corev1.ConfigMap
	var err error
	if p.beats {
		object.ResourceVersion = p.beaten
		there, err = objects.Update(ctx, object, metav1.UpdateOptions{})
	}
	if !p.beats || apierrors.IsNotFound(err) {
		object.ResourceVersion = ""
		there, err = objects.Create(ctx, object, metav1.CreateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		if there, err = objects.Get(ctx, p.Heartbeat, metav1.GetOptions{}); err == nil {
			object.ResourceVersion = there.ResourceVersion
			there, err = objects.Update(ctx, object, metav1.UpdateOptions{})
		}
	}
	if err == nil {
		p.beats, p.beaten = true, there.ResourceVersion
	}
	return err
}

// object returns a ConfigMap of ours. Nobody else writes it.
func (p *Publisher) object(name string) *corev1.ConfigMap {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: name,
		Labels: map[string]string{Label: LabelValue, "app.kubernetes.io/managed-by": "lbsync"},
	}}
	if p.Owner != nil {
		object.OwnerReferences = []metav1.OwnerReference{*p.Owner}
	}
	return object
}
