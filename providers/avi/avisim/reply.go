package avisim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
)

// reply is an answer before it is sent.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// refusal is an error with the answer that it makes.
type refusal struct{ reply *reply }

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.reply.status, r.reply.body) }

func jsonReply(status int, value any) *reply {
	body, err := json.Marshal(value)
	if err != nil { // nothing that is stored can fail to encode
		panic(fmt.Errorf("encode an answer: %w", err))
	}
	return &reply{status, http.Header{"Content-Type": {"application/json"}}, body}
}

func textReply(status int, text string) *reply {
	return &reply{status, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, []byte(text)}
}

func htmlReply(status int, title string) *reply {
	page := fmt.Sprintf("<html>\r\n<head><title>%d %s</title></head>\r\n<body>\r\n<center><h1>%d %s</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
		status, title, status, title)
	return &reply{status, http.Header{"Content-Type": {"text/html"}}, []byte(page)}
}

// refuse answers with {"error": "..."}.
func refuse(status int, format string, args ...any) *refusal {
	return &refusal{jsonReply(status, map[string]any{"error": fmt.Sprintf(format, args...)})}
}

// refuseDetail answers with {"detail": "..."}, as the REST framework under the API does on its own.
func refuseDetail(status int, format string, args ...any) *refusal {
	return &refusal{jsonReply(status, map[string]any{"detail": fmt.Sprintf(format, args...)})}
}

func (r *reply) with(name, value string) *reply {
	r.header.Set(name, value)
	return r
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
