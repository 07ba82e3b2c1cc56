package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
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
	leader := c.await(t)
	leaders, voters := 0, 0
	for _, at := range c.Nodes {
		eventually(t, soon, func() error { // nodes ask each other twice a second
			states, err := at.States()
			if err == nil && slices.ContainsFunc(states, func(s NodeState) bool { return s.Term == 0 }) {
				err = fmt.Errorf("%+v", states)
			}
			return err
		})
		var all []NodeState
		require.NoError(t, json.Unmarshal([]byte(at.RequireTool(t, "node", "list", "-o", "json")), &all))
		require.Len(t, all, 3)
		for _, s := range all {
			require.True(t, s.Alive)
			require.False(t, s.Stale)
			require.Empty(t, s.Refused+s.ReadOnly)
			require.Positive(t, s.Term)
			if s.Self && s.Role == "leader" {
				leaders++
			}
			if s.Self && s.Voter {
				voters++
			}
		}
		at.RequireTool(t, "snapshot", "save", t.TempDir()+"/saved")
		metrics := at.Do(t, http.MethodGet, "/metrics", nil).Body
		for _, name := range []string{
			"leader", "has_leader", "voter", "voters", "term", "last_index", "commit_index", "applied_index", "lag_entries",
			"snapshot_index", "snapshot_bytes", "snapshot_timestamp_seconds", "snapshots_total", "read_only", "stale", "refused",
			"applied_operations_total", "entry_operations", "write_seconds",
		} {
			require.Contains(t, metrics, "# HELP rollcall_raft_"+name+" ")
		}
		require.Contains(t, metrics, "\nrollcall_raft_has_leader 1\n")
		require.Contains(t, metrics, "\nrollcall_raft_voters 3\n")
		require.NotContains(t, metrics, "\nrollcall_raft_snapshot_index 0\n")
	}
	require.Equal(t, 1, leaders)
	require.Equal(t, 3, voters)
	eventually(t, soon, func() error {
		if n := strings.Count(leader.Do(t, http.MethodGet, "/metrics", nil).Body, "\nrollcall_raft_peer_lag_entries{"); n != 3 {
			return fmt.Errorf("the leader tells how far %d nodes are", n)
		}
		return nil
	})
}
