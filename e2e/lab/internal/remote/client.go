package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/nplbridge/nplbridge/e2e/lab/internal/contain"
)

// Socket is the abstract address of a user's lab.
func Socket(uid int, name string) string { return prefix(uid) + name }

func prefix(uid int) string { return fmt.Sprintf("@nplbridge-lab/%d/", uid) }

// Names lists the running labs of a user in order; proc is /proc.
func Names(proc fs.FS, uid int) ([]string, error) {
	table, err := proc.Open("net/unix")
	if err != nil {
		return nil, fmt.Errorf("list running labs: %w", err)
	}
	defer table.Close()
	var names []string
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if name, ok := strings.CutPrefix(fields[len(fields)-1], prefix(uid)); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	// Each open connection shows the name again.
	return slices.Compact(names), lines.Err()
}

// Find returns the name of the lab that is meant: the given one, else the only one running.
func Find(name string) (string, error) {
	names, err := Names(os.DirFS("/proc"), os.Getuid())
	switch {
	case err != nil:
		return "", err
	case len(names) == 0:
		return "", errors.New("no lab of this user is running: start one with `lab up`")
	case name == "" && len(names) == 1:
		return names[0], nil
	case name == "":
		return "", fmt.Errorf("several labs are running: choose one with --name: %s", strings.Join(names, ", "))
	case !slices.Contains(names, name):
		return "", fmt.Errorf("no lab %q of this user is running; running: %s", name, strings.Join(names, ", "))
	}
	return name, nil
}

// Ask returns what a lab says about itself.
func Ask(name string) (Info, error) {
	conn, err := dial(name)
	if err != nil {
		return Info{}, err
	}
	defer conn.Close()
	if err := contain.Send(conn, request{}); err != nil {
		return Info{}, fmt.Errorf("ask lab %s: %w", name, err)
	}
	got, err := receive(conn, name)
	return got.Info, err
}

// Exec runs a command in a place of a lab with this process's standard streams and returns its exit status. Interrupts
// of this process go to the command.
func Exec(name, where string, argv []string) (int, error) {
	conn, err := dial(name)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	asked := request{Exec: true, Where: where, Argv: argv, Dir: dir, Term: os.Getenv("TERM")}
	if err := contain.Send(conn, asked, os.Stdin, os.Stdout, os.Stderr); err != nil {
		return 0, fmt.Errorf("ask lab %s: %w", name, err)
	}
	go func() {
		for received := range signals {
			_ = contain.Send(conn, signalRequest{Signal: int(received.(syscall.Signal))})
		}
	}()
	got, err := receive(conn, name)
	return got.Code, err
}

func dial(name string) (*net.UnixConn, error) {
	conn, err := net.Dial("unixpacket", Socket(os.Getuid(), name))
	if err != nil {
		return nil, fmt.Errorf("connect to lab %s: %w", name, err)
	}
	return conn.(*net.UnixConn), nil
}

func receive(conn *net.UnixConn, name string) (answer, error) {
	var got answer
	if _, err := contain.Receive(conn, &got); err != nil {
		return answer{}, fmt.Errorf("lab %s has ended: %w", name, err)
	}
	if got.Error != "" {
		return answer{}, fmt.Errorf("lab %s: %s", name, got.Error)
	}
	return got, nil
}
