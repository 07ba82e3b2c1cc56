package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

func TestNodes_BeginTogetherAndRedirect(t *testing.T) {
	c := startCluster(t, 3, nil)
	lead, follower := c.leader(), c.follower()
	var redirect *consistency.RedirectError
	require.ErrorAs(t, follower.Publish(t.Context(), publication(service(1), host(1))), &redirect)
	require.Equal(t, lead.name, redirect.Node)
	require.Equal(t, leadFactor*lead.cfg.HeartbeatTimeout, lead.raft.ReloadableConfig().HeartbeatTimeout, "the short timeouts are for the only voter")

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
	c := newCluster(t, func(cfg *Config) { cfg.LeaderWait = 50 * time.Millisecond })
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
	t.Parallel() // it waits most of the time
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

// A write whose answer was lost is sent again to the next leader, and to one that
// has it from a snapshot only: it is applied once.
func TestNodes_RequestIsKnownAgain(t *testing.T) {
	c := startCluster(t, 3, nil)
	lead := c.leader()
	ctx, first := consistency.WithRequest(t.Context(), "request-1")
	register := publication(service(1), host(1))
	require.NoError(t, lead.Publish(ctx, register))
	require.NotZero(t, first.Index())
	withdraw := publication(service(1))
	require.NoError(t, lead.Publish(t.Context(), withdraw)) // someone else deletes it

	c.kill(lead.name)
	repeat := func(n *node) {
		t.Helper()
		ctx, again := consistency.WithRequest(t.Context(), "request-1")
		require.NoError(t, c.leaderDo(func(lead *node) error { return lead.Publish(ctx, register) }))
		require.Equal(t, first.Index(), again.Index(), "the answer of the first time")
		require.NoError(t, n.WaitConsistent(t.Context()))
		require.False(t, n.Stat(service(1)).Exists, "what was deleted does not come back")
	}
	repeat(c.leader())

	for _, n := range c.running() {
		takeSnapshot(t, n.Store)
	}
	for _, n := range c.running() {
		c.kill(n.name)
	}
	for _, name := range c.names() {
		c.start(name, 0)
	}
	c.awaitReady()
	repeat(c.follower())
	c.same()
}

// A read that was asked for while its node is cut off, or leads no more without
// knowing it, waits or fails, and never shows the past.
func TestNodes_WaitConsistentNeverReadsThePast(t *testing.T) {
	t.Parallel() // it waits most of the time
	slow := true
	c := startCluster(t, 3, func(cfg *Config) {
		cfg.LeaderWait = 100 * time.Millisecond
		if slow { // a leader of these notices nothing for 10 seconds
			cfg.HeartbeatTimeout, cfg.ElectionTimeout = 20*time.Second, 20*time.Second
			cfg.LeaseTimeout, cfg.SoloTimeout = 10*time.Second, 10*time.Second
		} else { // it is a leader for these, as seldom as it speaks
			patient(cfg)
		}
	})
	old := c.leader()
	require.NoError(t, c.publish(old, publication(service(1), host(1))))
	require.NoError(t, old.WaitConsistent(t.Context()))
	slow = false
	for _, name := range c.names() { // the others elect one soon
		if name != old.name {
			c.kill(name)
			c.start(name, 0)
			c.awaitReady()
		}
	}
	c.cut(old.name, true)
	var next *node
	c.eventually(func() bool {
		for _, n := range c.running() {
			if l, _ := n.currentLeader(); n != old && l.self {
				next = n
			}
		}
		return next != nil
	})
	require.NoError(t, c.publish(next, publication(service(1), host(2))))
	l, _ := old.currentLeader()
	require.True(t, l.self, "the old leader thinks that it leads")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, old.WaitConsistent(ctx), "what it has is the past: %v", old.Published(service(1), "10.0.0.1:8080"))

	// While the two elect again, as when the machine stands still for a moment, it is an error.
	consistent := func(n *node) {
		c.eventually(func() bool { return n.WaitConsistent(t.Context()) == nil })
	}
	for _, n := range c.running() {
		if n != old {
			consistent(n)
			require.Equal(t, []string{"10.0.0.2"}, ips(n.Published(service(1), "10.0.0.1:8080")))
		}
	}
	c.cut(old.name, false)
	consistent(old)
	require.Equal(t, []string{"10.0.0.2"}, ips(old.Published(service(1), "10.0.0.1:8080")))
}

// The node that is asked as the leader may have lost that a moment ago.
func TestNodes_WaitConsistentAsksAgainAfterTheLeaderWentAway(t *testing.T) {
	t.Parallel() // it waits most of the time
	var refusals atomic.Int32
	c := startCluster(t, 3, func(cfg *Config) {
		ask := cfg.ReadIndex
		cfg.ReadIndex = func(ctx context.Context, leader string) (uint64, error) {
			if refusals.Add(-1) >= 0 {
				return 0, fmt.Errorf("%w: node %s: another one must take this request", consistency.ErrNoLeader, leader)
			}
			return ask(ctx, leader)
		}
	})
	follower := c.follower()
	refusals.Store(3)
	require.NoError(t, follower.WaitConsistent(t.Context()))
	refusals.Store(math.MaxInt32)
	err := follower.WaitConsistent(t.Context())
	require.ErrorIs(t, err, consistency.ErrNoLeader)
	require.ErrorContains(t, err, "another one must take this request")
	require.NotErrorIs(t, err, context.DeadlineExceeded, "it is refused long before")
}

