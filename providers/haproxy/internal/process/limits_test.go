package process

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestParseLimit(t *testing.T) {
	for text, want := range map[string]int{
		"Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 524288               files     \n": 524288,
		"Max open files            1024                 unlimited            files     \n":                                                                                 math.MaxInt,
		"Max open files            1024\n":  0,
		"Max processes             1 2 x\n": 0,
	} {
		if got, ok := parseLimit(text); got != want || ok != (want > 0) {
			t.Errorf("%q is read as %d, %v", text, got, ok)
		}
	}
}

// TestOpenFilesOfAnother: a process id that is another program's, as in another container, tells nothing.
func TestOpenFilesOfAnother(t *testing.T) {
	if limit, ok := OpenFiles(os.Getpid()); ok {
		t.Errorf("a test is taken for haproxy, with a limit of %d", limit)
	}
}

func TestGlobals(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	admin := write("haproxy.conf", "")
	write("50-npl.cfg", "global\n    maxconn 1\n")
	files := Files{Admin: []string{admin}, Dir: dir}
	for text, want := range map[string]Globals{
		"global\n    maxconn 1000 # not 2000\n    fd-hard-limit 5000\n":                {MaxConn: 1000, HardLimit: 5000},
		"global\n    maxconn 1000\ndefaults\n    maxconn 7\nglobal\n":                  {MaxConn: 1000},
		"global\n    maxconn 1\nfrontend global\n    maxconn 2\nglobal\n  maxconn 3\n": {MaxConn: 3},
		"listen maxconn\n    maxconn 9\n":                                              {},
		"global\n    no strict-limits\n":                                               {Unenforced: true},
		"global\n    no strict-limits\n    strict-limits\n":                            {},
		"global\n    maxconn \"$MANY\"\n":                                              {Uncertain: true},
		".if defined(X)\nglobal\n    maxconn 5\n.endif\n":                              {MaxConn: 5, Uncertain: true},
	} {
		write("haproxy.conf", text)
		if got := files.Globals(); got != want {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
	write("60-own.cfg", "global\n    maxconn 60\n")
	if got := files.Globals(); got.MaxConn != 60 {
		t.Errorf("a file beside ours is read as %+v", got)
	}
	files.Admin = append(files.Admin, filepath.Join(dir, "missing"))
	if got := files.Globals(); !got.Uncertain {
		t.Error("a missing file is certain")
	}
}
