package integration

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fleetSize is how many clients of each kind the large stories have; ten subscribers
// less. ROLLCALL_TEST_FLEET sets it.
func fleetSize() int {
	if n, err := strconv.Atoi(os.Getenv("ROLLCALL_TEST_FLEET")); err == nil {
		return n
	}
	return 300
}

// All nodes are restarted one after the other, as asked, under many clients. Nobody sees
// an instance go, and no call fails at every node.
func TestRolling_Restart(t *testing.T) {
	long(t)
	n := fleetSize()
	c := StartCluster(t, 3, WithArgs("--shutdown-timeout", "25s"))
	w := c.startWriters(t)
	f := watchedFleet(t, c, n, n, max(15, n/10))
	for k, node := range c.Nodes {
		began := time.Now()
		took := node.Stop(t)
		require.NoError(t, node.Start())
		t.Logf("n%d: stopped in %v, ready after %v", k+1, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		f.Complete(t, 30*time.Second, c.Nodes...)
	}
	f.Holds(t, 35*time.Second, c.Nodes...) // longer than the grace
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
	f.RetriedOnce(t)
}

// The nodes of the previous build are replaced one after the other by those of the
// present one, with the same data.
func TestRolling_Upgrade(t *testing.T) {
	long(t)
	previous, revision := PreviousBuild(t)
	t.Logf("the previous build is %s", revision)
	c := StartCluster(t, 3, WithProgram(previous))
	w := c.startWriters(t)
	f := watchedFleet(t, c, 60, 30, 15)
	for _, node := range c.Nodes {
		node.Stop(t)
		node.program = ""
		require.NoError(t, node.Start())
		f.Complete(t, 30*time.Second, c.Nodes...)
		f.Holds(t, 3*time.Second, c.Nodes...)
	}
	w.stop()
	c.Check(t, f, w.all...)
	f.Unharmed(t)
}
