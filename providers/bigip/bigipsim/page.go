package bigipsim

import "net/http"

func (s *Sim) page(w http.ResponseWriter, r *http.Request) {
	htmlReply(http.StatusOK, "BIG-IP", "simulated").send(w, false)
}

type serving struct{}
