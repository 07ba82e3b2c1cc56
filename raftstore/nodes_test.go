package raftstore

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

func TestNodes_BeginTogetherAndRedirect(t *testing.T) {
	c := startCluster(t, 3, nil)
	lead, follower := c.leader(), c.follower()
	var redirect *consistency.RedirectError
	require.ErrorAs(t, follower.Publish(t.Context(), publication(service(1), host(1))), &redirect)
	require.Equal(t, lead.name, redirect.Node)
	require.Equal(t, lead.cfg.HeartbeatTimeout, lead.raft.ReloadableConfig().HeartbeatTimeout, "the short timeouts are for the only voter")

	for n, node := range c.running() {
		require.NoError(t, c.publish(node, publication(service(n), host(n))))
		require.True(t, node.Stat(service(n)).Exists, "who wrote sees it at once")
	}
	c.same()
	cluster := lead.State().Cluster
	require.Len(t, cluster, uuidBytes)
	for _, n := range c.running() {
		c.eventually(func() bool { return n.State().Cluster == cluster })
	}
}

func TestNodes_OneOfTheExpectedIsLate(t *testing.T) {
	c := newCluster(t, 3, func(cfg *Config) { cfg.LeaderWait = 50 * time.Millisecond })
	first := c.start("n1", 3)
	c.start("n2", 3)
	c.eventually(func() bool { return len(first.view().peers) == 2 })
	err := first.Publish(t.Context(), publication(service(1), host(1)))
	require.ErrorIs(t, err, consistency.ErrNoLeader)
	require.ErrorContains(t, err, "expects 3 nodes to begin and reaches: n2")
	require.ErrorIs(t, first.Ready(), consistency.ErrNotReady)
	require.False(t, first.State().HasState)

	c.start("n3", 3)
	c.awaitReady()
	require.NoError(t, c.publish(first, publication(service(1), host(1))))
	c.same()
	require.Len(t, c.leader().State().Servers, 3)
	for _, s := range c.leader().State().Servers {
		require.True(t, s.Voter)
	}
}

// All come back at other addresses, and none of these is in Raft's configuration.
func TestNodes_AllRestartAtOtherAddresses(t *testing.T) {
	c := startCluster(t, 3, nil)
	for n, node := range c.running() {
		require.NoError(t, c.publish(node, publication(service(n), host(n))))
	}
	c.same()
	want := content(c.leader().table)
	for _, name := range c.names() {
		c.kill(name)
	}
	begin := time.Now()
	for _, name := range c.names() {
		c.start(name, 0)
	}
	c.awaitReady()
	t.Logf("ready after %s", time.Since(begin))
	require.ElementsMatch(t, want, content(c.leader().table))
	require.NoError(t, c.publish(c.follower(), publication(service(9), host(9))))
	c.same()
	c.eventually(func() bool { // the leader refreshes what is stored
		stored := c.leader().servers()
		for _, server := range stored {
			found := false
			for _, n := range c.running() {
				found = found || n.id == server.ID && raft.ServerAddress(n.Addr()) == server.Address
			}
			if !found {
				return false
			}
		}
		return len(stored) == 3
	})
}

func TestNodes_CloseHandsLeadershipOver(t *testing.T) {
	c := startCluster(t, 3, nil)
	lead := c.leader()
	begin := time.Now()
	c.close(lead.name)
	require.NoError(t, c.publish(c.follower(), publication(service(1), host(1))))
	t.Logf("first write on the new leader after %s", time.Since(begin))
}

func TestNodes_StepDown(t *testing.T) {
	c := startCluster(t, 3, nil)
	lead := c.leader()
	require.NoError(t, lead.StepDown())
	c.eventually(func() bool { return c.leader() != lead })
	require.NoError(t, lead.StepDown(), "who does not lead has nothing to hand over")
	require.NoError(t, c.publish(lead, publication(service(1), host(1))))
}

// A write that a leader has put into its log when it is cut off may or may not
// survive; the caller must be told so, and not that it failed.
func TestNodes_LeaderCutOff_OutcomeIsUnknown(t *testing.T) {
	c := startCluster(t, 3, func(cfg *Config) { cfg.LeaderWait = 500 * time.Millisecond })
	lead := c.leader()
	c.cut(lead.name, true)
	require.ErrorIs(t, lead.Publish(t.Context(), publication(service(1), host(1))), consistency.ErrUnknownOutcome)
	c.eventually(func() bool { l, _ := lead.currentLeader(); return !l.self })
	err := lead.Publish(t.Context(), publication(service(2), host(2)))
	require.ErrorIs(t, err, consistency.ErrNoLeader)
	require.ErrorContains(t, err, "2 of the voting nodes n1, n2, n3 are needed, reachable: "+lead.name)

	require.NoError(t, c.publish(c.follower(), publication(service(3), host(3))))
	c.cut(lead.name, false)
	for _, n := range c.running() {
		c.eventually(func() bool { return n.Stat(service(3)).Exists })
		require.False(t, n.Stat(service(2)).Exists, "ErrNoLeader means that nothing was written")
	}
	c.same()
}

func TestNodes_WriteWithoutQuorumFailsInTime(t *testing.T) {
	c := startCluster(t, 3, func(cfg *Config) { cfg.LeaderWait = 200 * time.Millisecond })
	lead := c.leader()
	for _, n := range c.running() {
		if n != lead {
			c.kill(n.name)
		}
	}
	c.eventually(func() bool { l, _ := lead.currentLeader(); return !l.self })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.ErrorIs(t, lead.Publish(ctx, publication(service(1), host(1))), consistency.ErrNoLeader)
	require.NoError(t, ctx.Err())
	require.NoError(t, lead.Ready(), "it goes on serving")
}
