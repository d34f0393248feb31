package remote

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

const systemNamespace = "nplbridge-system"

// byChart: the chart runs lbsync in the cluster, without root, with the account out of a Secret; so docs/how-to says. Upgraded, it goes on in new Pods.
func (s *site) byChart() {
	s.lb.StopLBSync()
	ctx, kind := s.t.Context(), string(s.lb.Kind())
	password, err := s.lb.Password()
	s.must(err)
	ca, err := s.lb.CA()
	s.must(err)
	_, err = s.Lab.Client().CoreV1().Secrets(systemNamespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: kind + "-account"}, StringData: map[string]string{"password": password, "ca.crt": string(ca)},
	}, metav1.CreateOptions{})
	s.must(err)
	values := append([]string{
		"lbsync.placement=beside", "lbsync.config.provider=" + kind, "lbsync.config.providerName=" + kind, "lbsync.existingSecret=" + kind + "-account",
		"lbsync.config." + kind + ".username=" + s.lb.SimulatorUser(), "lbsync.config.statusAddress=",
	}, map[lab.Kind][]string{
		lab.Avi: {"lbsync.config.avi.url=https://" + s.lb.ManagementAddress(), "lbsync.config.avi.network=vips"},
		lab.BigIP: {
			"lbsync.config.bigip.urls={https://" + s.lb.ManagementAddress() + "}", "lbsync.config.bigip.partition=k8s",
			"addressPools={" + lab.VIPs()[0].String() + "}",
		},
	}[s.lb.Kind()]...)
	defer func() { s.must(s.Lab.InstallChart(ctx, chartValues...)) }()
	s.must(s.Lab.InstallChart(ctx, append(values, chartValues...)...))
	s.apply("charted", 2, "")
	s.balanced(s.address("charted"), s.settled("charted", 2))

	s.must(s.Lab.InstallChart(ctx, append(append(values, chartValues...), "lbsync.config.drainOnCordon=true", "lbsync.replicas=2")...))
	s.kubectl("scale", "deployment", "charted", "--replicas=3")
	s.balanced(s.address("charted"), s.settled("charted", 3))

	log, err := s.Lab.Kubectl(ctx, "-n", systemNamespace, "logs", "-l", "app.kubernetes.io/component=lbsync", "--tail=-1")
	s.must(err)
	if !strings.Contains(log, "leader election") || strings.Contains(log, password) {
		s.t.Errorf("the password is in the log, or it says nothing:\n%s", log)
	}
	s.gone("charted")
	s.eventually(func() error {
		if left := s.ours(); len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
}
