package raftstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// configured returns Raft's configuration as all nodes have it: the names of the
// voters, and of those without a vote in brackets. An unknown name is "?". It is
// empty while the nodes have different ones or there is no leader.
func (c *cluster) configured() string {
	seen := make(map[string]bool)
	led := false
	for _, n := range c.running() {
		st := n.State()
		if st.Refused != nil || n.cut {
			continue
		}
		led = led || st.Role == RoleLeader
		var names []string
		for _, server := range st.Servers {
			name := server.Name
			if c.peerID(name) != server.ID {
				name = "?"
			}
			if !server.Voter {
				name = "(" + name + ")"
			}
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int { return strings.Compare(strings.Trim(a, "()"), strings.Trim(b, "()")) })
		seen[strings.Join(names, " ")] = true
	}
	if len(seen) != 1 || !led {
		return ""
	}
	for names := range seen {
		return names
	}
	return ""
}

func (c *cluster) awaitConfigured(want string) {
	c.t.Helper()
	deadline := time.Now().Add(wait)
	for c.configured() != want && time.Now().Before(deadline) {
		<-time.After(tick)
	}
	require.Equal(c.t, want, c.configured())
}

// peerID returns the server id that a node had when it ran last.
func (c *cluster) peerID(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[name]; n != nil {
		return n.peer.ID
	}
	return ""
}

// Each new node is taken in without a vote,
// catches up, and has a vote while there are fewer than five.
func TestMembership_OneNodeGrowsToSix(t *testing.T) {
	c := newCluster(t, nil)
	first := c.start("n1", 1)
	c.awaitReady()
	c.writeAll(first, 0, 10)
	require.Equal(t, first.cfg.SoloTimeout, first.raft.ReloadableConfig().HeartbeatTimeout)
	want := "n1"
	for i := 2; i <= 6; i++ {
		name := fmt.Sprint("n", i)
		c.start(name, 0)
		if i > 5 {
			name = "(" + name + ")"
		}
		want += " " + name
		c.awaitConfigured(want)
	}
	c.awaitReady()
	c.same()
	require.Equal(t, leadFactor*first.cfg.HeartbeatTimeout, first.raft.ReloadableConfig().HeartbeatTimeout)
	require.NoError(t, c.publish(c.node("n6"), publication(service(99), host(1))))
	c.same()
	for _, s := range c.leader().State().Servers {
		require.True(t, s.Alive)
		require.Equal(t, s.Name != "n6", s.Voter)
	}
	c.eventually(func() bool {
		return !slices.ContainsFunc(c.leader().State().Servers, func(s Server) bool { return !s.Healthy || !s.LagKnown })
	})

	// A voter that fails gives its vote to the one that waits.
	var gone string
	for _, n := range c.running() {
		if n.name != "n6" && n != c.leader() {
			gone = n.name
		}
	}
	c.kill(gone)
	c.awaitConfigured(strings.Replace(strings.ReplaceAll(want, "(n6)", "n6"), gone, "("+gone+")", 1))
}

func TestMembership_FiveNodesWithTwoDown(t *testing.T) {
	c := startCluster(t, 5, nil)
	c.awaitConfigured("n1 n2 n3 n4 n5")
	c.kill(c.leader().name)
	c.kill(c.leader().name)
	for n, node := range c.running() {
		require.NoError(t, c.publish(node, publication(service(n), host(n))))
	}
	c.same()
	c.awaitConfigured("n1 n2 n3 n4 n5") // with three of five left nobody is removed for being away
}

// The disk of a node is lost: under its name and address there is a new server. It
// gets everything by snapshot and the vote of the old one.
func TestMembership_WipedNodeCatchesUpBySnapshot(t *testing.T) {
	c := startCluster(t, 3, func(cfg *Config) {
		patient(cfg) // another leader would have the whole log
		cfg.TrailingLogs = 1
	})
	lead := c.leader()
	for n := range 3 {
		c.writeAll(lead, 10*n, 10)
		takeSnapshot(t, lead.Store)
	}
	n := c.follower()
	id, addr := n.ID(), raft.ServerAddress(n.Addr())
	c.kill(n.name)
	c.wipe(n.name)
	n = c.startAt(n.name, 0, addr)
	require.NotEqual(t, id, n.ID())
	require.ErrorIs(t, n.Ready(), consistency.ErrNotReady)
	c.eventually(func() bool { return n.Ready() == nil })
	require.Len(t, n.Services(""), 30, "it is ready when it has everything")
	c.awaitConfigured("n1 n2 n3")
	c.same()
	list, err := listSnapshots(n.dir)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	c.kill(lead.name)
	require.NoError(t, c.publish(n, publication(service(99), host(1))), "the new server votes")
}

