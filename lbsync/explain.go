package lbsync

import (
	"fmt"

	"github.com/nplbridge/nplbridge/lbsync/internal/document"
	"github.com/nplbridge/nplbridge/lbsync/internal/explain"
)

// Document is what a running process says about itself, see Syncer.Status. Its JSON form is stable.
type Document = document.Document

// The parts of a Document.
type (
	// Provider is one load balancer.
	Provider = document.Provider
	// ServiceStatus is one Service.
	ServiceStatus = document.Service
	// PortStatus is one port of a Service on one load balancer.
	PortStatus = document.Port
	// MemberStatus is one member of a pool.
	MemberStatus = document.Member
	// PodStatus is what decides about a Pod that is not a member of every pool.
	PodStatus = document.Pod
	// PlannedChange is wanted on a load balancer, and not there.
	PlannedChange = document.Change
	// PlannedStep is one part of a PlannedChange.
	PlannedStep = document.Step
	// PolicyStatus is a NetworkPolicy, which the reader of a Document may add to it.
	PolicyStatus = document.NetworkPolicy
	// PolicyRule is what a PolicyStatus lets in.
	PolicyRule = document.Rule
	// PolicyRulePort is a port of a PolicyRule.
	PolicyRulePort = document.RulePort
)

// DocumentVersion is that of the form of a Document.
const DocumentVersion = document.Version

// Explanation is what Explain answers.
type Explanation = explain.Explanation

// LinkBroken is the level of a link of an Explanation that lets nothing through.
const LinkBroken = explain.Broken

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
