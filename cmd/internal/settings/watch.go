package settings

import (
	"context"
	"fmt"
	"slices"

	"github.com/fsnotify/fsnotify"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// Watch loads the settings again when it begins, since they may have changed by then, and whenever the settings file changes, and hands the
// outcome to changed, one call at a time, until ctx ends. It follows the links by which Kubernetes replaces a mounted ConfigMap. Without a file there is
// nothing to watch and Watch returns at once.
func (v *Values) Watch(ctx context.Context, flags *pflag.FlagSet, changed func(*Values, error)) {
	if v.file == "" {
		return
	}
	// A viper of its own: viper is not safe for concurrent use, and this one is read by nobody.
	signals := make(chan struct{}, 1)
	watcher := viper.New()
	watcher.SetConfigFile(v.file)
	watcher.SetConfigType("yaml")
	watcher.OnConfigChange(func(fsnotify.Event) {
		select {
		case signals <- struct{}{}:
		default: // one is pending, and the file is read when it is taken
		}
	})
	watcher.WatchConfig()
	select {
	case signals <- struct{}{}:
	default:
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
			changed(v.table.Load(flags))
		}
	}
}

// raw is a value for comparison: as text would have it, secrets included.
func (v *Values) raw(s Setting) string {
	if records, ok := v.values[s.Key].([]*Values); ok {
		var out []any
		for _, r := range records {
			out = append(out, r.own)
		}
		return fmt.Sprint(out)
	}
	return fmt.Sprint(v.values[s.Key])
}

// Changed compares two loads: the keys of settings that differ, those that take effect live and those that need a
// restart. Both are sorted.
func (v *Values) Changed(now *Values) (live, restart []string) {
	for _, s := range v.table.Settings {
		if v.raw(s) == now.raw(s) {
			continue
		}
		if s.Live {
			live = append(live, s.Key)
		} else {
			restart = append(restart, s.Key)
		}
	}
	slices.Sort(live)
	slices.Sort(restart)
	return live, restart
}
