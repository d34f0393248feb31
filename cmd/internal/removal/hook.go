package removal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/lbsync"
)

// Hook takes an installation of the chart away, as `helm uninstall` wants it before it deletes anything: it sets the state of all programs, of lbsync first,
// waits until each Pod has said by an Event that it has taken away everything of its own, and lists what is left.
type Hook struct {
	Client kubernetes.Interface
	// Config is lbsync's: whose Lease and marks, and in which namespace.
	Config lbsync.Config
	// Agents and LBSync are the names of the ConfigMaps with the settings; empty where the release has no such program.
	Agents, LBSync string
	// External says that lbsync runs on hosts of its own, where nobody can tell it anything.
	External bool
	// Limit is for all of it.
	Limit time.Duration
	Out   io.Writer
}

// Leftover is what could not be taken away.
type Leftover struct{ Object, Why, Fix string }

// String is the line of the list.
func (l Leftover) String() string { return l.Object + ": " + l.Why + "; " + l.Fix }

const (
	hookPoll = time.Second
	// lbsync gets this part of the limit where there are agents as well: what it leaves on a load balancer should keep nobody from the rest.
	lbsyncPart = 2
	pageSize   = 500
)

// Run does it. The error is for what keeps it from working at all.
func (h *Hook) Run(ctx context.Context) ([]Leftover, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Limit)
	defer cancel()
	var left []Leftover
	if h.LBSync != "" {
		limit := h.Limit
		if h.Agents != "" {
			limit /= lbsyncPart
		}
		first, cancel := context.WithTimeout(ctx, limit)
		_, more, err := h.away(first, h.LBSync, "lbsync cleanup, with the settings that this Pod had")
		cancel()
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	var nodes map[string]bool
	if h.Agents != "" {
		of, more, err := h.away(ctx, h.Agents, "npl-agent cleanup on that Node")
		if err != nil {
			return nil, err
		}
		nodes, left = of, append(left, more...)
	}
	// A time of its own: this is what people wait for when the limit is over.
	look, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if h.LBSync != "" || h.External {
		more, err := h.ofLBSync(look, len(left) == 0)
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	if h.Agents != "" {
		more, err := h.annotated(look, nodes)
		if err != nil {
			return nil, err
		}
		left = append(left, more...)
	}
	return left, nil
}

func (h *Hook) say(format string, args ...any) { _, _ = fmt.Fprintf(h.Out, format+"\n", args...) }

// away sets the state in a ConfigMap and waits for the Pods that read it. It returns their Nodes, see state, and who is not done
// when ctx ends.
func (h *Hook) away(ctx context.Context, configMap, fix string) (nodes map[string]bool, left []Leftover, err error) {
	since, exists, err := h.tell(ctx, configMap)
	if err != nil || !exists {
		return nil, nil, err
	}
	tick := time.NewTicker(hookPoll)
	defer tick.Stop()
	told := ""
	for {
		found, err := h.look(ctx, configMap, since, fix)
		if err == nil {
			nodes, left = found.nodes, found.left
			if now := found.String(); now != told {
				told = now
				h.say("%s: %s", configMap, now)
			}
			if len(left) == 0 {
				return nodes, nil, nil
			}
		} else if ctx.Err() == nil {
			h.say("%s: %v; trying again", configMap, err)
		}
		select {
		case <-ctx.Done():
			if nodes == nil {
				return nil, nil, fmt.Errorf("nothing is known of the Pods that read ConfigMap %s/%s: %w", h.Config.LeaseNamespace, configMap, errors.Join(err, context.Cause(ctx)))
			}
			return nodes, left, nil
		case <-tick.C:
		}
	}
}

// state is how far the Pods are that read a ConfigMap.
type state struct {
	nodes map[string]bool // where such a Pod is, also one that has ended or that nobody can tell anything, to whether one there is done
	pods  int
	left  []Leftover
}

func (s state) String() string {
	parts := []string{fmt.Sprintf("%d of %d Pods have taken away everything of their own", s.pods-len(s.left), s.pods)}
	for _, l := range s.left[:min(3, len(s.left))] {
		parts = append(parts, fmt.Sprintf("%s: %s", l.Object, l.Why))
	}
	return strings.Join(parts, "; ")
}

func (h *Hook) look(ctx context.Context, configMap string, since time.Time, fix string) (state, error) {
	pods, err := h.Client.CoreV1().Pods(h.Config.LeaseNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return state{}, fmt.Errorf("list the Pods of namespace %s: %w", h.Config.LeaseNamespace, err)
	}
	events, err := h.Client.EventsV1().Events(h.Config.LeaseNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return state{}, fmt.Errorf("list the Events of namespace %s: %w", h.Config.LeaseNamespace, err)
	}
	done, failure := map[types.UID]bool{}, map[types.UID]string{}
	for _, e := range events.Items {
		if e.CreationTimestamp.Time.Before(since) {
			continue
		}
		switch e.Reason {
		case removed:
			done[e.Regarding.UID] = true
		case failed:
			failure[e.Regarding.UID] = e.Note
		}
	}
	out := state{nodes: map[string]bool{}}
	for _, p := range pods.Items {
		told := reads(&p, configMap)
		if node := p.Spec.NodeName; node != "" && (told || onWindows(&p, configMap)) {
			out.nodes[node] = out.nodes[node] || done[p.UID]
		}
		if !told || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		out.pods++
		if done[p.UID] {
			continue
		}
		why := failure[p.UID]
		switch {
		case p.Status.Phase != corev1.PodRunning:
			why = "it does not run, it is " + string(p.Status.Phase)
		case why == "":
			why = "it has not said yet that it is done, its log says more"
		}
		out.left = append(out.left, Leftover{fmt.Sprintf("Pod %s/%s on Node %s", p.Namespace, p.Name, p.Spec.NodeName), why, "afterwards run " + fix})
	}
	return out, nil
}

// reads says whether a Pod has the ConfigMap among its volumes.
func reads(p *corev1.Pod, configMap string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		if v.ConfigMap != nil {
			return v.ConfigMap.Name == configMap
		}
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ConfigMap != nil && s.ConfigMap.Name == configMap
		})
	})
}

