package distro

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMembersConfig_Validate(t *testing.T) {
	t.Parallel()
	require.NoError(t, fast("n1", 1).Validate())
	for want, change := range map[string]func(*MembersConfig){
		"name is missing":                     func(c *MembersConfig) { c.Self.Name = "" },
		"name has 129 bytes":                  func(c *MembersConfig) { c.Self.Name = strings.Repeat("n", 129) },
		"cannot be printed":                   func(c *MembersConfig) { c.Self.Name = "a\nb" },
		"the node's id has":                   func(c *MembersConfig) { c.Self.ID = strings.Repeat("i", 65) },
		"the version has":                     func(c *MembersConfig) { c.Self.Version = strings.Repeat("v", 65) },
		"the port 65536":                      func(c *MembersConfig) { c.Self.RaftPort = 65536 },
		"the node's address is":               func(c *MembersConfig) { c.Self.IP = "here" },
		"the cluster's name has":              func(c *MembersConfig) { c.Cluster = strings.Repeat("c", 65) },
		"bind is":                             func(c *MembersConfig) { c.Bind = "localhost" },
		"the port is -1":                      func(c *MembersConfig) { c.Port = -1 },
		"reach this node at is missing":       func(c *MembersConfig) { c.Bind = "::" },
		`the address to join "n2"`:            func(c *MembersConfig) { c.Join = []string{"n2"} },
		`the address to join "n2:0"`:          func(c *MembersConfig) { c.Join = []string{"n2:0"} },
		"a gossip key has 5 bytes":            func(c *MembersConfig) { c.Keys = [][]byte{[]byte("short")} },
		"the rejoin interval is":              func(c *MembersConfig) { c.RejoinInterval = 0 },
		"the leave delay is negative":         func(c *MembersConfig) { c.LeaveDelay = -time.Second },
		"not shorter than the probe interval": func(c *MembersConfig) { c.ProbeTimeout = c.ProbeInterval },
		"the suspicion multiplier is":         func(c *MembersConfig) { c.SuspicionMult = 1 },
	} {
		cfg := fast("n1", 1)
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), want)
		_, err := NewMembers(cfg)
		require.ErrorContains(t, err, want)
	}
}
