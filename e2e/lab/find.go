package lab

import (
	"errors"
	"fmt"
	"os"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/remote"
)

// Info describes a running lab to other processes of the host.
type Info = remote.Info

// Find returns the running lab of this user with a name; an empty name means the only one.
func Find(name string) (Info, error) {
	name, err := remote.Find(name)
	if err != nil {
		return Info{}, err
	}
	return remote.Ask(name)
}

// List returns the running labs of this user in order of their names.
func List() ([]Info, error) {
	names, err := remote.Names(os.DirFS("/proc"), os.Getuid())
	if err != nil {
		return nil, err
	}
	var labs []Info
	var errs []error
	for _, name := range names {
		info, err := remote.Ask(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		labs = append(labs, info)
	}
	if len(labs) == 0 && len(errs) > 0 {
		return nil, fmt.Errorf("list labs: %w", errors.Join(errs...))
	}
	return labs, nil
}

// Exec runs a command in a place (see Command) of a running lab of this user, with the streams of this process, and
// returns its exit status. An empty name means the only lab.
func Exec(name, where string, argv []string) (int, error) {
	name, err := remote.Find(name)
	if err != nil {
		return 0, err
	}
	return remote.Exec(name, where, argv)
}
