// Command bench measures nplbridge in a lab of its own and prints the figures.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/nplbridge/nplbridge/e2e/bench"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

func main() {
	lab.Contain(func() int {
		klog.SetLogger(logr.Discard()) // client-go's complaints about watches that end are no figures
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return 1
		}
		return 0
	})
}

func run(ctx context.Context) error {
	began := time.Now()
	l, err := lab.Start(ctx, lab.Options{Nodes: 3, Progress: os.Stdout})
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Printf("lab ready                            %.1f s\n", time.Since(began).Seconds())
	if err := l.InstallChart(ctx); err != nil {
		return err
	}
	if err := l.StartLoadBalancer(ctx); err != nil {
		return err
	}
	fmt.Printf("chart installed, load balancer up    %.1f s\n", time.Since(began).Seconds())
	return bench.ReadyToFirstRequest(ctx, l, os.Stdout, 100)
}
