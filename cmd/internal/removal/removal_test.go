package removal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zaptest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/nplbridge/nplbridge/agent/watermark"
	"github.com/nplbridge/nplbridge/lbsync"
)

const ns = "nplbridge-system"

func release() lbsync.Config {
	c := lbsync.DefaultConfig()
	c.Instance, c.LeaseNamespace, c.LeaseName = ns+"/nplbridge", ns, "nplbridge-lbsync"
	return c
}

func settingsMap(name, content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: map[string]string{"settings.yaml": content, "other": "stays"}}
}

// reader is a running Pod with a ConfigMap among its volumes, plain or projected.
func reader(name, node, configMap string, projected bool) *corev1.Pod {
	reference := corev1.LocalObjectReference{Name: configMap}
	v := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: reference}}
	if projected {
		v = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{}}, {ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: reference}},
		}}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{Name: "run"}, {Name: "settings", VolumeSource: v}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func said(pod, reason, note string, at time.Time) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint(pod, reason, at.UnixNano()), CreationTimestamp: metav1.NewTime(at)},
		Regarding:  corev1.ObjectReference{UID: types.UID("uid-" + pod)}, Reason: reason, Note: note,
	}
}

func stateOf(t *testing.T, client *fake.Clientset, name string) string {
	t.Helper()
	m, err := client.CoreV1().ConfigMaps(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Data["settings.yaml"] + m.Data["other"]
}

// lbsync first, then the agents; who does not answer is listed with what to do, and nobody else is waited for.
func TestHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		annotated := reader("web", "node-3", "else", false)
		annotated.Namespace, annotated.Annotations = "shop", map[string]string{"nodeportlocal.antrea.io": "[]"}
		on := func(name, node string) *corev1.Pod {
			p := annotated.DeepCopy()
			p.Name, p.Spec.NodeName = name, node
			return p
		}
		// An earlier Pod of an agent that is done.
		ended := reader("agent-1-ended", "node-1", "nplbridge-agent", false)
		ended.Status.Phase = corev1.PodFailed
		// An agent that is told nothing by a ConfigMap, and one of another release.
		windows, stranger := reader("agent-4", "windows", "else", false), reader("stranger", "node-9", "other-agent", false)
		windows.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "nplbridge-agent-windows", Controller: new(true)}}
		marked := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"nplbridge.io/enabled-by": ns + "/nplbridge"}}}
		lost := reader("agent-3", "node-3", "nplbridge-agent", false)
		lost.Status.Phase = corev1.PodPending
		client := fake.NewClientset(
			settingsMap("nplbridge-agent", "coolDown: 1m\n"), settingsMap("nplbridge-lbsync", "resync: 5m\n"),
			reader("agent-1", "node-1", "nplbridge-agent", false), reader("agent-2", "node-2", "nplbridge-agent", false), lost,
			reader("lbsync-1", "node-1", "nplbridge-lbsync", true), annotated, marked, ended, windows, stranger,
			on("also", "node-3"), on("clean", "node-1"), on("iis", "windows"), on("strange", "node-9"), on("antrea", "node-8"),
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nplbridge-lbsync"}},
		)
		events := client.EventsV1().Events(ns)
		say := func(e *eventsv1.Event) {
			if _, err := events.Create(t.Context(), e, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		}
		say(said("lbsync-1", "Removed", "", now.Add(-time.Hour))) // an earlier time
		var out bytes.Buffer
		h := &Hook{Client: client, Config: release(), Agents: "nplbridge-agent", LBSync: "nplbridge-lbsync", Limit: time.Minute, Out: &out}
		type answer struct {
			left []Leftover
			err  error
		}
		answers := make(chan answer, 1)
		go func() {
			left, err := h.Run(t.Context())
			answers <- answer{left, err}
		}()
		time.Sleep(10 * time.Second)
		if got := stateOf(t, client, "nplbridge-lbsync"); got != "resync: 5m\nstate: removing\nstays" {
			t.Errorf("lbsync is told %q", got)
		}
		if got := stateOf(t, client, "nplbridge-agent"); strings.Contains(got, "removing") {
			t.Errorf("the agents do not wait for lbsync: %q", got)
		}
		say(said("lbsync-1", "Removed", "", time.Now().Add(time.Second)))
		time.Sleep(10 * time.Second)
		if got := stateOf(t, client, "nplbridge-agent"); got != "coolDown: 1m\nstate: removing\nstays" {
			t.Errorf("the agents are told %q", got)
		}
		say(said("agent-1", "Removed", "", time.Now().Add(time.Second)))
		say(said("agent-2", "RemovalFailed", "the kernel is busy", time.Now().Add(time.Second)))
		time.Sleep(20 * time.Second)
		select {
		case a := <-answers:
			t.Fatalf("it did not wait: %v", a)
		default:
		}
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		var got []string
		for _, l := range a.left {
			got = append(got, l.String())
		}
		want := []string{
			"Pod nplbridge-system/agent-2 on Node node-2: the kernel is busy; afterwards run npl-agent cleanup on that Node",
			"Pod nplbridge-system/agent-3 on Node node-3: it does not run, it is Pending; afterwards run npl-agent cleanup on that Node",
			"Service shop/web: it carries the marks of nplbridge-system/nplbridge, and so does a load balancer; run lbsync cleanup, with the settings that lbsync had",
			"Node node-3: the annotation nodeportlocal.antrea.io is on 2 of its Pods, such as shop/also; unless another agent writes it, such as Antrea's, run npl-agent cleanup on that Node",
			"Node windows: the annotation nodeportlocal.antrea.io is on 1 of its Pods, such as shop/iis; unless another agent writes it, such as Antrea's, run npl-agent cleanup on that Node",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s\n%s", diff, &out)
		}
		if !strings.Contains(out.String(), "nplbridge-agent: 1 of 3 Pods have taken away everything of their own; Pod nplbridge-system/agent-2 on Node node-2: the kernel is busy") {
			t.Errorf("it says\n%s", &out)
		}
	})
}

