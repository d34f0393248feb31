package agent

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
)

// Probe finds out whether this kernel has what the agent needs, whether this process may use it, and whether the tables in it
// are this cluster's. It changes nothing and may run beside a running agent.
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
