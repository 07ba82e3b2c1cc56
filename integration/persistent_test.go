package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// persistent are the parameters of a persistent instance.
func persistent(p Params) Params { return p.With(Params{"ephemeral": "false"}) }

// state returns what a node says of itself, or of another one; nil if it knows none of
// that name.
func state(t *testing.T, at *Node, name string) *NodeState {
	t.Helper()
	states, err := at.States()
	require.NoError(t, err)
	for _, s := range states {
		if name == "" && s.Self || s.Name == name {
			return &s
		}
	}
	return nil
}

func TestPersistent_DeadNodeIsRemoved(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	register(t, c.Nodes[0], persistent(Service{Name: "kept"}.at("10.0.0.1", 80)))
	_, stderr, code := c.Nodes[0].Tool(t, "node", "remove", "n3")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "node n3 is alive and would be taken in again: stop it first")
	_, stderr, code = c.Nodes[1].Tool(t, "node", "remove", "n9")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "raft has no node n9")

	c.Nodes[2].Kill(t)
	var asked *Node // one that does not lead
	eventually(t, secs(20), func() error {
		asked = c.followers(t)[0]
		if out, errs, code := asked.Tool(t, "node", "remove", "n3"); code != 0 {
			return fmt.Errorf("%s%s", out, errs)
		}
		return nil
	})
	eventually(t, soon, func() error {
		if s := state(t, asked, "n3"); s != nil {
			return fmt.Errorf("n3 is still listed: %+v", *s)
		}
		return nil
	})
	// The two are a whole now: each may fail to be heard, and they need both.
	register(t, asked, persistent(Service{Name: "kept"}.at("10.0.0.2", 80)))

	require.NoError(t, c.Nodes[2].Start()) // it comes back after all, and is taken in anew
	eventually(t, secs(20), func() error {
		if s := state(t, c.Nodes[2], ""); !s.Voter || s.Lag > 0 {
			return fmt.Errorf("n3 is %+v", *s)
		}
		return nil
	})
	require.Len(t, list(t, c.Nodes[2], consistent(Params{"serviceName": "kept"})).Hosts, 2)
}

func TestPersistent_FolderOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	stranger := StartNode(t)
	register(t, stranger, persistent(Service{Name: "foreign"}.at("10.0.0.1", 80)))
	stranger.Stop(t)
	join := c.Nodes[0].args[slices.Index(c.Nodes[0].args, "--join")+1]
	stranger.args = append(stranger.args, "--node", "n4", "--bootstrap-expect", "0", "--join", join)
	require.NoError(t, stranger.Launch())
	var said Response
	eventually(t, secs(20), func() error {
		var err error
		said, err = stranger.TryRaw(http.MethodGet, "/readyz", "", "")
		if err == nil && !strings.Contains(said.Body, "belongs to another cluster") {
			err = fmt.Errorf("readyz says %d %s", said.Status, said.Body)
		}
		return err
	})
	require.Equal(t, http.StatusServiceUnavailable, said.Status)
	require.Contains(t, said.Body, stranger.DataDir())
	require.Contains(t, said.Body, "move the folder away and start with an empty one")
	eventually(t, soon, func() error {
		out := c.Nodes[1].RequireTool(t, "node", "list")
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "n4 ") && strings.Contains(line, "refused") {
				return nil
			}
		}
		return fmt.Errorf("n4 is not shown as refused:\n%s", out)
	})
	require.Empty(t, list(t, c.Nodes[0], Params{"serviceName": "foreign"}).Hosts)

	// The remedy that it names.
	stranger.Stop(t)
	require.NoError(t, os.Rename(stranger.DataDir(), stranger.DataDir()+"-away"))
	require.NoError(t, stranger.Start())
	require.Empty(t, state(t, stranger, "").Refused)
	register(t, stranger, persistent(Service{Name: "kept"}.at("10.0.0.1", 80)))
}

