package bigipsim_test

import (
	"fmt"
	"testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

// filled is a device with so many pools of five members and virtual servers in front.
func filled(b *testing.B, n int) *bigipsim.Sim {
	b.Helper()
	s, err := bigipsim.New(bigipsim.Config{Username: username, Password: password, Partitions: []bigipsim.Partition{{Name: "P"}}})
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		members := ""
		for m := range 5 {
			members += fmt.Sprintf(`,{"name":"10.0.%d.%d:%d","session":"user-enabled"}`, i%4, 1+m, 61000+i)
		}
		s.Admin("POST", pools, fmt.Sprintf(`{"name":"p%d","partition":"P","monitor":"/Common/tcp","members":[%s]}`, i, members[1:]))
		if status, body := s.Admin("POST", virtuals, fmt.Sprintf(`{"name":"v%d","partition":"P","destination":"192.0.%d.%d:80","ipProtocol":"tcp","pool":"/P/p%d"}`, i, i/250, 1+i%250, i)); status != 200 {
			b.Fatalf("%d %s", status, body)
		}
	}
	return s
}

// What the simulator itself takes, so that figures about a provider can be told from it.
func BenchmarkSim(b *testing.B) {
	s := filled(b, 1000)
	for _, call := range [][4]string{
		{"read all", "GET", pools + "?expandSubcollections=true", ""},
		{"read one", "GET", pools + "/~P~p7", ""},
		{"change a member", "PATCH", pools + "/~P~p7/members/~P~10.0.3.1:61007", `{"session":"user-disabled"}`},
		{"replace members", "PATCH", pools + "/~P~p7", `{"members":[{"name":"10.0.0.1:61007"}]}`},
		{"change a virtual", "PATCH", virtuals + "/~P~v7", `{"description":"x"}`},
	} {
		b.Run(call[0], func(b *testing.B) {
			for b.Loop() {
				if status, body := s.Admin(call[1], call[2], call[3]); status != 200 && status != 404 {
					b.Fatalf("%d %s", status, body)
				}
			}
		})
	}
}
