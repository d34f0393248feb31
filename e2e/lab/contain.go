package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/build"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/contain"
	"github.com/nplbridge/nplbridge/e2e/lab/internal/node"
)

// Programs are the paths of the programs a lab runs.
type Programs = build.Programs

// programsVariable carries the paths of built programs from the launcher to the contained process.
const programsVariable = "NPLBRIDGE_LAB_PROGRAMS"

// Build makes the programs of a lab, or finds them in the cache; what takes long is told to progress. The first time it
// takes minutes and the network. With NPLBRIDGE_PROGRAMS in the environment nothing is built.
func Build(ctx context.Context, progress io.Writer) (Programs, error) {
	return build.All(ctx, progress)
}

// Init turns this process into what the lab started it as, a container or PID 1 of a lab, and then never returns;
// otherwise it does nothing. It must be the first thing in main of every program that uses this package, before flags
// are read. Contain does it, too.
func Init() {
	node.MaybeRunContainer()
	contain.Init()
}

// Contain runs a function where Start works: in namespaces of its own, so that nothing of it is left on the host
// however it ends. It builds the lab's programs first (see Build). The function's result becomes the exit status;
// Contain itself never returns. This program is started again with the same arguments for that, so everything before
// the call to Contain happens more than once.
//
// Interrupts reach the function's process as signals once; it should then close its lab and return.
func Contain(function func() int) {
	Init()
	var environment []string
	if !contain.Inside() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		programs, err := Build(ctx, os.Stderr)
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, "lab:", err)
			os.Exit(1)
		}
		document, err := json.Marshal(programs)
		if err != nil {
			panic(err) // a struct of strings
		}
		environment = append(environment, programsVariable+"="+string(document))
	}
	contain.Run(environment, os.Stderr, function)
}

// builtPrograms are those that Contain has built before it started this process.
func builtPrograms() (Programs, error) {
	var programs Programs
	if err := json.Unmarshal([]byte(os.Getenv(programsVariable)), &programs); err != nil {
		return Programs{}, fmt.Errorf("programs of the lab: %s: %w", programsVariable, err)
	}
	return programs, nil
}
