package raftstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfig_Validate(t *testing.T) {
	good := DefaultConfig()
	good.Dir, good.Bind = "dir", "127.0.0.1:7848"
	require.NoError(t, good.Validate())
	for says, change := range map[string]func(*Config){
		"the data folder is missing":                                 func(c *Config) { c.Dir = "" },
		"the address to bind is missing":                             func(c *Config) { c.Bind = "" },
		"the heartbeat timeout is 0s, it must be 5ms or more":        func(c *Config) { c.HeartbeatTimeout = 0 },
		"the lease timeout is -1ms":                                  func(c *Config) { c.LeaseTimeout = -time.Millisecond },
		"the election timeout is shorter than the heartbeat timeout": func(c *Config) { c.ElectionTimeout = 300 * time.Millisecond },
		"between two heartbeats, 200ms":                              func(c *Config) { c.LeaseTimeout = 200 * time.Millisecond },
		"the lease timeout is longer than the heartbeat timeout":     func(c *Config) { c.LeaseTimeout = time.Second },
		"the solo timeout is shorter than the lease timeout":         func(c *Config) { c.SoloTimeout = 100 * time.Millisecond },
		"the solo timeout is not shorter than the heartbeat timeout": func(c *Config) { c.SoloTimeout = 500 * time.Millisecond },
		"the number of bytes for a snapshot is not positive":         func(c *Config) { c.SnapshotBytes = 0 },
		"the wait for a leader is not positive":                      func(c *Config) { c.LeaderWait = 0 },
		"the write timeout is not positive":                          func(c *Config) { c.WriteTimeout = 0 },
		"the close timeout is not positive":                          func(c *Config) { c.CloseTimeout = 0 },
		"the number of expected nodes is negative":                   func(c *Config) { c.Expect = -1 },
		"3 nodes are expected without a membership":                  func(c *Config) { c.Expect = 3 },
		"7 nodes are expected, at most 5 vote":                       func(c *Config) { c.Expect = 7 },
		"the node has no name":                                       func(c *Config) { c.Peers = func() []Peer { return nil } },
		"the peers interval is 0s":                                   func(c *Config) { c.PeersInterval = 0 },
		"the pilot interval is 0s":                                   func(c *Config) { c.PilotInterval = 0 },
		"the stall timeout is 0s":                                    func(c *Config) { c.StallTimeout = 0 },
		"the bootstrap wait is negative":                             func(c *Config) { c.BootstrapWait = -1 },
		"the time after which data is stale is not positive":         func(c *Config) { c.StaleAfter = 0 },
		"the time before a node may vote is negative":                func(c *Config) { c.PromoteAfter = -1 },
		"the time after which a node is dead is not positive":        func(c *Config) { c.DeadAfter = 0 },
		"the free space to keep is negative":                         func(c *Config) { c.MinFreeBytes = -1 },
	} {
		c := good
		change(&c)
		require.ErrorContains(t, c.Validate(), says)
		_, err := New(c)
		require.ErrorContains(t, err, says)
	}
}
