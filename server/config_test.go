package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfig_Default(t *testing.T) {
	cfg := DefaultConfig()
	require.NoError(t, cfg.Validate())
	cfg = cfg.withDerived()
	require.Equal(t, 8848, cfg.Port)
	require.Equal(t, 9848, cfg.GRPCPort)
	require.Equal(t, 7848, cfg.RaftPort)
}

func TestConfig_DerivedPorts(t *testing.T) {
	for _, c := range []struct{ port, grpc, raft, wantGRPC, wantRaft int }{
		{8858, 0, 0, 9858, 7858},
		{8858, 1, 2, 1, 2},
		{0, 0, 0, 0, 0}, // all chosen by the system
		{0, 5, 0, 5, 0},
	} {
		cfg := DefaultConfig()
		cfg.Port, cfg.GRPCPort, cfg.RaftPort = c.port, c.grpc, c.raft
		cfg = cfg.withDerived()
		require.Equal(t, []int{c.wantGRPC, c.wantRaft}, []int{cfg.GRPCPort, cfg.RaftPort})
	}
}

func TestConfig_Validate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		says   string // empty: legal
	}{
		"data-dir":               {func(c *Config) { c.DataDir = "" }, "data-dir is empty"},
		"bind empty":             {func(c *Config) { c.Bind = "" }, `bind is ""`},
		"bind a name":            {func(c *Config) { c.Bind = "localhost" }, `bind is "localhost": it must be an IP address`},
		"bind IPv6":              {func(c *Config) { c.Bind = "::1" }, ""},
		"advertise":              {func(c *Config) { c.Advertise = "host:1" }, `advertise is "host:1"`},
		"advertise an address":   {func(c *Config) { c.Advertise = "10.0.0.1" }, ""},
		"port negative":          {func(c *Config) { c.Port = -1 }, "port is -1: it must be from 0 to 65535"},
		"port too large":         {func(c *Config) { c.Port = 65536 }, "port is 65536"},
		"port 0":                 {func(c *Config) { c.Port = 0 }, ""},
		"grpc-port derived":      {func(c *Config) { c.Port = 65000 }, "grpc-port is 66000"},
		"grpc-port given":        {func(c *Config) { c.Port, c.GRPCPort = 65000, 65001 }, ""},
		"raft-port derived":      {func(c *Config) { c.Port = 80 }, "raft-port is -920"},
		"raft-port given":        {func(c *Config) { c.Port, c.RaftPort = 80, 81 }, ""},
		"raft-port too large":    {func(c *Config) { c.RaftPort = 70000 }, "raft-port is 70000"},
		"beat-interval":          {func(c *Config) { c.BeatInterval = 0 }, "beat-interval is 0s: it must be above zero"},
		"cache-time":             {func(c *Config) { c.CacheTime = -time.Second }, "cache-time is -1s"},
		"idle":                   {func(c *Config) { c.Idle = 0 }, "idle is 0s"},
		"detect":                 {func(c *Config) { c.Detect = 0 }, "detect is 0s"},
		"empty-service-expiry":   {func(c *Config) { c.EmptyServiceExpiry = 0 }, "empty-service-expiry is 0s"},
		"override-expiry":        {func(c *Config) { c.OverrideExpiry = 0 }, "override-expiry is 0s"},
		"shutdown-timeout":       {func(c *Config) { c.ShutdownTimeout = 0 }, "shutdown-timeout is 0s"},
		"linger":                 {func(c *Config) { c.Linger = -1 }, "linger is -1ns"},
		"no linger":              {func(c *Config) { c.Linger = 0 }, ""},
		"gossip-key no base64":   {func(c *Config) { c.GossipKey = "AAAAAAAAAAAAAAAAAAAAAA==,%" }, "gossip-key: key 2 is no base64"},
		"gossip-key too short":   {func(c *Config) { c.GossipKey = "AAAA" }, "gossip-key: key 1 has 3 bytes"},
		"gossip-keys":            {func(c *Config) { c.GossipKey = "AAAAAAAAAAAAAAAAAAAAAA==, AQAAAAAAAAAAAAAAAAAAAA==" }, ""},
		"grace-silent":           {func(c *Config) { c.GraceSilent = time.Second }, "grace-silent is 1s: it must be from grace (30s)"},
		"setup-wait":             {func(c *Config) { c.SetupWait = -1 }, "setup-wait is -1ns"},
		"no setup-wait":          {func(c *Config) { c.SetupWait = 0 }, ""},
		"metadata-limit":         {func(c *Config) { c.MetadataLimit = 0 }, "metadata-limit is 0"},
		"pprof":                  {func(c *Config) { c.Pprof = "6060" }, `pprof is "6060": it must be host:port`},
		"push":                   {func(c *Config) { c.Push.Quiet = 0 }, "push.quiet is 0s"},
		"push times that clash":  {func(c *Config) { c.Push.Max = c.Push.Quiet / 2 }, "push.max"},
		"node may be left empty": {func(c *Config) { c.Node = "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			if c.says == "" {
				require.NoError(t, cfg.Validate())
			} else {
				require.ErrorContains(t, cfg.Validate(), c.says)
			}
		})
	}
	cfg := DefaultConfig()
	cfg.Idle, cfg.DataDir, cfg.MetadataLimit = 0, "", 0
	err := cfg.Validate()
	for _, says := range []string{"idle is", "data-dir is", "metadata-limit is"} {
		require.ErrorContains(t, err, says, "each fault is named")
	}
}
