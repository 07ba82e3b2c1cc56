package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// connections returns how many clients over gRPC a node has.
func (n *Node) connections(t *testing.T) int {
	t.Helper()
	states, err := n.States()
	require.NoError(t, err)
	for _, s := range states {
		if s.Self {
			return s.Connections
		}
	}
	return -1
}

// awaitVoters waits until every running node says that exactly these nodes vote.
func (c *Cluster) awaitVoters(t *testing.T, names ...string) {
	t.Helper()
	var last []string
	require.Eventually(t, func() bool {
		for _, node := range c.Running() {
			states, err := node.States()
			if err != nil {
				return false
			}
			last = nil
			for _, s := range states {
				if s.Voter {
					last = append(last, s.Name)
				}
			}
			if !slices.Equal(last, names) {
				return false
			}
		}
		return true
	}, 40*time.Second, 50*time.Millisecond, "voters are %v", &last)
}

func TestLife_DrainedNodeHasNoClients(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	f := StartFleet(t, c.Nodes)
	services := fleetServices(f, 150, 60, c.Nodes...)
	f.Complete(t, 20*time.Second, c.Nodes...)
	f.Subscribe(30, services, c.Nodes...)
	f.Watched(t, 30*len(services))
	drained := c.Nodes[0]
	require.Positive(t, drained.connections(t))

	drained.RequireTool(t, "node", "drain")
	require.False(t, drained.Ready(), "a load balancer must send nobody there")
	require.Eventually(t, func() bool { return drained.connections(t) == 0 }, 20*time.Second, 50*time.Millisecond)
	f.Complete(t, 10*time.Second, c.Nodes...)
	r := drained.Query(t, http.MethodPost, "/nacos/v1/ns/instance", Params{"serviceName": "late", "ip": "10.0.0.1", "port": "80"})
	require.Equal(t, http.StatusOK, r.Status, "who comes all the same is served: %s", r.Body)

	drained.RequireTool(t, "node", "undrain")
	require.True(t, drained.Ready())
	require.Eventually(t, func() bool { return drained.connections(t) >= 50 }, 30*time.Second, 100*time.Millisecond, "clients come back: its share is 60")
	c.Check(t, f)
	f.Unharmed(t)
}

// A client that moved to another node and deregisters there is gone at once, though the
// node that it came from has not ended yet.
func TestLife_WhoMovedIsGoneWhenItSaysSo(t *testing.T) {
	long(t)
	c := StartCluster(t, 2)
	old, err := TryConnect(c.Nodes[0].GRPCAddr())
	require.NoError(t, err)
	defer old.Close()
	r, err := old.TryRegister(Service{Name: "moves"}, Instance("10.0.0.1", 80))
	require.NoError(t, err)
	require.Zero(t, r.ErrorCode)
	c.Nodes[0].RequireTool(t, "node", "drain")
	m := old.Next(t, 5*time.Second)
	require.Equal(t, "ConnectResetRequest", m.Type)
	require.Contains(t, string(m.Body), fmt.Sprintf(`"serverPort":"%d"`, c.Nodes[1].HTTPPort()))

	to, err := TryConnect(c.Nodes[1].GRPCAddr())
	require.NoError(t, err)
	defer to.Close()
	old.Close()
	shown := func(node *Node) int { return len(list(t, node, Params{"serviceName": "moves"}).Hosts) }
	for _, node := range c.Nodes { // the client may take its time
		require.Never(t, func() bool { return shown(node) != 1 }, time.Second, 50*time.Millisecond)
	}
	r, err = to.TryRegister(Service{Name: "moves"}, Instance("10.0.0.1", 80))
	require.NoError(t, err)
	require.Zero(t, r.ErrorCode)
	require.Never(t, func() bool { return shown(c.Nodes[0]) != 1 }, 500*time.Millisecond, 50*time.Millisecond)
	r, err = to.TryCall("InstanceRequest", Service{Name: "moves"}.fields().With(Fields{"type": "deregisterInstance", "instance": Instance("10.0.0.1", 80)}))
	require.NoError(t, err)
	require.Zero(t, r.ErrorCode)
	for _, node := range c.Nodes {
		require.Eventually(t, func() bool { return shown(node) == 0 }, 3*time.Second, 10*time.Millisecond)
	}
}

