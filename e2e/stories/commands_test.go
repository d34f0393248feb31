package stories

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/lab"
	"github.com/nplbridge/nplbridge/e2e/load"
	"github.com/nplbridge/nplbridge/e2e/view"
)

// command is one verb of the stories: its output is what `stdout` matches afterwards.
type command func(s *story, ts *testscript.TestScript, args []string) (output string, err error)

// verbs lists every verb. "eventually", "absent", "failing", "finally", "keep", "lasting", "on" and "says" take another verb as their argument.
func verbs() map[string]command {
	return map[string]command{
		"kubectl":    (*story).kubectl,
		"helm":       (*story).helm,
		"apply":      (*story).apply,
		"settled":    (*story).settled,
		"vip":        (*story).vip,
		"balanced":   (*story).balanced,
		"condition":  (*story).condition,
		"mapping":    (*story).mapping,
		"annotation": (*story).annotation,
		"pool":       (*story).pool,
		"members":    (*story).members,
		"asks":       (*story).asks,
		"rule":       (*story).rule,
		"cut":        (*story).cut,
		"in-use":     (*story).inUse,
		"reached":    (*story).reached,
		"tcp":        (*story).tcp,
		"udp":        (*story).udp,
		"event":      (*story).event,
		"exec-in":    (*story).execIn,
		"agent":      (*story).agent,
		"chart":      (*story).chart,
		"lbsync":     (*story).lbsync,
		"configure":  (*story).configure,
		"kube-proxy": (*story).kubeProxy,
		"load":       (*story).churn,
		"crash":      (*story).crash,
		"restarted":  (*story).restarted,
		"freeze":     (*story).freeze,
		"thaw":       (*story).thaw,
		"reboot":     (*story).reboot,
		"remember":   (*story).remember,
		"unchanged":  (*story).unchanged,
		"quiet":      (*story).quiet,
		"eventually": eventually,
		"absent":     absent,
		"failing":    failing,
		"finally":    finally,
		"keep":       keep,
		"says":       says,
		"on":         on,
		"pair":       (*story).pair,
		"power":      (*story).power,
		"holds":      (*story).holds,
		"servers":    (*story).servers,
		"answering":  (*story).answering,
		"clients":    (*story).clients,
		"outage":     (*story).outage,
		"service":    (*story).service,
		"administer": (*story).administer,
		"attached":   (*story).attached,
		"occupy":     (*story).occupy,
		"vacate":     (*story).vacate,
		"certify":    (*story).certify,
		"lasting":    lasting,
		"kept":       (*story).kept,
		"talk":       (*story).talk,
	}
}

// commands adapts the verbs to testscript; "! verb" succeeds if the verb fails.
var commands = func() map[string]func(*testscript.TestScript, bool, []string) {
	adapted := map[string]func(*testscript.TestScript, bool, []string){}
	for name, run := range verbs() {
		adapted[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			out, err := run(ts.Value(storyKey{}).(*story), ts, args)
			_, _ = ts.Stdout().Write([]byte(out))
			switch {
			case err != nil && !neg:
				ts.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
			case err == nil && neg:
				ts.Fatalf("%s %s succeeded, it should have failed\n%s", name, strings.Join(args, " "), out)
			}
		}
	}
	return adapted
}()

// eventually repeats a verb until it succeeds.
func eventually(s *story, ts *testscript.TestScript, args []string) (out string, err error) {
	run, ok := verbs()[args[0]]
	if !ok {
		return "", fmt.Errorf("eventually: there is no verb %q", args[0])
	}
	err = view.Poll(s.ctx, func() error {
		out, err = run(s, ts, args[1:])
		return err
	})
	return out, err
}

// errAbsent is what the looking verbs return when they looked properly and found nothing.
var errAbsent = errors.New("there is none")

// absent succeeds when the verb finds nothing; a verb that could not look is a failure.
func absent(s *story, ts *testscript.TestScript, args []string) (string, error) {
	out, err := verbs()[args[0]](s, ts, args[1:])
	switch {
	case errors.Is(err, errAbsent):
		return "", nil
	case err != nil:
		return out, err
	default:
		return "", fmt.Errorf("still there: %s", out)
	}
}

// failing succeeds when the verb fails; what it printed stays to be matched.
func failing(s *story, ts *testscript.TestScript, args []string) (string, error) {
	out, err := verbs()[args[0]](s, ts, args[1:])
	if err == nil {
		return out, errors.New("it succeeded")
	}
	return out, nil
}

