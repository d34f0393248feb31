// Package proof holds the chart's proof: in a lab that knows nothing of nplbridge it is installed by helm, carries traffic, is upgraded under
// load, and is taken away. What runs is what the manifests say, as the lab's Nodes read them from the API server.
package proof

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// theLab is the one that the tests share.
var theLab *lab.Lab

func TestMain(m *testing.M) {
	lab.Contain(func() int {
		l, err := lab.Start(context.Background(), lab.Options{Nodes: 2, KubeProxy: true, Progress: os.Stdout})
		if err != nil {
			fmt.Fprintln(os.Stderr, "starting the lab of the chart's proof:", err)
			return 1
		}
		defer l.Close()
		theLab = l
		return m.Run()
	})
}
