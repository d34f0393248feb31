package paths

import (
	"context"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nplbridge/nplbridge/e2e/view"
)

// endpointsOfOther is how many Pods each other Service has: what kube-proxy writes grows with them.
const endpointsOfOther = 3

func otherName(i int) string { return fmt.Sprintf("other-%05d", i) }

// want makes n other Services of type ClusterIP exist, and waits until kube-proxy has written the last of them on every Node. They have
// EndpointSlices of their own and no selector, so that the control plane has nothing to do with them.
func (s *site) want(ctx context.Context, n int) error {
	if n == s.others {
		return nil
	}
	config := s.Lab.RESTConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	addresses, err := s.podAddresses(ctx)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(8)
	for i := s.others; i < n; i++ {
		group.Go(func() error { return createOther(ctx, client, i, addresses) })
	}
	last := ""
	if n < s.others {
		if last, err = clusterIP(ctx, client, otherName(s.others-1)); err != nil {
			return err
		}
	}
	for i := n; i < s.others; i++ {
		group.Go(func() error {
			return client.CoreV1().Services(namespace).Delete(ctx, otherName(i), metav1.DeleteOptions{})
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("other Services: %w", err)
	}
	there := n > s.others
	if there {
		if last, err = clusterIP(ctx, client, otherName(n-1)); err != nil {
			return err
		}
	}
	s.others = n
	if err := s.reachable(ctx, last, there); err != nil {
		return fmt.Errorf("kube-proxy with %d other Services: %w", n, err)
	}
	s.say("%d other Services", n)
	return nil
}

func createOther(ctx context.Context, client kubernetes.Interface, i int, addresses []string) error {
	name := otherName(i)
	svc, err := client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "tcp", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name},
			// The slice goes with its Service.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: name, UID: svc.UID}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("tcp"), Port: new(int32(9090)), Protocol: new(corev1.ProtocolTCP)}},
	}
	for k := range endpointsOfOther {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{addresses[(i+k)%len(addresses)]}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	_, err = client.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return err
}

func clusterIP(ctx context.Context, client kubernetes.Interface, name string) (address string, err error) {
	err = view.Poll(ctx, func() error {
		svc, err := client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			address = net.JoinHostPort(svc.Spec.ClusterIP, "80")
		}
		return err
	})
	return address, err
}
