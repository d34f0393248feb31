package view

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMembers(t *testing.T) {
	const text = `1
# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port
3 npl_b_demo_echo_80 7 a 172.30.0.11 2 0 1 1 10 6 3 4 6 0 0 0 - 61000 - 0 0 - - 0
3 npl_b_demo_echo_80 8 b fd00:30::12 0 0 1 1 10 6 3 4 6 0 0 0 - 61001 - 0 0 - - 0
3 npl_b_demo_echo_80 9 c 172.30.0.13 2 1 1 1 10 6 3 4 6 0 0 0 - 61002 - 0 0 - - 0
4 other 1 d 172.30.0.11 2 0 1 1 10 6 3 4 6 0 0 0 - 61003 - 0 0 - - 0
`
	got, err := parseMembers(text, "npl_b_demo_echo_")
	if err != nil {
		t.Fatal(err)
	}
	want := map[netip.AddrPort]Server{
		netip.MustParseAddrPort("172.30.0.11:61000"):   {Name: "a", Up: true, Enabled: true},
		netip.MustParseAddrPort("[fd00:30::12]:61001"): {Name: "b", Enabled: true},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("parseMembers (-want +got):\n%s", diff)
	}
}
