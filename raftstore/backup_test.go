package raftstore

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

func save(t testing.TB, s *Store) (file []byte, b naming.Backup) {
	t.Helper()
	require.NoError(t, s.WaitConsistent(t.Context()))
	var out bytes.Buffer
	b, err := s.Save(&out)
	require.NoError(t, err)
	return out.Bytes(), b
}

func TestBackup_SaveAndInspect(t *testing.T) {
	c := startCluster(t, 3, patient)
	c.writeAll(c.leader(), 0, 10)
	require.NoError(t, c.forward(t.Context(), c.leader(), putSwitch("a", "1")))
	begin := time.Now()
	var files [][]byte
	for _, n := range c.running() {
		file, b := save(t, n.Store)
		files = append(files, file)
		require.EqualValues(t, len(file), b.Bytes)
		require.WithinDuration(t, begin, b.Time, wait)
		require.Equal(t, n.State().Cluster, b.Cluster)
		require.Equal(t, naming.Backup{
			Bytes: b.Bytes, Format: snapshotFormat, Index: b.Index, Time: b.Time, Cluster: b.Cluster,
			Services: 10, Instances: 20, Settings: 4, Overrides: 4, Switches: 1, Namespaces: map[string]int{"public": 10},
		}, b)
		again, err := Inspect(bytes.NewReader(file))
		require.NoError(t, err)
		require.Equal(t, b, again)
	}
	require.Equal(t, files[0], files[1], "all nodes write the same bytes")
	require.Equal(t, files[0], files[2])

	for _, n := range []int{20, len(files[0]) / 2, len(files[0]) - 1} {
		damaged := bytes.Clone(files[0])
		damaged[n] ^= 1
		_, err := Inspect(bytes.NewReader(damaged))
		require.ErrorContains(t, err, "the backup is damaged")
		_, _, err = c.leader().DryRun(bytes.NewReader(damaged[:n]))
		require.ErrorContains(t, err, "the backup is damaged")
		_, _, err = c.leader().Restore(t.Context(), bytes.NewReader(damaged))
		require.ErrorContains(t, err, "the backup is damaged")
	}
	require.Len(t, c.leader().Services(""), 10)
	for content, why := range map[string]string{
		"":                               "the file is cut short",
		string(files[0][:100]):           "the file is cut short",
		"some other file, long enough":   "no snapshot of Rollcall",
		string(ofNewerFormat(files[0])):  "start that version",
		string(append(files[0], " "...)): "behind the checksum",
	} {
		_, err := Inspect(strings.NewReader(content))
		var invalid *naming.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "snapshot", invalid.Field)
		require.ErrorContains(t, err, why)
	}
}

func putSwitch(name, value string) func(ctx context.Context, s *Store) error {
	return func(ctx context.Context, s *Store) error {
		return s.Put(ctx, consistency.Datum{Key: consistency.Key{Kind: consistency.KindSwitch, Switch: name}, Value: value})
	}
}

// A backup goes back over what came later, and into nodes that never saw it.
func TestBackup_Restore(t *testing.T) {
	c := startCluster(t, 3, patient)
	c.writeAll(c.leader(), 0, 10)
	require.NoError(t, c.forward(t.Context(), c.leader(), putSwitch("a", "1")))
	file, b := save(t, c.follower().Store)
	want := content(c.leader().table)
	cluster := c.leader().State().Cluster

	c.writeAll(c.leader(), 5, 10)
	require.NoError(t, c.publish(c.leader(), publication(service(1))))
	require.NoError(t, c.publish(c.leader(), publication(service(2), host(77))))
	require.NoError(t, c.forward(t.Context(), c.leader(), putSwitch("a", "2")))
	before := content(c.leader().table)

	// The backup has two instances each of the services 1 and 2 that are gone, and
	// another switch; it lacks the services 10 to 14 and the new instance of 2.
	inspected, change, err := c.leader().DryRun(bytes.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, b, inspected)
	require.Equal(t, naming.BackupChange{Added: 4, Removed: 5*2 + 2 + 1, Altered: 1, Unchanged: 16 + 4 + 4}, change)
	require.ElementsMatch(t, before, content(c.leader().table), "a dry run changes nothing")

	var redirect *consistency.RedirectError
	_, _, err = c.follower().Restore(t.Context(), bytes.NewReader(file))
	require.ErrorAs(t, err, &redirect)
	_, again, err := c.leader().Restore(t.Context(), bytes.NewReader(file))
	require.NoError(t, err)
	require.Equal(t, change, again)
	for _, n := range c.running() {
		require.NoError(t, n.WaitConsistent(t.Context()))
		require.ElementsMatch(t, want, content(n.table), n.name)
		require.Equal(t, map[string]string{"a": "1"}, n.Switches())
		require.Equal(t, cluster, n.State().Cluster)
	}
	c.writeAll(c.leader(), 20, 3)
	c.same()
	for _, name := range c.names() { // it outlives a restart
		c.kill(name)
	}
	for _, name := range c.names() {
		c.start(name, 0)
	}
	c.awaitReady()
	c.same()
	require.Len(t, c.leader().Services(""), 13)

	fresh := newCluster(t, nil)
	n := fresh.start("m1", 1)
	fresh.awaitReady()
	fresh.writeAll(n, 0, 1)
	own := n.State().Cluster
	_, change, err = n.Restore(t.Context(), bytes.NewReader(file))
	require.NoError(t, err)
	require.Positive(t, change.Added)
	require.ElementsMatch(t, want, content(n.table))
	require.Equal(t, own, n.State().Cluster, "it stays a cluster of its own")
	require.NoError(t, fresh.publish(n, publication(service(2), host(55))))
	require.Equal(t, "10.0.0.55", n.Published(service(2), "10.0.0.1:8080")[0].IP, "versions go on from those of the backup")
	fresh.start("m2", 0)
	fresh.awaitConfigured("m1 m2")
	fresh.same()
}

func TestBackup_OfAnEmptyStore(t *testing.T) {
	s, err := New(testConfig(t.TempDir()))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	_, err = s.Save(new(bytes.Buffer))
	require.ErrorIs(t, err, consistency.ErrClosed)
	require.NoError(t, s.Start())
	ready(t, s)
	file, b := save(t, s)
	require.Zero(t, b.Services)
	_, change, err := s.Restore(t.Context(), bytes.NewReader(file))
	require.NoError(t, err)
	require.Zero(t, change)
}

// A node without the others has applied what it knows to be committed before Raft
// runs, and Raft itself has applied nothing.
func TestBackup_OfANodeWithoutTheOthers(t *testing.T) {
	c := startCluster(t, 3, func(cfg *Config) {
		patient(cfg)
		cfg.StaleAfter = 50 * time.Millisecond
	})
	c.writeAll(c.leader(), 0, 10)
	c.same()
	n := c.node("n1")
	index := n.fsm.index.load()
	for _, name := range c.names() {
		c.close(name)
	}
	n = c.start("n1", 0)
	c.eventually(n.Stale)
	var out bytes.Buffer
	b, err := n.Save(&out)
	require.NoError(t, err)
	require.Equal(t, index, b.Index)
	require.Equal(t, 10, b.Services)
	again, err := Inspect(&out)
	require.NoError(t, err)
	require.Equal(t, b, again)
}
