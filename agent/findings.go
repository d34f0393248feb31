package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/nplbridge/nplbridge/agent/internal/nodecheck"
)

// checkInterval is how often a running agent tests its Node again.
const checkInterval = 5 * time.Minute

// Finding is what one check of the Node found. docs/reference/checks.md lists the checks.
type Finding = nodecheck.Finding

// NodeCheck is one thing that is tested on the Node. Its name is also the reason of the Event about it, and a label of the metric
// npl_agent_findings.
type NodeCheck struct{ Name, Looks string }

// NodeChecks returns all of them, in the order in which they are shown.
func NodeChecks() []NodeCheck {
	var out []NodeCheck
	for _, d := range nodecheck.Checks() {
		out = append(out, NodeCheck{string(d.Check), d.Looks})
	}
	return out
}

// The severities of findings of which a program can be certain.
const (
	SeverityOK    = nodecheck.OK
	SeverityError = nodecheck.Error
)

// examiner tests the Node of a running agent, and tells people when a finding begins and when it ends.
type examiner struct {
	node  string
	facts func(context.Context) nodecheck.Facts
	clock clock.Clock
	log   *zap.Logger
	gauge *prometheus.GaugeVec // check, severity

	recorder events.EventRecorder

	mu       sync.Mutex
	findings []Finding
}

func newExaminer(node string, facts func(context.Context) nodecheck.Facts, c clock.Clock, log *zap.Logger, reg prometheus.Registerer) (*examiner, error) {
	e := &examiner{
		node: node, facts: facts, clock: c, log: log,
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "npl_agent_findings", Help: "What the checks of the Node found, by check and severity."}, []string{"check", "severity"}),
	}
	if err := reg.Register(e.gauge); err != nil {
		return nil, fmt.Errorf("registering the agent's metrics: %w", err)
	}
	e.measure(nil)
	return e, nil
}

// run tests the Node at once, unless that was done, and then every checkInterval until ctx ends.
func (e *examiner) run(ctx context.Context) {
	if len(e.last()) == 0 {
		e.examine(ctx)
	}
	for ; ; e.examine(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-e.clock.After(checkInterval):
		}
	}
}

// examine tests the Node once.
func (e *examiner) examine(ctx context.Context) {
	found := nodecheck.Findings(e.facts(ctx))
	if ctx.Err() != nil {
		return // what could not be read then says nothing about the Node
	}
	e.mu.Lock()
	before := e.findings
	e.findings = found
	e.mu.Unlock()
	e.measure(found)
	for _, f := range without(found, before) {
		e.begins(f)
	}
	for _, f := range without(before, found) {
		e.log.Info("no longer found: "+f.Found, zap.String("check", string(f.Check)), zap.String("severity", string(f.Severity)))
	}
}

// without returns the findings of a that somebody should look at and that b does not have.
func without(a, b []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(a), func(f Finding) bool {
		return f.Severity == nodecheck.OK || slices.ContainsFunc(b, func(o Finding) bool { return o.ID() == f.ID() })
	})
}

// begins logs a finding and makes it an Event on the Node. A check that could not be made is no Event: there is nothing to mend.
func (e *examiner) begins(f Finding) {
	fields := []zap.Field{zap.String("check", string(f.Check)), zap.String("severity", string(f.Severity)), zap.String("meaning", f.Meaning), zap.String("fix", f.Fix)}
	if f.Severity == nodecheck.Unknown {
		e.log.Info(f.Found, fields...)
		return
	}
	e.log.Warn(f.Found, fields...)
	e.recorder.Eventf(nodeReference(e.node), nil, corev1.EventTypeWarning, string(f.Check), checkAction, "%s", note(f))
}

const (
	reportedBy  = "npl-agent"
	checkAction = "CheckNode"
)

// note is the text of the Event about a finding.
func note(f Finding) string {
	note := strings.Join([]string{f.Found, f.Meaning, f.Fix}, "\n")
	if len(note) > noteLimit {
		note = strings.ToValidUTF8(note[:noteLimit-3], "") + "..."
	}
	return note
}

// nodeReference refers to the Node as the kubelet and kubectl do: by its name in place of its UID. A Node has no namespace; its Events are
// in "default", as the API server asks.
func nodeReference(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

func (e *examiner) measure(findings []Finding) {
	n := map[Finding]float64{}
	for _, f := range findings {
		n[Finding{Check: f.Check, Severity: f.Severity}]++
	}
	for _, d := range nodecheck.Checks() {
		for _, s := range nodecheck.Severities() {
			e.gauge.WithLabelValues(string(d.Check), string(s)).Set(n[Finding{Check: d.Check, Severity: s}])
		}
	}
}

// last returns what the last test found.
func (e *examiner) last() []Finding {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Finding{}, e.findings...) // never null in JSON
}
