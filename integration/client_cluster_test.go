package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
)

// The same crowd on three nodes that know each other: every node must show everything
// within the time, and no subscriber may see anybody go.

// everywhere requires completeness at each running node.
func (c *crowd) everywhere(nodes ...*Node) {
	c.t.Helper()
	deadline := time.Now().Add(backWithin)
	for _, n := range nodes {
		if n.Running() {
			c.complete(time.Until(deadline), n)
		}
	}
}

func TestClient_KilledNodes(t *testing.T) {
	long(t)
	eachClientMode(t, func(t *testing.T, mode client.Mode) {
		nodes := StartCluster(t, 3).Nodes
		c := newClientCrowd(t, mode, nodes...)
		for _, n := range nodes {
			n.Kill(t)
			c.everywhere(nodes...)
			n.Restart(t)
			c.everywhere(nodes...)
		}
		c.works()
	})
}

func TestClient_RollingRestart(t *testing.T) {
	long(t)
	eachClientMode(t, func(t *testing.T, mode client.Mode) {
		nodes := StartCluster(t, 3).Nodes
		c := newClientCrowd(t, mode, nodes...)
		for _, n := range nodes {
			n.Stop(t)
			n.Restart(t)
			c.everywhere(nodes...)
		}
		c.works()
	})
}

func TestClient_PausedNode(t *testing.T) {
	long(t)
	eachClientMode(t, func(t *testing.T, mode client.Mode) {
		nodes := StartCluster(t, 3).Nodes
		c := newClientCrowd(t, mode, nodes...)
		var paused *Node
		for _, n := range nodes { // the one that the provider is connected to
			if n.Addr() == c.provider.Server() {
				paused = n
			}
		}
		require.NotNil(t, paused)
		paused.Pause(t)
		eventually(t, 2*soon, func() error { // the client's own silence times, and the next connection
			if server := c.provider.Server(); server == "" || server == paused.Addr() {
				return errIncomplete
			}
			return nil
		})
		for _, n := range nodes {
			if n != paused {
				c.complete(backWithin, n)
			}
		}
		paused.Resume(t)
		c.complete(soon, paused)
		c.works()
	})
}

// The node that the provider is connected to is cut off from the other nodes and from
// the clients, and comes back.
func TestClient_PartitionedNode(t *testing.T) {
	long(t)
	eachClientMode(t, func(t *testing.T, mode client.Mode) {
		network := StartNetwork(t)
		nodes := StartCluster(t, 3, network.On()).Nodes
		c := newClientCrowd(t, mode, nodes...)
		var lone *Node
		var others []*Node
		for _, n := range nodes {
			if n.Addr() == c.provider.Server() {
				lone = n
			} else {
				others = append(others, n)
			}
		}
		require.NotNil(t, lone)
		network.Isolate(t, lone, others...)
		network.CutTest(t, lone)
		eventually(t, 2*soon, func() error { // the client's own silence times, and the next connection
			if server := c.provider.Server(); server == "" || server == lone.Addr() {
				return errIncomplete
			}
			return nil
		})
		for _, n := range others {
			c.complete(backWithin, n)
		}
		network.Heal(t)
		c.complete(2*soon, lone) // when the nodes have found each other again
		c.works()
	})
}
