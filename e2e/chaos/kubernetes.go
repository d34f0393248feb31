package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nplbridge/nplbridge/e2e/view"
)

// patchPod sends a JSON merge patch.
func (s *site) patchPod(ctx context.Context, name string, patch any) error {
	_, err := s.Lab.Client().CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, []byte(text(patch)), metav1.PatchOptions{})
	return err
}

func (s *site) patchService(ctx context.Context, name string, patch any) error {
	_, err := s.Lab.Client().CoreV1().Services(namespace).Patch(ctx, name, types.MergePatchType, []byte(text(patch)), metav1.PatchOptions{})
	return err
}

func (s *site) patchDeployment(ctx context.Context, name string, patch any) error {
	_, err := s.Lab.Client().AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, []byte(text(patch)), metav1.PatchOptions{})
	return err
}

func (s *site) scale(ctx context.Context, name string, replicas int) error {
	return s.patchDeployment(ctx, name, object{"spec": object{"replicas": replicas}})
}

// object is JSON.
type object = map[string]any

// podsOf are the Pods with a value of the label "app" that are ready and not on their way out, by name.
func (s *site) podsOf(app string) (out []*corev1.Pod) {
	for _, p := range s.watch.list() {
		if p.Labels["app"] == app && p.DeletionTimestamp == nil && ready(p) {
			out = append(out, p)
		}
	}
	return out
}

// poll waits for something as long as a person would.
func poll(ctx context.Context, f func() error) error { return view.Poll(ctx, f) }

// event waits until an Event about an object of the run has a reason.
func (s *site) event(ctx context.Context, name, reason string) error {
	return poll(ctx, func() error {
		list, err := s.Lab.Client().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if strings.HasPrefix(e.Reason, reason) {
				return nil
			}
		}
		return fmt.Errorf("%s has no Event %s", name, reason)
	})
}

// apply applies a manifest and says of what it is when it fails.
func (s *site) apply(ctx context.Context, what, manifest string) error {
	if err := s.Lab.Apply(ctx, manifest); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// deleteAll deletes objects and waits until they are gone.
func (s *site) deleteAll(ctx context.Context, what ...string) error {
	args := append([]string{"-n", namespace, "delete", "--ignore-not-found", "--timeout=60s"}, what...)
	_, err := s.Lab.Kubectl(ctx, args...)
	return err
}

// agentOn is the Pod of the agent of a Node.
func (s *site) agentOn(ctx context.Context, node string) (corev1.Pod, error) {
	pods, err := s.agents(ctx)
	if err != nil {
		return corev1.Pod{}, err
	}
	for _, p := range pods {
		if p.Spec.NodeName == node {
			return p, nil
		}
	}
	return corev1.Pod{}, errors.New("there is no agent on " + node)
}

// restarted waits until the container of a Pod has been started again and is ready.
func (s *site) restarted(ctx context.Context, ns, name string, before corev1.Pod) error {
	return poll(ctx, func() error {
		now, err := s.Lab.Client().CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if restartsOf(now) == restartsOf(&before) || !ready(now) {
			return fmt.Errorf("the Pod %s has not started again and become ready", name)
		}
		return nil
	})
}

func restartsOf(p *corev1.Pod) (n int32) {
	for _, c := range p.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}
