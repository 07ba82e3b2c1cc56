package integration

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writer registers and deregisters persistent instances through one node, and
// remembers what was acknowledged.
type writer struct {
	node    *Node
	service string

	mu      sync.Mutex
	present map[string]bool // acknowledged registrations
	absent  map[string]bool // acknowledged deregistrations
	unknown map[string]bool // neither: the call failed
}

// run writes until stop is closed.
func (w *writer) run(stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		ip := fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
		done := w.write(http.MethodPost, ip)
		if done && n%3 == 0 {
			w.write(http.MethodDelete, ip)
		}
		if !done { // the node is down, or nobody leads
			select {
			case <-stop:
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// write makes one write and notes what became of it.
func (w *writer) write(method, ip string) bool {
	query := "serviceName=" + w.service + "&ip=" + ip + "&port=80&ephemeral=false"
	response, err := w.node.TryRaw(method, "/nacos/v1/ns/instance", query, "")
	done := err == nil && response.Status == http.StatusOK
	w.mu.Lock()
	defer w.mu.Unlock()
	address := ip + ":80"
	delete(w.unknown, address)
	switch {
	case !done: // it may have happened, or not
		w.unknown[address] = true
		delete(w.present, address)
	case method == http.MethodPost:
		w.present[address] = true
	default:
		delete(w.present, address)
		w.absent[address] = true
	}
	return done
}

// goesOn waits for so many further writes.
func (w *writer) goesOn(t *testing.T, writes int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.present) + len(w.absent)
	}
	until := count() + writes
	eventually(t, secs(30), func() error {
		if n := count(); n < until {
			return fmt.Errorf("%s: %d of %d writes", w.service, n, until)
		}
		return nil
	})
}

// check compares what a node lists with what was acknowledged.
func (w *writer) check(t *testing.T, node *Node) {
	t.Helper()
	listed := make(map[string]bool)
	for _, h := range list(t, node, Params{"serviceName": w.service}).Hosts {
		listed[h.IP+":"+strconv.Itoa(h.Port)] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for address := range w.present {
		require.True(t, listed[address], "%s of %s was acknowledged and is not listed by %s", address, w.service, node.Addr())
	}
	for address := range w.absent {
		require.False(t, listed[address], "%s of %s was removed and is listed by %s", address, w.service, node.Addr())
	}
	for address := range listed {
		require.True(t, w.present[address] || w.unknown[address], "%s of %s was never written and is listed by %s", address, w.service, node.Addr())
	}
}

// kills is how often the leader is killed: 20 times with ROLLCALL_LONG=1.
func kills() int {
	if long() {
		return 20
	}
	return 3
}

func TestCluster_AcknowledgedWritesSurviveKillsOfTheLeader(t *testing.T) {
	c := StartCluster(t, 3)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var writers []*writer
	for k, node := range c.Nodes {
		w := &writer{
			node: node, service: fmt.Sprintf("kept-%d", k+1),
			present: make(map[string]bool), absent: make(map[string]bool), unknown: make(map[string]bool),
		}
		writers = append(writers, w)
		wg.Go(func() { w.run(stop) })
	}
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
		for _, w := range writers { // through the one that was killed, too
			w.goesOn(t, 30)
		}
		h.goesOn(t, 100)
	}
	close(stop)
	wg.Wait()
	waitClients()
	h.check(t)
	slices.Sort(pauses)
	t.Logf("from the kill of the leader to the next accepted write: %v, median %v", pauses, pauses[len(pauses)/2])
	c.settle(t)
	for _, w := range writers {
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
		node.port, node.args = port, nil
	}
	c.introduce()
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

// await returns the leader once there is one.
func (c *Cluster) await(t *testing.T) (leader *Node) {
	t.Helper()
	require.Eventually(t, func() bool {
		leader = c.Leader()
		return leader != nil
	}, 30*time.Second, 20*time.Millisecond, "no leader")
	return leader
}

// settle waits until every node has applied what the leader has.
func (c *Cluster) settle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		indexes := make(map[uint64]bool)
		for _, node := range c.Nodes {
			states, err := node.States()
			if err != nil {
				return false
			}
			for _, s := range states {
				if s.Self {
					indexes[s.AppliedIndex] = true
				}
			}
		}
		return len(indexes) == 1 && !maps.Equal(indexes, map[uint64]bool{0: true})
	}, 30*time.Second, 50*time.Millisecond, "the nodes do not agree on how far they are")
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
