package tokens

import (
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestTokensAreRefreshedInTime(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	client := fake.NewClientset()
	issued, down := 0, false
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if down {
			return true, nil, errors.New("unreachable")
		}
		create := action.(clienttesting.CreateActionImpl)
		request := create.Object.(*authenticationv1.TokenRequest)
		if create.Subresource != "token" || create.Name != "robot" || request.Spec.BoundObjectRef.UID != "u1" || request.Spec.BoundObjectRef.Name != "web" {
			t.Errorf("got request %+v of %s", request.Spec, create.Name)
		}
		issued++
		request = request.DeepCopy()
		request.Status.Token = fmt.Sprintf("%v-%d", request.Spec.Audiences, issued)
		request.Status.ExpirationTimestamp = metav1.NewTime(now.Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second))
		return true, request, nil
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1"}, Spec: corev1.PodSpec{ServiceAccountName: "robot"}}
	k := NewKeeper(client, pod, func() time.Time { return now })
	if !k.Refresh().IsZero() {
		t.Error("something is due though there is no token")
	}
	want := func(p corev1.ServiceAccountTokenProjection, want string) {
		t.Helper()
		if got, err := k.Token(t.Context(), &p); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	api := corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(1000))}
	want(api, "[]-1")
	want(corev1.ServiceAccountTokenProjection{Audience: "x"}, "[x]-2")
	want(api, "[]-1")
	if got := k.Refresh().Sub(now); got != 800*time.Second {
		t.Errorf("due in %s, want at 80%% of 1000 s", got)
	}
	now = now.Add(799 * time.Second)
	want(api, "[]-1")
	now = now.Add(time.Second)
	down = true
	want(api, "[]-1") // still valid
	if got := k.Refresh().Sub(now); got != 20*time.Second {
		t.Errorf("tried again in %s, want 20s", got)
	}
	now = now.Add(20 * time.Second)
	down = false
	want(api, "[]-3")
	now = now.Add(2000 * time.Second)
	down = true
	if got, err := k.Token(t.Context(), &api); err == nil {
		t.Errorf("got %q, which is expired", got)
	}
}
