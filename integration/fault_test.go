package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watchedFleet is a fleet of some clients that watch each other through all nodes.
func watchedFleet(t *testing.T, c *Cluster, grpc, web, subscribers int) *Fleet {
	t.Helper()
	f := StartFleet(t, slices.Clone(c.Nodes))
	services := fleetServices(f, grpc, web, c.Nodes...)
	f.Complete(t, 30*time.Second+time.Duration(grpc+web)*20*time.Millisecond, c.Nodes...)
	f.Subscribe(subscribers, services, c.Nodes...)
	f.Watched(t, subscribers*len(services))
	return f
}

// keep registers a persistent instance and tells whether that was acknowledged.
func (n *Node) keep(k int) error {
	q := "serviceName=probe&port=80&ephemeral=false&ip=10.9.0." + strconv.Itoa(k)
	r, err := n.TryRaw(http.MethodPost, "/nacos/v1/ns/instance", q, "")
	if err == nil && r.Status != http.StatusOK {
		err = fmt.Errorf("%d %s", r.Status, r.Body)
	}
	return err
}

func TestFault_LeaderLost(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)
	leader := c.await(t)
	others := c.followers(t)
	began := time.Now()
	leader.Kill(t)
	require.Eventually(t, func() bool { return others[0].keep(1) == nil }, 20*time.Second, 10*time.Millisecond)
	t.Logf("writes are accepted %v after the leader was killed", time.Since(began))
	f.Holds(t, 8*time.Second, others...)
	require.NoError(t, leader.Start())
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}

// Without a majority ephemeral instances come and go as always, persistent ones are
// served, and writes of these are refused with a reason.
func TestFault_MajorityLostAndBack(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	f := watchedFleet(t, c, 60, 30, 15)
	require.NoError(t, c.Nodes[0].keep(1))
	survivor := c.Nodes[0]
	c.Nodes[1].Kill(t)
	c.Nodes[2].Kill(t)
	f.Holds(t, 35*time.Second, survivor) // longer than the grace
	require.True(t, survivor.Ready())
	f.Publish("alone", 9, survivor)
	f.Complete(t, 10*time.Second, survivor)
	require.ErrorContains(t, survivor.keep(2), "no leader")
	require.Len(t, list(t, survivor, Params{"serviceName": "probe"}).Hosts, 1)
	c.StartAll(t)
	require.Eventually(t, func() bool { return survivor.keep(2) == nil }, 20*time.Second, 10*time.Millisecond)
	c.Check(t, f)
	f.Unharmed(t)
}

// A node that starts without a majority says for a while that it is not ready, and then
// serves what it has.
func TestFault_StartsAlone(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	require.NoError(t, c.Nodes[0].keep(1))
	c.settle(t)
	c.StopAll(t)
	began := time.Now()
	require.NoError(t, c.Nodes[0].Launch())
	var refused Response
	require.Eventually(t, func() bool {
		var err error
		refused, err = c.Nodes[0].TryRaw(http.MethodGet, "/nacos/v1/ns/instance/list", "serviceName=probe", "")
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
	require.Equal(t, http.StatusServiceUnavailable, refused.Status)
	require.Contains(t, refused.Body, "server is STARTING")
	r, err := c.Nodes[0].TryRaw(http.MethodGet, "/readyz", "", "")
	require.NoError(t, err)
	require.Contains(t, r.Body, "1 of 3 nodes reached")
	require.Eventually(t, c.Nodes[0].Ready, 30*time.Second, 50*time.Millisecond)
	t.Logf("ready alone after %v", time.Since(began))
	require.Len(t, list(t, c.Nodes[0], Params{"serviceName": "probe"}).Hosts, 1)
	c.StartAll(t)
	c.Check(t, nil)
}

func TestFault_OneWayPartition(t *testing.T) {
	long(t)
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On())
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)
	leader := c.await(t)
	other := c.followers(t)[0]
	network.CutOneWay(t, leader, other)
	f.Holds(t, 20*time.Second)
	third := c.Nodes[slices.IndexFunc(c.Nodes, func(n *Node) bool { return n != leader && n != other })]
	require.NoError(t, third.keep(1), "writes go on through the nodes that hear each other")
	if err := other.keep(2); err != nil { // it may have become the leader
		require.ErrorContains(t, err, "no leader")
	}
	network.Heal(t)
	require.Eventually(t, func() bool { return other.keep(2) == nil }, 20*time.Second, 10*time.Millisecond)
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}

