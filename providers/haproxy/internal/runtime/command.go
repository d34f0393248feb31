package runtime

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Expect says what HAProxy answers when it carried out a command. Anything else is a refusal, an empty answer
// where one is due included: HAProxy 2.6 says nothing to a command that is too long.
type Expect int

// The kinds of expected answers.
const (
	Silence Expect = iota // nothing, or a notice of a change
	Data                  // text without a severity mark
	Added                 // "New server registered."
	Deleted               // "Server deleted."
	Done                  // "Done."
	Notice                // nothing, or whatever is no error: 3.4 tells in words what became of a backend
)

// Command is one line of the command line protocol with the answer that means success.
type Command struct {
	Text   string
	Expect Expect
}

// valid reports an error for a line that HAProxy would read as something else than one command.
func (c Command) valid() error {
	if c.Text == "" || len(c.Text) >= windowBytes || strings.ContainsAny(c.Text, "\r\n;") {
		return fmt.Errorf("not one command of 1 to %d bytes: %.80q", windowBytes-1, c.Text)
	}
	return nil
}

// judge turns an answer into a Result.
func (c Command) judge(answer string) Result {
	severity, text, marked := cutSeverity(answer)
	accepted := false
	switch c.Expect {
	case Silence:
		accepted = answer == "" || marked && (severity == 4 || severity == 5)
	case Data:
		accepted = answer != "" && !marked
	case Added:
		accepted = strings.Contains(answer, "New server registered.")
	case Notice:
		accepted = answer == "" || marked && severity > 3 && !strings.Contains(answer, "Unknown")
	case Done:
		accepted = text == "Done."
	case Deleted:
		accepted = strings.Contains(answer, "Server deleted.")
	}
	if !accepted {
		if len(text) > 300 {
			text = text[:300] + "..."
		}
		return Result{Text: answer, Err: &RefusedError{Command: c.Text, Answer: text}}
	}
	return Result{Text: answer}
}

// cutSeverity splits "[3]: text" as `set severity-output number` makes HAProxy write it.
func cutSeverity(answer string) (severity int, text string, ok bool) {
	rest, found := strings.CutPrefix(answer, "[")
	if !found {
		return 0, answer, false
	}
	number, text, found := strings.Cut(rest, "]: ")
	severity, err := strconv.Atoi(number)
	if !found || err != nil {
		return 0, answer, false
	}
	return severity, strings.TrimSpace(text), true
}

// Ask is a command that answers with data.
func Ask(text string) Command { return Command{Text: text, Expect: Data} }

// AddServer registers a new server, in maintenance and with its checks off.
func AddServer(backend, server string, address netip.AddrPort, options string) Command {
	return Command{Text: fmt.Sprintf("add server %s/%s %s %s", backend, server, address, options), Expect: Added}
}

// EnableHealth starts the server's checks.
func EnableHealth(backend, server string) Command {
	return Command{Text: "enable health " + backend + "/" + server}
}

// Ready ends maintenance and drain.
func Ready(backend, server string) Command {
	return Command{Text: "set server " + backend + "/" + server + " state ready"}
}

// Fail makes the server's check have failed: it is down until the check has succeeded as often as it takes.
func Fail(backend, server string) Command {
	return Command{Text: "set server " + backend + "/" + server + " health down"}
}

// Maintain stops new connections, those of clients with persistence included; established ones go on.
func Maintain(backend, server string) Command {
	return Command{Text: "set server " + backend + "/" + server + " state maint"}
}

// Drain stops new connections except those of clients with persistence: an operator's verb, which ends with Ready.
func Drain(backend, server string) Command {
	return Command{Text: "set server " + backend + "/" + server + " state drain"}
}

// Move gives the server another address of the same family.
func Move(backend, server string, address netip.AddrPort) Command {
	return Command{Text: fmt.Sprintf("set server %s/%s addr %s port %d", backend, server, address.Addr(), address.Port())}
}

// Weigh sets the server's weight, 0 to 256.
func Weigh(backend, server string, weight int) Command {
	return Command{Text: "set server " + backend + "/" + server + " weight " + strconv.Itoa(weight)}
}

// ShutdownSessions closes the server's connections; it takes effect a moment later.
func ShutdownSessions(backend, server string) Command {
	return Command{Text: "shutdown sessions server " + backend + "/" + server}
}

// WaitRemovable waits until DeleteServer would succeed, at most for so long, a multiple of a millisecond. Since 3.0. The session waits with it.
func WaitRemovable(backend, server string, most time.Duration) Command {
	return Command{Text: fmt.Sprintf("wait %dms srv-removable %s/%s", most.Milliseconds(), backend, server), Expect: Done}
}

// DeleteServer removes a server that is in maintenance and has no connection.
func DeleteServer(backend, server string) Command {
	return Command{Text: "del server " + backend + "/" + server, Expect: Deleted}
}
