package winnat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nplbridge/nplbridge/agent/internal/dataplane"
	"github.com/nplbridge/nplbridge/agent/npl"
)

// Every line of a script is one statement: PowerShell reads commands from its standard input line by line. What reaches it beside
// constants are numbers, IPv4 addresses, and names that natName allows.
//
// A step's answer is one line: "npl:", the step's number, ":", and JSON. Other lines are noise. It is written past PowerShell's
// formatter, which would break long lines.
const (
	prelude = `$ErrorActionPreference = 'Stop'; $ProgressPreference = 'SilentlyContinue'; $WarningPreference = 'SilentlyContinue'
try { [Console]::OutputEncoding = New-Object System.Text.UTF8Encoding $false } catch { }
function step([int]$n, [scriptblock]$body) { try { $r = @{ out = @(& $body) } } catch { $r = @{ id = [string]$_.FullyQualifiedErrorId; error = [string]$_.Exception.Message } }; [Console]::Out.WriteLine('npl:' + $n + ':' + (ConvertTo-Json -InputObject $r -Compress -Depth 4)) }
`
	// Asked for by name, a cmdlet reports what does not exist as an error; asked for all, it returns nothing.
	listNATs     = `Get-NetNat -ErrorAction Stop | ForEach-Object { @{ name = [string]$_.Name; internal = [string]$_.InternalIPInterfaceAddressPrefix } }`
	listMappings = `Get-NetNatStaticMapping -ErrorAction Stop | ForEach-Object { @{ protocol = [string]$_.Protocol; address = [string]$_.ExternalIPAddress; remote = [string]$_.RemoteExternalIPAddressPrefix; port = [int]$_.ExternalPort; internalAddress = [string]$_.InternalIPAddress; internalPort = [int]$_.InternalPort } }`
	// For remove, read in the same script.
	readAll = "$all = @(Get-NetNatStaticMapping -ErrorAction Stop)\n"
)

// Enough for a Node under load; a PowerShell that takes longer hangs. Antrea's tests saw more than 3 seconds for one mapping.
const (
	startTimeout = time.Minute
	stepTimeout  = 10 * time.Second
)

// step is one command about one port.
type step struct {
	key     dataplane.Key
	command string
}

// numbers are the IANA numbers by which some versions name the protocols.
var numbers = map[npl.Protocol]string{npl.TCP: "6", npl.UDP: "17"}

// remove finds the mapping again by all that makes it ours: an ID read earlier might be somebody else's by now. Remove-NetNatStaticMapping
// without arguments removes everything, so it is reached only with both of a mapping that was found.
func remove(m mapping) step {
	return step{m.key, fmt.Sprintf(`foreach ($m in @($all | Where-Object { [string]$_.Protocol -in '%s','%s' -and $_.ExternalIPAddress -eq '0.0.0.0' -and $_.ExternalPort -eq %d -and $_.InternalIPAddress -eq '%s' -and $_.InternalPort -eq %d })) { Remove-NetNatStaticMapping -NatName $m.NatName -StaticMappingID $m.StaticMappingID -Confirm:$false -ErrorAction Stop }`,
		strings.ToUpper(string(m.key.Protocol)), numbers[m.key.Protocol], m.key.NodePort, m.target.Addr(), m.target.Port())}
}

func add(nat string, m mapping) step {
	return step{m.key, fmt.Sprintf(`$null = Add-NetNatStaticMapping -NatName '%s' -Protocol %s -ExternalIPAddress '0.0.0.0' -ExternalPort %d -InternalIPAddress '%s' -InternalPort %d -ErrorAction Stop`,
		nat, strings.ToUpper(string(m.key.Protocol)), m.key.NodePort, m.target.Addr(), m.target.Port())}
}

// look takes the steps and then sees what the host has, in one script. What steps failed of is kept with that.
func (n *NAT) look(steps []step) error {
	n.host = nil
	var script strings.Builder
	script.WriteString(prelude)
	if len(steps) > 0 {
		script.WriteString(readAll)
	}
	for i, command := range append(commands(steps), listNATs, listMappings) {
		fmt.Fprintf(&script, "step %d { %s }\n", i, command)
	}
	count := len(steps) + 2
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout+time.Duration(count)*stepTimeout)
	defer cancel()
	output, err := n.cfg.Runner.Run(ctx, script.String())
	answers := parse(output, count)
	if err == nil && len(answers) < count {
		err = fmt.Errorf("PowerShell answered %d of %d commands; it wrote %q", len(answers), count, excerpt(output))
	}
	if err != nil {
		return fmt.Errorf("driving the NAT of Windows: %w", err)
	}
	h := &host{failures: map[dataplane.Key]error{}}
	for i, s := range steps {
		if err := answers[i].err(); err != nil {
			h.failures[s.key] = errors.Join(h.failures[s.key], err)
		}
	}
	nats, mappings := answers[len(steps)], answers[len(steps)+1]
	if err := errors.Join(nats.err(), mappings.err()); err != nil {
		return fmt.Errorf("reading the NAT of Windows: %w", err)
	}
	var natsErr, mappingsErr error
	h.nats, natsErr = parseNATs(nats.Out)
	h.mappings, mappingsErr = parseMappings(mappings.Out)
	if err := errors.Join(natsErr, mappingsErr); err != nil {
		return fmt.Errorf("reading what PowerShell wrote of the NAT: %w", err)
	}
	n.host = h
	return nil
}

func commands(steps []step) (out []string) {
	for _, s := range steps {
		out = append(out, s.command)
	}
	return out
}

// answer is what one step wrote.
type answer struct {
	Out       json.RawMessage
	ID, Error string
}

// parse returns the answers by number.
func parse(output string, count int) map[int]answer {
	out := map[int]answer{}
	for line := range strings.Lines(output) {
		rest, ok := strings.CutPrefix(strings.Trim(line, "\ufeff\r\n "), "npl:")
		number, text, _ := strings.Cut(rest, ":")
		i, err := strconv.Atoi(number)
		var a answer
		if ok && err == nil && 0 <= i && i < count && json.Unmarshal([]byte(text), &a) == nil {
			out[i] = a
		}
	}
	return out
}

func excerpt(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

func (a answer) err() error {
	if a.ID == "" && a.Error == "" {
		return nil
	}
	return &cmdletError{id: a.ID, message: a.Error}
}

// cmdletError is an error record of PowerShell. Its message is in the language of Windows; its ID is not.
type cmdletError struct{ id, message string }

func (e *cmdletError) Error() string { return fmt.Sprintf("%s [%s]", e.message, e.id) }

// Is knows what the IDs mean. System error 32 is what WinNAT says of a port that something else uses, 52 and 183 of a mapping that exists.
func (e *cmdletError) Is(target error) bool {
	code, _, _ := strings.Cut(e.id, ",")
	switch code {
	case "Windows System Error 32", "Windows System Error 52", "Windows System Error 183":
		return target == dataplane.ErrPortBusy
	case "Windows System Error 5", "HRESULT 0x80070005":
		return target == dataplane.ErrPermission
	case "CommandNotFoundException", "CouldNotAutoLoadModule", "HRESULT 0x80041010": // no such cmdlet; no such WMI class
		return target == dataplane.ErrUnsupported
	default:
		return false
	}
}
