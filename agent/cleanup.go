package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/nodecheck"
	"github.com/nplbridge/nplbridge/agent/internal/publish"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Cleanup takes everything of the agent off this Node, in the order that lets load balancers follow: the annotations of the Node's
// Pods, then, WithdrawGrace later, the kernel's tables. The agent must have been stopped before. If an annotation cannot be
// removed, or comes back, the tables stay, so that nothing is published that does not work. One that comes back after that is an error,
// too: an agent still runs, and has put back the tables as well. Where Antrea's agent serves the Node, the annotations are its own and
// stay. It needs no more rights than the agent has, and may be called again after an error.
func Cleanup(ctx context.Context, cfg Config, client kubernetes.Interface, log *zap.Logger) error {
	return cleanup(ctx, cfg, client, log, openKernel, nodecheck.Collect)
}

func cleanup(ctx context.Context, cfg Config, client kubernetes.Interface, log *zap.Logger, open opener, collect func(nodecheck.Subject) nodecheck.Facts) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	antrea, err := servedByAntrea(ctx, cfg, client, log, open, collect)
	if err != nil {
		return err
	}
	k, err := openFor(ctx, cfg, client, log, open)
	if err != nil {
		return err
	}
	if antrea {
		log.Info("Antrea's agent serves this Node; its annotations stay")
		return errors.Join(removeTables(k, log), k.Close())
	}
	removed, err := removeAnnotations(ctx, cfg.NodeName, client, log)
	if err != nil {
		return errors.Join(err, k.Close())
	}
	if removed > 0 {
		log.Info("annotations removed; the tables follow after withdrawGrace", zap.Int("pods", removed), zap.Duration("withdrawGrace", cfg.WithdrawGrace))
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("cleanup was interrupted before the tables were removed: run it again: %w", ctx.Err()), k.Close())
		case <-time.After(cfg.WithdrawGrace):
		}
		if err := staysOff(ctx, cfg.NodeName, client); err != nil {
			return errors.Join(err, k.Close())
		}
	}
	if err := removeTables(k, log); err != nil {
		return errors.Join(err, k.Close())
	}
	if err := staysOff(ctx, cfg.NodeName, client); err != nil { // with a short grace, an agent may have been slower than we
		return errors.Join(err, k.Close())
	}
	return k.Close()
}

func removeTables(k kernel, log *zap.Logger) error {
	if err := k.Cleanup(); err != nil {
		return fmt.Errorf("removing the tables %s: %w", dataplane.TableName, err)
	}
	log.Info("tables removed", zap.String("table", dataplane.TableName))
	return nil
}

func removeAnnotations(ctx context.Context, nodeName string, client kubernetes.Interface, log *zap.Logger) (removed int, err error) {
	pods, err := annotated(ctx, nodeName, client)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, pod := range pods {
		d := publish.Desired{Pod: pod}
		if _, err := publish.Patch(ctx, client, d); err != nil && !publish.IsGone(err, d.Pod.Name) {
			errs = append(errs, fmt.Errorf("removing the annotation of Pod %s: %w", d.Pod, err))
			continue
		}
		log.Info("annotation removed", zap.Stringer("pod", d.Pod))
		removed++
	}
	return removed, errors.Join(errs...)
}

// staysOff returns an error if annotations are back: an agent still runs here, and would put the tables back, too.
func staysOff(ctx context.Context, nodeName string, client kubernetes.Interface) error {
	pods, err := annotated(ctx, nodeName, client)
	if err != nil || len(pods) == 0 {
		return err
	}
	return fmt.Errorf("the annotation of Pod %s on Node %s is back: stop npl-agent there, then run cleanup again", pods[0], nodeName)
}

// annotated returns the Node's Pods that carry the annotation.
func annotated(ctx context.Context, nodeName string, client kubernetes.Interface) (out []model.Pod, err error) {
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", nodeName).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the Pods of Node %s: %w", nodeName, err)
	}
	for _, pod := range pods.Items {
		if _, ok := pod.Annotations[npl.Annotation]; ok && pod.Spec.NodeName == nodeName {
			out = append(out, model.Pod{UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	return out, nil
}

// openFor opens the kernel with the mark of the cluster.
func openFor(ctx context.Context, cfg Config, client kubernetes.Interface, log *zap.Logger, open opener) (kernel, error) {
	uid, err := clusterUID(ctx, client)
	if err != nil {
		return nil, err
	}
	k, err := open(dataplane.Config{ClusterUID: uid, Masquerade: cfg.Masquerade, ForwardAccept: cfg.ForwardAccept, NodePorts: dataplane.PortRange(cfg.PortRange), Log: log})
	if err != nil {
		return nil, fmt.Errorf("opening the dataplane: %w", err)
	}
	return k, nil
}
