package program

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/logging"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// reloader takes over what may change while the program runs, and says what may not. A bad file changes nothing.
type reloader struct {
	level zap.AtomicLevel
	log   *zap.Logger
	ok    prometheus.Gauge
	valid func(*settings.Values) error // may be nil
	// anew begins anew with other settings; all says that it does so for every setting that is not Live, instead of only for the state.
	anew func(*settings.Values)
	all  bool

	mu      sync.Mutex
	started *settings.Values // what the settings that need a restart are
	running *settings.Values // what the others are
	latest  *settings.Values // what the file says, where that came before the Service
	served  bool             // serve was called
	service func(*settings.Values) error
}

func newReloader(prefix string, metrics prometheus.Registerer, started *settings.Values, level zap.AtomicLevel, log *zap.Logger) *reloader {
	ok := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "_config_last_reload_successful",
		Help: "1 when the settings file was good the last time it changed, else 0 and the settings before it are in force.",
	})
	ok.Set(1)
	metrics.MustRegister(ok)
	return &reloader{started: started, running: started, level: level, log: log, ok: ok}
}

// serve says who takes over changes from now on, nil for nobody, and has it take over those that were made already.
func (r *reloader) serve(service func(*settings.Values) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.service, r.served = service, true
	if r.latest != nil {
		r.take(r.latest)
	}
}

func (r *reloader) changed(now *settings.Values, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.refuse(err)
		return
	}
	r.latest = now
	r.take(now)
}

// take takes over settings; the lock is held.
func (r *reloader) take(now *settings.Values) {
	level, err := logging.ParseLevel(now.String("logLevel"))
	if err != nil {
		r.refuse(now.Reject("logLevel", err.Error()))
		return
	}
	if level != r.level.Level() {
		r.level.SetLevel(level)
		r.log.Info("The log level changed", zap.Stringer("to", level))
	}
	_, restart := r.started.Changed(now)
	if r.anew != nil && (now.String(StateKey) != r.started.String(StateKey) || r.all && len(restart) > 0) {
		if r.valid != nil {
			if err := r.valid(now); err != nil {
				r.refuse(err)
				return
			}
		}
		r.ok.Set(1)
		r.log.Info("The settings file changed, beginning anew with it", zap.Strings("settings", append(restart, StateKey+": "+now.String(StateKey))))
		r.anew(now)
		return
	}
	if !r.served {
		return // there is nothing yet that could take over the rest
	}
	live, _ := r.running.Changed(now)
	if r.service != nil && len(live) > 0 {
		if err := r.service(now); err != nil {
			r.refuse(err)
			return
		}
	}
	r.running = now
	r.ok.Set(1)
	if len(live) > 0 && r.service != nil {
		r.log.Info("The settings file changed, these settings are in force now", zap.Strings("settings", live))
	}
	if len(restart) > 0 {
		r.log.Warn("The settings file changed, these settings need a restart", zap.Strings("settings", restart))
	}
}

func (r *reloader) refuse(err error) {
	r.ok.Set(0)
	r.log.Error("The settings file changed and cannot be used, nothing is changed here", zap.Error(err))
}
