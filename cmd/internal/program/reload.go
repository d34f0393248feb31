package program

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/logging"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// reloader takes over what may change while the program runs, and says what may not. A bad file changes nothing.
type reloader struct {
	started *settings.Values // what runs is what was loaded at start, except the log level
	level   zap.AtomicLevel
	log     *zap.Logger
	ok      prometheus.Gauge
}

func newReloader(prefix string, metrics prometheus.Registerer, started *settings.Values, level zap.AtomicLevel, log *zap.Logger) *reloader {
	ok := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "_config_last_reload_successful",
		Help: "1 when the settings file was good the last time it changed, else 0 and the settings before it are in force.",
	})
	ok.Set(1)
	metrics.MustRegister(ok)
	return &reloader{started: started, level: level, log: log, ok: ok}
}

func (r *reloader) changed(now *settings.Values, err error) {
	if err == nil {
		err = r.apply(now)
	}
	if err != nil {
		r.ok.Set(0)
		r.log.Error("The settings file changed and cannot be used, nothing is changed here", zap.Error(err))
		return
	}
	r.ok.Set(1)
	if _, restart := r.started.Changed(now); len(restart) > 0 {
		r.log.Warn("The settings file changed, these settings need a restart", zap.Strings("settings", restart))
	}
}

func (r *reloader) apply(now *settings.Values) error {
	level, err := logging.ParseLevel(now.String("logLevel"))
	if err != nil {
		return now.Reject("logLevel", err.Error())
	}
	if level != r.level.Level() {
		r.level.SetLevel(level)
		r.log.Info("The log level changed", zap.Stringer("to", level))
	}
	return nil
}
