package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/cmd/internal/buildinfo"
	"github.com/nplbridge/nplbridge/cmd/internal/kube"
	"github.com/nplbridge/nplbridge/cmd/internal/program"
	"github.com/nplbridge/nplbridge/cmd/internal/remote"
	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/lbsync"
)

// caller is the name that the program was called by.
type caller struct {
	name   string // of the program
	typed  string // what people type before the command
	plugin bool   // as a plugin of kubectl, so by somebody outside of the cluster
}

func callerOf(argv0 string) caller {
	const plugin = "kubectl-npl"
	if strings.TrimSuffix(filepath.Base(argv0), ".exe") == plugin {
		return caller{plugin, "kubectl npl", true}
	}
	return caller{"lbsync", "lbsync", false}
}

// lines replaces the program's name where a line begins with it, as examples and advice do.
func (c caller) lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		bare := strings.TrimLeft(line, " ")
		if rest, ok := strings.CutPrefix(bare, "lbsync "); ok {
			lines[i] = line[:len(line)-len(bare)] + c.typed + " " + rest
		}
	}
	return strings.Join(lines, "\n")
}

// asker finds the running process and asks it for its document.
type asker struct {
	caller  caller
	table   settings.Table
	remote  bool
	process string
	context string
}

const askHelp = `
It asks the lbsync that runs on this host or in this container, by its unix socket. With --remote it asks the one in the cluster that
holds the Lease, by a port-forward with the rights of the kubeconfig.`

// askLimit bounds a question; a command must always come to an end.
const askLimit = 30 * time.Second

// askFlags defines the flags by which a command finds the process. Settings that have nothing to do with that are taken, and not listed.
func askFlags(command *cobra.Command, by caller) *asker {
	a := &asker{caller: by, table: table()}
	flags := command.Flags()
	a.table.AddFlags(flags)
	listed := []string{settings.ConfigFlag, "instance", "kubeconfig", "lease-name", "lease-namespace", "status-address", "status-socket"}
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = f.Hidden || !slices.Contains(listed, f.Name) })
	flags.BoolVar(&a.remote, "remote", by.plugin, "ask the process in the cluster, by a port-forward")
	flags.StringVar(&a.process, "process", "", "with --remote, the name of the Pod to ask, instead of the one that leads")
	flags.StringVar(&a.context, "context", "", "with --remote, the context of the kubeconfig")
	return a
}

// ask returns the document of the running process, as it came and decoded.
func (a *asker) ask(c *cobra.Command) (lbsync.Document, []byte, error) {
	raw, err := a.read(c)
	if err != nil {
		return lbsync.Document{}, nil, err
	}
	var d lbsync.Document
	if err := json.Unmarshal(raw, &d); err != nil || d.Version != lbsync.DocumentVersion {
		err = errors.Join(err, fmt.Errorf("its form is version %d", d.Version))
		return d, nil, fmt.Errorf("the running lbsync serves another status document than version %d, which this one reads (%s): %w; use the same version of both",
			lbsync.DocumentVersion, buildinfo.Read().Version, err)
	}
	return d, raw, nil
}

func (a *asker) read(c *cobra.Command) ([]byte, error) {
	if !a.remote {
		if a.process != "" || a.context != "" {
			return nil, &settings.Error{Source: "--process and --context", Reason: "say something of a process in the cluster", Fix: "add --remote"}
		}
		raw, err := program.ReadStatus(c, a.table)
		if err != nil {
			err = fmt.Errorf("%w, or add --remote", err)
		}
		return raw, err
	}
	values, err := a.table.Load(c.Flags())
	if err != nil {
		return nil, err
	}
	target, err := targetOf(values)
	if err != nil {
		return nil, err
	}
	target.Process = a.process
	config, err := kube.Outside(values.String("kubeconfig"), a.context, values.Program()+"/"+buildinfo.Read().Version)
	if err != nil {
		return nil, values.Reject("kubeconfig", err.Error())
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, values.Reject("kubeconfig", err.Error())
	}
	ctx, cancel := context.WithTimeout(c.Context(), askLimit)
	defer cancel()
	pod, err := remote.Choose(ctx, client, target)
	if err != nil {
		return nil, err
	}
	return remote.Status(ctx, config, target, pod)
}

// client returns the Kubernetes client that the command may use beside the document.
func (a *asker) client(c *cobra.Command) (kubernetes.Interface, error) {
	values, err := a.table.Load(c.Flags())
	if err != nil {
		return nil, err
	}
	if !a.remote {
		client, _, err := program.Client(values)
		return client, err
	}
	config, err := kube.Outside(values.String("kubeconfig"), a.context, values.Program()+"/"+buildinfo.Read().Version)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// loopbackPort is where the chart has lbsync serve its status in its Pod.
const loopbackPort = 10364

// targetOf says where the chart has put lbsync, of the installation that the settings name.
func targetOf(v *settings.Values) (remote.Target, error) {
	namespace, release, ok := strings.Cut(v.String("instance"), "/")
	if !ok {
		return remote.Target{}, v.Reject("instance", "not namespace/name of the Helm release")
	}
	t := remote.Target{
		Namespace: namespace, Lease: v.String("leaseName"), Port: loopbackPort,
		Selector: "app.kubernetes.io/component=lbsync,app.kubernetes.io/instance=" + release,
	}
	if v.Defaulted("leaseName") { // as the chart has it
		t.Lease = release + "-lbsync"
		if !strings.Contains(release, "nplbridge") {
			t.Lease = release + "-nplbridge-lbsync"
		}
	}
	if address := v.String(statusAddress); address != "" {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return t, v.Reject(statusAddress, err.Error())
		}
		t.Port = at.Port()
	}
	return t, nil
}

// namespaceFlags defines -n and -A.
func namespaceFlags(command *cobra.Command) *string {
	namespace := command.Flags().StringP("namespace", "n", "", "only of this namespace")
	command.Flags().BoolP("all-namespaces", "A", false, "of every namespace, which is the default")
	command.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	return namespace
}