// While leaders come and go, a consistent read on any node shows every write that
// was acknowledged before it.
func TestNodes_WaitConsistentShowsWhatWasAcknowledged(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, 3, nil)
	for round := range 30 {
		writer, reader := c.running()[round%3], c.running()[(round/3)%3]
		require.NoError(t, c.publish(writer, publication(service(1), host(round))))
		require.NoError(t, reader.WaitConsistent(t.Context()))
		require.Equal(t, host(round).IP, reader.Published(service(1), "10.0.0.1:8080")[0].IP)
		if round%5 == 4 {
			require.NoError(t, c.leader().StepDown())
		}
	}
}

func TestNodes_WaitAppliedEndsWithContextAndStore(t *testing.T) {
	s := ready(t, start(t, testConfig(t.TempDir())))
	ctx, request := consistency.WithRequest(t.Context(), "")
	require.NoError(t, s.Publish(ctx, publication(service(1), host(1))))
	require.NoError(t, s.WaitApplied(t.Context(), request.Index()))
	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.WaitApplied(short, request.Index()+1), context.DeadlineExceeded)
	waits := make(chan error, 2)
	go func() { waits <- s.WaitApplied(t.Context(), request.Index()+100) }()
	go func() { waits <- s.WaitApplied(t.Context(), request.Index()+1) }()
	require.NoError(t, s.Publish(t.Context(), publication(service(1), host(2))))
	require.NoError(t, <-waits)
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-waits, consistency.ErrClosed)
	require.ErrorIs(t, s.WaitConsistent(t.Context()), consistency.ErrClosed)
}

// A node alone with its data, while the others are down, serves what was committed,
// also what is in no snapshot yet, and says that it may be the past.
func TestNodes_RestartWithoutTheOthers_ServesAsStale(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, 3, func(cfg *Config) {
		cfg.StaleAfter = 300 * time.Millisecond
		cfg.LeaderWait = 50 * time.Millisecond
	})
	for n := range 5 {
		require.NoError(t, c.publish(c.running()[n%3], publication(service(n), host(n))))
	}
	c.same()
	for _, name := range c.names() {
		c.close(name)
	}
	n := c.start("n2", 0)
	require.Len(t, n.Services(""), 5, "it is there at once")
	require.ErrorIs(t, n.Ready(), consistency.ErrNotReady)
	c.eventually(func() bool { return n.Ready() == nil })
	require.True(t, n.Stale())
	require.ErrorIs(t, n.Publish(t.Context(), publication(service(1), host(1))), consistency.ErrNoLeader)
	require.ErrorIs(t, n.WaitConsistent(t.Context()), consistency.ErrNoLeader)

	c.start("n1", 0)
	c.eventually(func() bool { return !n.Stale() && n.Ready() == nil })
	require.NoError(t, c.publish(n, publication(service(9), host(9))))
}

// A follower hears of a commit before the library says it, which takes 50 ms or more
// when no entry follows.
func TestNodes_FollowerShowsItsWriteSoon(t *testing.T) {
	c := startCluster(t, 3, patient)
	follower := c.follower()
	var took []time.Duration
	for n := range 15 {
		begin := time.Now()
		require.NoError(t, c.publish(follower, publication(service(n), host(n))))
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	require.Less(t, took[len(took)/2], 40*time.Millisecond, "%v", took)
}

// A frozen leader answers nothing, and takes no connection away either.
func TestNodes_NobodyWaitsForAFrozenLeader(t *testing.T) {
	var frozen atomic.Pointer[string]
	c := startCluster(t, 3, func(cfg *Config) {
		fast(cfg)
		ask := cfg.ReadIndex
		cfg.ReadIndex = func(ctx context.Context, leader string) (uint64, error) {
			if name := frozen.Load(); name != nil && *name == leader {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return ask(ctx, leader)
		}
	})
	lead, follower := c.leader(), c.follower()
	writing, done := follower.WhileLeads(t.Context(), lead.name)
	defer done()
	frozen.Store(&lead.name)
	c.cut(lead.name, true)
	begin := time.Now()
	require.NoError(t, follower.WaitConsistent(t.Context()))
	require.Less(t, time.Since(begin), follower.cfg.WriteTimeout/2)
	require.ErrorIs(t, writing.Err(), context.Canceled)
	require.NoError(t, t.Context().Err())
	late, done := follower.WhileLeads(t.Context(), lead.name)
	defer done()
	require.ErrorIs(t, late.Err(), context.Canceled, "it leads no more")
	other, done := follower.WhileLeads(t.Context(), c.leader().name)
	require.NoError(t, other.Err())
	done()
	require.ErrorIs(t, other.Err(), context.Canceled)
}

// What is committed cannot be shown by a node whose disk takes nothing.
func TestNodes_WaitShownDoesNotWaitForAFullDisk(t *testing.T) {
	var full atomic.Bool
	cfg := testConfig(t.TempDir())
	cfg.faults = func(op string) error {
		if full.Load() && op == "space" {
			return errors.New("full")
		}
		return nil
	}
	s := ready(t, start(t, cfg))
	require.NoError(t, s.WaitShown(t.Context(), s.fsm.index.load()))
	ctx, cancel := context.WithTimeout(t.Context(), 2*faultInterval)
	defer cancel()
	require.ErrorIs(t, s.WaitShown(ctx, 1000), context.DeadlineExceeded)
	full.Store(true)
	require.NoError(t, s.WaitShown(t.Context(), 1000))
}
