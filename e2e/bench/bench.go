// Package bench measures nplbridge in the lab and prints what it measured; it never judges.
package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/e2e/lab"
)

// Part is one thing that can be measured by itself.
type Part struct {
	Name string
	Doc  string // what is measured, without a full stop
	run  func(context.Context, *runner) ([]Figure, error)
}

// Parts are all there are, in the order in which they run.
func Parts() []Part {
	return []Part{
		{"dataplane", "npl-agent: one mapping added or deleted in the kernel, alone and beside foreign NAT rules", dataplane},
		{"cold", "npl-agent: 1,000 Pods that wait when the agent starts", coldStart},
		{"burst", "npl-agent: from a Pod's IP to its annotation, 100 Pods arriving together", burst},
		{"memory", "npl-agent: memory among 10,000 Services, and what Services that are not enabled cost", memory},
		{"ready", "lbsync: from a Pod being Ready to its first request through the VIP", ready},
		{"lbsync", "lbsync: a Pod's change in clusters of three sizes, and bursts of 3,000 Pods, by provider concurrency", lbsyncChanges},
		{"lbsync-large", "lbsync: start, memory, changes and restart with 100,000 Pods on a real API server", lbsyncLarge},
		{"scale", "lbsync: the same at several sizes, to see what grows with the cluster and what does not", scale},
		{"control", "npl-agent and lbsync: from a Pod being Ready to its first answer, from its deletion to its last, at several rates of change", control},
		{"haproxy-memory", "lbsync beside a real HAProxy with 10,000 members: memory, and what a change costs", haproxyMemory},
	}
}

// Select returns the parts with these names, all of them if there are none.
func Select(names []string) ([]Part, error) {
	if len(names) == 0 {
		return Parts(), nil
	}
	var known []string
	for _, p := range Parts() {
		known = append(known, p.Name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("part %q is not known: choose from %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(Parts(), func(p Part) bool { return !slices.Contains(names, p.Name) }), nil
}

// Run measures the parts and then prints their figures as one table. What happens meanwhile is told to out, too.
func Run(ctx context.Context, parts []Part, opt Options, out io.Writer) error {
	r := &runner{opt: opt, out: out, began: time.Now()}
	defer r.close()
	var figures []Figure
	var page strings.Builder
	for _, p := range parts {
		r.say("%s: %s", p.Name, p.Doc)
		found, err := p.run(ctx, r)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", p.Name, err)
		}
		figures = append(figures, found...)
		if err := writePage(&page, found); err != nil {
			return err
		}
	}
	printTable(out, figures)
	if opt.Page == "" {
		return nil
	}
	return os.WriteFile(opt.Page, []byte(page.String()), 0o644)
}

// runner lends the parts a lab, one at a time.
type runner struct {
	opt   Options
	out   io.Writer
	began time.Time
	lab   *lab.Lab
	site  *site // in lab; nil if it is not made for one
}

// say prints progress.
func (r *runner) say(format string, args ...any) {
	fmt.Fprintf(r.out, "%6.1f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts a lab in place of the one there was.
func (r *runner) start(ctx context.Context, nodes int) (err error) {
	r.close()
	if r.lab, err = lab.Start(ctx, lab.Options{Nodes: nodes}); err != nil {
		return err
	}
	r.say("a lab with %d Nodes is ready", nodes)
	return nil
}

// agentSite returns the site of the running lab, or of a new one.
func (r *runner) agentSite(ctx context.Context) (*site, error) {
	if r.site != nil {
		return r.site, nil
	}
	if err := r.start(ctx, 1); err != nil {
		return nil, err
	}
	var err error
	r.site, err = newSite(ctx, r.lab)
	return r.site, err
}

func (r *runner) close() {
	if r.lab == nil {
		return
	}
	if err := r.lab.Close(); err != nil {
		r.say("%v", err)
	}
	r.lab, r.site = nil, nil
}
