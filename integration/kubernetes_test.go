package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pods starts n nodes as docs/kubernetes.yaml does: bound to all addresses, advertising
// the one that they find, and with one name as the only address to join.
func pods(t *testing.T, n int) (*Network, *Cluster) {
	t.Helper()
	network := StartNetwork(t)
	return network, StartCluster(t, n, network.On(), network.Named("rollcall-peers"), WithArgs("--bind", "0.0.0.0"))
}

// Pods that are deleted come back with other addresses and the same volumes.
func TestKubernetes_AllPodsDeletedAtOnce(t *testing.T) {
	long(t)
	network, c := pods(t, 3)
	w := c.startWriters(t)
	f := StartFleet(t, c.Nodes)
	fleetServices(f, 60, 30, c.Nodes...)
	f.Complete(t, 20*time.Second, c.Nodes...)
	w.stop()
	var before []string
	for _, node := range c.Nodes {
		before = append(before, node.host)
	}
	c.StopAll(t)
	for _, node := range c.Nodes {
		network.Move(t, node)
	}
	began := time.Now()
	c.StartAll(t)
	t.Logf("ready %v after the start", time.Since(began))
	for _, node := range c.Nodes {
		require.False(t, slices.Contains(before, node.host))
	}
	c.Check(t, f, w.all...)
}

func TestKubernetes_PodsDeletedOneByOne(t *testing.T) {
	long(t)
	network, c := pods(t, 3)
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)
	for _, node := range c.Nodes {
		node.Stop(t)
		network.Move(t, node)
		require.NoError(t, node.Start())
		f.Complete(t, 20*time.Second, c.Nodes...)
	}
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}
