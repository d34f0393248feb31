package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// step is one command.
type step struct {
	what  string // it is for, told before it runs; quiet without
	argv  []string
	stdin string
}

// runner runs steps.
type runner interface {
	// run returns what the command wrote to stdout. An error has what it wrote to stderr.
	run(ctx context.Context, s step) (string, error)
}

// programs runs steps on this machine, in the repository.
type programs struct {
	root string
	out  io.Writer
}

func (p programs) run(ctx context.Context, s step) (string, error) {
	if s.what != "" {
		fmt.Fprintf(p.out, "%s\n", s.what)
	}
	command := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...)
	command.Dir, command.Stdin = p.root, strings.NewReader(s.stdin)
	command.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", quoted(s.argv), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// quoted writes a command as a shell takes it.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		if word == "" || strings.ContainsAny(word, " \t\n'\"\\$`;&|<>(){}*?[]#~") {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

// show prints steps as one would type them.
func show(out io.Writer, steps ...step) error {
	for _, s := range steps {
		if s.what != "" {
			fmt.Fprintf(out, "# %s\n", s.what)
		}
		if _, err := fmt.Fprintln(out, quoted(s.argv)); err != nil {
			return err
		}
	}
	return nil
}
