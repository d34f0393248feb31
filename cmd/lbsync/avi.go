package main

import (
	"fmt"
	"net/netip"
	"strconv"

	"go.uber.org/zap"

	"github.com/nplbridge/nplbridge/cmd/internal/settings"
	"github.com/nplbridge/nplbridge/providers"
	"github.com/nplbridge/nplbridge/providers/avi"
)

func aviSettings() []settings.Setting {
	d := avi.DefaultConfig()
	return []settings.Setting{
		{
			Key: "avi.url", Example: "https://avi.example.com",
			Doc: "the Controller or its cluster address, https://host or https://host:port; required with provider avi",
		},
		{
			Key: "avi.username", Example: "lbsync",
			Doc: "account on the Controller; docs/how-to/avi.md has a role that is enough for it",
		},
		{
			Key: "avi.passwordFile", Example: "/etc/nplbridge/avi/password",
			Doc: "file with the account's password, read again when it changes; this or avi.tokenFile",
		},
		{
			Key: "avi.tokenFile", Example: "/etc/nplbridge/avi/token",
			Doc: "file with a user token of the account instead of a password, read again when it changes",
		},
		{
			Key: "avi.caFile", Example: "/etc/nplbridge/avi/ca.crt",
			Doc: "PEM file with the certificates that the Controller's is checked against, read again when it changes; empty means the system's",
		},
		{
			Key: "avi.serverName", Example: "controller.avi.example.com",
			Doc: "name that the Controller's certificate must have; empty means the host of avi.url",
		},
		{
			Key: "avi.insecure", Kind: settings.Bool, Default: d.Insecure, Example: "true",
			Doc: "take any certificate; anybody on the way can then read the password, so only for a try",
		},
		{
			Key: "avi.apiVersion", Default: d.APIVersion, Example: "30.2.1",
			Doc: "version of the Controller's API to speak, 22.1.3 or later and before 31.2.1; Controllers speak older versions than their own, too",
		},
		{
			Key: "avi.tenant", Default: d.Tenant, Example: "shop",
			Doc: "tenant that objects are made in; those that exist stay where they are",
		},
		{
			Key: "avi.cloud", Default: d.Cloud, Example: "vcenter-1",
			Doc: "cloud that objects are made in; those that exist stay where they are",
		},
		{
			Key: "avi.seGroup", Default: d.SEGroup, Example: "cluster-1",
			Doc: "service engine group of new virtual services",
		},
		{
			Key: "avi.vrf", Example: "global",
			Doc: "VRF context of new objects; empty means the cloud's default",
		},
		{
			Key: "avi.network", Example: "vips",
			Doc: "network from which the Controller takes addresses for Services; empty leaves the choice to the cloud's IPAM profile",
		},
		{
			Key: "avi.subnets", Kind: settings.List, Example: "[192.0.2.0/24, 2001:db8::/64]",
			Doc: "subnets of that network to take addresses from, at most one per family; empty means any",
		},
		{
			Key: "avi.prefix", Default: d.Prefix, Example: "prod",
			Doc: "what the name of every object begins with, 1 to 40 letters, digits, dashes, underscores and dots; for people only, since ownership is in markers. Never change it, objects keep their names",
		},
		{
			Key: "avi.tcpProfile", Default: d.TCPProfile, Example: "System-TCP-Fast-Path",
			Doc: "network profile of TCP ports; System-TCP-Proxy needs an Enterprise licence",
		},
		{
			Key: "avi.udpProfile", Default: d.UDPProfile, Example: "System-UDP-Per-Pkt",
			Doc: "network profile of UDP ports",
		},
		{
			Key: "avi.applicationProfile", Default: d.ApplicationProfile, Example: "System-L4-Application",
			Doc: "application profile of virtual services, one of type L4",
		},
		{
			Key: "avi.drainTimeout", Kind: settings.Duration, Default: d.DrainTimeout, Example: "30m",
			Doc: "after how long the Controller itself closes the connections of a draining member, whole minutes up to 120h, 0s never; keep it above drainLimit",
		},
		{
			Key: "avi.takeOver", Example: "ako-prod",
			Doc: "created_by of another controller whose members, in pools that Services name by nplbridge.io/pool, become ours; only after it was stopped for good",
		},
		{
			Key: "avi.requestTimeout", Kind: settings.Duration, Default: d.RequestTimeout, Example: "1m",
			Doc: "how long one request to the Controller may take, 1s to 10m",
		},
		{
			Key: "avi.maxInFlight", Default: strconv.Itoa(d.MaxInFlight), Example: "4", Want: wantNumber,
			Doc: "how many requests to the Controller may run at once, 1 to 64",
		},
		{
			Key: "avi.rate", Default: strconv.Itoa(d.Rate), Example: "20", Want: wantNumber,
			Doc: "how many requests to the Controller may start in a second, 1 to 1000",
		},
	}
}

// wantNumber takes whole numbers that are not negative; the provider knows the range.
func wantNumber(value any) string {
	if n, err := strconv.Atoi(value.(string)); err != nil || n < 0 {
		return "write a whole number"
	}
	return ""
}

func newAvi(v *settings.Values) (builder, error) {
	number := func(key string) int {
		n, _ := strconv.Atoi(v.String(key)) // wantNumber has looked at it
		return n
	}
	cfg := avi.Config{
		URL: v.String("avi.url"), Username: v.String("avi.username"), PasswordFile: v.String("avi.passwordFile"), TokenFile: v.String("avi.tokenFile"),
		CAFile: v.String("avi.caFile"), ServerName: v.String("avi.serverName"), Insecure: v.Bool("avi.insecure"), APIVersion: v.String("avi.apiVersion"),
		Tenant: v.String("avi.tenant"), Cloud: v.String("avi.cloud"), SEGroup: v.String("avi.seGroup"), VRF: v.String("avi.vrf"),
		Network: v.String("avi.network"), Prefix: v.String("avi.prefix"),
		TCPProfile: v.String("avi.tcpProfile"), UDPProfile: v.String("avi.udpProfile"), ApplicationProfile: v.String("avi.applicationProfile"),
		DrainTimeout: v.Duration("avi.drainTimeout"), TakeOver: v.String("avi.takeOver"), RequestTimeout: v.Duration("avi.requestTimeout"),
		MaxInFlight: number("avi.maxInFlight"), Rate: number("avi.rate"),
	}
	for _, text := range v.List("avi.subnets") {
		subnet, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, v.Reject("avi.subnets", fmt.Sprintf("%q is not a prefix such as 192.0.2.0/24", text))
		}
		cfg.Subnets = append(cfg.Subnets, subnet)
	}
	if err := cfg.Validate(); err != nil {
		return nil, v.Invalid(err)
	}
	return func(owner providers.Owner, log *zap.Logger, calls observer) (providers.Provider, error) {
		p, err := avi.New(cfg, owner, log, avi.WithObserver(calls))
		if err != nil {
			return nil, err // not a nil *Provider inside an interface
		}
		return p, nil
	}, nil
}
