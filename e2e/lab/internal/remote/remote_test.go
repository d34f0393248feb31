package remote

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestNames(t *testing.T) {
	const table = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0005 01 10001 @nplbridge-lab/1000/second
0000000000000000: 00000002 00000000 00010000 0005 01 10002 @nplbridge-lab/1000/lab
0000000000000000: 00000003 00000000 00000000 0005 03 10003 @nplbridge-lab/1000/lab
0000000000000000: 00000002 00000000 00010000 0005 01 10004 @nplbridge-lab/0/roots
0000000000000000: 00000002 00000000 00010000 0001 01 10005 /run/some/nplbridge-lab/1000/file
0000000000000000: 00000002 00000000 00010000 0001 01 10006
`
	got, err := Names(fstest.MapFS{"net/unix": {Data: []byte(table)}}, 1000)
	if err != nil || !slices.Equal(got, []string{"lab", "second"}) {
		t.Errorf("Names = %q, %v, want lab and second", got, err)
	}
}

// serve runs a server whose commands run here, wherever they are meant to.
func serve(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", os.Getpid())
	listener, err := net.Listen("unixpacket", Socket(os.Getuid(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	server := Server{
		Info: func() Info { return Info{Name: name, Nodes: 3} },
		Run: func(ctx context.Context, where string, argv []string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = []string{"WHERE=" + where}
			return cmd
		},
	}
	go server.Serve(listener.(*net.UnixListener))
	return name
}

func TestFindAndAsk(t *testing.T) {
	if _, err := Find("nobody"); err == nil || !strings.Contains(err.Error(), "running") {
		t.Errorf("Find of a lab that is not: %v", err)
	}
	name := serve(t)
	if got, err := Find(name); err != nil || got != name {
		t.Errorf("Find = %q, %v", got, err)
	}
	if info, err := Ask(name); err != nil || info.Name != name || info.Nodes != 3 {
		t.Errorf("Ask = %+v, %v", info, err)
	}
}

// Exec uses the streams of its process, so the test swaps them.
func TestExec(t *testing.T) {
	name := serve(t)
	for _, test := range []struct {
		script   string
		wantCode int
		wantOut  string
		wantErr  string
	}{
		{`read line; echo "$WHERE $line $PWD"`, 0, "node-1 typed " + workDir(t) + "\n", ""},
		{"exit 9", 9, "", ""},
		{"kill -TERM $$", 143, "", ""},
	} {
		code, out, err := swapped(t, "typed\n", func() (int, error) { return Exec(name, "node-1", []string{"sh", "-c", test.script}) })
		if code != test.wantCode || out != test.wantOut || err != nil {
			t.Errorf("Exec(%q) = %d, %q, %v, want %d, %q", test.script, code, out, err, test.wantCode, test.wantOut)
		}
	}
	if _, _, err := swapped(t, "", func() (int, error) { return Exec(name, "", []string{"/nowhere"}) }); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("Exec of nothing: %v", err)
	}
}

func swapped(t *testing.T, input string, call func() (int, error)) (int, string, error) {
	t.Helper()
	in, typed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	printed, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer printed.Close()
	if _, err := typed.WriteString(input); err != nil {
		t.Fatal(err)
	}
	typed.Close()
	stdin, stdout := os.Stdin, os.Stdout
	os.Stdin, os.Stdout = in, out
	code, callErr := call()
	os.Stdin, os.Stdout = stdin, stdout
	out.Close()
	content := make([]byte, 4096)
	n, _ := printed.Read(content) // the end is no answer
	return code, string(content[:n]), callErr
}

func workDir(t *testing.T) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
