package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

// step is one operation on one service. A service holds one instance, whose number
// is the value; 0 is none.
type step struct {
	service int
	read    bool
	value   int // to be written
}

// history is what clients did and saw.
type history struct {
	begin    time.Time
	patience time.Duration // of one operation
	mu       sync.Mutex
	all      []porcupine.Operation
}

func (h *history) add(client int, s step, call time.Duration, output int, unknown bool) {
	back := time.Since(h.begin)
	h.mu.Lock()
	defer h.mu.Unlock()
	o := porcupine.Operation{ClientId: client, Input: s, Call: int64(call), Output: output, Return: int64(back)}
	if unknown { // it may take effect at any time from now on, or never
		o.Return = math.MaxInt64
	}
	h.all = append(h.all, o)
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// model is a register for each service.
func model() porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			parts := make(map[int][]porcupine.Operation)
			for _, o := range all {
				s, _ := o.Input.(step)
				parts[s.service] = append(parts[s.service], o)
			}
			var out [][]porcupine.Operation
			for _, part := range parts {
				out = append(out, part)
			}
			return out
		},
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			s, _ := input.(step)
			if s.read {
				return state == output, state
			}
			return true, s.value
		},
		DescribeOperation: func(input, output any) string {
			if s, _ := input.(step); !s.read {
				return fmt.Sprint("write ", s.value)
			}
			return fmt.Sprint("read ", output)
		},
	}
}

// value returns what a node shows of a service.
func value(s *Store, svc int) int {
	instances := s.Published(service(svc), "10.0.0.1:8080")
	if len(instances) == 0 {
		return 0
	}
	return instances[0].Port
}

// clients write and read through all nodes until stopCh is closed.
func (h *history) clients(t *testing.T, c *cluster, services int, stopCh <-chan struct{}) (wait func()) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var next atomic.Int64
	var wg sync.WaitGroup
	for client := range 12 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			for {
				select {
				case <-stopCh:
					return
				case <-time.After(time.Duration(random.IntN(10)) * time.Millisecond):
				}
				nodes := c.running()
				h.act(t, c, client, nodes[random.IntN(len(nodes))], step{
					service: random.IntN(services),
					read:    random.IntN(3) == 0,
					value:   int(next.Add(1)) * min(1, random.IntN(4)), // every fourth is a deletion
				})
			}
		})
	}
	return wg.Wait
}

func (h *history) act(t *testing.T, c *cluster, client int, n *node, s step) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), h.patience)
	defer cancel()
	call := time.Since(h.begin)
	if s.read {
		if n.WaitConsistent(ctx) == nil {
			h.add(client, s, call, value(n.Store, s.service), false)
		}
		return
	}
	p := publication(service(s.service))
	if s.value != 0 {
		i := host(1)
		i.Port = s.value
		p = publication(service(s.service), i)
	}
	err := c.forward(ctx, n, func(ctx context.Context, s *Store) error { return s.Publish(ctx, p) })
	switch {
	case err == nil:
		h.add(client, s, call, 0, false)
	case errors.Is(err, consistency.ErrUnknownOutcome):
		h.add(client, s, call, 0, true)
	} // else nothing was written
}

// The leader is killed twenty times under writes from all nodes. What was
// acknowledged stays, what was deleted does not come back, and every consistent
// read fits: histories are linearizable, and in the end all nodes agree.
func TestHistory_LeaderIsKilledTwentyTimes(t *testing.T) {
	t.Parallel() // it waits most of the time
	const services = 4
	c := startCluster(t, 3, nil)
	h := &history{begin: time.Now(), patience: 4 * time.Second}
	stopCh := make(chan struct{})
	wait := h.clients(t, c, services, stopCh)
	var took []time.Duration
	for round := range 20 {
		lead := c.leader()
		begin := time.Now()
		c.kill(lead.name)
		n := c.running()[round%2]
		h.act(t, c, 100, n, step{service: services + round, value: 1})
		took = append(took, time.Since(begin))
		restarted := c.start(lead.name, 0)
		c.eventually(func() bool { return restarted.Ready() == nil && !restarted.Stale() })
		enough := h.count() + 30
		c.eventually(func() bool { return h.count() >= enough })
	}
	close(stopCh)
	wait()
	for n := range services {
		h.act(t, c, 101, c.follower(), step{service: n, read: true})
	}
	c.same()
	slices.Sort(took)
	unknown := 0
	for _, o := range h.all {
		if o.Return == math.MaxInt64 {
			unknown++
		}
	}
	t.Logf("%d operations, %d of unknown outcome; a write after a kill took %s to %s, median %s", len(h.all), unknown, took[0], took[len(took)-1], took[len(took)/2])
	require.Greater(t, len(h.all), 500)
	result, info := porcupine.CheckOperationsVerbose(model(), h.all, time.Minute)
	if result != porcupine.Ok {
		path := t.ArtifactDir() + "/history.html"
		require.NoError(t, porcupine.VisualizePath(model(), info, path))
		t.Fatalf("the history is not linearizable (%s), see %s", result, path)
	}
}

// The model itself must find what is wrong.
func TestHistory_ModelFindsAResurrection(t *testing.T) {
	op := func(call, back int64, s step, output int) porcupine.Operation {
		return porcupine.Operation{Input: s, Call: call, Output: output, Return: back}
	}
	write1, remove := op(0, 1, step{value: 1}, 0), op(2, 3, step{}, 0)
	require.True(t, porcupine.CheckOperations(model(), []porcupine.Operation{write1, remove, op(4, 5, step{read: true}, 0)}))
	require.False(t, porcupine.CheckOperations(model(), []porcupine.Operation{write1, remove, op(4, 5, step{read: true}, 1)}))
	unknown := write1
	unknown.Return = math.MaxInt64
	require.True(t, porcupine.CheckOperations(model(), []porcupine.Operation{unknown, remove, op(4, 5, step{read: true}, 1)}), "it may have happened later")
}

// Nodes are cut off one after the other, the leader too, under writes from all of
// them.
func TestHistory_Partitions(t *testing.T) {
	t.Parallel() // it waits most of the time
	const services = 3
	c := startCluster(t, 5, func(cfg *Config) { cfg.LeaderWait = 300 * time.Millisecond })
	h := &history{begin: time.Now(), patience: 700 * time.Millisecond}
	stopCh := make(chan struct{})
	wait := h.clients(t, c, services, stopCh)
	for round := range 4 {
		names := c.names()
		if round%2 == 0 {
			names = []string{c.leader().name, names[round%5]}
		} else {
			names = names[round%4 : round%4+2]
		}
		for _, name := range names {
			c.cut(name, true)
		}
		enough := h.count() + 30
		c.eventually(func() bool { return h.count() >= enough })
		<-time.After(time.Duration(round) * 100 * time.Millisecond)
		for _, name := range names {
			c.cut(name, false)
		}
		c.leader()
	}
	close(stopCh)
	wait()
	for n := range services {
		h.act(t, c, 101, c.follower(), step{service: n, read: true})
	}
	c.same()
	t.Logf("%d operations", len(h.all))
	require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(model(), h.all, time.Minute))
}
