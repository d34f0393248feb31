package applied

import (
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

// pause is the least time between two writes.
const pause = time.Second

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
	Namespace, Name              string // of the ConfigMap
	Instance, Identity, Provider string
	Owner                        *metav1.OwnerReference // with whom the ConfigMap goes; nil if with nobody
	Node                         string                 // see Standing
	Holds                        func(netip.Addr) bool  // whether an address is on this host; nil where that does not matter
	Clock                        clock.WithTicker
	Log                          *zap.Logger

	changed chan struct{}
	exists  bool
	failure string // the last one that was logged
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

func (p *Publisher) publish(ctx context.Context, source Source) {
	s := Standing{Instance: p.Instance, Identity: p.Identity, Provider: p.Provider, At: p.Clock.Now()}
	var pending map[model.ServiceKey]string
	if s.Seen, pending = source.Standing(); s.Seen == "" {
		return
	}
	for key, problem := range pending {
		s.Pending = append(s.Pending, Pending{key.String(), problem})
	}
	p.addServed(&s, source)
	ctx, cancel := context.WithTimeout(ctx, Interval)
	defer cancel()
	err := p.write(ctx, Encode(s))
	switch {
	case err == nil:
		p.failure = ""
	case ctx.Err() == nil && err.Error() != p.failure:
		p.failure = err.Error()
		p.Log.Warn("cannot publish what was applied; Services count as not programmed here meanwhile",
			zap.String("configMap", p.Namespace+"/"+p.Name), zap.Error(err))
	}
}

// addServed adds what the load balancer has confirmed, where anybody asks for it.
func (p *Publisher) addServed(s *Standing, source Source) {
	if s.Node = p.Node; p.Node == "" && p.Holds == nil {
		return
	}
	s.Serves = map[string]onnode.Served{}
	for key, report := range source.Reports() {
		has := onnode.Of(report)
		if p.Node != "" && !has.Empty() {
			s.Serves[key.String()] = has
		}
		for _, addr := range has.At {
			if p.Holds != nil && p.Holds(addr) {
				s.Holds = append(s.Holds, addr)
			}
		}
	}
	slices.SortFunc(s.Holds, netip.Addr.Compare)
	s.Holds = slices.Compact(s.Holds)
}

// write replaces the whole object: nobody else writes it.
func (p *Publisher) write(ctx context.Context, text string) error {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name,
			Labels: map[string]string{Label: LabelValue, "app.kubernetes.io/managed-by": "lbsync"},
		},
		Data: map[string]string{DataKey: text},
	}
	if p.Owner != nil {
		object.OwnerReferences = []metav1.OwnerReference{*p.Owner}
	}
	objects := p.Client.CoreV1().ConfigMaps(p.Namespace)
	var err error
	if p.exists {
		if _, err = objects.Update(ctx, object, metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
	}
	if _, err = objects.Create(ctx, object, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = objects.Update(ctx, object, metav1.UpdateOptions{})
	}
	p.exists = err == nil
	return err
}
