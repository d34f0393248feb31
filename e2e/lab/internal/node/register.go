package node

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// version is the Kubernetes version that the Node says it is of.
const version = "v1.36.3"

// capacity is what the Node offers: enough that only the number of Pods ever limits it.
func (n *Node) capacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("128"),
		corev1.ResourceMemory:           resource.MustParse("512Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("512Gi"),
		corev1.ResourcePods:             *resource.NewQuantity(int64(n.cfg.MaxPods), resource.DecimalSI),
	}
}

// registerRetry is how long to wait between attempts to register.
const registerRetry = 200 * time.Millisecond

// register creates the Node, or takes over one of that name, and reports it ready. It tries until ctx ends: the API
// server may still be starting.
func (n *Node) register(ctx context.Context) error {
	for {
		err := n.tryRegister(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			n.log.Info("register the Node, will retry", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("register Node %s: %w", n.cfg.Name, err)
		case <-time.After(registerRetry):
		}
	}
}

func (n *Node) tryRegister(ctx context.Context) error {
	_, err := n.client.CoreV1().Nodes().Create(ctx, n.object(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := n.renew(ctx); err != nil {
		return err
	}
	return n.reportStatus(ctx)
}

// object is the Node as it is created.
func (n *Node) object() *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: n.cfg.Name,
		Labels: map[string]string{
			corev1.LabelHostname: n.cfg.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		},
	}}
	for _, prefix := range n.cfg.PodCIDRs {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, prefix.String())
	}
	if len(node.Spec.PodCIDRs) > 0 {
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	return node
}

// status is what the Node says of itself.
func (n *Node) status() corev1.NodeStatus {
	s := corev1.NodeStatus{
		Capacity: n.capacity(), Allocatable: n.capacity(),
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: logPort}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: n.cfg.Name, SystemUUID: n.cfg.Name, BootID: n.boot, KernelVersion: kernel(), OSImage: "nplbridge lab",
			ContainerRuntimeVersion: "lab://1", KubeletVersion: version, OperatingSystem: "linux", Architecture: runtime.GOARCH,
		},
		Conditions: conditions(time.Now()),
	}
	for _, a := range n.cfg.Addresses {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.cfg.Name})
	return s
}

func conditions(at time.Time) []corev1.NodeCondition {
	now := metav1.NewTime(at)
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "the lab does not measure memory"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "the lab does not measure disks"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "the lab does not measure processes"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "the lab's node runner is posting ready status"),
	}
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "unknown"
	}
	release, _, _ := bytes.Cut(name.Release[:], []byte{0})
	return string(release)
}

// reportStatus writes what the Node says of itself. It replaces instead of merging, because the merge key of addresses
// is their type, of which there may be two. What others wrote, and when a condition last changed, stays.
func (n *Node) reportStatus(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, n.cfg.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		own := n.status()
		for i, c := range own.Conditions {
			j := slices.IndexFunc(node.Status.Conditions, func(old corev1.NodeCondition) bool { return old.Type == c.Type })
			if j >= 0 && node.Status.Conditions[j].Status == c.Status {
				own.Conditions[i].LastTransitionTime = node.Status.Conditions[j].LastTransitionTime
			}
		}
		foreign := slices.DeleteFunc(node.Status.Conditions, func(old corev1.NodeCondition) bool {
			return slices.ContainsFunc(own.Conditions, func(c corev1.NodeCondition) bool { return c.Type == old.Type })
		})
		s := &node.Status
		s.Conditions = append(foreign, own.Conditions...)
		s.Addresses, s.Capacity, s.Allocatable = own.Addresses, own.Capacity, own.Allocatable
		s.DaemonEndpoints, s.NodeInfo = own.DaemonEndpoints, own.NodeInfo
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

// statusEvery is how many heartbeats make one status report; Leases carry the rest, as with a kubelet.
const statusEvery = 6

// heartbeat renews the Lease at every tick until ctx ends and reports the status now and then, both at once after a pause.
func (n *Node) heartbeat(ctx context.Context, ticks <-chan time.Time) {
	for beat := 1; ; beat++ {
		report := beat%statusEvery == 0
		select {
		case <-ctx.Done():
			return
		case <-n.resumed:
			report = true
		case <-ticks:
		}
		if n.paused.Load() {
			continue
		}
		err := n.renew(ctx)
		if err == nil && report {
			err = n.reportStatus(ctx)
		}
		if err != nil && ctx.Err() == nil {
			n.log.Info("heartbeat", zap.Error(err))
		}
	}
}

// renew renews the Node's Lease, or makes it where there is none.
func (n *Node) renew(ctx context.Context) error {
	leases := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return n.makeLease(ctx, now)
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// makeLease makes the Lease, which goes when the Node goes.
func (n *Node) makeLease(ctx context.Context, now metav1.MicroTime) error {
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.cfg.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	_, err = n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.cfg.Name, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.cfg.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &n.cfg.Name, LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
	}, metav1.CreateOptions{})
	return err
}