// A follower that was down for 10,000 writes catches up, and its listeners hear of
// what has changed and of nothing else.
func TestMembership_StoppedFollowerCatchesUp(t *testing.T) {
	for _, by := range []string{"log", "snapshot"} {
		t.Run(by, func(t *testing.T) {
			var mu sync.Mutex
			heard := make(map[string]map[naming.ServiceKey]bool)
			c := newCluster(t, func(cfg *Config) {
				patient(cfg)
				if by == "snapshot" {
					cfg.TrailingLogs = 1
				}
			})
			c.listen = func(name string, changed consistency.ServiceChanged) {
				mu.Lock()
				defer mu.Unlock()
				if heard[name] != nil {
					heard[name][changed.Service] = true
				}
			}
			for _, name := range []string{"n1", "n2", "n3"} {
				c.start(name, 3)
			}
			c.awaitReady()
			lead := c.leader()
			c.writeAll(lead, 0, 50)
			c.same()
			n := c.follower()
			c.cut(n.name, true)
			var writers sync.WaitGroup
			for w := range 1000 {
				writers.Go(func() {
					for round := range 10 {
						if err := c.publish(lead, publication(service(10+w%20), host(10*w+round))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			writers.Wait()
			if by == "snapshot" {
				lead = c.leader()
				takeSnapshot(t, lead.Store)
				takeSnapshot(t, lead.Store)
				first, err := lead.logs.FirstIndex()
				require.NoError(t, err)
				require.Greater(t, first, n.raft.LastIndex()+1)
			}
			mu.Lock()
			heard[n.name] = make(map[naming.ServiceKey]bool)
			mu.Unlock()
			begin := time.Now()
			c.cut(n.name, false)
			c.eventually(func() bool { return n.fsm.index.load() == c.leader().fsm.index.load() })
			t.Logf("caught up by %s after %s", by, time.Since(begin))
			c.same()
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, heard[n.name], 20)
			for k := range heard[n.name] {
				require.Regexp(t, `service-[12]\d$`, k.Name)
			}
		})
	}
}

func TestMembership_DeadNodeIsRemoved(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, 4, func(cfg *Config) { cfg.DeadAfter = 300 * time.Millisecond })
	c.awaitConfigured("n1 n2 n3 n4")
	c.leader()
	c.kill("n4")
	c.awaitConfigured("n1 n2 n3")
	c.kill("n3")
	lead := c.leader()
	c.eventually(func() bool {
		away, ok := lead.view().away[c.node("n3").ID()]
		return ok && time.Since(away) > 3*lead.cfg.DeadAfter
	})
	c.awaitConfigured("n1 n2 n3") // three stay, dead or not

	n := c.start("n4", 0) // it comes back with its old data
	c.eventually(func() bool { return n.Ready() == nil })
	c.awaitConfigured("n1 n2 n4")
}

func TestMembership_Remove(t *testing.T) {
	c := startCluster(t, 3, patient)
	lead, gone := c.leader(), c.follower()
	var redirect *consistency.RedirectError
	require.ErrorAs(t, gone.Remove(t.Context(), lead.name), &redirect)
	require.ErrorContains(t, lead.Remove(t.Context(), "n9"), "raft has no node n9")
	for _, n := range []string{lead.name, gone.name, gone.ID()} {
		require.ErrorContains(t, lead.Remove(t.Context(), n), "stop it first")
	}
	c.kill(gone.name)
	c.eventually(func() bool { return lead.Remove(t.Context(), gone.name) == nil })
	require.Len(t, lead.State().Servers, 2)
	var invalid *naming.InvalidError
	require.ErrorAs(t, lead.Remove(t.Context(), gone.name), &invalid)
	require.Equal(t, naming.FaultResourceUnknown, invalid.Fault)
	require.NoError(t, c.publish(lead, publication(service(1), host(1))))
}

// A server that was removed while it could not hear it comes back.
func TestMembership_RemovedVoterDoesNotDisturb(t *testing.T) {
	c := startCluster(t, 3, func(cfg *Config) {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout = 500*time.Millisecond, 500*time.Millisecond
		cfg.LeaseTimeout, cfg.SoloTimeout = 450*time.Millisecond, 450*time.Millisecond
	})
	lead, removed := c.leader(), c.follower()
	c.cut(removed.name, true)
	require.NoError(t, lead.raft.RemoveServer(removed.id, 0, wait).Error())
	term := lead.raft.CurrentTerm()
	c.eventually(func() bool { return removed.raft.State() == raft.Candidate }) // it never heard of it
	// The others hear it, but the membership does not know it any more.
	c.mu.Lock()
	removed.cut = false
	c.linkLocked()
	removed.cut = true
	c.mu.Unlock()
	for n := range 10 {
		require.NoError(t, c.publish(lead, publication(service(n), host(n))))
		<-time.After(lead.cfg.HeartbeatTimeout / 4)
	}
	require.Equal(t, term, lead.raft.CurrentTerm())
	require.Equal(t, raft.Leader, lead.raft.State())

	c.cut(removed.name, false) // now it is a member again, and taken in
	c.awaitConfigured("n1 n2 n3")
	c.same()
}

// The nodes come back with each other's addresses.
func TestMembership_AddressesAreSwapped(t *testing.T) {
	c := startCluster(t, 3, nil)
	require.NoError(t, c.publish(c.leader(), publication(service(1), host(1))))
	addresses := make(map[string]raft.ServerAddress)
	for _, n := range c.running() {
		addresses[n.name] = raft.ServerAddress(n.Addr())
	}
	for _, name := range c.names() {
		c.kill(name)
	}
	for name, was := range map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"} {
		c.startAt(name, 0, addresses[was])
	}
	c.awaitReady()
	require.NoError(t, c.publish(c.follower(), publication(service(2), host(2))))
	c.awaitConfigured("n1 n2 n3")
	c.same()
}

// A node with the data of another cluster among three that have data of their own.
func TestMembership_FolderOfAnotherClusterIsRefused(t *testing.T) {
	other := newCluster(t, nil)
	foreign := other.start("n4", 1)
	other.awaitReady()
	other.writeAll(foreign, 100, 3)
	require.NotEmpty(t, foreign.State().Cluster)
	other.kill("n4")

	c := startCluster(t, 3, nil)
	c.writeAll(c.leader(), 0, 3)
	c.mu.Lock()
	c.nodes["n4"] = &node{name: "n4", dir: foreign.dir}
	c.mu.Unlock()
	n := c.start("n4", 0)
	c.eventually(func() bool { return n.State().Refused != nil })
	for _, err := range []error{n.Ready(), n.Publish(t.Context(), publication(service(1), host(1))), n.State().Refused} {
		require.ErrorIs(t, err, ErrOtherCluster)
		require.ErrorContains(t, err, foreign.dir+" holds data of cluster "+n.State().Cluster)
		require.ErrorContains(t, err, "the nodes n1, n2, n3 are cluster "+c.leader().State().Cluster)
	}
	require.ErrorIs(t, n.Ready(), consistency.ErrNotReady)
	c.awaitConfigured("n1 n2 n3") // it is not taken in
	for _, o := range c.running()[:3] {
		require.NoError(t, o.Ready())
		require.NoError(t, o.State().Refused)
	}
	c.kill("n4")
	c.wipe("n4")
	c.start("n4", 0)
	c.awaitConfigured("n1 n2 n3 n4")
	c.same()
}

// The library tries a server that is away less and less often, and would leave one
// that comes back waiting for seconds.
func TestMembership_FollowerThatWasAwayIsReadyAtOnce(t *testing.T) {
	t.Parallel() // it waits most of the time
	c := startCluster(t, 3, patient)
	name := c.follower().name
	took := time.Hour
	for again := 0; again < 3 && took >= 1500*time.Millisecond; again++ { // the machine is shared
		c.kill(name)
		<-time.After(3 * time.Second) // as long again is what the library would wait
		n := c.start(name, 0)
		begin := time.Now()
		c.eventually(func() bool { return n.Ready() == nil })
		took = time.Since(begin)
		t.Logf("ready after %s", took)
	}
	require.Less(t, took, 1500*time.Millisecond)
}

// With an empty disk a node is another one, of the same name as the dead one.
func TestMembership_RemoveTheDeadOneOfAName(t *testing.T) {
	c := startCluster(t, 3, func(cfg *Config) {
		patient(cfg)
		cfg.PilotInterval = time.Hour // it would remove the dead one itself
	})
	lead, wiped := c.leader(), c.follower()
	id := wiped.ID()
	c.kill(wiped.name)
	c.wipe(wiped.name)
	again := c.start(wiped.name, 0)
	c.eventually(func() bool { return len(lead.State().Servers) == 4 })
	c.eventually(func() bool { return lead.Remove(t.Context(), wiped.name) == nil })
	var left []string
	for _, server := range lead.State().Servers {
		left = append(left, server.ID)
	}
	require.Len(t, left, 3)
	require.NotContains(t, left, id)
	require.Contains(t, left, again.ID())
}

// A node with an empty disk that leads has to know whose place it took, to remove that one.
func TestStore_LearnsTheNamesOfServersThatItNeverSaw(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Node, cfg.PeersInterval = "n1", 5*time.Millisecond
	cfg.Peers = func() []Peer {
		return []Peer{{Name: "n2", ID: "the present n2", Addr: "127.0.0.1:1", Alive: true, Names: map[string]string{"the former n2": "n2", "nobody's": "n3"}}}
	}
	s := ready(t, start(t, cfg))
	require.NoError(t, s.raft.AddNonvoter("the former n2", "the former n2", 0, wait).Error())
	require.Eventually(t, func() bool { return s.view().name("the former n2") == "n2" }, wait, tick)
	require.Empty(t, s.view().name("nobody's"), "only of Raft's servers")
	require.True(t, s.view().replaced("the former n2", func(string) bool { return true }))
	require.False(t, s.view().replaced("the former n2", func(string) bool { return false }))
}