func TestPersistent_StateAndMetricsOfANode(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	register(t, c.Nodes[0], persistent(Service{Name: "kept"}.at("10.0.0.1", 80)))
	c.settle(t)
	for _, at := range c.Nodes {
		eventually(t, soon, func() error { // nodes ask each other twice a second
			var all []NodeState
			require.NoError(t, json.Unmarshal([]byte(at.RequireTool(t, "node", "list", "-o", "json")), &all))
			require.Len(t, all, 3)
			leaders := 0
			for _, s := range all {
				if s.Role == "leader" {
					leaders++
				}
				if s.Term == 0 || !s.Voter || !s.Alive || s.Stale || s.Refused+s.ReadOnly != "" {
					return fmt.Errorf("%+v", s)
				}
			}
			if leaders != 1 {
				return fmt.Errorf("%d leaders: %+v", leaders, all)
			}
			return nil
		})
		at.RequireTool(t, "snapshot", "save", t.TempDir()+"/saved")
		var metrics string
		eventually(t, soon, func() error {
			metrics = at.Do(t, http.MethodGet, "/metrics", nil).Body
			if !strings.Contains(metrics, "\nrollcall_raft_has_leader 1\n") {
				return errors.New("it has no leader, by its metrics")
			}
			return nil
		})
		for _, name := range []string{
			"leader", "has_leader", "voter", "voters", "term", "last_index", "commit_index", "applied_index", "lag_entries",
			"snapshot_index", "snapshot_bytes", "snapshot_timestamp_seconds", "snapshots_total", "read_only", "stale", "refused",
			"applied_operations_total", "entry_operations", "write_seconds",
		} {
			require.Contains(t, metrics, "# HELP rollcall_raft_"+name+" ")
		}
		require.Contains(t, metrics, "\nrollcall_raft_voters 3\n")
		require.NotContains(t, metrics, "\nrollcall_raft_snapshot_index 0\n")
	}
	eventually(t, soon, func() error {
		n := 0
		for _, at := range c.Nodes { // the leader says it
			n += strings.Count(at.Do(t, http.MethodGet, "/metrics", nil).Body, "\nrollcall_raft_peer_lag_entries{")
		}
		if n != 3 {
			return fmt.Errorf("it is told how far %d nodes are", n)
		}
		return nil
	})
}

// What one node still has goes into new nodes, and the old ones cannot disturb these
// when they come back after all: their data belongs to another cluster.
func TestPersistent_LostMajorityIsRestoredIntoNewNodes(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	everything(t, c)
	c.settle(t)
	survivor := c.followers(t)[0]
	for _, node := range c.Nodes {
		if node != survivor {
			node.Kill(t)
		}
	}
	path := filepath.Join(t.TempDir(), "saved")
	_, stderr, code := survivor.Tool(t, "snapshot", "save", path)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no leader")
	require.NoFileExists(t, path)
	survivor.Kill(t)
	require.NoError(t, survivor.Start()) // it serves what it has
	require.True(t, state(t, survivor, "").Stale)
	require.Contains(t, survivor.RequireTool(t, "node", "list"), "stale")
	out := survivor.RequireTool(t, "snapshot", "save", path, "--stale")
	require.Contains(t, out, "60 instances")
	survivor.Stop(t)

	fresh := StartCluster(t, 3)
	eventually(t, secs(30), func() error { // on a busy machine the leader may change meanwhile
		_, stderr, code := fresh.Nodes[1].Tool(t, "snapshot", "restore", path)
		if code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	for _, node := range fresh.Nodes {
		require.Len(t, list(t, node, consistent(Params{"serviceName": "kept-0"})).Hosts, 10)
		requireEverything(t, node)
	}

	// One of the old nodes finds the new ones.
	old := c.Nodes[0]
	join := fresh.Nodes[0].args[slices.Index(fresh.Nodes[0].args, "--join")+1]
	old.args = []string{"--node", "old", "--bootstrap-expect", "0", "--join", join}
	require.NoError(t, old.Launch())
	eventually(t, secs(20), func() error {
		s := state(t, fresh.Nodes[0], "old")
		if s == nil || !strings.Contains(s.Refused, "belongs to another cluster") {
			return fmt.Errorf("the old node is %+v", s)
		}
		return nil
	})
	register(t, fresh.Nodes[0], persistent(Service{Name: "later"}.at("10.0.0.1", 80)))
}

// smallDisk mounts a file system of so many megabytes, which ends with the test. Where
// it cannot, the test is skipped.
func smallDisk(t *testing.T, megabytes int) (dir string) {
	t.Helper()
	dir, err := mountDisk(t, megabytes)
	if err != nil {
		t.Skipf("SKIP: no small disk here: %v", err)
	}
	return dir
}

func mountDisk(t *testing.T, megabytes int) (dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	if err := run("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", megabytes), "tmpfs", dir); err != nil {
		return "", err
	}
	t.Cleanup(func() { require.NoError(t, run("umount", "-l", dir)) })
	return dir, nil
}

// fill writes a file until a disk takes no more.
func fill(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "filler")
	file, err := os.Create(path)
	require.NoError(t, err)
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = file.Write(block)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, file.Close())
	return path
}