func TestLife_LeavesForGoodAndComesBack(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	w := c.startWriters(t)
	c.awaitVoters(t, "n1", "n2", "n3")
	leaver := c.await(t) // the hardest one
	name := c.Name(leaver)
	leaver.RequireTool(t, "node", "leave")
	require.Eventually(t, func() bool { return !leaver.Running() }, 20*time.Second, 20*time.Millisecond)
	require.Zero(t, leaver.ExitCode(t))
	rest := slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(n string) bool { return n == name })
	c.awaitVoters(t, rest...)
	require.NoError(t, leaver.Start())
	c.awaitVoters(t, "n1", "n2", "n3")
	w.stop()
	c.Check(t, nil, w.all...)
}

func TestLife_LeaveOnStop(t *testing.T) {
	long(t)
	c := StartCluster(t, 3, WithArgs("--leave-on-stop"))
	c.awaitVoters(t, "n1", "n2", "n3")
	c.Nodes[2].Stop(t)
	c.awaitVoters(t, "n1", "n2")
}

// Without a majority of what would remain, a node does not leave.
func TestLife_RefusesToLeaveWithoutAMajority(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	c.awaitVoters(t, "n1", "n2", "n3")
	c.Nodes[2].Kill(t)
	require.Eventually(t, func() bool {
		states, err := c.Nodes[0].States()
		return err == nil && slices.ContainsFunc(states, func(s NodeState) bool { return s.Name == "n3" && !s.Alive })
	}, 20*time.Second, 50*time.Millisecond)
	_, stderr, code := c.Nodes[0].Tool(t, "node", "leave")
	require.NotZero(t, code)
	require.Contains(t, stderr, "1 of 2 voters are alive")
	require.True(t, c.Nodes[0].Running())
}

func TestLife_GrowsToFiveAndShrinks(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	w := c.startWriters(t)
	f := StartFleet(t, slices.Clone(c.Nodes))
	services := fleetServices(f, 150, 30, c.Nodes...)
	f.Complete(t, 20*time.Second, c.Nodes...)
	f.Subscribe(15, services, c.Nodes...)
	f.Watched(t, 15*len(services))

	c.Join(t)
	c.Join(t)
	f.Knows(c.Nodes...)
	c.awaitVoters(t, "n1", "n2", "n3", "n4", "n5")
	for _, node := range c.Nodes[3:] {
		require.Eventually(t, func() bool { return node.connections(t) >= 20 }, 40*time.Second, 100*time.Millisecond, "clients come to the new node")
	}
	f.Complete(t, 20*time.Second, c.Nodes...)

	for _, node := range slices.Backward(c.Nodes[3:]) {
		node.RequireTool(t, "node", "leave")
		require.Eventually(t, func() bool { return !node.Running() }, 20*time.Second, 20*time.Millisecond)
	}
	c.awaitVoters(t, "n1", "n2", "n3")
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}

// A dead machine is replaced by another one with an empty disk, the same name and
// another address.
func TestLife_ReplacedUnderItsName(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	w := c.startWriters(t)
	f := StartFleet(t, c.Nodes)
	services := fleetServices(f, 60, 30, c.Nodes...)
	f.Complete(t, 20*time.Second, c.Nodes...)
	f.Subscribe(15, services, c.Nodes...)
	f.Watched(t, 15*len(services))
	dead := c.Nodes[1]
	dead.Kill(t)
	require.NoError(t, os.RemoveAll(dead.DataDir()))
	port, err := freePort()
	require.NoError(t, err)
	dead.port, dead.dataDir = port, filepath.Join(t.TempDir(), "anew")
	require.NoError(t, dead.Start())
	c.awaitVoters(t, "n1", "n2", "n3")
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}

// All machines are replaced by empty ones, the next one as soon as the last one says that
// it is ready, as a rolling replacement does.
func TestLife_AllReplacedOneAfterAnother(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)
	for range 2 {
		for _, node := range c.Nodes {
			node.Kill(t)
			require.NoError(t, os.RemoveAll(node.DataDir()))
			began := time.Now()
			require.NoError(t, node.Start())
			t.Logf("%s was ready after %v", node.name, time.Since(began))
		}
	}
	f.Holds(t, 2*time.Second)
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}

func TestLife_FullStopAndStart(t *testing.T) {
	long(t)
	c := StartCluster(t, 3)
	w := c.startWriters(t)
	f := StartFleet(t, c.Nodes)
	fleetServices(f, 60, 30, c.Nodes...)
	f.Complete(t, 20*time.Second, c.Nodes...)
	w.stop()
	took := c.StopAll(t)
	require.Less(t, took, 10*time.Second)
	began := time.Now()
	c.StartAll(t)
	t.Logf("stopped in %v, ready again after %v", took, time.Since(began))
	c.Check(t, f, w.all...)
}
