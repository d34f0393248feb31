// Package tokens keeps a Pod's ServiceAccount tokens fresh.
package tokens

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// defaultTTL is a token's life when the projection says nothing, as the API documents.
const defaultTTL = time.Hour

// Keeper holds the tokens of one Pod, each bound to the Pod, so that they end with it. It is for one goroutine.
type Keeper struct {
	client kubernetes.Interface
	pod    *corev1.Pod
	tokens map[key]*token
	now    func() time.Time
}

type key struct {
	audience string
	seconds  int64
}

type token struct {
	value            string
	refresh, expires time.Time
}

// NewKeeper makes a keeper without tokens.
func NewKeeper(client kubernetes.Interface, pod *corev1.Pod, now func() time.Time) *Keeper {
	return &Keeper{client: client, pod: pod, tokens: map[key]*token{}, now: now}
}

// Token returns a token for the projection. It requests a new one when there is none or the present one has lived 80%
// of its life; when that fails the present one is returned as long as it is valid.
func (k *Keeper) Token(ctx context.Context, p *corev1.ServiceAccountTokenProjection) (string, error) {
	id := key{p.Audience, int64(defaultTTL.Seconds())}
	if p.ExpirationSeconds != nil {
		id.seconds = *p.ExpirationSeconds
	}
	now := k.now()
	have := k.tokens[id]
	if have != nil && now.Before(have.refresh) {
		return have.value, nil
	}
	fresh, err := k.request(ctx, id)
	if err != nil {
		if have != nil && now.Before(have.expires) {
			have.refresh = now.Add(have.expires.Sub(now) / 10)
			return have.value, nil
		}
		return "", fmt.Errorf("request a token of ServiceAccount %s/%s: %w", k.pod.Namespace, k.pod.Spec.ServiceAccountName, err)
	}
	k.tokens[id] = fresh
	return fresh.value, nil
}

func (k *Keeper) request(ctx context.Context, id key) (*token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &id.seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: k.pod.Name, UID: k.pod.UID},
	}}
	if id.audience != "" {
		request.Spec.Audiences = []string{id.audience}
	}
	now := k.now()
	answer, err := k.client.CoreV1().ServiceAccounts(k.pod.Namespace).CreateToken(ctx, k.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	expires := answer.Status.ExpirationTimestamp.Time
	return &token{answer.Status.Token, now.Add(expires.Sub(now) * 8 / 10), expires}, nil
}

// Refresh is when the next token is due; zero when there is none.
func (k *Keeper) Refresh() time.Time {
	var next time.Time
	for _, t := range k.tokens {
		if next.IsZero() || t.refresh.Before(next) {
			next = t.refresh
		}
	}
	return next
}