// onWindows says whether a Pod is of the DaemonSet that is named after a ConfigMap, which it does not read: the chart's agent on Windows.
func onWindows(p *corev1.Pod, configMap string) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == "DaemonSet" && owner.Name == configMap+"-windows"
}

// ofLBSync lists what lbsync has left in the cluster, and removes what nobody would otherwise: its Lease, and what is published by processes that
// are gone. all says that every process of the release is done.
func (h *Hook) ofLBSync(ctx context.Context, all bool) (left []Leftover, err error) {
	published, services, err := lbsync.Remains(ctx, h.Client, h.Config)
	if err != nil {
		return nil, err
	}
	fix := "run lbsync cleanup, with the settings that lbsync had"
	if h.External {
		fix = "stop lbsync on its hosts, and run lbsync cleanup there"
	}
	for _, s := range services {
		left = append(left, Leftover{"Service " + s, "it carries the marks of " + h.Config.Instance + ", and so does a load balancer", fix})
	}
	if h.External || !all {
		for _, p := range published {
			left = append(left, Leftover{"ConfigMap " + p.Namespace + "/" + p.Name, "the process that wrote it has not cleaned up", fix})
		}
		return left, nil
	}
	for _, p := range published {
		name := "ConfigMap " + p.Namespace + "/" + p.Name
		err := h.Client.CoreV1().ConfigMaps(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		switch {
		case apierrors.IsConflict(err):
			left = append(left, Leftover{name, "it was written anew meanwhile", "stop the lbsync that writes it, and run lbsync cleanup there"})
			continue
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("delete %s: %w", name, err)
		}
		left = append(left, Leftover{"the load balancer of " + name, "the process that wrote it is gone, and has not cleaned up", "see what carries the mark of " + h.Config.Instance + " there"})
	}
	err = h.Client.CoordinationV1().Leases(h.Config.LeaseNamespace).Delete(ctx, h.Config.LeaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("delete Lease %s/%s: %w", h.Config.LeaseNamespace, h.Config.LeaseName, err)
	}
	return left, nil
}

// annotated lists the Nodes where an agent of ours has been and has not said that it is done, if Pods there have the annotation. Elsewhere
// another agent has written it.
func (h *Hook) annotated(ctx context.Context, nodes map[string]bool) (left []Leftover, err error) {
	pods := map[string][]string{} // by Node
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := h.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list Pods: %w", err)
		}
		for _, p := range page.Items {
			done, ours := nodes[p.Spec.NodeName]
			if _, has := p.Annotations[npl.Annotation]; has && ours && !done {
				pods[p.Spec.NodeName] = append(pods[p.Spec.NodeName], p.Namespace+"/"+p.Name)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	for _, node := range slices.Sorted(maps.Keys(pods)) {
		left = append(left, Leftover{
			"Node " + node, fmt.Sprintf("the annotation %s is on %d of its Pods, such as %s", npl.Annotation, len(pods[node]), slices.Min(pods[node])),
			"unless another agent writes it, such as Antrea's, run npl-agent cleanup on that Node",
		})
	}
	return left, nil
}
