package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

type labNode struct{}

func runContainer() {}

func (l *Lab) startNodes(ctx context.Context) error {
	for _, n := range l.network.Nodes() {
		var cidrs []string
		for _, c := range n.PodCIDRs {
			cidrs = append(cidrs, c.String())
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name()}, Spec: corev1.NodeSpec{PodCIDR: cidrs[0], PodCIDRs: cidrs}}
		created, err := l.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		for _, a := range n.Addresses {
			created.Status.Addresses = append(created.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
		}
		created.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
		if _, err := l.client.CoreV1().Nodes().UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return l.waitNodes(ctx)
}

func (l *Lab) stopNodes() {}

func (l *Lab) waitNodes(ctx context.Context) error {
	var waiting error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := l.Failed(); err != nil {
			return false, err
		}
		nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			waiting = err
			return false, nil
		}
		ready := 0
		for _, node := range nodes.Items {
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
					ready++
				}
			}
		}
		waiting = fmt.Errorf("%d of %d Nodes are Ready", ready, l.options.Nodes)
		return ready == l.options.Nodes, nil
	})
	if err != nil {
		return fmt.Errorf("wait for Nodes: %w", errors.Join(waiting, err))
	}
	return nil
}

// healthy asks an HTTP endpoint in a place of the lab.
func (l *Lab) healthy(ctx context.Context, where string, address netip.AddrPort, path string) error {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, protocol, _ string) (net.Conn, error) {
			return l.Dial(ctx, where, protocol, address.String())
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address.String()+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s answers %s: %s", address, path, response.Status, body)
	}
	return nil
}
