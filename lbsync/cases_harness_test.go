package lbsync

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/providers"
)

// put creates or replaces an object.
func (w *world) put(objects ...runtime.Object) {
	w.t.Helper()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Service:
			_, err = w.client.CoreV1().Services(o.Namespace).Create(w.t.Context(), o, metav1.CreateOptions{})
		case *corev1.Pod:
			_, err = w.client.CoreV1().Pods(o.Namespace).Create(w.t.Context(), o, metav1.CreateOptions{})
		case *corev1.Node:
			_, err = w.client.CoreV1().Nodes().Create(w.t.Context(), o, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				_, err = w.client.CoreV1().Nodes().Update(w.t.Context(), o, metav1.UpdateOptions{})
			}
		}
		if apierrors.IsAlreadyExists(err) {
			w.update(o)
		} else if err != nil {
			w.t.Fatal(err)
		}
	}
}

// change edits a Service as it is now.
func (w *world) change(name string, edit func(*corev1.Service)) {
	w.t.Helper()
	s := w.service(name)
	edit(s)
	w.update(s)
}

// removePod deletes a Pod at once, as when its grace period has ended.
func (w *world) removePod(name string) {
	w.t.Helper()
	if err := w.client.CoreV1().Pods("shop").Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// removeService asks for deletion; the object is gone when its finalizers are.
func (w *world) removeService(name string) {
	w.t.Helper()
	w.change(name, func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) })
}

// members waits until the pool has exactly these members, as "pod:state"; none of them given means a pool without any.
func (w *world) members(name string, want ...string) {
	w.t.Helper()
	w.eventually("the members of "+name+" are ["+strings.Join(want, " ")+"]", func() bool {
		got := w.pool(name)
		return got != nil && slices.Equal(got, want)
	})
}

// steady demands that the pool stays as it is while something else happens.
func (w *world) steady(name string, want ...string) {
	w.t.Helper()
	if got := w.pool(name); !slices.Equal(got, want) {
		w.t.Fatalf("the members of %s are %v, want %v", name, got, want)
	}
}

// served waits until the load balancer has confirmed the Service.
func (w *world) served(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.eventually(name+" is programmed", func() bool { return programmed(w.service(name)) })
	}
}

// enabled reports whether the Service asks for node ports because lbsync says so.
func (w *world) enabled(name string) bool { return npl.Enabled(w.service(name).Annotations) }

// event waits for an Event whose reason or note contains the text, about an object of this name.
func (w *world) event(object, text string) {
	w.t.Helper()
	w.eventually("an Event about "+object+" with "+text, func() bool {
		list, err := w.client.EventsV1().Events("shop").List(w.t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == object && (strings.Contains(e.Reason, text) || strings.Contains(e.Note, text))
		})
	})
}

// address returns what the pool has for a Pod.
func (w *world) address(service, pod string) string {
	for _, p := range w.lb.State().Pools {
		for _, m := range p.Members {
			if p.Key.Service == service && m.UID == pod {
				return m.Address.String()
			}
		}
	}
	return ""
}

// attached makes a Service of type ClusterIP whose members are put into a pool of somebody else.
func attached(name, pool string) *corev1.Service {
	s := service(name)
	s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeClusterIP, nil
	s.Annotations = map[string]string{"nplbridge.io/pool": "80=memory:" + pool}
	return s
}

// with edits a new object.
func with[T any](o T, edit func(T)) T {
	edit(o)
	return o
}

// mapped gives a Pod these mappings.
func mapped(p *corev1.Pod, mappings ...npl.Mapping) *corev1.Pod {
	p.Annotations = map[string]string{npl.Annotation: npl.Encode(mappings)}
	return p
}

func mapping(podPort, nodePort uint16, protocol npl.Protocol, ip string) npl.Mapping {
	a := netip.MustParseAddr(ip)
	return npl.Mapping{PodPort: podPort, NodeIP: a, NodePort: nodePort, Protocol: protocol, Family: npl.FamilyOf(a)}
}

// readiness sets the condition Ready.
func readiness(p *corev1.Pod, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.ContainersReady, Status: status}, {Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()},
	}
	return p
}

// terminating marks a Pod as being deleted.
func (w *world) terminating(p *corev1.Pod) *corev1.Pod {
	now := metav1.NewTime(w.clock.Now())
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds, p.Finalizers = &now, new(int64(30)), []string{"test/stay"}
	return p
}

func servicePort(port, target int32, protocol corev1.Protocol) corev1.ServicePort {
	return corev1.ServicePort{Name: strings.ToLower(string(protocol)) + "-" + strconv.Itoa(int(port)), Port: port, Protocol: protocol,
		TargetPort: intstr.FromInt32(target)}
}

func keyOf(name string, port uint16, protocol providers.Protocol) providers.Key {
	return providers.Key{Namespace: "shop", Service: name, Port: port, Protocol: protocol}
}
