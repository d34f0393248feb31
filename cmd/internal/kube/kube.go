// Package kube builds a program's Kubernetes client and makes sure it works.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Config returns the REST configuration of the kubeconfig file or, where that is empty, of the Pod this process runs in.
func Config(kubeconfig, userAgent string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	} else if config, err = rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
		err = errors.New("empty, and this process does not run in a Pod")
	}
	if err != nil {
		return nil, err
	}
	tune(config, userAgent)
	return config, nil
}

// Outside returns the REST configuration that kubectl would use: of the kubeconfig file, where that is empty of $KUBECONFIG or
// ~/.kube/config, else of the Pod this runs in; context is a name in it, or empty.
func Outside(kubeconfig, context, userAgent string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
	if err != nil {
		return nil, err
	}
	tune(config, userAgent)
	return config, nil
}

func tune(config *rest.Config, userAgent string) {
	config.UserAgent = userAgent
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	// The programs limit what they write, and the API server's priority and fairness the rest; this only bounds a defect.
	config.QPS, config.Burst = 1000, 2000
}

// Wait returns nil when the API server answers, or the last error after limit; limit 0 waits until ctx ends.
// retrying is told of the first failure.
func Wait(ctx context.Context, client kubernetes.Interface, limit time.Duration, retrying func(error)) error {
	attempt := func() (struct{}, error) { return struct{}{}, Reach(ctx, client) }
	told := false
	interval := backoff.NewExponentialBackOff()
	interval.MaxInterval = 5 * time.Second
	_, err := backoff.Retry(ctx, attempt,
		backoff.WithBackOff(interval),
		backoff.WithMaxElapsedTime(limit),
		backoff.WithNotify(func(err error, _ time.Duration) {
			if !told {
				told = true
				retrying(err)
			}
		}))
	return err
}

// Reach asks the API server for its version, once. The error is short: it does not repeat the URL.
func Reach(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		return inURL.Err
	}
	return err
}

// Permission is one thing a program must be allowed to do.
type Permission struct {
	Group, Resource, Subresource string
	Verbs                        []string
	Namespace                    string // empty is every namespace
	Name                         string // empty is every object
}

// Denied asks the API server which of the permissions this client lacks; each answer reads "patch pods/status".
func Denied(ctx context.Context, client kubernetes.Interface, permissions []Permission) ([]string, error) {
	var denied []string
	for _, p := range permissions {
		for _, verb := range p.Verbs {
			review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Group: p.Group, Resource: p.Resource, Subresource: p.Subresource,
					Namespace: p.Namespace, Name: p.Name,
				},
			}}
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return nil, fmt.Errorf("ask whether %s is allowed: %w", p.describe(verb), err)
			}
			if !answer.Status.Allowed {
				denied = append(denied, p.describe(verb))
			}
		}
	}
	return denied, nil
}

func (p Permission) describe(verb string) string {
	what := p.Resource
	if p.Group != "" {
		what += "." + p.Group
	}
	if p.Subresource != "" {
		what += "/" + p.Subresource
	}
	if p.Name != "" {
		what += " " + p.Name
	}
	if p.Namespace != "" {
		what += " in " + p.Namespace
	}
	return strings.Join([]string{verb, what}, " ")
}
