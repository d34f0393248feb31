package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/runtime"
)

// reloadTimeout is how long a new worker may take. 10,000 servers take 0.2 s; a worker that cannot bind takes 2 s to fail.
const reloadTimeout = 15 * time.Second

// pollInterval is how often the outcome is looked for.
const pollInterval = 5 * time.Millisecond

// ErrReloadFailed says that the new worker did not start and the old one continues.
var ErrReloadFailed = errors.New("the new worker did not start; haproxy's own log says why")

// ErrNoMaster says that a worker serves and no master is where it should be.
var ErrNoMaster = errors.New("haproxy runs, and not with this master socket; start it with -W -S <path>, or mend haproxy.masterSocket")

// Reloader reloads HAProxy and waits for the outcome.
type Reloader struct {
	Master runtime.Master
	Admin  string // path of the admin socket
}

// Reload makes HAProxy load its files and returns nil when another worker serves, with the generation want.
// Once asked, the outcome is awaited even when ctx ends: half-known is worse than late.
func (r Reloader) Reload(ctx context.Context, want config.Generation) error {
	old, _, err := Loaded(ctx, r.Admin)
	if err != nil {
		return fmt.Errorf("admin socket %s: %w", r.Admin, err)
	}
	before, err := r.Master.Processes(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("master socket %s: %w: %w", r.Master.Path, ErrNoMaster, err)
	}
	if err != nil {
		return fmt.Errorf("master socket %s: %w", r.Master.Path, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reloadTimeout)
	defer cancel()
	if err := r.Master.Reload(ctx); err != nil {
		return fmt.Errorf("master socket %s: reload: %w", r.Master.Path, err)
	}
	var last error
	for {
		info, generation, err := Loaded(ctx, r.Admin)
		switch {
		case err != nil:
			last = err
		case info.Worker != old.Worker && !info.Stopping && generation == want.String():
			// The worker is there before the master, which is executing itself anew, answers again.
			if _, last = r.Master.Processes(ctx); last == nil {
				return nil
			}
		case info.Worker != old.Worker && !info.Stopping:
			return fmt.Errorf("%w: the new worker reports %q, not %s", ErrWrongGeneration, generation, want)
		default:
			// The master refuses connections while a reload is failing; that is no answer yet.
			if p, err := r.Master.Processes(ctx); err == nil && p.Failed > 0 && p.Reloads > before.Reloads {
				return ErrReloadFailed
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no new worker within %s: %w", reloadTimeout, errors.Join(ErrReloadFailed, last))
		case <-time.After(pollInterval):
		}
	}
}

// ErrWrongGeneration says that HAProxy was reloaded and does not run our file.
var ErrWrongGeneration = errors.New("haproxy does not run the generated file")

// Loaded returns which worker serves new connections and the generation that it loaded, "" for none.
func Loaded(ctx context.Context, admin string) (runtime.Info, string, error) {
	s, err := runtime.Dial(ctx, admin)
	if err != nil {
		return runtime.Info{}, "", err
	}
	defer s.Close()
	generation, err := s.Environment(ctx, config.GenerationVariable)
	return s.Info(), generation, err
}
