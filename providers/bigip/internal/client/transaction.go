package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers/internal/rest"
)

// Command is one request that changes something.
type Command struct {
	Method string
	Path   string
	Body   any
}

// Run carries out commands: one by itself, several in one transaction, so all of them or none. Of an error nothing has happened, unless
// there was no answer.
func (c *Client) Run(ctx context.Context, commands ...Command) error {
	switch len(commands) {
	case 0:
		return nil
	case 1:
		_, err := c.call(ctx, rest.Request{Method: commands[0].Method, Path: commands[0].Path, Body: commands[0].Body})
		return err
	}
	for restarted := false; ; restarted = true {
		err := c.transact(ctx, commands)
		if expired(err) && !restarted {
			continue
		}
		return err
	}
}

const transactions = "/mgmt/tm/transaction"

func (c *Client) transact(ctx context.Context, commands []Command) (err error) {
	answer, err := c.Post(ctx, transactions, struct{}{})
	if err != nil {
		return err
	}
	id, err := transactionID(answer)
	if err != nil {
		return unreadable("begin a transaction", err)
	}
	path := transactions + "/" + strconv.FormatInt(id, 10)
	defer func() {
		if err != nil && !expired(err) {
			_ = c.Delete(ctx, path) // it expires by itself
		}
	}()
	h := http.Header{}
	h.Set("X-F5-REST-Coordination-Id", strconv.FormatInt(id, 10))
	for _, command := range commands {
		if _, err := c.call(ctx, rest.Request{Method: command.Method, Path: command.Path, Body: command.Body, Header: h}); err != nil {
			return err
		}
	}
	// With the header the commit would be queued as one more command.
	_, err = c.Patch(ctx, path, map[string]string{"state": "VALIDATING"})
	return err
}

// transactionID reads the number, whose 16 digits a float would not keep.
func transactionID(body []byte) (int64, error) {
	var t struct {
		ID json.Number `json:"transId"`
	}
	if err := json.Unmarshal(body, &t); err != nil {
		return 0, err
	}
	id, err := t.ID.Int64()
	if err == nil && id <= 0 {
		err = fmt.Errorf("transaction %d", id)
	}
	return id, err
}

// expired reports whether err says that a transaction is no more: then nothing of it has happened.
func expired(err error) bool {
	e := asRefusal(err)
	return e != nil && e.Status == http.StatusNotFound && e.Code == "" && strings.Contains(e.Message, "transaction") &&
		!strings.Contains(e.Message, "no command") && !strings.Contains(e.Message, "failed")
}
