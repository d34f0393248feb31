package runtime

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Answers of HAProxy 2.6.12.
const (
	infoText = "Name: HAProxy\nVersion: 2.6.12-1+deb12u4\nRelease_date: 2026/10/17\nPid: 25776\nUptime: 0d 0h00m01s\nStopping: 0\nStart_time_sec: 1795272997\nBuild info: 2.6.12"

	serversText = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight " +
		"srv_time_since_last_change srv_check_status srv_check_result srv_check_health srv_check_state srv_agent_state " +
		"bk_f_forced_id srv_f_forced_id srv_fqdn srv_port srvrecord srv_use_ssl srv_check_port srv_check_addr srv_agent_addr srv_agent_port\n" +
		"4 npl_b_a_b_80 1002 ::1:9002_uid-2 ::1 0 5 1 1 2 1 0 0 14 0 0 1 - 9002 - 0 0 - - 0\n" +
		"4 npl_b_a_b_80 1003 127.0.0.1:9003_uid-3 127.0.0.1 2 0 1 1 0 1 0 2 6 0 0 1 - 9003 - 0 0 - - 0\n" +
		"5 uds 1 sock - 2 0 1 1 0 1 0 2 0 0 0 0 - 0 - 0 0 - - 0\n"

	statText = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,\n" +
		"npl_b_a_b_80,::1:9002_uid-2,0,0,1,1,,1,\nnpl_b_a_b_80,127.0.0.1:9003_uid-3,2,0,3,0,,0,\n"

	procText = "#<PID>          <type>          <reloads>       <uptime>        <version>      \n" +
		"25759           master          4 [failed: 1]   0d00h00m31s     2.6.12-1+deb12u4\n# workers\n" +
		"27198           worker          0               0d00h00m01s     2.6.12-1+deb12u4\n# old workers\n" +
		"25776           worker          1               0d00h00m31s     2.6.12-1+deb12u4\n# programs\n\n"

	sessText = "0x55e762c52f90: proto=tcpv4 src=127.0.0.1:53222 fe=npl_f_a_b_80 be=npl_b_a_b_80 srv=::1:9002_uid-2 ts=00 epoch=0 age=1m\n" +
		"0x7f41cc03f320: proto=sockpair src=unix:2 fe=GLOBAL be=<NONE> srv=<none> ts=00 epoch=0 age=0s\n"
)

func TestParseInfo(t *testing.T) {
	got, err := ParseInfo(infoText)
	if want := (Info{Version: Version{2, 6}, Worker: Worker{25776, 1795272997}}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseInfo(strings.Replace(infoText, "Stopping: 0", "Stopping: 1", 1)); err != nil || !got.Stopping {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "Pid: 1\n", strings.Replace(infoText, "25776", "x", 1), strings.Replace(infoText, "25776", "-1", 1), strings.Replace(infoText, "2.6.12-1+deb12u4", "2", 1), strings.Replace(infoText, "1795272997", "soon", 1)} {
		if got, err := ParseInfo(bad); err == nil {
			t.Errorf("%.40q became %+v", bad, got)
		}
	}
}

func TestVersionFloor(t *testing.T) {
	for text, ok := range map[string]bool{"2.6.12-1": true, "2.5.9": false, "1.9": false, "3.0-dev1": true, "2.10": true} {
		v, err := parseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.supported(); (err == nil) != ok || err != nil && !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestParseServers(t *testing.T) {
	got, err := ParseServers(serversText)
	want := []Server{
		{Backend: "npl_b_a_b_80", Name: "::1:9002_uid-2", ID: 1002, Address: netip.MustParseAddrPort("[::1]:9002"), Admin: 5, Weight: 1, Check: 14},
		{Backend: "npl_b_a_b_80", Name: "127.0.0.1:9003_uid-3", ID: 1003, Address: netip.MustParseAddrPort("127.0.0.1:9003"), Weight: 1, Check: 6, Operation: 2},
		{Backend: "uds", Name: "sock", ID: 1, Weight: 1, Operation: 2},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{
		"", "2\n# x", strings.Replace(serversText, "srv_name", "name", 1), serversText + "4 short 1\n",
		strings.Replace(serversText, " 1002 ", " x ", 1), serversText[:len(serversText)-25],
	} {
		if got, err := ParseServers(bad); err == nil {
			t.Errorf("%.60q became %+v", bad, got)
		}
	}
}

func TestParseSessions(t *testing.T) {
	got, err := ParseSessions(statText)
	if want := map[string]int{"::1:9002_uid-2": 1, "127.0.0.1:9003_uid-3": 5}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "# pxname,svname\n", statText + "a,b\n", strings.Replace(statText, ",0,0,1,1", ",0,0,-1,1", 1)} {
		if got, err := ParseSessions(bad); err == nil {
			t.Errorf("%.60q became %v", bad, got)
		}
	}
}

func TestParseProcesses(t *testing.T) {
	got, err := ParseProcesses(procText)
	if want := (Processes{Reloads: 4, Failed: 1, Old: []int{25776}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ParseProcesses("# workers\n"); err == nil {
		t.Errorf("%+v without a master", got)
	}
	if got, err := ParseProcesses(strings.Replace(procText, "25776 ", "x ", 1)); err == nil {
		t.Errorf("%+v of a bad process id", got)
	}
}

func TestParseSessionList(t *testing.T) {
	all := ParseSessionList(sessText, func(string, string) bool { return true })
	one := ParseSessionList(sessText, func(b, s string) bool { return b == "npl_b_a_b_80" && s == "::1:9002_uid-2" })
	if len(all) != 2 || !slices.Equal(one, []string{"0x55e762c52f90"}) {
		t.Errorf("all %q, of one server %q", all, one)
	}
}

func FuzzParseInfo(f *testing.F) {
	f.Add(infoText)
	f.Fuzz(func(t *testing.T, text string) {
		if info, err := ParseInfo(text); err == nil && info.Worker.PID <= 0 {
			t.Errorf("accepted %+v", info)
		}
	})
}

func FuzzParseServers(f *testing.F) {
	f.Add(serversText)
	f.Fuzz(func(t *testing.T, text string) {
		servers, err := ParseServers(text)
		for _, s := range servers {
			if err != nil || s.Name == "" || s.Backend == "" || s.Address.IsValid() && s.Address.Port() == 0 {
				t.Errorf("accepted %+v with %v", s, err)
			}
		}
	})
}

func FuzzParseSessions(f *testing.F) {
	f.Add(statText)
	f.Fuzz(func(t *testing.T, text string) {
		sessions, err := ParseSessions(text)
		if err != nil && sessions != nil {
			t.Errorf("a partial answer %v with %v", sessions, err)
		}
	})
}

func FuzzParseProcesses(f *testing.F) {
	f.Add(procText)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParseProcesses(text); err == nil && slices.Min(append(p.Old, 1)) <= 0 {
			t.Errorf("accepted %+v", p)
		}
	})
}