func readOnly(t *testing.T, n *Node, want bool) {
	t.Helper()
	line := map[bool]string{true: "\nrollcall_raft_read_only 1\n", false: "\nrollcall_raft_read_only 0\n"}[want]
	eventually(t, secs(10), func() error {
		if !strings.Contains(n.Do(t, http.MethodGet, "/metrics", nil).Body, line) {
			return errors.New("the metric is not " + strings.TrimSpace(line))
		}
		return nil
	})
}

// A node without space is read-only, says so, serves on, and is a whole one again when
// there is space.
func TestPersistent_FullDisk(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		disk := smallDisk(t, 128)
		n := StartNode(t, WithDataDir(filepath.Join(disk, "data")))
		s, ephemeral := newService(t), newService(t)
		register(t, n, persistent(s.at("10.0.0.1", 80)))
		filler := fill(t, disk)
		readOnly(t, n, true)
		r := n.Do(t, http.MethodPost, v1Instance, persistent(s.at("10.0.0.2", 80)))
		require.Equal(t, http.StatusServiceUnavailable, r.Status, r.Body)
		require.Contains(t, r.Body, "read-only: the disk takes no persistent data now")
		require.Contains(t, r.Body, "free some")
		register(t, n, ephemeral.at("10.0.0.3", 80))
		requireHosts(t, n, ephemeral, "10.0.0.3:80")
		requireHosts(t, n, s, "10.0.0.1:80")
		require.Contains(t, n.RequireTool(t, "node", "list"), "read-only")
		require.Len(t, list(t, n, consistent(s.Params())).Hosts, 1)
		out := n.RequireTool(t, "snapshot", "save", filepath.Join(t.TempDir(), "saved"))
		require.Contains(t, out, "1 instances")
		require.NoError(t, os.Remove(filler))
		readOnly(t, n, false)
		register(t, n, persistent(s.at("10.0.0.2", 80)))
		n.Restart(t)
		requireHosts(t, n, s, "10.0.0.1:80", "10.0.0.2:80")
	})
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			c := StartCluster(t, 3, func(n *Node) { n.dataDir = filepath.Join(smallDisk(t, 128), "data") })
			s := newService(t)
			register(t, c.Nodes[0], persistent(s.at("10.0.0.1", 80)))
			full := c.await(t)
			if who == "follower" {
				full = c.followers(t)[0]
			}
			filler := fill(t, filepath.Dir(full.DataDir()))
			readOnly(t, full, true)
			for k, node := range c.Nodes { // through the full one too: it forwards
				eventually(t, secs(10), func() error {
					r, err := node.TryRaw(http.MethodPost, v1Instance, persistent(s.at(fmt.Sprintf("10.0.1.%d", k), 80)).encode(), "")
					if err == nil && r.Status != http.StatusOK {
						err = fmt.Errorf("n%d: %d %s", k+1, r.Status, r.Body)
					}
					return err
				})
			}
			require.NotEqual(t, full, c.await(t), "another one leads")
			require.NoError(t, os.Remove(filler))
			readOnly(t, full, false)
			c.settle(t)
			require.Len(t, list(t, full, consistent(s.Params())).Hosts, 4)
		})
	}
}
