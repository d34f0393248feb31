package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nplbridge/nplbridge/agent/internal/model"
	"github.com/nplbridge/nplbridge/agent/internal/nodecheck"
)

// beside returns an error when Antrea's agent gives node ports to this Node's Pods and ours does not yet: both would write the same
// annotation for ever. An agent whose rules are in the kernel already was here first and goes on, because its sockets keep Antrea off
// its ports; without them Antrea would give the same numbers to other Pods.
func (a *Agent) beside(ctx context.Context, k kernel) error {
	held, err := k.Load()
	if err != nil {
		a.log.Debug("the first pass will say what is wrong with the kernel", zap.Error(err))
	}
	if err != nil || len(held.Mappings) > 0 {
		return nil //nolint:nilerr // it is told, and not by this
	}
	for _, f := range nodecheck.Findings(a.facts(ctx)) {
		if f.Check == nodecheck.Antrea && f.Severity == nodecheck.Error {
			// The recorder would still be busy with it when the process ends.
			if _, err := a.client.EventsV1().Events(metav1.NamespaceDefault).Create(ctx, nodeEvent(a.cfg.NodeName, f), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				a.log.Warn("writing the Event about Antrea's agent", zap.Error(err))
			}
			return fmt.Errorf("%s: two agents would overwrite each other's annotation: to keep npl-agent, set nodePortLocal.enable: false in ConfigMap antrea-config, "+
				"restart DaemonSet antrea-agent and remove chain %s (`npl-agent check` prints the commands); to keep Antrea's, uninstall npl-agent", f.Found, nodecheck.AntreaChainName)
		}
	}
	return nil
}

// servedByAntrea says whether an agent of ours would refuse to serve the Node beside Antrea's.
func servedByAntrea(ctx context.Context, cfg Config, client kubernetes.Interface, log *zap.Logger, open opener, collect func(nodecheck.Subject) nodecheck.Facts) (bool, error) {
	a, err := newAgent(cfg, client, log, prometheus.NewRegistry(), open)
	if err != nil {
		return false, err
	}
	a.collect = collect
	k, err := openFor(ctx, cfg, client, log, open)
	if err != nil {
		return false, err
	}
	reading, cancel := context.WithCancel(ctx)
	var read sync.WaitGroup
	read.Go(func() { a.inventory.Run(reading) })
	synced := a.inventory.WaitForSync(ctx)
	refused := errors.New("the Node was not read")
	if synced {
		refused = a.beside(ctx, k)
	}
	cancel()
	read.Wait()
	if err := k.Close(); err != nil {
		return false, fmt.Errorf("closing the dataplane: %w", err)
	}
	if !synced {
		return false, fmt.Errorf("reading the Pods of Node %s: %w", cfg.NodeName, context.Cause(ctx))
	}
	return refused != nil, nil
}

// nodeEvent is the Event about a finding, as the recorder would write it, but of one name: however often the kubelet starts the agent again, it
// is one Event.
func nodeEvent(node string, f nodecheck.Finding) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%s-%s", node, reportedBy, strings.ToLower(string(f.Check)))},
		EventTime:  metav1.NowMicro(), ReportingController: reportedBy, ReportingInstance: reportedBy,
		Regarding: *nodeReference(node), Type: corev1.EventTypeWarning, Reason: string(f.Check), Action: checkAction, Note: note(f),
	}
}

// subject is what the checks need to know of the Node from the API.
func subject(cfg Config, node model.Node, pods []model.Pod) nodecheck.Subject {
	s := nodecheck.Subject{Settings: nodecheck.Settings{
		PortRange:            nodecheck.Ports(cfg.PortRange),
		ClusterNodePortRange: nodecheck.Ports(cfg.ClusterNodePortRange),
		Families:             families(cfg.IPFamilies),
		Masquerade:           cfg.Masquerade,
		ForwardAccept:        cfg.ForwardAccept,
	}}
	for _, a := range node.Addresses {
		s.Nodes = append(s.Nodes, a.IP)
	}
	for _, p := range pods {
		if p.Terminated {
			continue
		}
		if p.Labels["app"] == "antrea" && p.Labels["component"] == "antrea-agent" {
			s.AntreaPod = p.String()
		}
		for _, ip := range p.IPs {
			if !slices.Contains(s.Nodes, ip) { // else it shares the Node's network
				s.Pods = append(s.Pods, ip)
			}
		}
	}
	return s
}

// facts looks at the Node as it is now.
func (a *Agent) facts(ctx context.Context) nodecheck.Facts {
	s := subject(a.cfg, a.inventory.Node(), a.inventory.Pods())
	askAntrea(ctx, a.client, a.cfg.NodeName, &s)
	return a.collect(s)
}

// askAntrea reads the NodePortLocal range from the AntreaAgentInfo of the Node, where Antrea's agent runs and the right to read it was
// granted.
func askAntrea(ctx context.Context, client kubernetes.Interface, node string, s *nodecheck.Subject) {
	api, ok := client.Discovery().RESTClient().(*rest.RESTClient)
	if s.AntreaPod == "" || !ok || api == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	body, err := api.Get().AbsPath("/apis/crd.antrea.io/v1beta1/antreaagentinfos", node).SetHeader("Accept", "application/json").Do(ctx).Raw()
	var info struct {
		Range string `json:"nodePortLocalPortRange"`
	}
	if err == nil && json.Unmarshal(body, &info) == nil {
		s.AntreaRange, s.AntreaRangeKnown = info.Range, true
	}
}
