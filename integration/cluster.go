package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Cluster is several nodes that know each other.
type Cluster struct {
	Nodes []*Node
}

// StartCluster starts n new nodes together and waits until each is ready. They end
// with the test.
func StartCluster(tb testing.TB, n int, options ...Option) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for k := range n {
		node, err := NewNode(append([]Option{WithDataDir(filepath.Join(tb.TempDir(), fmt.Sprintf("n%d", k+1)))}, options...)...)
		require.NoError(tb, err)
		c.Nodes = append(c.Nodes, node)
	}
	c.introduce(n)
	tb.Cleanup(func() {
		defer c.requireNoneLeft(tb)
		for k, node := range c.Nodes {
			node.Close()
			if tb.Failed() {
				tb.Logf("output of node n%d:\n%s", k+1, node.log.tail())
			}
			if report := node.Trouble(); report != "" {
				tb.Errorf("node n%d:\n%s", k+1, report)
			}
		}
	})
	c.StartAll(tb)
	return c
}

// introduce tells each node that has no name yet its name, how many are expected, and
// where all of them are.
func (c *Cluster) introduce(expect int) {
	var gossip []string
	for _, node := range c.Nodes {
		host := node.host
		if node.joins != "" {
			host = node.joins
		}
		gossip = append(gossip, net.JoinHostPort(host, strconv.Itoa(node.port-1001)))
	}
	gossip = slices.Compact(gossip)
	for k, node := range c.Nodes {
		if node.name != "" {
			continue
		}
		node.name = fmt.Sprintf("n%d", k+1)
		node.args = append(node.args, "--node", node.name,
			"--bootstrap-expect", strconv.Itoa(expect), "--join", strings.Join(gossip, ","))
	}
}

// StartAll starts the nodes that do not run, all at once, and waits until each is
// ready.
func (c *Cluster) StartAll(tb testing.TB) {
	tb.Helper()
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for k, node := range c.Nodes {
		if !node.Running() {
			wg.Go(func() { errs[k] = node.start() })
		}
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(tb, err)
	}
}

// Join starts one more node, which joins those that are there.
func (c *Cluster) Join(tb testing.TB, options ...Option) *Node {
	tb.Helper()
	node, err := NewNode(append([]Option{WithDataDir(filepath.Join(tb.TempDir(), fmt.Sprintf("n%d", len(c.Nodes)+1)))}, options...)...)
	require.NoError(tb, err)
	c.Nodes = append(c.Nodes, node)
	c.introduce(0)
	require.NoError(tb, node.start())
	return node
}

// StopAll stops all nodes at once, as asked, and returns how long that took.
func (c *Cluster) StopAll(tb testing.TB) time.Duration {
	tb.Helper()
	began := time.Now()
	var wg sync.WaitGroup
	codes := make([]int, len(c.Nodes))
	errs := make([]error, len(c.Nodes))
	for k, node := range c.Nodes {
		wg.Go(func() { codes[k], errs[k] = node.Terminate() })
	}
	wg.Wait()
	for k := range c.Nodes {
		require.NoError(tb, errs[k])
		require.Zero(tb, codes[k], "exit code of n%d", k+1)
	}
	return time.Since(began)
}

// Running returns the nodes that run, in their order.
func (c *Cluster) Running() []*Node {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Node) bool { return !n.Running() })
}

// Name returns the name of a node.
func (c *Cluster) Name(n *Node) string { return n.name }

// requireNoneLeft requires that no process of a node outlived it.
func (c *Cluster) requireNoneLeft(tb testing.TB) {
	tb.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		args := strings.Split(string(line), "\x00")
		for _, node := range c.Nodes {
			if at := slices.Index(args, "--data-dir"); at >= 0 && at+1 < len(args) && args[at+1] == node.dataDir {
				tb.Errorf("a process of node %s is left: %s", node.name, path)
			}
		}
	}
}

// NodeState is what a node tells of itself or another one.
type NodeState struct {
	Name         string `json:"name"`
	Self         bool   `json:"self"`
	Alive        bool   `json:"alive"`
	Role         string `json:"role"`
	Voter        bool   `json:"voter"`
	Term         uint64 `json:"term"`
	LastIndex    uint64 `json:"lastIndex"`
	AppliedIndex uint64 `json:"appliedIndex"`
	Instances    int    `json:"instances"`
	Differs      int    `json:"differs"`
	Lag          uint64 `json:"lag"`
	Stale        bool   `json:"stale"`
	ReadOnly     string `json:"readOnly"`
	Refused      string `json:"refused"`
	Ready        bool   `json:"ready"`
	Draining     bool   `json:"draining"`
	Connections  int    `json:"connections"`
}

// States returns what the node knows of all nodes.
func (n *Node) States() ([]NodeState, error) {
	response, err := n.TryRaw(http.MethodGet, "/rollcall/v1/nodes", "", "")
	if err != nil {
		return nil, err
	}
	var list struct {
		Nodes []NodeState `json:"nodes"`
	}
	err = json.Unmarshal([]byte(response.Body), &list)
	return list.Nodes, err
}

// Add starts one more node, which is told where the first one is.
func (c *Cluster) Add(tb testing.TB, options ...Option) *Node {
	tb.Helper()
	first := c.Nodes[0]
	node := StartNode(tb, append([]Option{WithArgs(
		"--node", fmt.Sprintf("n%d", len(c.Nodes)+1), "--bootstrap-expect", "0",
		"--join", net.JoinHostPort(first.host, strconv.Itoa(first.port-1001)),
	)}, options...)...)
	c.Nodes = append(c.Nodes, node)
	return node
}

// Alive returns the names of the nodes that a node holds to be alive, sorted.
func (n *Node) Alive() []string {
	states, err := n.States()
	if err != nil {
		return nil
	}
	var alive []string
	for _, s := range states {
		if s.Alive {
			alive = append(alive, s.Name)
		}
	}
	return alive
}

// Leader returns the running node that says that it leads, nil when none does.
func (c *Cluster) Leader() *Node {
	for _, node := range c.Nodes {
		if !node.Running() {
			continue
		}
		states, err := node.States()
		if err != nil {
			continue
		}
		for _, s := range states {
			if s.Self && s.Role == "leader" {
				return node
			}
		}
	}
	return nil
}
