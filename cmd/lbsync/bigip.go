package main

import (
	"strconv"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/bigip"
)

func bigipSettings() []settings.Setting {
	d := bigip.DefaultConfig()
	return []settings.Setting{
		{
			Key: "bigip.urls", Kind: settings.List, Example: `["https://bigip-a.example.com", "https://bigip-b.example.com"]`,
			Doc: "the devices' management addresses, https://host or https://host:port; required with provider bigip",
		},
		{
			Key: "bigip.mode", Default: string(d.Mode), Example: "independent",
			Doc: "what several devices are to each other: pair stands in for each other, the active one is written; independent knows nothing of each other, each is written",
		},
		{
			Key: "bigip.username", Example: "lbsync",
			Doc: "account on the devices; docs/reference/bigip.md has a role that is enough for it",
		},
		{
			Key: "bigip.passwordFile", Example: "/etc/nplbridge/bigip/password",
			Doc: "file with the account's password, read again when it changes",
		},
		{
			Key: "bigip.basicAuth", Kind: settings.Bool, Default: d.BasicAuth, Example: "true",
			Doc: "send the password with every request instead of a token; slow where accounts are not on the device",
		},
		{
			Key: "bigip.caFile", Example: "/etc/nplbridge/bigip/ca.crt",
			Doc: "PEM file with the certificates that the devices' are checked against, read again when it changes; empty means the system's",
		},
		{
			Key: "bigip.serverName", Example: "bigip.example.com",
			Doc: "name that the devices' certificates must have; empty means the host of the address",
		},
		{
			Key: "bigip.insecure", Kind: settings.Bool, Default: d.Insecure, Example: "true",
			Doc: "take any certificate; anybody on the way can then read the password, so only for a try",
		},
		{
			Key: "bigip.partition", Default: d.Partition, Example: "k8s",
			Doc: "partition that objects are made in, best one that nobody else writes; those that exist stay where they are",
		},
		{
			Key: "bigip.allowCommon", Kind: settings.Bool, Default: d.AllowCommon, Example: "true",
			Doc: "take Common for that partition",
		},
		{
			Key: "bigip.createPartition", Kind: settings.Bool, Default: d.CreatePartition, Example: "true",
			Doc: "make the partition when it is not there",
		},
		{
			Key: "bigip.routeDomain", Example: "2", Want: wantNumberOrNothing,
			Doc: "route domain of nodes and virtual servers, 0 to 65534; empty means the partition's default",
		},
		{
			Key: "bigip.prefix", Default: d.Prefix, Example: "prod",
			Doc: "what the name of every object begins with: a letter, then up to 39 letters, digits, dashes, underscores and dots; for people only, since ownership is in metadata. Never change it, objects keep their names",
		},
		{
			Key: "bigip.shareNodes", Kind: settings.Bool, Default: d.ShareNodes, Example: "true",
			Doc: "make nodes in Common, where other partitions can use them; an address can be in one node only",
		},
		{
			Key: "bigip.cleanNodes", Kind: settings.Bool, Default: d.CleanNodes, Example: "false",
			Doc: "delete a node that lbsync made with the last member that is on it",
		},
		{
			Key: "bigip.snat", Default: d.SNAT, Example: "none",
			Doc: "source address that members see: automap is one of the BIG-IP, none is the client's, for which the nodes' way back has to lead through the BIG-IP; or the path of a SNAT pool",
		},
		{
			Key: "bigip.tcpProfile", Default: d.TCPProfile, Example: "/Common/fastL4",
			Doc: "profile of virtual servers for TCP ports",
		},
		{
			Key: "bigip.udpProfile", Default: d.UDPProfile, Example: "/Common/fastL4",
			Doc: "profile of virtual servers for UDP ports",
		},
		{
			Key: "bigip.sctpProfile", Default: d.SCTPProfile, Example: "/Common/fastL4",
			Doc: "profile of virtual servers for SCTP ports",
		},
		{
			Key: "bigip.foreignMembers", Default: string(d.ForeignMembers), Example: "keep",
			Doc: "what happens to members that somebody else added to a pool of ours: remove or keep",
		},
		{
			Key: "bigip.overrideDisabled", Kind: settings.Bool, Default: d.OverrideDisabled, Example: "true",
			Doc: "enable members that an operator disabled; what is forced offline stays so in any case",
		},
		{
			Key: "bigip.saveDelay", Kind: settings.Duration, Default: d.SaveDelay, Example: "5m",
			Doc: "how long after a change the configuration is saved to disk, all changes until then at once, 1s to 24h; 0s never does, and a reboot then brings old members back",
		},
		{
			Key: "bigip.syncDelay", Kind: settings.Duration, Default: d.SyncDelay, Example: "1m",
			Doc: "how long after a change the configuration is brought to the other devices of the group, 1s to 1h; 0s never does, and neither does lbsync where the group synchronises by itself",
		},
		{
			Key: "bigip.requestTimeout", Kind: settings.Duration, Default: d.RequestTimeout, Example: "2m",
			Doc: "how long one request to a device may take, 1s to 10m",
		},
		{
			Key: "bigip.maxInFlight", Default: strconv.Itoa(d.MaxInFlight), Example: "1", Want: wantNumber,
			Doc: "how many requests to one device may run at once, 1 to 16; a BIG-IP writes one after the other",
		},
	}
}

// wantNumberOrNothing is wantNumber for a setting that may be empty.
func wantNumberOrNothing(value any) string {
	if value == "" {
		return ""
	}
	return wantNumber(value)
}

func newBigIP(v *settings.Values) (builder, error) {
	number := func(key string) int {
		n, _ := strconv.Atoi(v.String(key)) // wantNumber has looked at it
		return n
	}
	cfg := bigip.Config{
		URLs: v.List("bigip.urls"), Mode: bigip.Mode(v.String("bigip.mode")), Username: v.String("bigip.username"), PasswordFile: v.String("bigip.passwordFile"),
		BasicAuth: v.Bool("bigip.basicAuth"), CAFile: v.String("bigip.caFile"), ServerName: v.String("bigip.serverName"), Insecure: v.Bool("bigip.insecure"),
		Partition: v.String("bigip.partition"), AllowCommon: v.Bool("bigip.allowCommon"), CreatePartition: v.Bool("bigip.createPartition"),
		RouteDomain: bigip.PartitionDomain, Prefix: v.String("bigip.prefix"), ShareNodes: v.Bool("bigip.shareNodes"), CleanNodes: v.Bool("bigip.cleanNodes"),
		SNAT: v.String("bigip.snat"), TCPProfile: v.String("bigip.tcpProfile"), UDPProfile: v.String("bigip.udpProfile"), SCTPProfile: v.String("bigip.sctpProfile"),
		ForeignMembers: bigip.Foreign(v.String("bigip.foreignMembers")), OverrideDisabled: v.Bool("bigip.overrideDisabled"),
		SaveDelay: v.Duration("bigip.saveDelay"), SyncDelay: v.Duration("bigip.syncDelay"), RequestTimeout: v.Duration("bigip.requestTimeout"),
		MaxInFlight: number("bigip.maxInFlight"),
	}
	if v.String("bigip.routeDomain") != "" {
		cfg.RouteDomain = number("bigip.routeDomain")
	}
	if err := cfg.Validate(); err != nil {
		return nil, v.Invalid(err)
	}
	return func(owner providers.Owner, log *zap.Logger, calls observer) (providers.Provider, error) {
		p, err := bigip.New(cfg, owner, log, bigip.WithObserver(calls))
		if err != nil {
			return nil, err // not a nil *Provider inside an interface
		}
		return p, nil
	}, nil
}
