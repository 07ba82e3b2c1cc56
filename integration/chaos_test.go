package integration

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chaos makes faults by chance, one after the other: each hits one node of three, so
// that a majority is always there and nothing that lives may be seen to go.
type chaos struct {
	*Cluster
	network *Network // nil: none could be made
	fleet   *Fleet
	random  *rand.Rand
	started map[string]int
}

// fault is one kind of fault.
type fault struct {
	name   string
	weight int
	run    func(t *testing.T, c *chaos, node *Node)
}

func faults() []fault {
	return []fault{
		{"kill", 3, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			node.Kill(t)
			c.wait(12 * time.Second)
			require.NoError(t, node.Start())
		}},
		{"restart", 3, func(t *testing.T, _ *chaos, node *Node) {
			t.Helper()
			node.Restart(t)
		}},
		{"pause", 3, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			node.Pause(t)
			c.wait(20 * time.Second)
			node.Resume(t)
		}},
		{"isolate", 2, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			c.network.Isolate(t, node, c.Nodes...)
			c.wait(20 * time.Second)
			c.network.Heal(t)
		}},
		{"cut one way", 2, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			for _, other := range c.Nodes {
				if other != node && c.random.IntN(2) == 0 {
					c.network.CutOneWay(t, node, other)
				}
			}
			c.wait(20 * time.Second)
			c.network.Heal(t)
		}},
		{"lose packets", 1, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			for _, other := range c.Nodes {
				if other != node {
					c.network.Lose(t, node, other, 0.05+0.25*c.random.Float64())
				}
			}
			c.wait(15 * time.Second)
			c.network.Heal(t)
		}},
		{"slow line", 1, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			c.network.Delay(t, node, time.Duration(5+c.random.IntN(100))*time.Millisecond, 20*time.Millisecond)
			c.wait(20 * time.Second)
			c.network.Heal(t)
		}},
		{"move", 1, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			node.Stop(t)
			c.network.Move(t, node)
			require.NoError(t, node.Start())
		}},
	}
}

// wait lets a fault last for a time by chance.
func (c *chaos) wait(most time.Duration) {
	c.fleet.pause(time.Duration(c.random.Int64N(int64(most))))
}

// next chooses a fault that can be made here.
func (c *chaos) next() fault {
	var all []fault
	for k, f := range faults() {
		if k >= 3 && c.network == nil {
			break
		}
		for range f.weight {
			all = append(all, f)
		}
	}
	return all[c.random.IntN(len(all))]
}

// TestChaos makes faults for as long as ROLLCALL_TEST_CHAOS says. ROLLCALL_TEST_SEED
// repeats the choices of a run; what happens at the same time as they do varies.
func TestChaos(t *testing.T) {
	d, err := time.ParseDuration(os.Getenv("ROLLCALL_TEST_CHAOS"))
	if err != nil {
		t.Skip("SKIP: make test-chaos runs this (ROLLCALL_TEST_CHAOS=20m)")
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("ROLLCALL_TEST_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("seed %d: repeat with ROLLCALL_TEST_SEED=%d", seed, seed)
	c := &chaos{random: rand.New(rand.NewPCG(seed, 1)), started: make(map[string]int)}
	var options []Option
	missing := networkMissing()
	t.Run("network", func(sub *testing.T) {
		if missing != "" {
			sub.Skip("SKIP: there are no faults of the network: " + missing)
		}
	})
	if missing == "" {
		c.network = StartNetwork(t)
		options = append(options, c.network.On())
	}
	c.Cluster = StartCluster(t, 3, options...)
	w := c.startWriters(t)
	n := fleetSize()
	c.fleet = watchedFleet(t, c.Cluster, n, n/2, max(15, n/10))
	for began, round := time.Now(), 1; time.Since(began) < d; round++ {
		f, node := c.next(), c.Nodes[c.random.IntN(3)]
		t.Logf("%s round %d: %s %s", time.Now().Format(time.TimeOnly), round, f.name, node.name)
		f.run(t, c, node)
		c.started[f.name]++
		c.fleet.Complete(t, 40*time.Second, c.Nodes...)
		c.fleet.Unharmed(t)
		c.wait(4 * time.Second)
	}
	c.fleet.Holds(t, 40*time.Second, c.Nodes...) // longer than the grace
	w.stop()
	c.Check(t, c.fleet, w.all...)
	c.fleet.Unharmed(t)
	t.Logf("seed %d: %v", seed, c.started)
}