// A firewall closes one of the ports between a node and the others, and leaves the rest
// open. Nothing that lives may go; what does not pass any more is in the log.
func TestFault_APortIsClosed(t *testing.T) {
	long(t)
	for name, c := range map[string]struct {
		protocol  string
		offset    int    // of the port, from the main one
		says      string // the log, of one node at least
		persists  int    // how many nodes take persistent writes, at least
		separated bool   // the node learns of no new instances
	}{
		"gossip over UDP": {"udp", -1001, "", 3, false},
		"gossip over TCP": {"tcp", -1001, "no changes reach it", 3, true},
		"calls":           {"tcp", 1001, "does not answer calls", 1, false},
		"raft":            {"tcp", -1000, "raft does not reach a node", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := StartNetwork(t)
			all := StartCluster(t, 3, network.On())
			f := watchedFleet(t, all, 30, 15, 9)
			closed, others := all.Nodes[0], all.Nodes[1:]
			for _, other := range others {
				network.ClosePort(t, c.protocol, closed, closed.port+c.offset, other)
				network.ClosePort(t, c.protocol, other, other.port+c.offset, closed)
			}
			f.Holds(t, 10*time.Second)
			f.Publish("late", 9, all.Nodes...)
			if !c.separated {
				f.Complete(t, 10*time.Second, all.Nodes...)
			}
			require.Eventually(t, func() bool {
				return slices.ContainsFunc(all.Nodes, func(n *Node) bool { return strings.Contains(n.Logs(), c.says) })
			}, 30*time.Second, 100*time.Millisecond, "no log says so")
			taken := 0
			for k, node := range all.Nodes {
				if err := node.keep(k); err == nil {
					taken++
				} else {
					require.ErrorContains(t, err, "503", "a clear refusal")
				}
			}
			require.GreaterOrEqual(t, taken, c.persists)
			network.Heal(t)
			all.Check(t, f)
			f.Unharmed(t)
		})
	}
}

func TestFault_PacketLoss(t *testing.T) {
	long(t)
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On())
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)
	for _, from := range c.Nodes {
		for _, to := range c.Nodes {
			if from != to {
				network.Lose(t, from, to, 0.1)
			}
		}
	}
	f.Publish("lossy", 30, c.Nodes...)
	f.Holds(t, 20*time.Second)
	network.Heal(t)
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}

func TestFault_SlowNetwork(t *testing.T) {
	long(t)
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On())
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)
	for _, node := range c.Nodes {
		network.Delay(t, node, 50*time.Millisecond, 20*time.Millisecond)
		began := time.Now()
		require.Equal(t, http.StatusOK, node.Do(t, http.MethodGet, "/livez", nil).Status)
		require.Greater(t, time.Since(began), 50*time.Millisecond)
	}
	f.Publish("slow", 30, c.Nodes...)
	f.Holds(t, 15*time.Second)
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}

// Nodes change their addresses, one after the other and then all at once, and are found
// by a name that stands for all of them, as Kubernetes gives one.
func TestFault_AddressesChange(t *testing.T) {
	long(t)
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On(), network.Named("rollcall-peers"))
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)
	for _, node := range c.Nodes {
		node.Stop(t)
		network.Move(t, node)
		require.NoError(t, node.Start())
		f.Complete(t, 20*time.Second, c.Nodes...)
	}
	f.Unharmed(t)
	for _, node := range c.Nodes {
		node.Kill(t)
		network.Move(t, node)
	}
	w.stop()
	c.StartAll(t)
	c.Check(t, f, w.all...)
}

// A node whose disk is full takes no persistent data; nothing else changes.
func TestFault_FullDisk(t *testing.T) {
	long(t)
	disk := smallDisk(t, 96)
	c := StartCluster(t, 3)
	full := c.Join(t, WithDataDir(filepath.Join(disk, "data")))
	c.awaitVoters(t, "n1", "n2", "n3", "n4")
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)

	filler := fill(t, disk)
	require.Eventually(t, func() bool {
		s := state(t, full, "")
		return s.ReadOnly != ""
	}, 60*time.Second, 100*time.Millisecond, "the node does not say that its disk is full")
	t.Logf("n4 says: %s", state(t, full, "").ReadOnly)
	require.Eventually(t, func() bool { return c.Nodes[0].keep(1) == nil }, 10*time.Second, 20*time.Millisecond, "the others go on")
	f.Publish("full", 9, full)
	f.Complete(t, 10*time.Second, c.Nodes...)
	require.True(t, full.Ready())

	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { return state(t, full, "").ReadOnly == "" }, 60*time.Second, 100*time.Millisecond)
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}

// One node of four has a clock that is an hour off.
func TestFault_ClockAnHourOff(t *testing.T) {
	long(t)
	program := SkewedBuild(t)
	for name, offset := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := StartCluster(t, 3)
			skewed := c.Join(t, WithProgram(program), WithEnv(skewEnv+"="+strconv.Itoa(int(offset.Seconds()))))
			r, err := skewed.TryRaw(http.MethodGet, "/livez", "", "")
			require.NoError(t, err)
			date, err := http.ParseTime(r.Header.Get("Date"))
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(offset), date, time.Minute, "the node's clock is not off")
			w := c.startWriters(t)
			f := watchedFleet(t, c, 80, 40, 16)
			f.Leave("grpc-0", 5)
			f.Publish("skewed", 12, c.Nodes...)
			f.Complete(t, 10*time.Second, c.Nodes...)
			skewed.Kill(t)
			f.Holds(t, 35*time.Second, c.Nodes[:3]...) // longer than the grace
			require.NoError(t, skewed.Start())
			w.stop()
			c.Check(t, f, w.all...)
			f.Unharmed(t)
		})
	}
}
