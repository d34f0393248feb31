package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/internal/nodecheck"
)

// Remove is Cleanup for an agent that was told to go: with its rights alone, and where Antrea's agent serves the Node, whose
// annotations stay, only the kernel's tables go. It may be called again after an error.
func Remove(ctx context.Context, cfg Config, client kubernetes.Interface, log *zap.Logger) error {
	return remove(ctx, cfg, client, log, openKernel, nodecheck.Collect)
}

func remove(ctx context.Context, cfg Config, client kubernetes.Interface, log *zap.Logger, open opener, collect func(nodecheck.Subject) nodecheck.Facts) error {
	antrea, err := servedByAntrea(ctx, cfg, client, log, open, collect)
	if err != nil {
		return err
	}
	if !antrea {
		return cleanup(ctx, cfg, client, log, open)
	}
	log.Info("Antrea's agent serves this Node; its annotations stay")
	k, err := openFor(ctx, cfg, client, log, open)
	if err != nil {
		return err
	}
	if err := k.Cleanup(); err != nil {
		err = fmt.Errorf("removing the tables %s: %w", dataplane.TableName, err)
		return errors.Join(err, k.Close())
	}
	return k.Close()
}

// servedByAntrea says whether an agent of ours would refuse to serve the Node beside Antrea's.
func servedByAntrea(ctx context.Context, cfg Config, client kubernetes.Interface, log *zap.Logger, open opener, collect func(nodecheck.Subject) nodecheck.Facts) (bool, error) {
	a, err := newAgent(cfg, client, log, prometheus.NewRegistry(), open)
	if err != nil {
		return false, err
	}
	a.collect = collect
	k, err := openFor(ctx, cfg, client, log, open)
	if err != nil {
		return false, err
	}
	reading, cancel := context.WithCancel(ctx)
	var read sync.WaitGroup
	read.Go(func() { a.inventory.Run(reading) })
	synced := a.inventory.WaitForSync(ctx)
	refused := errors.New("the Node was not read")
	if synced {
		refused = a.beside(ctx, k)
	}
	cancel()
	read.Wait()
	if err := k.Close(); err != nil {
		return false, fmt.Errorf("closing the dataplane: %w", err)
	}
	if !synced {
		return false, fmt.Errorf("reading the Pods of Node %s: %w", cfg.NodeName, context.Cause(ctx))
	}
	return refused != nil, nil
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
