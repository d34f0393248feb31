package proof

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/view"
)

const account = "avi-account"

// The chart with a load balancer elsewhere: its account comes late, it serves, is upgraded, and leaves nothing.
func TestAvi(t *testing.T) {
	ctx := t.Context()
	s := site{t: t, usage: &rights}
	defer s.explain()
	avi, err := theLab.StartBeside(ctx, lab.Avi, "172.31.0.10-172.31.0.99")
	s.must(err)
	s.makeNamespace()
	s.deploy("avi", true)
	s.kubectl("-n", app, "wait", "--for=condition=ContainersReady", "pod", "-l", "app=web", "--timeout=1m")
	before, controller := fingerprint(t), s.onController(avi)

	values := []string{
		"lbsync.config.provider=avi", "lbsync.config.providerName=avi", "lbsync.existingSecret=" + account, "lbsync.replicas=2",
		"lbsync.config.avi.url=https://" + avi.Address(), "lbsync.config.avi.username=lbsync", "lbsync.config.avi.network=vips",
		"serviceType=NodePort",
	}
	installed := make(chan error, 1)
	go func() { installed <- theLab.ApplyChart(ctx, append(values, common...)...) }()
	s.missingSecret(avi)
	s.must(<-installed)
	s.usage.note(t)
	s.life(values[:len(values)-1]...)
	s.uninstall()
	s.must(ignoreNotFound(theLab.Client().CoreV1().Secrets(systemNamespace).Delete(ctx, account, metav1.DeleteOptions{})))
	s.kubectl("-n", app, "scale", "deployment/web", "--replicas=4")
	unchanged(t, before)
	if now := s.onController(avi); now != controller {
		t.Errorf("on the Controller there is\n%s\nand there was\n%s", now, controller)
	}
	s.kubectl("delete", "namespace", app)
}

// onController are the names of all objects that lbsync could have made on the Controller.
func (s site) onController(avi *lab.Beside) string {
	s.t.Helper()
	var out []string
	for _, kind := range []string{"pool", "virtualservice", "vsvip", "healthmonitor", "applicationpersistenceprofile", "poolgroup"} {
		answer, err := avi.Administer(s.t.Context(), "GET", "/api/"+kind, nil)
		s.must(err)
		var list struct{ Results []struct{ Name string } }
		s.must(json.Unmarshal(answer, &list))
		for _, o := range list.Results {
			out = append(out, kind+" "+o.Name)
		}
	}
	return strings.Join(out, "\n")
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// missingSecret: without the Secret, and then without a key of it, lbsync's Pods are not ready, and log and Event say why; with it they are.
func (s site) missingSecret(avi *lab.Beside) {
	s.t.Helper()
	s.unready("/etc/nplbridge/avi/password")
	password, err := os.ReadFile(avi.PasswordFile())
	s.must(err)
	secrets := theLab.Client().CoreV1().Secrets(systemNamespace)
	secret, err := secrets.Create(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: account}, Data: map[string][]byte{"password": password}}, metav1.CreateOptions{})
	s.must(err)
	s.unready("/etc/nplbridge/avi/ca.crt")
	if secret.Data["ca.crt"], err = os.ReadFile(avi.CAFile()); err != nil {
		s.t.Fatal(err)
	}
	_, err = secrets.Update(s.t.Context(), secret, metav1.UpdateOptions{})
	s.must(err)
}

func (s site) unready(why string) {
	s.t.Helper()
	s.poll(func() error {
		list, err := theLab.Client().CoreV1().Pods(systemNamespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=lbsync"})
		if err != nil || len(list.Items) == 0 {
			return fmt.Errorf("%d Pods of lbsync, %w", len(list.Items), err)
		}
		events, err := theLab.Client().EventsV1().Events(systemNamespace).List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		told := 0
		for _, p := range list.Items {
			log, err := theLab.Kubectl(s.t.Context(), "-n", systemNamespace, "logs", p.Name)
			if err != nil || !strings.Contains(log, why) {
				continue
			}
			for _, e := range events.Items {
				if e.Regarding.UID == p.UID && e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, why) {
					told++
					if view.Ready(p) {
						return fmt.Errorf("Pod %s is ready", p.Name)
					}
				}
			}
		}
		if told == 0 {
			return fmt.Errorf("no Pod of lbsync says in its log and in an Event that %s is missing", why)
		}
		return nil
	})
}
