package bigipsim

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim/internal/mcp"
)

// coordination is the header that puts a call into a transaction.
const coordination = "X-F5-REST-Coordination-Id"

// command is a call that waits for the commit.
type command struct {
	request *request
	target  target
	body    map[string]any
}

type transaction struct {
	id       int64
	began    time.Time
	state    string // STARTED, COMPLETED or FAILED
	failure  string
	commands []command
}

type transactions struct {
	byID map[int64]*transaction
	last int64
}

func newTransactions() *transactions { return &transactions{byID: map[int64]*transaction{}} }

// begin opens a transaction. Its ID has sixteen digits, which a float64 would print with an exponent.
func (t *transactions) begin(now time.Time) *transaction {
	t.last = max(t.last+1, now.UnixMicro())
	made := &transaction{id: t.last, began: now, state: "STARTED"}
	t.byID[made.id] = made
	return made
}

// openTransaction returns the transaction of an ID unless it has expired. The caller holds the lock.
func (s *Sim) openTransaction(id string) (*transaction, *reply) {
	n, err := strconv.ParseInt(id, 10, 64)
	found := s.transactions.byID[n]
	if err != nil || found == nil || s.cfg.Clock.Since(found.began) >= s.cfg.Rules.TransactionTimeout {
		delete(s.transactions.byID, n)
		return nil, icrd(http.StatusNotFound, mcp.APINotFound, "the transaction (%s) was not found or has expired.", id)
	}
	return found, nil
}

func (s *Sim) showTransaction(t *transaction) map[string]any {
	return map[string]any{
		"transId": t.id, "state": t.state, "timeoutSeconds": int(s.cfg.Rules.TransactionTimeout.Seconds()), "asyncExecution": false, "validateOnly": false,
		"executionTimeout": 300, "executionTime": 0, "failureReason": t.failure, "kind": "tm:transactionstate", "selfLink": s.view(nil).url(fmt.Sprintf("transaction/%d", t.id)),
	}
}

func (s *Sim) showCommand(t *transaction, n int) map[string]any {
	c := t.commands[n]
	body := any(c.body)
	if c.body == nil {
		body = ""
	}
	return map[string]any{
		"method": c.request.Method, "uri": "https://localhost" + c.request.URL.RequestURI(), "body": body, "evalOrder": n + 1, "commandId": n + 1,
		"kind": "tm:transaction:commandsstate", "selfLink": s.view(nil).url(fmt.Sprintf("transaction/%d/commands/%d", t.id, n+1)),
	}
}

// transaction answers what is below /mgmt/tm/transaction.
func (s *Sim) transaction(r *request, path []string) *reply {
	if r.Header.Get(coordination) != "" {
		return icrd(http.StatusBadRequest, mcp.APINotFound, "A transaction cannot be part of a transaction: leave %s out", coordination)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(path) == 0 {
		if r.Method != http.MethodPost {
			return icrd(http.StatusBadRequest, mcp.APINotFound, "Operation %s is not supported on this resource.", r.Method)
		}
		if _, bad := r.object(); bad != nil {
			return bad
		}
		return ok(s.showTransaction(s.transactions.begin(s.cfg.Clock.Now())))
	}
	t, gone := s.openTransaction(path[0])
	switch {
	case gone != nil:
		return gone
	case len(path) == 2 && path[1] == "commands" && r.Method == http.MethodGet:
		var items []any
		for n := range t.commands {
			items = append(items, s.showCommand(t, n))
		}
		return s.view(r).listed("tm:transaction:commands", s.view(r).self("transaction/"+path[0]+"/commands"), items, nil)
	case len(path) > 1:
		return unregistered(r)
	case r.Method == http.MethodGet:
		return ok(s.showTransaction(t))
	case r.Method == http.MethodDelete:
		delete(s.transactions.byID, t.id)
		return empty()
	case r.Method == http.MethodPatch:
		return s.commit(r, t)
	}
	return icrd(http.StatusBadRequest, mcp.APINotFound, "Operation %s is not supported on this resource.", r.Method)
}

// commit carries out every command or none. The caller holds the lock.
func (s *Sim) commit(r *request, t *transaction) *reply {
	body, bad := r.object()
	switch {
	case bad != nil:
		return bad
	case body["state"] != "VALIDATING":
		return icrd(http.StatusBadRequest, 0, `invalid property value "state":%q`, body["state"])
	case t.state != "STARTED":
		return icrd(http.StatusBadRequest, mcp.APINotFound, "the transaction (%d) is %s.", t.id, t.state)
	case len(t.commands) == 0:
		return icrd(http.StatusNotFound, mcp.APINotFound, "there is no command to commit in the transaction.")
	}
	err := s.config.Transaction(func() *mcp.Error {
		for _, c := range t.commands {
			if c.request.Method == http.MethodGet {
				continue
			}
			if _, err := s.apply(c.request, c.request.Method, c.target, c.body); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.state, t.failure = "FAILED", err.Message
		return icrd(err.Status, mcp.APIFailed, "transaction failed:%s", err.Message)
	}
	t.state = "COMPLETED"
	s.settle()
	s.changed()
	return ok(s.showTransaction(t))
}

// queue puts a call into a transaction instead of carrying it out, a GET too.
func (s *Sim) queue(r *request, id string) *reply {
	target, found := locate(r.path[1:])
	if !found {
		return icrd(http.StatusBadRequest, mcp.APINotFound, "%s cannot be part of a transaction", strings.TrimPrefix(r.URL.Path, "/mgmt"))
	}
	var body map[string]any
	if r.Method != http.MethodDelete && r.Method != http.MethodGet {
		var bad *reply
		if body, bad = r.object(); bad != nil {
			return bad
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, gone := s.openTransaction(id)
	if gone != nil {
		return gone
	}
	if t.state != "STARTED" {
		return icrd(http.StatusBadRequest, mcp.APINotFound, "the transaction (%d) is %s.", t.id, t.state)
	}
	t.commands = append(t.commands, command{r, target, body})
	return ok(s.showCommand(t, len(t.commands)-1))
}
