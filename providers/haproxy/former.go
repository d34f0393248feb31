package haproxy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/haproxy/internal/config"
)

// Workers from before a reload carry their connections on. The reload may have given a Service another backend, a spare one instead of its own or the other
// way round, and a spare one may be another Service's by now. So an old worker is asked by the names that it has itself: its map, which nobody changes
// any more, tells which Services were in spare backends. Those of the others are made of their Keys. Nothing has to be remembered for that.

// oldWorkers returns the workers from before a reload that still have connections. As long as a worker serves there is no reload, so once it has been alone it is
// not asked for again.
func (p *Provider) oldWorkers(ctx context.Context) ([]int, error) {
	if p.cfg.Remote() || p.alone == p.recalled {
		return nil, nil
	}
	processes, err := p.master.Processes(ctx)
	if err == nil && len(processes.Old) == 0 {
		p.alone = p.recalled
	}
	return processes.Old, err
}

// formerSpares returns the spare backends that Services have in an old worker.
func (p *Provider) formerSpares(ctx context.Context, pid int) (map[providers.Key]string, error) {
	spares := map[providers.Key]string{}
	for _, ending := range config.MapNames { // it has one of them, or none
		entries, err := p.master.Map(ctx, pid, p.files.MapPath(ending))
		if err != nil {
			return nil, fmt.Errorf("the map of old worker %d: %w", pid, err)
		}
		for _, service := range config.ParseRoutes(entries) {
			spares[service.Key] = service.Spare
		}
	}
	return spares, nil
}

// formerName returns what the backend of a Key is called where these are the spare ones. Attached names one of the administrator, which no reload renames.
func formerName(spares map[providers.Key]string, key providers.Key, attached string) string {
	if attached != "" {
		return attached
	}
	if spare, ok := spares[key]; ok {
		return spare
	}
	return config.BackendName(key)
}

// addFormer adds the connections that old workers carry to the sessions of these pools, by the names of their servers.
func (p *Provider) addFormer(ctx context.Context, pools []providers.Pool, sessions []map[string]int) error {
	old, err := p.oldWorkers(ctx)
	if err != nil {
		return err
	}
	for _, pid := range old {
		spares, err := p.formerSpares(ctx, pid)
		if err != nil {
			return err
		}
		for i, pool := range pools {
			more, err := p.master.Sessions(ctx, pid, formerName(spares, pool.Key, pool.Attached))
			if err != nil {
				return err
			}
			for name, n := range more {
				sessions[i][name] += n
			}
		}
	}
	return nil
}

// smallerPools returns the tasks that sent servers away, whatever became of the tasks.
func smallerPools(tasks []*task) []*task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t *task) bool { return len(t.plan.removed) == 0 })
}

// shutdownInOldWorkers closes the connections of these tasks to gone servers that old workers still carry. They
// take no new ones, so a failure is worth a warning only: HAProxy ends with them, or the Pod does.
func (p *Provider) shutdownInOldWorkers(ctx context.Context, tasks []*task, gone func(t *task, server string) bool) {
	if len(tasks) == 0 {
		return
	}
	old, err := p.oldWorkers(ctx)
	for _, pid := range old {
		spares, unread := p.formerSpares(ctx, pid)
		if unread != nil {
			err = errors.Join(err, unread)
			continue
		}
		byName := make(map[string]*task, len(tasks))
		for _, t := range tasks {
			attached := ""
			if t.attached {
				attached = t.backend
			}
			byName[formerName(spares, t.key, attached)] = t
		}
		err = errors.Join(err, p.master.ShutdownSessions(ctx, pid, func(backend, server string) bool {
			t := byName[backend]
			return t != nil && gone(t, server)
		}))
	}
	if err != nil {
		p.log.Warn("connections to removed members may go on in old workers", zap.Error(err))
	}
}
