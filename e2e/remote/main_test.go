// Package remote holds the end-to-end tests of load balancers that lbsync writes from afar: the simulated Avi Controller and the simulated BIG-IP, each
// with its data plane in front of a cluster.
package remote

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// theLab is the one that the tests share; the chart is installed in it.
var theLab *lab.Lab

// chartValues are those that hold throughout.
var chartValues = []string{"agent.config.withdrawGrace=1s"}

func TestMain(m *testing.M) {
	lab.Contain(func() int {
		ctx := context.Background()
		l, err := lab.Start(ctx, lab.Options{Nodes: 2, Progress: os.Stdout})
		if err != nil {
			fmt.Fprintln(os.Stderr, "starting the lab of the remote load balancers:", err)
			return 1
		}
		defer l.Close()
		if err := l.InstallChart(ctx, chartValues...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		theLab = l
		return m.Run()
	})
}
