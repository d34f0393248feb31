package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

const (
	// nodeName is a Node that exists in the API only: nothing runs the Pods bound to it, so a thousand of them cost
	// nothing, and their status is what we write.
	nodeName = "bench"
	// host is where the agent of that Node runs. No other agent does.
	host = "node-1"
	// agentNamespace and agentAccount are the chart's.
	agentNamespace = "nplbridge-system"
	agentAccount   = "nplbridge-agent"
)

// site is a Node for npl-agent to serve, and what an agent needs there: the chart's rights, by a token that names its Pod and Node.
type site struct {
	lab    *lab.Lab
	client kubernetes.Interface // without limits
	// agentClient has the rights of the agent, and no limits.
	agentClient kubernetes.Interface
	dir         string
}

// newSite makes a site in a lab that has no agent yet.
func newSite(ctx context.Context, l *lab.Lab) (*site, error) {
	config := l.RESTConfig()
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &site{lab: l, client: client}
	if s.dir, err = os.MkdirTemp(filepath.Dir(l.Kubeconfig()), "bench-"); err != nil {
		return nil, err
	}
	if err := l.InstallChart(ctx, `agent.nodeSelector.kubernetes\.io/hostname=none`); err != nil {
		return nil, err
	}
	if err := s.register(ctx); err != nil {
		return nil, fmt.Errorf("registering Node %s: %w", nodeName, err)
	}
	return s, s.writeKubeconfig(ctx)
}

// register makes the Node, and keeps it alive until ctx ends.
func (s *site) register(ctx context.Context) error {
	if _, err := s.client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	status, err := json.Marshal(map[string]any{"status": corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: lab.NodeAddress(host).String()},
			{Type: corev1.NodeInternalIP, Address: lab.NodeAddress6(host).String()},
		},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Bench"}},
	}})
	if err != nil {
		return err
	}
	if _, err := s.client.CoreV1().Nodes().PatchStatus(ctx, nodeName, status); err != nil {
		return err
	}
	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(nodeName), LeaseDurationSeconds: new(int32(40)), RenewTime: new(metav1.NowMicro())},
	}
	if lease, err = leases.Create(ctx, lease, metav1.CreateOptions{}); err != nil {
		return err
	}
	go func() {
		for tick := time.NewTicker(10 * time.Second); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			lease.Spec.RenewTime = new(metav1.NowMicro())
			if renewed, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err == nil {
				lease = renewed
			}
		}
	}()
	return nil
}

func (s *site) kubeconfig() string { return filepath.Join(s.dir, "kubeconfig") }

// writeKubeconfig writes one with the token that a kubelet would mount into the agent's Pod.
func (s *site) writeKubeconfig(ctx context.Context) error {
	pod, err := s.client.CoreV1().Pods(agentNamespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "agent-"},
		Spec: corev1.PodSpec{
			NodeName: nodeName, ServiceAccountName: agentAccount,
			Containers:  []corev1.Container{{Name: "npl-agent", Image: "ghcr.io/nplbridge/npl-agent"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making a Pod for the agent's token: %w", err)
	}
	token, err := s.client.CoreV1().ServiceAccounts(agentNamespace).CreateToken(ctx, agentAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making the agent's token: %w", err)
	}
	admin := s.lab.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["lab"] = &clientcmdapi.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	config.AuthInfos["agent"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "agent"}
	config.CurrentContext = "lab"
	if err := clientcmd.WriteToFile(*config, s.kubeconfig()); err != nil {
		return err
	}
	agent := s.lab.RESTConfig()
	agent.CertFile, agent.CertData, agent.KeyFile, agent.KeyData, agent.BearerToken = "", nil, "", nil, token.Status.Token
	agent.QPS, agent.ContentType = -1, runtime.ContentTypeProtobuf
	s.agentClient, err = kubernetes.NewForConfig(agent)
	return err
}

// namespace makes a namespace, and waits until Pods can be made in it.
func (s *site) namespace(ctx context.Context, name string) error {
	_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return poll(ctx, func() error {
		_, err := s.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// deletePods deletes all Pods of a namespace at once, and waits until they are gone.
func (s *site) deletePods(ctx context.Context, namespace string) error {
	err := s.client.CoreV1().Pods(namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return poll(ctx, func() error {
		left, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil && len(left.Items) > 0 {
			err = errors.New("there are still Pods in namespace " + namespace)
		}
		return err
	})
}
