package publish

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Class is what kind of error kept an annotation from being written; it is a metric label.
type Class string

// The classes. All are tried again; a person must act on Forbidden and Rejected.
const (
	Forbidden   Class = "Forbidden"   // no right to, or an admission policy says no
	Conflict    Class = "Conflict"    // somebody else writes the Pod at the same time
	Throttled   Class = "Throttled"   // the API server asks to slow down
	Rejected    Class = "Rejected"    // the API server finds the patch wrong, or stored something else
	Unavailable Class = "Unavailable" // the API server did not answer, or is not well
)

// Classes are all there are.
func Classes() []Class { return []Class{Conflict, Forbidden, Rejected, Throttled, Unavailable} }

// errRewritten is why a patch that was accepted failed all the same.
var errRewritten = errors.New("look for an admission webhook that rewrites it")

func classOf(err error) Class {
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return Forbidden
	case apierrors.IsConflict(err):
		return Conflict
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case refused(err), errors.Is(err, errRewritten):
		return Rejected
	default:
		return Unavailable
	}
}

// remedy ends the message of an error on which a person must act.
func (c Class) remedy() string {
	if c == Forbidden {
		return ": npl-agent needs the right to patch pods/status, and the admission policies must let its token, which names this Node, " +
			"write this annotation: compare ClusterRole and ValidatingAdmissionPolicies with those of the chart"
	}
	return ""
}

// refused reports whether err is the API server's own answer that it did not do what it was asked. After any other error, such as
// a time-out or the answer of a proxy, it may have done it.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500 && !apierrors.IsUnexpectedServerError(err)
}

// IsGone reports whether err, the answer to a patch of the Pod of that name, says that the Pod does not exist or has another UID: the
// API server answers a patch that names the wrong UID with 422 on metadata.uid, or 409 as a failed UID precondition. A 404 says so only
// if it names the Pod, and is no stand-in that client-go made for the answer of a proxy.
func IsGone(err error, pod string) bool {
	switch {
	case apierrors.IsNotFound(err):
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Details == nil {
			return false
		}
		d := status.Status().Details
		return d.Group == "" && d.Kind == "pods" && d.Name == pod && !apierrors.IsUnexpectedServerError(err)
	case apierrors.IsInvalid(err):
		return names(err, "metadata.uid")
	case apierrors.IsConflict(err):
		return strings.Contains(err.Error(), "Precondition failed: UID")
	default:
		return false
	}
}

// names reports whether the API server finds fault with a field.
func names(err error, field string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == field && cause.Type == metav1.CauseTypeFieldValueInvalid {
			return true
		}
	}
	return false
}
