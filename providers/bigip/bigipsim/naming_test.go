package bigipsim_test

import (
	"strings"
	"testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

func TestNamesOfMembers(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool())
	for _, c := range []struct{ sent, name, address, element string }{
		{"10.0.0.1:61000", "10.0.0.1:61000", "10.0.0.1", "10.0.0.1:61000"},
		{"2001:db8::1.61000", "2001:db8::1.61000", "2001:db8::1", "2001:db8::1.61000"},
		{"2001:DB8:0:0::2.61000", "2001:db8::2.61000", "2001:db8::2", "2001:db8::2.61000"},
		{"10.0.0.1%2:61000", "10.0.0.1%2:61000", "10.0.0.1%2", "10.0.0.1%252:61000"},
		{"2001:db8::1%10.61000", "2001:db8::1%10.61000", "2001:db8::1%10", "2001:db8::1%2510.61000"},
	} {
		got := s.post(web+"/members", member(c.sent)).want(200).json()
		if got["name"] != c.name || got["address"] != c.address || got["selfLink"] != "https://localhost/mgmt/tm/ltm/pool/~P~web/members/~P~"+c.element+"?ver=16.1.4" {
			t.Errorf("%s: %v", c.sent, got)
		}
		s.get(web + "/members/~P~" + c.element).want(200)
	}
	for _, bad := range []string{"10.0.0.1", "2001:db8::1:61000", "10.0.0.1:99999", "10.0.0.1:http-alt", ":80", "10.0.0.1%9:80", "10.0.0.1%x:80"} {
		if got := s.post(web+"/members", member(bad)); got.status < 400 || got.status > 404 {
			t.Errorf("%s: %d %s", bad, got.status, got.body)
		}
	}
	// The long form leads to the same member as the short one.
	s.get(web + "/members/~P~2001:0DB8::0002.61000").want(200)
	// A percent sign that is escaped twice is another name.
	s.get(web + "/members/~P~10.0.0.1%25252:61000").want(404)
}

func TestDefaultRouteDomainIsLeftOut(t *testing.T) {
	for name, shown := range map[string]bool{"left out": false, "shown": true} {
		t.Run(name, func(t *testing.T) {
			s := start(t, bigipsim.Config{Rules: bigipsim.Rules{ShowDefaultRouteDomain: shown}}).login()
			s.create(pools, object{"name": "web", "partition": "R"})
			at := pools + "/~R~web/members"
			want := "10.0.0.1"
			if shown {
				want = "10.0.0.1%2"
			}
			got := s.post(at, object{"name": "10.0.0.1%2:80", "partition": "R"}).want(200).json()
			if got["address"] != want || got["name"] != want+":80" {
				t.Errorf("%v", got)
			}
			s.post(at, object{"name": "10.0.0.1:80", "partition": "R"}).want(409) // the same member
			s.get(at + "/~R~10.0.0.1%252:80").want(200)
			s.get(at + "/~R~10.0.0.1:80").want(200)
			if got := s.post(at, object{"name": "10.0.0.1%0:80", "partition": "R"}).want(200).json(); (got["address"] == "10.0.0.1%0") == shown {
				t.Errorf("%v", got)
			}
			// In Common the same address is written with its route domain, and is the same node.
			s.post(nodes, object{"name": "again", "partition": "Common", "address": "10.0.0.1%2"}).want(400)
		})
	}
}

func TestUnknownRouteDomain(t *testing.T) {
	start(t, bigipsim.Config{}).login().post(nodes, object{"name": "n", "partition": "P", "address": "10.0.0.1%77"}).want(400)
}

func TestEmptyCollectionHasNoItems(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	got := s.get(pools).want(200).json()
	if _, there := got["items"]; there || got["kind"] != "tm:ltm:pool:poolcollectionstate" {
		t.Errorf("%v", got)
	}
	if items, there := start(t, bigipsim.Config{Rules: bigipsim.Rules{EmptyItems: true}}).login().get(pools).json()["items"].([]any); !there || len(items) != 0 {
		t.Errorf("items %v", items)
	}
}

