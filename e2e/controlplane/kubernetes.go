package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics on /metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info on /metrics
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// kubernetesApplets are the programs of k8s.io/kubernetes, each started as its own main function does.
func kubernetesApplets() map[string]applet {
	return map[string]applet{
		"kube-apiserver":          server(apiserver.NewAPIServerCommand),
		"kube-controller-manager": server(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          server(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kube-proxy":              server(proxy.NewProxyCommand),
		"kubectl":                 runKubectl,
	}
}

func server(command func() *cobra.Command) applet {
	return func(args []string) int {
		os.Args = args
		return cli.Run(command())
	}
}

func runKubectl(args []string) int {
	os.Args = args
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints as kubectl does and exits with its status
	}
	return 0
}
