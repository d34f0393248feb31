package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/nodecheck"
)

// Probe finds out whether this process may use the kernel, and whether the tables in it are this cluster's. It changes nothing and may
// run beside a running agent.
func Probe(ctx context.Context, cfg Config, client kubernetes.Interface, log *zap.Logger) error {
	uid, err := clusterUID(ctx, client)
	if err != nil {
		return err
	}
	k, err := openKernel(dataplane.Config{ClusterUID: uid, Masquerade: cfg.Masquerade, ForwardAccept: cfg.ForwardAccept, NodePorts: dataplane.PortRange(cfg.PortRange), Log: log})
	if err != nil {
		return fmt.Errorf("opening the dataplane: %w", err)
	}
	_, err = k.Load()
	return errors.Join(err, k.Close())
}

// CheckNode tests the Node this process runs on, as a running agent does. It changes nothing. Without a client, or where the API server
// does not answer, what needs to know the Node's Pods is reported as unknown.
func CheckNode(ctx context.Context, cfg Config, client kubernetes.Interface) []Finding {
	node, pods, err := look(ctx, cfg.NodeName, client)
	s := subject(cfg, node, pods)
	if client != nil {
		askAntrea(ctx, client, cfg.NodeName, &s)
	}
	facts := nodecheck.Collect(s)
	if err != nil {
		for _, check := range []nodecheck.Check{nodecheck.PodRoutes, nodecheck.BridgeNetfilter, nodecheck.Hairpin} {
			facts.Unread[check] = err.Error()
		}
	}
	return nodecheck.Findings(facts)
}

// look reads the Node and its Pods as far as the checks need them.
func look(ctx context.Context, name string, client kubernetes.Interface) (model.Node, []model.Pod, error) {
	if client == nil {
		return model.Node{}, nil, errors.New("the API server was not asked for the Pods of this Node")
	}
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return model.Node{}, nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	out := model.Node{Name: name}
	for _, a := range node.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			out.Addresses = append(out.Addresses, model.NodeAddress{Type: string(a.Type), IP: ip.Unmap()})
		}
	}
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String()})
	if err != nil {
		return out, nil, fmt.Errorf("listing the Pods of Node %s: %w", name, err)
	}
	var pods []model.Pod
	for _, p := range list.Items {
		pod := model.Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Terminated: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				pod.IPs = append(pod.IPs, a.Unmap())
			}
		}
		pods = append(pods, pod)
	}
	return out, pods, nil
}

// Failed reports whether any finding is an error.
func Failed(findings []Finding) bool { return nodecheck.Failed(findings) }
