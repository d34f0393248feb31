package dataplane

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// explain wraps err with what was attempted and, where the kernel's number alone would puzzle, with what is missing.
func explain(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: CAP_NET_ADMIN is missing: run as UID 0 with capability NET_ADMIN: %w (%w)", doing, ErrPermission, err)
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return noTables(doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// noTables is what a kernel without nf_tables deserves: it answers EINVAL to the plainest request.
func noTables(doing string, err error) error {
	return fmt.Errorf("%s: nf_tables is not available in this kernel: load module nf_tables, or enable CONFIG_NF_TABLES: %w (%w)",
		doing, ErrUnsupported, err)
}

// explain is explain for a part of a transaction, where a missing module shows as "no such file".
func (p part) explain(doing string, err error) error {
	adding := strings.HasPrefix(doing, "add chain ") || strings.HasPrefix(doing, "add a rule ")
	doing = fmt.Sprintf("table %s %s: %s", p.f.name, p.table, doing)
	switch {
	case errors.Is(err, unix.EAFNOSUPPORT):
		config := map[*family]string{ipv4: "CONFIG_NF_TABLES_IPV4", ipv6: "CONFIG_NF_TABLES_IPV6"}[p.f]
		return fmt.Errorf("%s: the kernel has no nf_tables for %s: enable %s: %w (%w)", doing, p.f.ip, config, ErrUnsupported, err)
	case errors.Is(err, unix.EOPNOTSUPP), adding && errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%s: the kernel lacks NAT for nf_tables: load modules nft_chain_nat, nft_nat, nft_masq and nft_ct, "+
			"or enable CONFIG_NFT_NAT, CONFIG_NFT_MASQ and CONFIG_NFT_CT: %w (%w)", doing, ErrUnsupported, err)
	}
	return explain(doing, err)
}
