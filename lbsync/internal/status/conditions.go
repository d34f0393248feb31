// Package status is lbsync's voice in Kubernetes, used by the Lease holder only: finalizer and annotations on Services,
// status.loadBalancer, conditions and Events.
package status

// Types of the conditions on a Service.
const (
	// Accepted says whether the Service as written can be served.
	Accepted = "nplbridge.io/Accepted"
	// Programmed says whether the load balancer has acknowledged everything that is wanted for it.
	Programmed = "nplbridge.io/Programmed"
)

// Reasons of Accepted, beside those of vip.Reason.
const (
	ReasonAccepted            = "Accepted"                   // True
	ReasonInvalidAnnotation   = "InvalidAnnotation"          // an annotation cannot be read; what was there before stays
	ReasonUnsupportedProtocol = "UnsupportedProtocol"        // the load balancer cannot balance a port's protocol; other ports, if any, are served
	ReasonSourceRanges        = "SourceRangesUnsupported"    // it asks to keep clients out, which lbsync cannot: it is not served at all
	ReasonSessionAffinity     = "SessionAffinityUnsupported" // it is served without session affinity
	ReasonDisabled            = "NodePortLocalDisabled"      // the user's own nodeportlocal.antrea.io/enabled is not "true"
)

// ReasonManagedByOther is that of the Event on a Service that asks for our class while another lbsync manages it.
const ReasonManagedByOther = "ManagedByOther"

// Reasons of Programmed, beside "Provider" and a providers.Kind.
const (
	ReasonProgrammed     = "Programmed"   // True
	ReasonPending        = "Pending"      // not yet
	ReasonNotAccepted    = "NotAccepted"  // nothing to program, see Accepted
	ReasonHeld           = "RemovalsHeld" // the API server's answer cannot be believed
	reasonProviderPrefix = "Provider"
)

// portError stands in status.loadBalancer for a port that is not served.
const portError = "nplbridge.io/" + ReasonUnsupportedProtocol
