// Package status is lbsync's voice in Kubernetes, used by the Lease holder only: finalizer and annotations on Services,
// status.loadBalancer, conditions and Events.
package status

import (
	"github.com/nplbridge/nplbridge/lbsync/internal/model"
	"github.com/nplbridge/nplbridge/lbsync/internal/vip"
	"github.com/nplbridge/nplbridge/providers"
)

// Types of the conditions on a Service.
const (
	// Accepted says whether the Service as written can be served.
	Accepted = "nplbridge.io/Accepted"
	// Programmed says whether every load balancer has acknowledged everything that is wanted of it.
	Programmed = "nplbridge.io/Programmed"
)

// Reasons of Accepted, beside those of vip.Reason.
const (
	ReasonAccepted            = "Accepted"                // True
	ReasonInvalidAnnotation   = "InvalidAnnotation"       // an annotation or field cannot be read; what was there before stays
	ReasonNotAllocated        = "AddressNotAllocated"     // the load balancer's own address management gives no address
	ReasonUnsupportedProtocol = "UnsupportedProtocol"     // a load balancer cannot balance a port's protocol; other ports, if any, are served
	ReasonSourceRanges        = "SourceRangesUnsupported" // it asks to keep clients out, which a load balancer cannot: it is not served there
	ReasonUnsupportedSetting  = "UnsupportedSetting"      // a load balancer cannot do something else that is asked of it; it does the rest
	ReasonDisabled            = "NodePortLocalDisabled"   // the user's own nodeportlocal.antrea.io/enabled is not "true"
)

// Reasons of Programmed, beside "Provider" and a providers.Kind.
const (
	ReasonProgrammed     = "Programmed"      // True
	ReasonPending        = "Pending"         // not yet
	ReasonNotAccepted    = "NotAccepted"     // nothing to program, see Accepted
	ReasonHeld           = "RemovalsHeld"    // the API server's answer cannot be believed
	ReasonGuarded        = "MembersHeld"     // the guard keeps members whose loss nothing explains
	ReasonNoNode         = "NoNode"          // no Node serves it on whose addresses it is to be
	ReasonNotAnnounced   = "VIPNotAnnounced" // no host has the address that would announce it
	ReasonUnknown        = "UnknownProvider" // what is left of the Service is on a load balancer that is not configured any more
	reasonProviderPrefix = "Provider"
)

// Reasons of Events on Services that are no condition's.
const (
	ReasonManagedByOther  = "ManagedByOther"         // it asks for our class while another lbsync manages it
	ReasonNoSelector      = "NoSelector"             // without a selector it has no members
	ReasonUnsupportedType = "ServiceTypeUnsupported" // it asks for us, and cannot be served for its type
	ReasonAbandoned       = "Abandoned"              // let go of without the load balancer's word
	ReasonNotOnNode       = "NotOnNode"              // a load balancer on a Node cannot have a port of it there
)

// ConditionReasons lists every reason of the two conditions.
func ConditionReasons() []string {
	out := []string{
		ReasonAccepted, ReasonInvalidAnnotation, ReasonNotAllocated, ReasonUnsupportedProtocol, ReasonSourceRanges, ReasonUnsupportedSetting,
		ReasonDisabled, ReasonProgrammed, ReasonPending, ReasonNotAccepted, ReasonHeld, ReasonGuarded, ReasonNoNode, ReasonNotAnnounced,
		ReasonUnknown,
	}
	for _, reason := range model.PortReasons() {
		out = append(out, string(reason))
	}
	for _, reason := range vip.Reasons() {
		out = append(out, string(reason))
	}
	for _, kind := range []providers.Kind{providers.Unavailable, providers.Throttled, providers.Conflict, providers.Rejected, providers.Misconfigured} {
		out = append(out, reasonProviderPrefix+string(kind))
	}
	return out
}

// EventReasons lists the reasons of Events on Services that are no condition's.
func EventReasons() []string {
	return []string{ReasonManagedByOther, ReasonNoSelector, ReasonUnsupportedType, ReasonAbandoned, ReasonNotOnNode}
}

// Errors of ports in status.loadBalancer are nplbridge.io/ and one of the reasons.
const portErrorPrefix = "nplbridge.io/"
