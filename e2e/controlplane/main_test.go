package main

import (
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, test := range []struct {
		name     string
		argv     []string
		want     string
		wantArgs string
		wantErr  string
	}{
		{"by argument", []string{"/x/controlplane", "kubectl", "get", "pods"}, "kubectl", "kubectl get pods", ""},
		{"by link", []string{"/x/kubectl", "get", "etcd"}, "kubectl", "kubectl get etcd", ""},
		{"name is not an option", []string{"controlplane", "--etcd", "etcd"}, "", "", `unknown program "--etcd"`},
		{"nothing asked", []string{"controlplane"}, "", "", "usage: controlplane <program>"},
		{"nothing at all", nil, "", "", "usage: controlplane <program>"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var ran string
			all := map[string]applet{}
			for name := range applets() {
				all[name] = func([]string) int { ran = name; return 0 }
			}
			run, args, err := choose(all, test.argv)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("choose(%q) = %v, want an error containing %q", test.argv, err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			run(args)
			if ran != test.want || strings.Join(args, " ") != test.wantArgs {
				t.Errorf("choose(%q) runs %q with %q, want %q with %q", test.argv, ran, args, test.want, test.wantArgs)
			}
		})
	}
}
