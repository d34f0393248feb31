package lbsync

import (
	"fmt"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
	"github.com/nplbridge/nplbridge/lbsync/internal/explain"
)

// The status document, see Syncer.Status, and its parts.
type (
	Document       = document.Document
	Provider       = document.Provider
	ServiceStatus  = document.Service
	PortStatus     = document.Port
	MemberStatus   = document.Member
	PodStatus      = document.Pod
	PlannedChange  = document.Change
	PlannedStep    = document.Step
	PolicyStatus   = document.NetworkPolicy
	PolicyRule     = document.Rule
	PolicyRulePort = document.RulePort
)

// DocumentVersion is that of the form of a Document.
const DocumentVersion = document.Version

// Explanation is what Explain answers, and its parts.
type (
	Explanation = explain.Explanation
	Chain       = explain.Chain
	Link        = explain.Step
	Level       = explain.Level
)

// The levels of a Link.
const (
	LinkGood    = explain.Good
	LinkNote    = explain.Note
	LinkWaiting = explain.Waiting
	LinkBroken  = explain.Broken
)

// Target is what Explain is asked about.
type Target struct {
	Kind string // one of TargetKinds
	Name string // "namespace/name" of a Service or Pod, an address of a VIP, address and port of a member
}

// The kinds of Target.
const (
	TargetService = "service"
	TargetPod     = "pod"
	TargetVIP     = "vip"
	TargetMember  = "member"
)

// TargetKinds lists the kinds of Target.
func TargetKinds() []string { return []string{TargetService, TargetPod, TargetVIP, TargetMember} }

// Explain says why traffic for the target does or does not reach Pods, up to the first link that is broken. It is a pure function of the
// document; an error means that there can be no such target.
func Explain(d Document, t Target) (Explanation, error) {
	switch t.Kind {
	case TargetService:
		return explain.Service(d, t.Name), nil
	case TargetPod:
		return explain.Pod(d, t.Name), nil
	case TargetVIP:
		return explain.VIP(d, t.Name)
	case TargetMember:
		return explain.Member(d, t.Name)
	default:
		return Explanation{}, fmt.Errorf("cannot explain a %q; name one of %v", t.Kind, TargetKinds())
	}
}
