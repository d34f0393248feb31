package dataplane

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// transaction is a batch of changes to a table that the kernel applies whole or not at all. It is encoded here because the
// library cannot write the comment of a table, and a table without its mark must never exist.
type transaction struct {
	f     *family
	table string // of others; empty for ours
	// generation of the ruleset for which the changes were computed; the kernel refuses them for another. 0 is any.
	generation uint32
	parts      []part
	sets       uint32 // numbers sets within the transaction
	err        error
}

// part is one message and what it is for.
type part struct {
	f     *family
	table string
	doing string
	msg   netlink.Message
}

func (t *transaction) add(doing string, msg uint16, flags netlink.HeaderFlags, fields ...field) {
	data, err := encode(fields)
	if err != nil {
		t.err = errors.Join(t.err, fmt.Errorf("%s: %w", doing, err))
	}
	t.parts = append(t.parts, part{t.f, cmp.Or(t.table, TableName), doing, netlink.Message{
		Header: header(msg, netlink.Acknowledge|flags), Data: append(generic(t.f.nf, 0), data...),
	}})
}

// tableField names our table; the attribute has this number in messages about tables, chains, rules, sets and elements.
var tableField = field{unix.NFTA_TABLE_NAME, TableName}

// createTable fails when a table of our name exists.
func (t *transaction) createTable(mark string) {
	t.add("create the table", unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, tableField,
		field{unix.NFTA_TABLE_FLAGS, uint32(0)},
		field{nftaTableUserdata, userdata.AppendString(nil, userdata.TypeComment, mark)})
}

// clearFlags wakes a table that was made dormant.
func (t *transaction) clearFlags() {
	t.add("clear the table's flags", unix.NFT_MSG_NEWTABLE, 0, tableField, field{unix.NFTA_TABLE_FLAGS, uint32(0)})
}

func (t *transaction) deleteTable() { t.add("delete the table", unix.NFT_MSG_DELTABLE, 0, tableField) }

func (t *transaction) deleteAllRules() {
	t.add("delete all rules", unix.NFT_MSG_DELRULE, 0, tableField)
}

func (t *transaction) deleteChain(name string) {
	t.add("delete chain "+name, unix.NFT_MSG_DELCHAIN, 0, tableField, field{unix.NFTA_CHAIN_NAME, name})
}

func (t *transaction) addChain(c chain) {
	fields := []field{tableField, {unix.NFTA_CHAIN_NAME, c.name}}
	if c.hook != nil {
		fields = append(fields,
			field{unix.NFTA_CHAIN_HOOK, []field{{unix.NFTA_HOOK_HOOKNUM, uint32(*c.hook)}, {unix.NFTA_HOOK_PRIORITY, uint32(c.priority)}}},
			field{unix.NFTA_CHAIN_POLICY, uint32(nftables.ChainPolicyAccept)}, field{unix.NFTA_CHAIN_TYPE, string(nftables.ChainTypeNAT)})
	}
	t.add("add chain "+c.name, unix.NFT_MSG_NEWCHAIN, netlink.Create, fields...)
}

func (t *transaction) addRule(c chain, r rule) {
	fields := []field{tableField, {unix.NFTA_RULE_CHAIN, c.name}, {unix.NFTA_RULE_EXPRESSIONS, list(r.exprs)}}
	if data := r.userData(); data != nil {
		fields = append(fields, field{unix.NFTA_RULE_USERDATA, data})
	}
	t.add("add a rule to chain "+c.name, unix.NFT_MSG_NEWRULE, netlink.Create|netlink.Append, fields...)
}

// list is what a rule does, as a netlink attribute.
func list(exprs []expression) []field {
	out := make([]field, len(exprs))
	for i, e := range exprs {
		out[i] = field{unix.NFTA_LIST_ELEM, []field{{unix.NFTA_EXPR_NAME, e.name}, {unix.NFTA_EXPR_DATA, e.fields}}}
	}
	return out
}

// insertRule adds a rule to a chain of others, before the rule of that handle, or at the end if it is 0.
func (t *transaction) insertRule(chain string, exprs []expression, before uint64) {
	fields, flags := []field{{unix.NFTA_RULE_TABLE, t.table}, {unix.NFTA_RULE_CHAIN, chain}, {unix.NFTA_RULE_EXPRESSIONS, list(exprs)}}, netlink.Append
	if before != 0 {
		fields, flags = append(fields, field{unix.NFTA_RULE_POSITION, before}), 0
	}
	t.add("insert a rule into chain "+chain, unix.NFT_MSG_NEWRULE, netlink.Create|flags, fields...)
}

