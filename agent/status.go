package agent

import "github.com/nplbridge/nplbridge/agent/internal/loop"

// StatusDocument is what Status returns: the last pass over the Node, and the last test of it.
type StatusDocument struct {
	loop.Document
	Findings []Finding `json:"findings"`
}

// Status returns the StatusDocument, ready to be written as JSON.
func (a *Agent) Status() any {
	d := StatusDocument{Findings: a.examiner.last()}
	if l := a.loop.Load(); l != nil {
		d.Document = l.Document()
		return d
	}
	d.Node, d.Error = a.cfg.NodeName, "starting: the API server has not answered yet"
	return d
}

// Leaving is the status of an agent that was told to go: what is left, "" when nothing is.
func Leaving(cfg Config, left string) StatusDocument {
	d := StatusDocument{Findings: []Finding{}}
	d.Node, d.Error = cfg.NodeName, "the state is removing: nothing is left"
	if left != "" {
		d.Error = "the state is removing: " + left
	}
	return d
}
