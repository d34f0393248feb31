package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/network"
)

// Command prepares a program to run somewhere in the lab's network: "node-1" and so on, "lb", "client",
// "pod:<namespace>/<name>", or "" for the underlay, where the control plane is. Only the network is that of the place:
// files and processes are those of the caller. A place that does not exist is an error when the command starts.
func (l *Lab) Command(ctx context.Context, where string, argv ...string) *exec.Cmd {
	path, err := l.place(ctx, where)
	if err == nil && len(argv) == 0 {
		err = errors.New("no command given")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + path, "--"}, argv...)...)
	if err != nil {
		cmd.Err = err
	}
	cmd.Env = l.environment()
	return cmd
}

const kubectlCache = workDir + "/kubectl"

// environment is that of this process without what only concerns containment, and with a kubeconfig.
func (l *Lab) environment() []string {
	var environment []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "NPLBRIDGE_HOST=") && !strings.HasPrefix(entry, programsVariable+"=") {
			environment = append(environment, entry)
		}
	}
	return append(environment, "PATH="+sbinPath(), "KUBECONFIG="+l.Kubeconfig(),
		"KUBECACHEDIR="+kubectlCache, "KUBECTL_KUBERC=false") // nothing is read from or left in the user's home
}

// sbinPath is PATH with the directories of network tools, which ordinary users often lack.
func sbinPath() string { return os.Getenv("PATH") + ":/usr/local/sbin:/usr/sbin:/sbin" }

// place finds the file that stands for a place's network namespace.
func (l *Lab) place(ctx context.Context, where string) (string, error) {
	pod, isPod := strings.CutPrefix(where, "pod:")
	if !isPod {
		ns, err := l.network.Namespace(where)
		if err != nil {
			return "", err
		}
		return ns.Path(), nil
	}
	namespace, name, ok := strings.Cut(pod, "/")
	if !ok {
		return "", fmt.Errorf("place %q: name the Pod as pod:<namespace>/<name>", where)
	}
	found, err := l.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("place %q: %w", where, err)
	}
	if found.Spec.HostNetwork {
		return l.place(ctx, found.Spec.NodeName)
	}
	return network.PodPath(string(found.UID)), nil
}

// Dial opens a connection from a place (see Command) to a numeric address.
func (l *Lab) Dial(ctx context.Context, where, protocol, address string) (net.Conn, error) {
	path, err := l.place(ctx, where)
	if err != nil {
		return nil, err
	}
	return network.DialFrom(ctx, path, protocol, address)
}

// Do runs a function on a thread in a place's network (see Command). Goroutines that the function starts are outside.
func (l *Lab) Do(ctx context.Context, where string, function func() error) error {
	path, err := l.place(ctx, where)
	if err != nil {
		return err
	}
	return network.Inside(path, function)
}

// Agent runs npl-agent with a kubeconfig that may do everything on a Node's network, as its administrator would, and returns its
// standard output: "cleanup", "check".
func (l *Lab) Agent(ctx context.Context, node string, args ...string) (string, error) {
	cmd := l.Command(ctx, node, append([]string{l.options.Programs.NPLAgent}, args...)...)
	cmd.Env = append(cmd.Env, "NPL_AGENT_NODE_NAME="+node, "NPL_AGENT_KUBECONFIG="+l.Kubeconfig())
	return output(cmd, fmt.Sprintf("npl-agent %s on %s", strings.Join(args, " "), node))
}

// Kubectl runs kubectl as administrator and returns its standard output; what it says on standard error is in the
// error.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	return l.kubectl(ctx, nil, args...)
}

func (l *Lab) kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := l.Command(ctx, "", append([]string{l.options.Programs.ControlPlane, "kubectl"}, args...)...)
	cmd.Stdin = stdin
	return output(cmd, "kubectl "+strings.Join(args, " "))
}

// Apply applies manifests, YAML documents separated by "---".
func (l *Lab) Apply(ctx context.Context, yaml string) error {
	_, err := l.kubectl(ctx, strings.NewReader(yaml), "apply", "-f", "-")
	return err
}

// Helm runs helm as administrator and returns its standard output.
func (l *Lab) Helm(ctx context.Context, args ...string) (string, error) {
	return output(l.helm(ctx, args...), "helm "+strings.Join(args, " "))
}

func (l *Lab) helm(ctx context.Context, args ...string) *exec.Cmd {
	cmd := l.Command(ctx, "", append([]string{l.options.Programs.Helm}, args...)...)
	cmd.Env = append(cmd.Env, "HELM_CACHE_HOME="+workDir+"/helm", "HELM_CONFIG_HOME="+workDir+"/helm", "HELM_DATA_HOME="+workDir+"/helm")
	return cmd
}

func output(cmd *exec.Cmd, what string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s", what, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