func (t *transaction) deleteRule(chain string, handle uint64) {
	t.add("delete a rule from chain "+chain, unix.NFT_MSG_DELRULE, 0, field{unix.NFTA_RULE_TABLE, t.table},
		field{unix.NFTA_RULE_CHAIN, chain}, field{unix.NFTA_RULE_HANDLE, handle})
}

func (t *transaction) deleteSet(name string) {
	t.add("delete set "+name, unix.NFT_MSG_DELSET, 0, tableField, field{unix.NFTA_SET_NAME, name})
}

func (t *transaction) addSet(s set) {
	const hostOrder, networkOrder = 1, 2 // BYTEORDER_* of the nft tool
	order, flags := uint32(networkOrder), uint32(0)
	if s.hostOrder {
		order = hostOrder
	}
	if s.timeout {
		flags |= unix.NFT_SET_TIMEOUT
	}
	t.sets++
	fields := []field{
		tableField, {unix.NFTA_SET_NAME, s.name}, {unix.NFTA_SET_ID, t.sets},
		{unix.NFTA_SET_KEY_TYPE, s.key.GetNFTMagic()}, {unix.NFTA_SET_KEY_LEN, s.key.Bytes},
		{unix.NFTA_SET_USERDATA, userdata.AppendUint32(nil, userdata.NFTNL_UDATA_SET_KEYBYTEORDER, order)},
	}
	if s.data.Bytes > 0 {
		flags |= unix.NFT_SET_MAP
		fields = append(fields, field{unix.NFTA_SET_DATA_TYPE, s.data.GetNFTMagic()}, field{unix.NFTA_SET_DATA_LEN, s.data.Bytes})
	}
	t.add("add set "+s.name, unix.NFT_MSG_NEWSET, netlink.Create, append(fields, field{unix.NFTA_SET_FLAGS, flags})...)
}

func (t *transaction) addElements(s set, elements []field) {
	t.add("add elements to set "+s.name, unix.NFT_MSG_NEWSETELEM, netlink.Create, elementsOf(s, elements)...)
}

func (t *transaction) deleteElements(s set, elements []field) {
	t.add("delete elements from set "+s.name, unix.NFT_MSG_DELSETELEM, 0, elementsOf(s, elements)...)
}

func elementsOf(s set, elements []field) []field {
	return []field{tableField, {unix.NFTA_SET_ELEM_LIST_SET, s.name}, {unix.NFTA_SET_ELEM_LIST_ELEMENTS, elements}}
}

// elementField is one entry of an element list; data may be empty, and without a timeout the element stays.
func elementField(key, data string, timeoutMillis uint64) field {
	value := func(s string) []field { return []field{{unix.NFTA_DATA_VALUE, []byte(s)}} }
	fields := []field{{unix.NFTA_SET_ELEM_KEY, value(key)}}
	if data != "" {
		fields = append(fields, field{unix.NFTA_SET_ELEM_DATA, value(data)})
	}
	if timeoutMillis > 0 {
		fields = append(fields, field{unix.NFTA_SET_ELEM_TIMEOUT, timeoutMillis})
	}
	return field{unix.NFTA_LIST_ELEM, fields}
}

// commit sends the transaction. The first message that the kernel refuses is named in the error; after an error the
// socket may hold more answers and must be dialled anew.
func (k *kernel) commit(t *transaction) error {
	if t.err != nil {
		return t.err
	}
	if k.raw == nil {
		if err := k.dial(); err != nil {
			return err
		}
	}
	edge := func(typ netlink.HeaderType, fields ...field) netlink.Message {
		data, err := encode(fields)
		t.err = errors.Join(t.err, err)
		return netlink.Message{
			Header: netlink.Header{Type: typ, Flags: netlink.Request},
			Data:   append(generic(nftables.TableFamilyUnspecified, unix.NFNL_SUBSYS_NFTABLES), data...),
		}
	}
	begin := edge(unix.NFNL_MSG_BATCH_BEGIN)
	if t.generation != 0 {
		begin = edge(unix.NFNL_MSG_BATCH_BEGIN, field{nfnlBatchGenID, t.generation})
	}
	msgs := []netlink.Message{begin}
	for _, p := range t.parts {
		msgs = append(msgs, p.msg)
	}
	if _, err := k.raw.SendMessages(append(msgs, edge(unix.NFNL_MSG_BATCH_END))); err != nil {
		return t.parts[0].explain("send a transaction", err)
	}
	for answered := 0; answered < len(t.parts); {
		acks, err := k.raw.Receive()
		if err != nil {
			return t.parts[answered].explain(t.parts[answered].doing, err)
		}
		answered += len(acks)
	}
	return nil
}

// nfnlBatchGenID is NFNL_BATCH_GENID of linux/netfilter/nfnetlink.h.
const nfnlBatchGenID = 1
