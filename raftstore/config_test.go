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
		"the lease timeout is longer than the heartbeat timeout":     func(c *Config) { c.LeaseTimeout = time.Second },
		"the solo timeout is shorter than the lease timeout":         func(c *Config) { c.SoloTimeout = 100 * time.Millisecond },
		"the solo timeout is not shorter than the heartbeat timeout": func(c *Config) { c.SoloTimeout = 500 * time.Millisecond },
		"the snapshot interval is 0s":                                func(c *Config) { c.SnapshotInterval = 0 },
		"the number of entries for a snapshot is not positive":       func(c *Config) { c.SnapshotEntries = 0 },
		"the number of bytes for a snapshot is not positive":         func(c *Config) { c.SnapshotBytes = 0 },
		"the wait for a leader is not positive":                      func(c *Config) { c.LeaderWait = 0 },
		"the write timeout is not positive":                          func(c *Config) { c.WriteTimeout = 0 },
		"the close timeout is not positive":                          func(c *Config) { c.CloseTimeout = 0 },
	} {
		c := good
		change(&c)
		require.ErrorContains(t, c.Validate(), says)
		_, err := New(c)
		require.ErrorContains(t, err, says)
	}
}
