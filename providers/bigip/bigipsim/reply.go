package bigipsim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
)

// reply is an answer before it is sent.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func jsonReply(status int, value any) *reply {
	body, err := json.Marshal(value)
	if err != nil { // nothing that is stored can fail to encode
		panic(fmt.Errorf("encode an answer: %w", err))
	}
	return &reply{status, http.Header{"Content-Type": {"application/json; charset=UTF-8"}}, body}
}

func ok(value any) *reply { return jsonReply(http.StatusOK, value) }

// icrd is an error of the process behind /mgmt/tm; an apiError of 0 is left out.
func icrd(status, apiError int, format string, args ...any) *reply {
	body := map[string]any{"code": status, "message": fmt.Sprintf(format, args...), "errorStack": []string{}}
	if apiError != 0 {
		body["apiError"] = apiError
	}
	return jsonReply(status, body)
}

func refusal(err *mcp.Error) *reply { return icrd(err.Status, err.API, "%s", err.Message) }

// restjavad is an error of the process in front, which knows no apiError.
func restjavad(status int, format string, args ...any) *reply {
	return jsonReply(status, map[string]any{
		"code": status, "message": fmt.Sprintf(format, args...), "referer": "127.0.0.1", "restOperationId": 4242, "kind": ":resterrorresponse",
	})
}

func htmlReply(status int, title, text string) *reply {
	page := fmt.Sprintf("<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n<html><head>\n<title>%d %s</title>\n</head><body>\n<h1>%s</h1>\n<p>%s</p>\n</body></html>\n", status, title, title, text)
	return &reply{status, http.Header{"Content-Type": {"text/html; charset=iso-8859-1"}}, []byte(page)}
}

func restarting() *reply {
	return htmlReply(http.StatusServiceUnavailable, "Service Unavailable", "Configuration Utility restarting...")
}

// send writes the answer; cut sends half of the body and then ends the connection.
func (r *reply) send(w http.ResponseWriter, cut bool) {
	maps.Copy(w.Header(), r.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(r.body)))
	w.WriteHeader(r.status)
	if !cut {
		w.Write(r.body) //nolint:errcheck // the client went away
		return
	}
	w.Write(r.body[:len(r.body)/2])       //nolint:errcheck // the connection ends anyway
	http.NewResponseController(w).Flush() //nolint:errcheck // as above
	panic(http.ErrAbortHandler)
}
