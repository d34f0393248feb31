package bigipsim_test

import (
	"testing"

	"github.com/nplbridge/nplbridge/providers/bigip/bigipsim"
)

// A member makes its node in the partition of the member, and the node stays when the last member is gone.
func TestNodeIsMadeWithItsFirstMemberAndStays(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80"), member("10.0.0.1:81")))
	if got := s.get(nodes + "/~P~10.0.0.1").want(200).json(); got["address"] != "10.0.0.1" || got["ephemeral"] != "false" {
		t.Errorf("node %v", got)
	}
	s.patch(web, object{"members": []object{}}).want(200)
	s.get(nodes + "/~P~10.0.0.1").want(200)
	s.remove(nodes + "/~P~10.0.0.1").want(200)
	s.get(nodes+"/~P~10.0.0.1").refused(404, 3, "01020036:3: The requested Node (/P/10.0.0.1) was not found.")
}

func TestOneAddressIsOneNodeOverAllPartitions(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(nodes, object{"name": "worker1", "partition": "Common", "address": "10.0.0.1"})
	s.post(nodes, object{"name": "again", "partition": "P", "address": "10.0.0.1"}).refused(400, 3, "0107176c:3: Invalid Node, the IP address 10.0.0.1 already exists.")
	s.create(pools, pool())
	s.post(web+"/members", member("10.0.0.1:80")).
		refused(400, 3, "0107003a:3: Pool member node (/P/10.0.0.1) and existing node (/Common/worker1) cannot use the same IP Address (10.0.0.1).")
	s.patch(web, object{"members": []object{member("10.0.0.1:80")}}).
		refused(400, 3, "0107003a:3: Pool member node (/P/10.0.0.1) and existing node (/Common/worker1) cannot use the same IP Address (10.0.0.1).")
	// By the name of the node in Common it works.
	if got := s.post(web+"/members", object{"name": "worker1:80", "partition": "Common"}).want(200).json(); got["address"] != "10.0.0.1" || got["fullPath"] != "/Common/worker1:80" {
		t.Errorf("member %v", got)
	}
	// In another route domain it is another address.
	s.create(nodes, object{"name": "other", "partition": "P", "address": "10.0.0.1%2"})
}

func TestNodeInUseStays(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(pools, pool(member("10.0.0.1:80")))
	s.remove(nodes+"/~P~10.0.0.1").refused(400, 3, "01070110:3: Node address '/P/10.0.0.1' is referenced by a member of pool '/P/web'.")
}

func TestNodeOfAnotherPartitionCannotBeReferredTo(t *testing.T) {
	s := start(t, bigipsim.Config{}).login()
	s.create(nodes, object{"name": "10.0.0.1", "partition": "Q"})
	s.create(pools, pool())
	s.post(web+"/members", object{"name": "10.0.0.1:80", "partition": "Q"}).
		refused(400, 3, "01070726:3: Pool /P/web in partition P cannot reference Node /Q/10.0.0.1 in partition Q")
	s.post(web+"/members", member("10.0.0.1:80")).
		refused(400, 3, "0107003a:3: Pool member node (/P/10.0.0.1) and existing node (/Q/10.0.0.1) cannot use the same IP Address (10.0.0.1).")
}
