package mcp

import (
	"fmt"
	"net/http"
)

// The values of apiError that are known.
const (
	APINotFound = 1        // of the REST layer: there is no such object, or the body is no JSON
	APIFailed   = 2        // a transaction failed
	APIRefused  = 3        // mcpd refused
	APIInvalid  = 26214401 // the REST layer refused the request
)

// Error is a refusal with the answer that it makes.
type Error struct {
	Status int // of HTTP
	// Message begins with the eight hexadecimal digits where mcpd refused.
	Message string
	// API is apiError; 0 leaves it out.
	API int
}

// Error returns the message.
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Status, e.Message) }

// refuse is a refusal by mcpd, as "01070734:3: ...".
func refuse(code, format string, args ...any) *Error {
	status := http.StatusBadRequest
	switch code {
	case notFound:
		status = http.StatusNotFound
	case exists:
		status = http.StatusConflict
	}
	return &Error{status, code + ":3: " + fmt.Sprintf(format, args...), APIRefused}
}

// invalid is a refusal by the REST layer.
func invalid(api int, format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...), api}
}

// The codes of mcpd.
const (
	notFound         = "01020036"
	exists           = "01020066"
	tooLong          = "01020057"
	nodeAddressInUse = "0107003a" // a member would make a second node of one address
	noMonitor        = "01070022"
	monitorInUse     = "01070083"
	badProfiles      = "01070095"
	nodeInUse        = "01070110"
	inUse            = "01070265"
	cookieNeedsHTTP  = "01070309"
	clash            = "01070333"
	recordTooLong    = "01070712"
	otherPartition   = "01070726"
	configuration    = "01070734"
	accessDenied     = "01070822"
	notEmpty         = "0107082a"
	addressExists    = "0107176c"
)