// says PATTERN VERB... fails unless what the verb prints matches the regular expression.
func says(s *story, ts *testscript.TestScript, args []string) (string, error) {
	pattern, err := regexp.Compile(args[0])
	if err != nil {
		return "", err
	}
	out, err := verbs()[args[1]](s, ts, args[2:])
	if err == nil && !pattern.MatchString(out) {
		err = fmt.Errorf("it does not say %s", pattern)
	}
	return out, err
}

// finally runs a verb when the story has ended, however it did; the last one first.
func finally(s *story, ts *testscript.TestScript, args []string) (string, error) {
	run, ok := verbs()[args[0]]
	if !ok {
		return "", fmt.Errorf("finally: there is no verb %q", args[0])
	}
	s.last = append(s.last, func() error {
		out, err := run(s, ts, args[1:])
		if err != nil {
			return fmt.Errorf("finally %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	})
	return "", nil
}

// lasting DURATION runs a verb again and again for so long, which is a multiple of a time that a setting names, and fails as soon as it does.
func lasting(s *story, ts *testscript.TestScript, args []string) (out string, err error) {
	whole, err := time.ParseDuration(args[0])
	if err != nil {
		return "", err
	}
	run, ok := verbs()[args[1]]
	if !ok {
		return "", fmt.Errorf("lasting: there is no verb %q", args[1])
	}
	for end := time.Now().Add(whole); time.Now().Before(end); {
		if out, err = run(s, ts, args[2:]); err != nil {
			return out, err
		}
		select {
		case <-s.ctx.Done():
			return out, s.ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return out, nil
}

// keep runs a verb again and again, beside the story, until kept, which fails if the verb ever did. It must be one that only looks.
func keep(s *story, ts *testscript.TestScript, args []string) (string, error) {
	run, ok := verbs()[args[0]]
	if !ok {
		return "", fmt.Errorf("keep: there is no verb %q", args[0])
	}
	stop, result := make(chan struct{}), make(chan error, 1)
	s.keeping = &keeping{stop, result}
	go func() {
		for times := 1; ; times++ {
			if out, err := run(s, ts, args[1:]); err != nil {
				result <- fmt.Errorf("time %d: %w\n%s", times, err, out)
				return
			}
			select {
			case <-stop:
				result <- nil
				return
			default:
			}
		}
	}()
	return "", nil
}

type keeping struct {
	stop   chan struct{}
	result chan error
}

func (s *story) kept(_ *testscript.TestScript, _ []string) (string, error) {
	if s.keeping == nil {
		return "", errors.New("kept: nothing is being kept")
	}
	k := s.keeping
	s.keeping = nil
	close(k.stop)
	return "", <-k.result
}

func (s *story) kubectl(_ *testscript.TestScript, args []string) (string, error) {
	return s.Lab.Kubectl(s.ctx, append([]string{"-n", s.Namespace}, args...)...)
}

// helm runs where the script's files are.
func (s *story) helm(ts *testscript.TestScript, args []string) (string, error) {
	for i, arg := range args {
		if strings.HasSuffix(arg, ".yaml") {
			args[i] = ts.MkAbs(arg)
		}
	}
	return s.Lab.Helm(s.ctx, args...)
}

func (s *story) apply(ts *testscript.TestScript, args []string) (string, error) {
	return s.Lab.Kubectl(s.ctx, "-n", s.Namespace, "apply", "-f", ts.MkAbs(args[0]))
}

// settled SERVICE PODS waits until the pool equals the annotations of so many ready Pods.
func (s *story) settled(_ *testscript.TestScript, args []string) (string, error) {
	want, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	members, err := s.Settled(s.ctx, args[0], want)
	return fmt.Sprintln(members), err
}

// vip SERVICE [IPv4|IPv6] waits for the address of the Service and sets $VIP to "address:port".
func (s *story) vip(ts *testscript.TestScript, args []string) (string, error) {
	family := npl.IPv4
	if len(args) > 1 {
		family = npl.Family(args[1])
	}
	addr, err := s.Address(s.ctx, args[0], family)
	if err == nil {
		ts.Setenv("VIP", addr)
	}
	return addr + "\n", err
}

// balanced ADDRESS REQUESTS asks from the client's namespace: nothing fails and all Pods get the same share.
func (s *story) balanced(_ *testscript.TestScript, args []string) (string, error) {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return "", err
	}
	r := load.Run(s.ctx, n, s.client(args[0]))
	out := fmt.Sprintf("%v\n", r.ByPod)
	if r.Failed > 0 {
		return out, fmt.Errorf("%d of %d requests failed: %v", r.Failed, r.Requests, r.Failures)
	}
	// A share may be one request apart for each round that was cut short.
	if low, high := spread(r.ByPod); float64(high-low) > max(2, 0.05*float64(low)) {
		return out, fmt.Errorf("the shares are not equal: %v", r.ByPod)
	}
	return out, nil
}

func spread(counts map[string]int) (low, high int) {
	low = int(^uint(0) >> 1)
	for _, n := range counts {
		low, high = min(low, n), max(high, n)
	}
	return low, high
}

// condition OBJECT TYPE STATUS prints the condition and fails if it has another status.
func (s *story) condition(_ *testscript.TestScript, args []string) (string, error) {
	path := fmt.Sprintf(`jsonpath={range .status.conditions[?(@.type=="%s")]}{.status} {.reason}: {.message}{end}`, args[1])
	out, err := s.Lab.Kubectl(s.ctx, "-n", s.Namespace, "get", args[0], "-o", path)
	if err == nil && !strings.HasPrefix(out, args[2]+" ") {
		err = fmt.Errorf("the condition %s of %s is %q, not %s", args[1], args[0], out, args[2])
	}
	return out + "\n", err
}

// mapping SELECTOR PROTOCOL PODPORT prints the mappings of the Pods, in the order of their names, and sets $MAPPING to
// the first one's "address:port".
func (s *story) mapping(ts *testscript.TestScript, args []string) (string, error) {
	annotations, err := s.annotations(args[0])
	if err != nil {
		return "", err
	}
	podPort, err := strconv.ParseUint(args[2], 10, 16)
	if err != nil {
		return "", err
	}
	var found []string
	for _, a := range annotations {
		mappings, err := npl.Decode(a)
		if err != nil {
			return "", err
		}
		for _, m := range mappings {
			if string(m.Protocol) == args[1] && m.PodPort == uint16(podPort) {
				found = append(found, netip.AddrPortFrom(m.NodeIP, m.NodePort).String())
			}
		}
	}
	if len(found) == 0 {
		return "", errAbsent
	}
	ts.Setenv("MAPPING", found[0])
	return strings.Join(found, "\n") + "\n", nil
}

// annotation SELECTOR prints the annotations of the Pods.
func (s *story) annotation(_ *testscript.TestScript, args []string) (string, error) {
	annotations, err := s.annotations(args[0])
	if err == nil && len(annotations) == 0 {
		err = errAbsent
	}
	return strings.Join(annotations, "\n") + "\n", err
}

func (s *story) annotations(selector string) ([]string, error) {
	out, err := s.Lab.Kubectl(s.ctx, "-n", s.Namespace, "get", "pods", "-l", selector, "--sort-by=.metadata.name", "-o",
		`jsonpath={range .items[*]}{.metadata.annotations.nodeportlocal\.antrea\.io}{"\n"}{end}`)
	return strings.Fields(out), err
}

// pool SERVICE prints the members that HAProxy has for it.
func (s *story) pool(_ *testscript.TestScript, args []string) (string, error) {
	members, err := s.Members(args[0])
	if err == nil && len(members) == 0 {
		err = errAbsent
	}
	return fmt.Sprintln(members), err
}

// members SERVICE N prints the members that HAProxy has for the Service and fails if there are not N.
func (s *story) members(_ *testscript.TestScript, args []string) (string, error) {
	members, err := s.Members(args[0])
	if err == nil && strconv.Itoa(len(members)) != args[1] {
		err = fmt.Errorf("the pool of %s has %d members, not %s", args[0], len(members), args[1])
	}
	return fmt.Sprintln(members), err
}

// asks SERVICE finds the annotation by which the Service asks for node ports.
func (s *story) asks(_ *testscript.TestScript, args []string) (string, error) {
	out, err := s.Lab.Kubectl(s.ctx, "-n", s.Namespace, "get", "service", args[0], "-o", `jsonpath={.metadata.annotations.nodeportlocal\.antrea\.io/enabled}`)
	if err == nil && out == "" {
		err = errAbsent
	}
	return out + "\n", err
}

// tcp WHERE ADDRESS sends one line and prints the answer.
func (s *story) tcp(_ *testscript.TestScript, args []string) (string, error) {
	return s.converse("tcp", args[0], args[1], "hello\n")
}

// udp WHERE ADDRESS TEXT sends one datagram and prints the answer.
func (s *story) udp(_ *testscript.TestScript, args []string) (string, error) {
	return s.converse("udp", args[0], args[1], args[2])
}

func (s *story) converse(network, where, addr, text string) (string, error) {
	conn, err := s.Lab.Dial(s.ctx, where, network, addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write([]byte(text)); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

// exec-in WHERE COMMAND... runs a command in a namespace of the lab.
func (s *story) execIn(_ *testscript.TestScript, args []string) (string, error) {
	out, err := s.Lab.Command(s.ctx, args[0], args[1:]...).CombinedOutput()
	return string(out), err
}

// agent NODE COMMAND... runs npl-agent on the Node, as its administrator would.
func (s *story) agent(_ *testscript.TestScript, args []string) (string, error) {
	return s.Lab.Agent(s.ctx, args[0], args[1:]...)
}

// chart KEY=VALUE... installs the chart anew with these values and those of all stories; without any it undoes that. With values
// it first waits until the Pods of earlier stories are gone, which would move into a new range and cool there when they go.
func (s *story) chart(_ *testscript.TestScript, args []string) (string, error) {
	if len(args) > 0 {
		if err := s.alone(); err != nil {
			return "", err
		}
	}
	return "", s.Lab.InstallChart(s.ctx, slices.Concat(chartValues, args)...)
}

// alone waits until no story but this one has Pods.
func (s *story) alone() error {
	return view.Poll(s.ctx, func() error {
		pods, err := s.Lab.Client().CoreV1().Pods(metav1.NamespaceAll).List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if strings.HasPrefix(p.Namespace, "story-") && p.Namespace != s.Namespace {
				return fmt.Errorf("Pod %s/%s of another story is still there", p.Namespace, p.Name)
			}
		}
		return nil
	})
}

// lbsync ARGUMENTS... runs lbsync's command line on the load balancer's host, with the settings of the one that runs there.
func (s *story) lbsync(_ *testscript.TestScript, args []string) (string, error) {
	return s.Balancer().LBSync(s.ctx, args...)
}

// configure KEY=VALUE... starts lbsync anew with these settings over those of all stories; without any it undoes that.
func (s *story) configure(_ *testscript.TestScript, args []string) (string, error) {
	return "", s.Balancer().ConfigureLBSync(s.ctx, args...)
}

// kube-proxy start NODE MODE | kube-proxy stop NODE, the mode being nftables or iptables.
func (s *story) kubeProxy(_ *testscript.TestScript, args []string) (string, error) {
	if args[0] == "stop" {
		return "", s.Lab.StopKubeProxy(args[1])
	}
	return "", s.Lab.StartKubeProxy(s.ctx, args[1], lab.KubeProxyMode(args[2]))
}

// event OBJECT TEXT prints the Events of an object, Kind/name, that contain the text, such as a reason.
func (s *story) event(_ *testscript.TestScript, args []string) (string, error) {
	namespace := s.Namespace
	if strings.HasPrefix(args[0], "Node/") {
		namespace = "default" // an Event about an object without a namespace
	}
	events, err := s.Lab.Client().CoreV1().Events(namespace).List(s.ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var found strings.Builder
	for _, e := range events.Items {
		text := e.Reason + ": " + e.Message
		if e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name == args[0] && strings.Contains(text, args[1]) {
			fmt.Fprintln(&found, text)
		}
	}
	if found.Len() == 0 {
		err = errAbsent
	}
	return found.String(), err
}

// remember NAME SERVICE keeps the fingerprint of the Service's data path; unchanged NAME SERVICE compares.
func (s *story) remember(ts *testscript.TestScript, args []string) (string, error) {
	f, err := s.fingerprint(args[1])
	if err != nil {
		return "", err
	}
	return f, os.WriteFile(ts.MkAbs(args[0]), []byte(f), 0o600)
}

func (s *story) unchanged(ts *testscript.TestScript, args []string) (string, error) {
	f, err := s.fingerprint(args[1])
	if err != nil {
		return "", err
	}
	if before := ts.ReadFile(args[0]); before != f {
		return "", fmt.Errorf("it changed. Before:\n%s\nNow:\n%s", before, f)
	}
	return f, nil
}
