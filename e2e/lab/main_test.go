package lab_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// theLab is the one that the tests share.
var theLab *lab.Lab

func TestMain(m *testing.M) {
	lab.Contain(func() int {
		if code := refusals(); code != 0 {
			return code
		}
		began := time.Now()
		l, err := lab.Start(context.Background(), lab.Options{Name: "lab-test", Progress: os.Stdout})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("lab ready in %.1f s\n", time.Since(began).Seconds())
		theLab = l
		code := m.Run()
		if err := l.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return code
	})
}
