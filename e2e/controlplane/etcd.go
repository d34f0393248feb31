package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd serves a single etcd member without TLS: it is meant to listen where only the kube-apiserver beside it can
// connect.
func runEtcd(args []string) int {
	var dataDir, client, peer string
	var noFsync bool
	cmd := &cobra.Command{
		Use:          "etcd",
		Short:        "Run a single etcd member",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			return serveEtcd(dataDir, client, peer, noFsync)
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "directory of the data; created when it is missing")
	cmd.Flags().StringVar(&client, "listen-client-url", "http://127.0.0.1:2379", "where clients connect")
	cmd.Flags().StringVar(&peer, "listen-peer-url", "http://127.0.0.1:2380", "where peers would connect")
	cmd.Flags().BoolVar(&noFsync, "unsafe-no-fsync", false, "never wait for the disk; a crash of the machine loses data")
	if err := cmd.MarkFlagRequired("data-dir"); err != nil {
		panic(err) // the flag is defined above
	}
	cmd.SetArgs(args[1:])
	if err := cmd.Execute(); err != nil {
		return 1
	}
	return 0
}

func serveEtcd(dataDir, client, peer string, noFsync bool) error {
	clientURL, err := url.Parse(client)
	if err != nil {
		return fmt.Errorf("--listen-client-url %q: %w", client, err)
	}
	peerURL, err := url.Parse(peer)
	if err != nil {
		return fmt.Errorf("--listen-peer-url %q: %w", peer, err)
	}
	cfg := embed.NewConfig()
	cfg.Name = "lab"
	cfg.Dir = dataDir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*clientURL}, []url.URL{*clientURL}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peerURL}, []url.URL{*peerURL}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = noFsync
	cfg.LogLevel = "warn"
	// A lone member elects itself after one election timeout: the shortest that etcd accepts starts soonest.
	cfg.TickMs, cfg.ElectionMs = 10, 100

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	member, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("start etcd in %s: %w", dataDir, err)
	}
	defer member.Close()
	select {
	case <-stop:
		return nil
	case err := <-member.Err():
		return fmt.Errorf("etcd stopped: %w", err)
	}
}
