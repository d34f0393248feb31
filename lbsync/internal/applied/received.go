package applied

import (
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/onnode"
)

// publication is a ConfigMap of a process as it is kept: read once, and without the text. It is a heartbeat or a content.
type publication struct {
	metav1.ObjectMeta
	beat    *Standing
	content *Content
	err     error
}

// read is the transform of the informer. It accepts its own results, because a reflector may call it twice.
func read(object any) (any, error) {
	m, is := object.(*corev1.ConfigMap)
	if !is {
		return object, nil
	}
	p := &publication{ObjectMeta: metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion, OwnerReferences: m.OwnerReferences,
	}}
	if packed, is := m.BinaryData[ContentKey]; is {
		c, err := Unpack(packed)
		c.Serves = nil // it has them sorted for looking up
		p.content, p.err = &c, err
		return p, nil
	}
	s, err := Decode(m.Data[DataKey])
	p.beat, p.err = &s, err
	return p, nil
}

// by returns who published it.
func (p *publication) by() (instance, identity, provider string) {
	if p.content != nil {
		return p.content.Instance, p.content.Identity, p.content.Provider
	}
	return p.beat.Instance, p.beat.Identity, p.beat.Provider
}

// other is what was received of one process.
type other struct {
	beat, stored *publication // the last heartbeat and the last content; nil where there is none
	beaten       time.Time    // when the heartbeat was received

	// What the last heartbeat says that goes together with a content that was received.
	Standing
	content  *Content               // nil before there was one
	pod      *metav1.OwnerReference // that it runs in; nil if in none
	pending  map[string]bool
	received time.Time
	unsaid   time.Time // since when it is there without a content that goes with its heartbeat, as long as content is nil
}

// with returns it after a publication was received.
func (o other) with(p *publication, now time.Time) other {
	if p.content != nil {
		o.stored = p
	} else {
		o.beat, o.beaten = p, now
	}
	return o.joined()
}

// without returns it after a publication was deleted.
func (o other) without(p *publication) other {
	if p.content != nil {
		o.stored = nil
	} else {
		o.beat = nil
	}
	return o.joined()
}

// joined puts the heartbeat and the content together. A heartbeat that names a content which is not here claims nothing: what was known
// before it stays, and grows old. So it is too with a content that is newer than the heartbeat: a request that was given up may have been
// carried out after a later one.
func (o other) joined() other {
	if o.beat == nil {
		return other{stored: o.stored}
	}
	s, content := *o.beat.beat, &Content{}
	switch {
	case o.content != nil && o.content.Digest == s.Content:
		content = o.content // even if it was deleted since: the digest says what it was
	case s.Content == "":
	case o.stored != nil && o.stored.content.Digest == s.Content:
		content = o.stored.content
	case o.content != nil:
		return o
	default: // somebody is there, and has not said what is applied
		s.Seen, s.Pending, s.More, s.Changes, content = "", nil, false, nil, nil
		if o.unsaid.IsZero() {
			o.unsaid = o.beaten
		}
	}
	o.Standing, o.content, o.pod, o.received = s, content, podOf(o.beat), o.beaten
	o.pending = map[string]bool{}
	for _, p := range s.Pending {
		o.pending[p.Service] = true
	}
	return o
}

// has returns what the load balancer has of a Service.
func (o *other) has(service string) onnode.Served {
	if has, changed := o.Changes[service]; changed {
		return has
	}
	if o.content == nil {
		return onnode.Served{}
	}
	return o.content.of(service)
}

// holds returns the addresses that its host has.
func (o *other) holds() []netip.Addr {
	if o.content == nil {
		return nil
	}
	return o.content.Holds
}

// differ returns the Services of which one says something else than the other.
func differ(a, b *other) (out []model.ServiceKey) {
	seen := map[string]bool{}
	look := func(service string) bool {
		if namespace, name, ok := strings.Cut(service, "/"); ok && !seen[service] {
			seen[service] = true
			if x := a.has(service); !x.Equal(b.has(service)) {
				out = append(out, model.ServiceKey{Namespace: namespace, Name: name})
			}
		}
		return true
	}
	for _, o := range []*other{a, b} {
		for service := range o.Changes {
			look(service)
		}
		if a.content != b.content && o.content != nil {
			o.content.services(look)
		}
	}
	return out
}
