package integration

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// chaos makes faults by chance, one after the other: each hits one node of three, so
// that a majority is always there and nothing that lives may be seen to go.
type chaos struct {
	*Cluster
	can     means
	network *Network
	skewed  string // a build whose clock can be set off
	fleet   *Fleet
	random  *rand.Rand
	started map[string]int
}

// means is what a kind of fault takes, and not every machine has.
type means uint

const (
	ofNetwork means = 1 << iota
	ofDisks
	ofClocks
)

// fault is one kind of fault.
type fault struct {
	name   string
	weight int
	needs  means
	run    func(t *testing.T, c *chaos, node *Node)
}

func faults() []fault {
	return []fault{
		{"kill", 3, 0, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			node.Kill(t)
			c.wait(12 * time.Second)
			require.NoError(t, node.Start())
		}},
		{"restart", 3, 0, func(t *testing.T, _ *chaos, node *Node) {
			t.Helper()
			node.Restart(t)
		}},
		{"pause", 3, 0, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			node.Pause(t)
			c.wait(20 * time.Second)
			node.Resume(t)
		}},
		{"drain", 1, 0, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			node.RequireTool(t, "node", "drain")
			c.wait(12 * time.Second)
			node.RequireTool(t, "node", "undrain")
		}},
		{"empty disk", 1, 0, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			node.Kill(t)
			require.NoError(t, os.RemoveAll(node.DataDir()))
			require.NoError(t, node.Start())
			c.awaitVoters(t, "n1", "n2", "n3") // until then another fault could take the majority
		}},
		{"isolate", 2, ofNetwork, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			c.network.Isolate(t, node, c.Nodes...)
			c.wait(20 * time.Second)
			c.network.Heal(t)
		}},
		{"cut one way", 2, ofNetwork, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			for _, other := range c.Nodes {
				if other != node && c.random.IntN(2) == 0 {
					c.network.CutOneWay(t, node, other)
				}
			}
			c.wait(20 * time.Second)
			c.network.Heal(t)
		}},
		{"lose packets", 1, ofNetwork, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			for _, other := range c.Nodes {
				if other != node {
					c.network.Lose(t, node, other, 0.05+0.25*c.random.Float64())
				}
			}
			c.wait(15 * time.Second)
			c.network.Heal(t)
		}},
		{"slow line", 1, ofNetwork, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			c.network.Delay(t, node, time.Duration(5+c.random.IntN(100))*time.Millisecond, 20*time.Millisecond)
			c.wait(20 * time.Second)
			c.network.Heal(t)
		}},
		{"move", 1, ofNetwork, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			node.Stop(t)
			c.network.Move(t, node)
			require.NoError(t, node.Start())
		}},
		{"full disk", 1, ofDisks, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			filler := fill(t, filepath.Dir(node.DataDir()))
			c.wait(20 * time.Second)
			require.NoError(t, os.Remove(filler))
			require.Eventually(t, func() bool { return state(t, node, "").ReadOnly == "" }, 60*time.Second, 50*time.Millisecond)
		}},
		{"other clock", 1, ofClocks, func(t *testing.T, c *chaos, node *Node) {
			t.Helper()
			const most = 3600 // seconds
			node.Kill(t)
			node.program, node.env = c.skewed, []string{skewEnv + "=" + strconv.Itoa(c.random.IntN(2*most)-most)}
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
	for _, f := range faults() {
		for range f.weight {
			if f.needs&^c.can == 0 {
				all = append(all, f)
			}
		}
	}
	return all[c.random.IntN(len(all))]
}

// equip gets what the faults take, and says loudly what there is not.
func (c *chaos) equip(t *testing.T) (options []Option) {
	t.Helper()
	have := func(m means, name, missing string) {
		if missing == "" {
			c.can |= m
			return
		}
		t.Run(name, func(t *testing.T) { t.Skipf("SKIP: there are no faults of the %s: %s", name, missing) })
	}
	if have(ofNetwork, "network", networkMissing()); c.can&ofNetwork != 0 {
		c.network = StartNetwork(t)
		options = append(options, c.network.On())
	}
	_, err := mountDisk(t, 1)
	missing := ""
	if err != nil {
		missing = err.Error()
	}
	if have(ofDisks, "disks", missing); c.can&ofDisks != 0 {
		options = append(options, func(n *Node) {
			n.dataDir = filepath.Join(smallDisk(t, 256), "data")
		})
	}
	c.skewed, missing = skewedBuild(t)
	have(ofClocks, "clocks", missing)
	return options
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
	c.Cluster = StartCluster(t, 3, c.equip(t)...)
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
