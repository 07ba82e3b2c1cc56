package integration

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kills is how often the leader is killed: 20 times with ROLLCALL_LONG=1.
func kills() int {
	if fullSize() {
		return 20
	}
	return 3
}

func TestCluster_AcknowledgedWritesSurviveKillsOfTheLeader(t *testing.T) {
	c := StartCluster(t, 3)
	w := c.startWriters(t)
	stop := make(chan struct{})
	h := &history{began: time.Now()}
	var turn atomic.Int64
	waitClients := h.clients(t, c, &turn, stop)
	var pauses []time.Duration
	for range kills() {
		turn.Add(1)
		leader := c.await(t)
		began := time.Now()
		leader.Kill(t)
		other := c.Nodes[(slices.Index(c.Nodes, leader)+1)%len(c.Nodes)]
		require.Eventually(t, func() bool {
			r, err := other.TryRaw(http.MethodPost, "/nacos/v1/ns/instance", "serviceName=probe&ip=10.9.9.9&port="+strconv.Itoa(len(pauses)+1)+"&ephemeral=false", "")
			return err == nil && r.Status == http.StatusOK
		}, 30*time.Second, 10*time.Millisecond, "no write is accepted after the leader was killed")
		pauses = append(pauses, time.Since(began))
		require.NoError(t, leader.Start())
		for _, w := range w.all { // through the one that was killed, too
			w.goesOn(t, 30)
		}
		h.goesOn(t, 100)
	}
	w.stop()
	close(stop)
	waitClients()
	h.check(t)
	slices.Sort(pauses)
	t.Logf("from the kill of the leader to the next accepted write: %v, median %v", pauses, pauses[len(pauses)/2])
	c.settle(t)
	for _, w := range w.all {
		w.mu.Lock()
		t.Logf("%s: %d present, %d removed, %d unknown", w.service, len(w.present), len(w.absent), len(w.unknown))
		require.NotEmpty(t, w.present)
		w.mu.Unlock()
		for _, node := range c.Nodes {
			w.check(t, node)
		}
	}
}

func TestCluster_AllKilledAtOnceAndBackOnOtherPorts(t *testing.T) {
	c := StartCluster(t, 3)
	for n := range 30 {
		node := c.Nodes[n%3]
		r := node.Query(t, http.MethodPost, "/nacos/v1/ns/instance", Params{"serviceName": "kept", "ip": "10.0.0." + strconv.Itoa(n+1), "port": "80", "ephemeral": "false"})
		require.Equal(t, http.StatusOK, r.Status, r.Body)
	}
	for _, node := range c.Nodes {
		node.Kill(t)
	}
	for _, node := range c.Nodes {
		port, err := freePort()
		require.NoError(t, err)
		node.port, node.args, node.name = port, nil, ""
	}
	c.introduce(len(c.Nodes))
	began := time.Now()
	c.StartAll(t)
	c.await(t)
	t.Logf("a leader on other ports after %v", time.Since(began))
	c.settle(t)
	for _, node := range c.Nodes {
		require.Len(t, list(t, node, Params{"serviceName": "kept"}).Hosts, 30)
	}
}

func TestCluster_AWipedNodeCatchesUp(t *testing.T) {
	c := StartCluster(t, 3)
	for n := range 200 {
		r := c.Nodes[0].Query(t, http.MethodPost, "/nacos/v1/ns/instance", Params{"serviceName": "kept", "ip": "10.0.0." + strconv.Itoa(n+1), "port": "80", "ephemeral": "false"})
		require.Equal(t, http.StatusOK, r.Status, r.Body)
	}
	leader := c.await(t)
	wiped := c.Nodes[(slices.Index(c.Nodes, leader)+1)%3]
	wiped.Stop(t)
	require.NoError(t, os.RemoveAll(wiped.DataDir()))
	require.NoError(t, wiped.Start())
	require.Eventually(t, func() bool { return len(list(t, wiped, Params{"serviceName": "kept"}).Hosts) == 200 }, 30*time.Second, 100*time.Millisecond)
}

// followers returns the running nodes that do not lead, in their order; it waits for
// a leader.
func (c *Cluster) followers(t *testing.T) []*Node {
	t.Helper()
	leader := c.await(t)
	var out []*Node
	for _, node := range c.Nodes {
		if node != leader && node.Running() {
			out = append(out, node)
		}
	}
	return out
}
