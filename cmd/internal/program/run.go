package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/buildinfo"
	"github.com/nplbridge/nplbridge/cmd/internal/kube"
	"github.com/nplbridge/nplbridge/cmd/internal/logging"
	"github.com/nplbridge/nplbridge/cmd/internal/serve"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
)

// Service is the running heart of a program.
type Service struct {
	Run    func(context.Context) error
	Checks []serve.Check
	Status func() any
	// Reload takes over settings that changed while it runs, those that are Live; nil where none but the log level and the state are. On an
	// error everything stays as it was.
	Reload func(*settings.Values) error
}

// Runner starts one program.
type Runner struct {
	Table         settings.Table
	MetricsPrefix string
	// StatusAddress is the key of the setting that says on which TCP address the status is served as well; empty where there is none.
	StatusAddress string
	// Anew has the program begin anew in the same process when settings change that are not Live; otherwise it warns that they need a
	// restart. A new state always has it begin anew.
	Anew bool
	// Valid says what is wrong with settings that were loaded while the program runs; nil takes all.
	Valid func(*settings.Values) error
	// New builds the Service that the settings describe, when the API server has answered. It may block until ctx ends. When the state
	// changes, the Service is ended and another one is built.
	New func(ctx context.Context, values *settings.Values, client kubernetes.Interface, log *zap.Logger, metrics prometheus.Registerer) (Service, error)
}

// Client builds the Kubernetes client that the settings describe, and returns the API server's address with it. The
// error names the setting.
func Client(values *settings.Values) (kubernetes.Interface, string, error) {
	config, err := kube.Config(values.String("kubeconfig"), values.Program()+"/"+buildinfo.Read().Version)
	if err != nil {
		return nil, "", values.Reject("kubeconfig", err.Error())
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, "", values.Reject("kubeconfig", err.Error())
	}
	return client, config.Host, nil
}

// Unreachable is the error for an API server at host that does not answer.
func Unreachable(values *settings.Values, host string, err error) error {
	return fmt.Errorf("API server %s does not answer: %w; check the address, the network and the credentials in %s",
		host, err, values.Describe("kubeconfig"))
}

// Run runs the program until ctx ends. Addresses are taken first, so that a second copy stops before it does anything;
// then the API server is waited for, answering probes meanwhile.
func (r Runner) Run(ctx context.Context, flags *pflag.FlagSet, values *settings.Values) error {
	level, log, err := logger(values)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }()
	logging.Klog(log)

	// From here on the log is where people look.
	if err := r.run(ctx, flags, values, level, log); err != nil {
		log.Error(err.Error())
		if setting, ok := errors.AsType[*settings.Error](err); ok {
			return errors.Join(ErrReported, setting)
		}
		return ErrReported
	}
	log.Info("Stopped")
	return nil
}

func (r Runner) run(ctx context.Context, flags *pflag.FlagSet, values *settings.Values, level zap.AtomicLevel, log *zap.Logger) error {
	for {
		next, err := r.live(ctx, flags, values, level, log)
		if err != nil || next == nil || ctx.Err() != nil {
			return err
		}
		values = next
	}
}

// live is one life of the program, from settings to a Service. It returns other settings if the file came to have such that ask for another
// life: as after a restart, nothing of this one is needed for the next.
func (r Runner) live(ctx context.Context, flags *pflag.FlagSet, values *settings.Values, level zap.AtomicLevel, log *zap.Logger) (*settings.Values, error) {
	build := buildinfo.Read()
	log.Info("Starting", zap.String("program", r.Table.Program), zap.Stringer("build", build), zap.String("config", values.File()))

	probes, err := open(values, "listen", serve.Listen)
	if err != nil {
		return nil, err
	}
	defer func() { _ = probes.Close() }()
	socket, err := open(values, "statusSocket", serve.ListenUnix)
	if err != nil {
		return nil, err
	}
	defer func() { _ = socket.Close() }()
	var outside endpoint
	if r.StatusAddress != "" {
		if outside, err = open(values, r.StatusAddress, serve.Listen); err != nil {
			return nil, err
		}
		defer func() { _ = outside.Close() }()
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)

	var ready serve.Ready
	ready.Set(serve.Check{Name: "api-server", Check: func() error { return errors.New("waiting for its first answer") }})
	registry := serve.Registry(r.MetricsPrefix, build)
	probes.serve(ctx, group, serve.Handler(&ready, registry))
	reload := newReloader(r.MetricsPrefix, registry, values, level, log)
	var next atomic.Pointer[settings.Values]
	reload.valid, reload.all = r.Valid, r.Anew
	reload.anew = func(now *settings.Values) { next.Store(now); cancel() }
	go values.Watch(ctx, flags, reload.changed)

	group.Go(func() error {
		defer cancel() // without the Service the rest has no purpose
		client, host, err := Client(values)
		if err != nil {
			return err
		}
		err = kube.Wait(ctx, client, values.Duration("startTimeout"), func(err error) {
			log.Warn("Waiting for the API server", zap.String("server", host), zap.Error(err))
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return Unreachable(values, host, err)
		}
		service, err := r.New(ctx, values, client, log, registry)
		if err != nil {
			return err
		}
		ready.Set(service.Checks...)
		status := serve.StatusHandler(service.Status)
		socket.serve(ctx, group, status)
		outside.serve(ctx, group, status)
		reload.serve(service.Reload)
		go complain(ctx, r.Table.Program, client, service.Checks, log)
		return service.Run(ctx)
	})
	err = group.Wait()
	return next.Load(), err
}

// endpoint is a listener that a setting may have switched off.
type endpoint struct{ net.Listener }

func open(values *settings.Values, key string, listen func(string) (net.Listener, error)) (endpoint, error) {
	address := values.String(key)
	if address == "" {
		return endpoint{}, nil
	}
	listener, err := listen(address)
	if err != nil {
		fix := "choose another"
		if errors.Is(err, serve.ErrInUse) {
			fix = "stop the process that has it, or choose another"
		}
		return endpoint{}, fmt.Errorf("cannot listen on %s: %w; %s", values.Describe(key), err, fix)
	}
	return endpoint{listener}, nil
}

func (e endpoint) serve(ctx context.Context, group *errgroup.Group, handler http.Handler) {
	if e.Listener != nil {
		group.Go(func() error { return serve.Serve(ctx, e.Listener, handler) })
	}
}

// Close closes the listener if there is one; closing again does nothing.
func (e endpoint) Close() error {
	if e.Listener == nil {
		return nil
	}
	return e.Listener.Close()
}

// logger builds the logger that the settings describe.
func logger(values *settings.Values) (zap.AtomicLevel, *zap.Logger, error) {
	parsed, err := logging.ParseLevel(values.String("logLevel"))
	if err != nil {
		return zap.AtomicLevel{}, nil, values.Reject("logLevel", err.Error())
	}
	console, err := logging.ParseFormat(values.String("logFormat"), os.Stderr)
	if err != nil {
		return zap.AtomicLevel{}, nil, values.Reject("logFormat", err.Error())
	}
	level := zap.NewAtomicLevelAt(parsed)
	return level, logging.New(os.Stderr, console, level), nil
}