func TestHookWithNothingLeft(t *testing.T) {
	later := time.Now().Add(time.Hour)
	client := fake.NewClientset(
		settingsMap("nplbridge-agent", "state: removing\n"), reader("agent-1", "node-1", "nplbridge-agent", false), said("agent-1", "Removed", "", later),
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nplbridge-lbsync"}},
	)
	h := &Hook{Client: client, Config: release(), Agents: "nplbridge-agent", LBSync: "gone", Limit: time.Minute, Out: &bytes.Buffer{}}
	left, err := h.Run(t.Context())
	if err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	if list, err := client.CoordinationV1().Leases(ns).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("%v, Leases %+v", err, list.Items)
	}
	client = fake.NewClientset(settingsMap("nplbridge-agent", "[not a map"))
	h.Client = client
	h.LBSync = ""
	if _, err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "ConfigMap nplbridge-system/nplbridge-agent, settings.yaml: ") {
		t.Errorf("got %v", err)
	}
}

// What processes that are gone have published is deleted, but not what somebody has written under the same name since it was listed.
func TestHookDeletesWhatItHasListed(t *testing.T) {
	published := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{watermark.Label: watermark.LabelValue}},
			Data:       map[string]string{watermark.DataKey: watermark.Encode(watermark.Watermark{Instance: ns + "/nplbridge", LoadBalancer: name, Seen: "1"})},
		}
	}
	client := fake.NewClientset(published("gone"), published("rewritten"))
	client.PrependReactor("delete", "configmaps", func(a ktesting.Action) (bool, runtime.Object, error) {
		d := a.(ktesting.DeleteActionImpl)
		if p := d.DeleteOptions.Preconditions; p == nil || p.UID == nil || *p.UID != types.UID("uid-"+d.Name) {
			t.Errorf("%s is deleted whatever its UID: %+v", d.Name, d.DeleteOptions)
		}
		if d.Name == "rewritten" {
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), d.Name, errors.New("the UID in the precondition"))
		}
		return false, nil, nil
	})
	h := &Hook{Client: client, Config: release(), LBSync: "gone-too", Limit: time.Minute, Out: &bytes.Buffer{}}
	left, err := h.Run(t.Context())
	want := []Leftover{
		{"the load balancer of ConfigMap nplbridge-system/gone", "the process that wrote it is gone, and has not cleaned up", "see what carries the mark of nplbridge-system/nplbridge there"},
		{"ConfigMap nplbridge-system/rewritten", "it was written anew meanwhile", "stop the lbsync that writes it, and run lbsync cleanup there"},
	}
	if diff := cmp.Diff(want, left); err != nil || diff != "" {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

// A process tries until it has removed everything, says each reason once, and waits then.
func TestProcess(t *testing.T) {
	t.Setenv("POD_NAME", "agent-1")
	t.Setenv("POD_NAMESPACE", ns)
	t.Setenv("POD_UID", "uid-agent-1")
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		failures := 3
		p := &Process{
			Program: "npl-agent", Client: client, Log: zaptest.NewLogger(t),
			Remove: func(_ context.Context, tell func(string)) error {
				tell("3 annotations")
				if failures--; failures >= 0 {
					return errors.New("the API server is away " + strings.Repeat("x", 1100))
				}
				return nil
			},
			Status: func(left string) any { return left },
		}
		s := p.Service()
		if err := s.Checks[0].Check(); err == nil {
			t.Error("it is ready before it has begun")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(time.Millisecond)
		if err := s.Checks[0].Check(); err == nil || !strings.Contains(err.Error(), "away") || s.Status() != err.Error() {
			t.Errorf("it says %v, status %v", err, s.Status())
		}
		time.Sleep(5 * time.Minute)
		if err := s.Checks[0].Check(); err != nil || s.Status() != "" {
			t.Errorf("it is not done: %v, %v", err, s.Status())
		}
		// A hook that comes after the Events have expired hears of it, too.
		if err := client.Tracker().Delete(eventsv1.SchemeGroupVersion.WithResource("events"), ns, lastRemoved(t, client)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(again)
		lastRemoved(t, client)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		list, err := client.EventsV1().Events(ns).List(context.WithoutCancel(ctx), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reasons := map[string]int{}
		for _, e := range list.Items {
			reasons[e.Reason]++
			if e.Regarding.UID != "uid-agent-1" || len(e.Note) > 1024 || e.ReportingController != "nplbridge.io/npl-agent" {
				t.Errorf("%+v", e)
			}
		}
		if reasons["Removed"] == 0 || reasons["RemovalFailed"] == 0 {
			t.Errorf("Events: %v", reasons)
		}
	})
}

// lastRemoved is the name of the only Event Removed.
func lastRemoved(t *testing.T, client *fake.Clientset) (name string) {
	t.Helper()
	list, err := client.EventsV1().Events(ns).List(context.WithoutCancel(t.Context()), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Reason == removed {
			if name != "" {
				t.Errorf("Events %s and %s", name, e.Name)
			}
			name = e.Name
		}
	}
	if name == "" {
		t.Error("no Event says that everything is removed")
	}
	return name
}
