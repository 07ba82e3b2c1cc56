package integration

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash/crc64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// everything writes persistent data of all kinds through all nodes of a cluster.
func everything(t *testing.T, c *Cluster) {
	t.Helper()
	for n := range 60 {
		s := Service{Name: fmt.Sprintf("kept-%d", n%6)}
		if n%6 == 5 {
			s.Namespace = "other"
		}
		register(t, c.Nodes[n%3], s.at(fmt.Sprintf("10.0.0.%d", n), 80).With(Params{"ephemeral": "false", "metadata": metadataJSON(t, "text", "ä=1,b&c")}))
	}
	createService(t, c.Nodes[1], Service{Name: "with-settings"}, Params{"protectThreshold": "0.5", "metadata": "k=v"})
	update(t, c.Nodes[2], Service{Name: "kept-0"}.at("10.0.0.0", 80).With(Params{"ephemeral": "false", "weight": "7"}))
	requireOK(t, c.Nodes[0].Do(t, http.MethodPut, v1Switches, Params{"entry": "clientBeatInterval", "value": "7000"}))
}

// requireEverything requires that a node shows what everything wrote.
func requireEverything(t *testing.T, n *Node) {
	t.Helper()
	for k := range 6 {
		s := Service{Name: fmt.Sprintf("kept-%d", k)}
		if k == 5 {
			s.Namespace = "other"
		}
		hosts := list(t, n, s.Params()).Hosts
		require.Len(t, hosts, 10, s.Name)
		for _, h := range hosts {
			require.Equal(t, map[string]string{"text": "ä=1,b&c"}, h.Metadata)
			require.False(t, h.Ephemeral)
		}
	}
	h, ok := list(t, n, Params{"serviceName": "kept-0"}).Host("10.0.0.0:80")
	require.True(t, ok)
	require.InDelta(t, 7, h.Weight, 0)
	var settings struct {
		Threshold float64 `json:"protectThreshold"`
	}
	n.Do(t, http.MethodGet, v1Service, Params{"serviceName": "with-settings"}).JSON(t, &settings)
	require.InDelta(t, 0.5, settings.Threshold, 0)
	var switches struct {
		Beat int64 `json:"clientBeatInterval"`
	}
	n.Do(t, http.MethodGet, v1Switches, nil).JSON(t, &switches)
	require.EqualValues(t, 7000, switches.Beat)
}

func TestSnapshot_SavedHereRestoredElsewhere(t *testing.T) {
	t.Parallel()
	from := StartCluster(t, 3)
	everything(t, from)
	path := filepath.Join(t.TempDir(), "saved")
	for _, node := range from.Nodes { // each one at once has what was acknowledged by others
		out := node.RequireTool(t, "snapshot", "save", path, "--force")
		require.Regexp(t, `7 services, 60 instances, 1 settings, .*1 overrides, 1 switches`, out)
	}
	for _, node := range from.Nodes {
		node.Kill(t)
	}

	to := StartCluster(t, 3)
	register(t, to.Nodes[0], Service{Name: "foreign"}.at("10.0.0.1", 80).With(Params{"ephemeral": "false"}))
	follower := to.followers(t)[0]
	sub := subscriber(t, to.followers(t)[1], Service{Name: "kept-1"}, "")
	out := follower.RequireTool(t, "snapshot", "restore", path, "--dry-run", "-o", "json")
	require.JSONEq(t, `{"added":63,"removed":1,"altered":0,"unchanged":0}`, field(t, out, "change"))
	require.Empty(t, list(t, follower, Params{"serviceName": "kept-1"}).Hosts)

	out = follower.RequireTool(t, "snapshot", "restore", path)
	require.Contains(t, out, "63 added, 1 removed, 0 altered, 0 unchanged")
	requireEverything(t, follower) // at once where it was asked for
	require.Len(t, sub.PushUntil(t, soon, func(s ServiceInfo) bool { return len(s.Hosts) > 0 }).Hosts, 10)
	to.settle(t)
	for _, node := range to.Nodes {
		requireEverything(t, node)
		require.Empty(t, list(t, node, Params{"serviceName": "foreign"}).Hosts)
	}
	for _, node := range to.Nodes {
		node.Kill(t)
	}
	to.StartAll(t)
	to.settle(t)
	for _, node := range to.Nodes {
		requireEverything(t, node)
	}
	register(t, to.Nodes[1], Service{Name: "later"}.at("10.0.0.1", 80).With(Params{"ephemeral": "false"}))
}

// field returns the JSON of one field.
func field(t *testing.T, object, name string) string {
	t.Helper()
	fields := make(map[string]json.RawMessage)
	require.NoError(t, json.Unmarshal([]byte(object), &fields))
	return string(fields[name])
}

// A program must not start with a part of what a newer version has written.
func TestSnapshot_OfANewerVersionIsNotStartedFrom(t *testing.T) {
	t.Parallel()
	n := StartNode(t)
	register(t, n, Service{Name: "kept"}.at("10.0.0.1", 80).With(Params{"ephemeral": "false"}))
	path := filepath.Join(t.TempDir(), "saved")
	n.RequireTool(t, "snapshot", "save", path)
	n.Stop(t)

	found, err := filepath.Glob(filepath.Join(n.DataDir(), "raft", "snapshots", "*", "state.bin"))
	require.NoError(t, err)
	require.NotEmpty(t, found)
	newest := found[len(found)-1]
	for _, file := range []string{newest, path} {
		makeNewer(t, file)
	}
	meta := filepath.Join(filepath.Dir(newest), "meta.json")
	text, err := os.ReadFile(meta)
	require.NoError(t, err)
	content, err := os.ReadFile(newest)
	require.NoError(t, err)
	fields := make(map[string]any)
	require.NoError(t, json.Unmarshal(text, &fields))
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	_, _ = sum.Write(content)
	fields["CRC"] = sum.Sum(nil)
	text, err = json.Marshal(fields)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(meta, text, 0o600))

	before := len(n.Logs())
	require.Error(t, n.Start())
	require.Equal(t, 1, n.ExitCode(t))
	said := strings.Split(strings.TrimSpace(n.Logs()[before:]), "\n")
	require.Contains(t, said[len(said)-1], "rollcall: start raftstore")
	require.Contains(t, said[len(said)-1], "a newer version of the program has written this, start that version")
	require.Contains(t, said[len(said)-1], newest)
	require.Len(t, said, 1, "nothing but that line")

	_, stderr, code := n.Tool(t, "snapshot", "inspect", path)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "start that version")
}

// makeNewer gives a snapshot the next format number, as if a newer version had
// written it.
func makeNewer(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	content = content[:len(content)-sha256.Size]
	content[len("rollcall snapshot\n")+2]++
	sum := sha256.Sum256(content)
	require.NoError(t, os.WriteFile(path, append(content, sum[:]...), 0o600))
}
