// Command demo shows what nplbridge does, in a lab of its own on this machine: a real Kubernetes control plane, Nodes
// with their own network, real packets, a real HAProxy, or with PROVIDER=avi or bigip a simulated load balancer that carries them. With ONESHOT=1 it ends after the story and exits 0 only if every
// check in it held; without, the cluster stays up to play with until Ctrl-C.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/nplbridge/nplbridge/e2e/demo"
	"github.com/nplbridge/nplbridge/e2e/lab"
)

func main() { lab.Contain(run) }

func run() int {
	klog.SetLogger(logr.Discard()) // client-go's complaints about watches that end are no part of the story
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := tell(ctx, os.Getenv("ONESHOT") == "")
	switch {
	case err == nil, errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return 0
	default:
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
}

// inFront is what people call a load balancer.
var inFront = map[lab.Kind]string{lab.HAProxy: "HAProxy", lab.Avi: "a simulated Avi Controller", lab.BigIP: "a simulated BIG-IP"}

func tell(ctx context.Context, stay bool) error {
	started := time.Now()
	kind := lab.Kind(cmp.Or(os.Getenv("PROVIDER"), string(lab.HAProxy)))
	what, known := inFront[kind]
	if !known {
		return fmt.Errorf("PROVIDER=%s: choose one of %s", kind, lab.Kinds())
	}
	fmt.Printf("nplbridge: a Kubernetes cluster with 3 Nodes, npl-agent on each, %s with lbsync in front\n", what)
	l, err := lab.Start(ctx, lab.Options{Nodes: 3, Progress: os.Stdout})
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.InstallChart(ctx); err != nil {
		return err
	}
	if err := l.StartLoadBalancerOf(ctx, kind); err != nil {
		return err
	}
	fmt.Printf("ready after %.1f s\n", time.Since(started).Seconds())

	story := demo.Story{Out: os.Stdout, Lab: l}
	if err := story.Tell(ctx); err != nil || !stay {
		return err
	}
	if err := story.Invite(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	fmt.Println("\nending the lab; nothing stays behind")
	return nil
}
