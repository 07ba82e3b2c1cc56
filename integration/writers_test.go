package integration

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writers write persistent instances, one through each node.
type writers struct {
	all    []*writer
	stopCh chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

// startWriters starts one writer for each node that there is. They end with the test.
func (c *Cluster) startWriters(t *testing.T) *writers {
	t.Helper()
	w := &writers{stopCh: make(chan struct{})}
	for k, node := range c.Nodes {
		one := &writer{
			node: node, service: fmt.Sprintf("kept-%d", k+1),
			present: make(map[string]bool), absent: make(map[string]bool), unknown: make(map[string]bool),
		}
		w.all = append(w.all, one)
		w.wg.Go(func() { one.run(w.stopCh) })
	}
	t.Cleanup(w.stop)
	return w
}

func (w *writers) stop() {
	w.once.Do(func() { close(w.stopCh) })
	w.wg.Wait()
}

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

// keepsMost bounds what a writer leaves registered, however long it writes: the nodes'
// lists are compared in the end.
const keepsMost = 5000

// run writes until stop is closed.
func (w *writer) run(stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		ip := func(n int) string { return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255) }
		done := w.write(http.MethodPost, ip(n))
		if done && n%3 == 0 {
			w.write(http.MethodDelete, ip(n))
		}
		if n >= keepsMost && w.has(ip(n-keepsMost)) {
			w.write(http.MethodDelete, ip(n-keepsMost))
		}
		if !done { // the node is down, or nobody leads
			select {
			case <-stop:
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// has tells whether a registration is acknowledged.
func (w *writer) has(ip string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.present[ip+":80"]
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

// await returns the leader once there is one.
func (c *Cluster) await(t *testing.T) (leader *Node) {
	t.Helper()
	require.Eventually(t, func() bool {
		leader = c.Leader()
		return leader != nil
	}, 30*time.Second, 20*time.Millisecond, "no leader")
	return leader
}

// settle waits until every running node has applied what the leader has.
func (c *Cluster) settle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		indexes := make(map[uint64]bool)
		for _, node := range c.Running() {
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