func TestSubcollectionsAreExpandedWhereThatIsAsked(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80"), member("10.0.0.2:80")))
	s.create(pools, object{"name": "empty", "partition": "P"})
	got := s.get(pools + "?expandSubcollections=true").want(200).json()
	if at(got, "items", 0, "membersReference", "items") != nil || at(got, "items", 1, "membersReference", "items", 1, "name") != "10.0.0.2:80" {
		t.Errorf("%v", got)
	}
	if self := got["selfLink"]; self != "https://localhost/mgmt/tm/ltm/pool?expandSubcollections=true&ver=16.1.4" {
		t.Errorf("selfLink %v", self)
	}
	if at(s.get(web).json(), "membersReference", "items") != nil {
		t.Error("expanded without being asked")
	}
}

func TestFilterIsByPartitionOnly(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	for _, p := range []string{"P", "Q", "Common"} {
		s.create(pools, object{"name": "in-" + p, "partition": p})
	}
	for query, want := range map[string]string{
		"":                              "in-Common in-P in-Q",
		"?$filter=partition+eq+P":       "in-P",
		"?%24filter=partition%20eq%20P": "in-P",
		"?$filter=name+eq+in-P":         "in-Common in-P in-Q", // as if it were not there
		"?$filter=partition+eq+Z":       "",
	} {
		if got := s.get(pools + query).want(200).names(); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
}

func TestSelectAndPages(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	for _, name := range []string{"a", "b", "c"} {
		s.create(pools, object{"name": name, "partition": "P"})
	}
	got := s.get(pools + "?$select=name,partition").json()
	if first := at(got, "items", 0).(object); len(first) != 2 || first["name"] != "a" {
		t.Errorf("%v", first)
	}
	got = s.get(pools + "?$top=2&$select=name").json()
	next, _ := got["nextLink"].(string)
	if len(got["items"].([]any)) != 2 || got["totalItems"] != 3.0 || got["totalPages"] != 2.0 || got["pageIndex"] != 1.0 || !strings.HasPrefix(next, "https://localhost/mgmt/tm/ltm/pool?") {
		t.Errorf("%v", got)
	}
	page := s.get(strings.TrimPrefix(next, "https://localhost"))
	if page.names() != "c" || page.json()["nextLink"] != nil {
		t.Errorf("%s: %s", next, page.body)
	}
	if got := s.get(pools + "?$top=2&$skip=5").json(); got["items"] != nil {
		t.Errorf("%v", got)
	}
	// Pages are not forced.
	if s.get(pools).names() != "a b c" {
		t.Error("not all without $top")
	}
}

func TestGenerationGrowsWithChanges(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	before := s.create(pools, pool())["generation"].(float64)
	after := s.patch(web, object{"description": "x"}).json()["generation"].(float64)
	if after <= before || s.get(web).json()["generation"] != after {
		t.Errorf("generation %v, then %v", before, after)
	}
}

func TestObjectsInFolders(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create("/mgmt/tm/sys/folder", object{"name": "app", "partition": "P"})
	got := s.create(pools, object{"name": "/P/app/web"})
	if got["fullPath"] != "/P/app/web" || got["subPath"] != "app" || got["partition"] != "P" || got["name"] != "web" {
		t.Errorf("%v", got)
	}
	s.get(pools + "/~P~app~web").want(200)
	s.get(web).want(404)
	s.remove("/mgmt/tm/sys/folder/~P~app").want(400)
	s.post(pools, object{"name": "x", "partition": "P", "subPath": "none"}).refused(400, 26214401, "The requested folder (/P/none) was not found.")
	if got := s.get(pools + "?$filter=partition+eq+P").names(); got != "web" {
		t.Errorf("pools %q", got)
	}
}

func TestOrderMayBeAnother(t *testing.T) {
	s := start(t, bigipsim.Config{Rules: bigipsim.Rules{Shuffle: true}}).login()
	members := []object{}
	for _, ip := range []string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80", "10.0.0.5:80"} {
		members = append(members, member(ip))
	}
	s.create(pools, pool(members...))
	seen := map[string]bool{}
	for range 100 {
		seen[s.get(web+"/members").names()] = true
	}
	if len(seen) < 2 {
		t.Error("always one order")
	}
}
