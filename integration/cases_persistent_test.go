package integration

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Section L of the cases: persistent data through Raft; and C105 and C107 of section
// H, which take several nodes.
//
// Left: C175 and C177, health checks by the server.

// fullSize tells whether tests run at the size that is asked for; without ROLLCALL_LONG=1
// some are shorter.
func fullSize() bool { return os.Getenv("ROLLCALL_LONG") == "1" }

// manyWrites makes n persistent writes through a node, eight at once; form makes the
// query of each.
func manyWrites(t *testing.T, n *Node, count int, method string, form func(k int) Params) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	faults := make([]error, 8)
	for w := range faults {
		wg.Go(func() {
			for k := int(next.Add(1)) - 1; k < count && faults[w] == nil; k = int(next.Add(1)) - 1 {
				r, err := n.TryRaw(method, v1Instance, form(k).encode(), "")
				if err == nil && r.Status != http.StatusOK {
					err = fmt.Errorf("write %d: %d %s", k, r.Status, r.Body)
				}
				faults[w] = err
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(faults...))
}

func TestC159_ServerAddressChanged(t *testing.T) {
	t.Parallel()
	n := StartNode(t, WithArgs("--advertise", "10.1.2.3"))
	s := newService(t)
	register(t, n, persistent(s.at("10.0.0.1", 80)))
	n.Stop(t)
	n.args = []string{"--advertise", "10.9.8.7"}
	began := time.Now()
	require.NoError(t, n.Start())
	register(t, n, persistent(s.at("10.0.0.2", 80)))
	require.Less(t, time.Since(began), secs(5))
	requireHosts(t, n, s, "10.0.0.1:80", "10.0.0.2:80")
}

func TestC161_TwoOfThreeKilledAtOnce(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s := newService(t)
	for n := range 30 {
		register(t, c.Nodes[n%3], persistent(s.at(fmt.Sprintf("10.0.0.%d", n), 80)))
	}
	var wg sync.WaitGroup
	for _, node := range c.Nodes[1:] {
		wg.Go(func() { node.Kill(t) })
	}
	wg.Wait()
	pause(t, secs(10))
	began := time.Now()
	for _, node := range c.Nodes[1:] {
		require.NoError(t, node.Launch())
	}
	c.await(t)
	register(t, c.Nodes[0], persistent(s.at("10.0.1.1", 80)))
	require.Less(t, time.Since(began), secs(5))
	t.Logf("a write was accepted %v after both were started", time.Since(began))
	for _, node := range c.Nodes {
		eventually(t, secs(10), func() error {
			r, err := node.TryRaw(http.MethodGet, v1List, consistent(s.Params()).encode(), "")
			if err == nil && r.Status != http.StatusOK {
				err = fmt.Errorf("%d %s", r.Status, r.Body)
			}
			return err
		})
		require.Len(t, list(t, node, consistent(s.Params())).Hosts, 31)
	}
}

func TestC163_FollowerThatLostItsDisk(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s := newService(t)
	for n := range 10 {
		register(t, c.Nodes[0], persistent(s.at(fmt.Sprintf("10.0.0.%d", n), 80)))
	}
	wiped := c.followers(t)[0]
	wiped.Kill(t)
	require.NoError(t, os.RemoveAll(wiped.DataDir()))
	require.NoError(t, wiped.Start()) // returns once it is ready
	require.Len(t, list(t, wiped, s.Params()).Hosts, 10)
	// With its old identity gone it takes part as a new node, in place of the old one.
	eventually(t, secs(20), func() error {
		if st := state(t, wiped, ""); !st.Voter {
			return errors.New("it has no vote yet")
		}
		return nil
	})
}

func TestC165_StaleNodeMustNotPushThePast(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s := newService(t)
	register(t, c.Nodes[0], persistent(s.at("10.0.0.1", 80)))
	register(t, c.Nodes[0], persistent(s.at("10.0.0.2", 80)))
	c.settle(t)
	third := c.followers(t)[0]
	third.RequireTool(t, "snapshot", "save", filepath.Join(t.TempDir(), "saved")) // takes a snapshot on that node
	third.Stop(t)
	other := c.followers(t)[0]
	deregister(t, other, persistent(s.at("10.0.0.1", 80)))

	require.NoError(t, third.Launch())
	seen := func(info ServiceInfo) {
		_, past := info.Host("10.0.0.1:80")
		require.False(t, past, "the past: %v", info.Addrs())
	}
	var sub *Conn
	for deadline := time.Now().Add(secs(20)); sub == nil; {
		require.True(t, time.Now().Before(deadline), "no connection")
		if r, err := third.TryRaw(http.MethodGet, v1List, s.Params().encode(), ""); err == nil && r.Status == http.StatusOK {
			var info ServiceInfo
			r.JSON(t, &info)
			seen(info)
		}
		if c, err := TryConnect(third.GRPCAddr()); err == nil {
			sub = c
		}
	}
	defer sub.Close()
	seen(sub.Subscribe(t, s, ""))
	for _, info := range sub.Collect(t, secs(3)) {
		seen(info)
	}
	requireHosts(t, third, s, "10.0.0.2:80")
}

func TestC167_NoQuorum(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s, ephemeral := newService(t), newService(t)
	register(t, c.Nodes[0], persistent(s.at("10.0.0.1", 80)))
	c.settle(t)
	survivor := c.followers(t)[0]
	client := Connect(t, survivor.GRPCAddr())
	for _, node := range c.Nodes {
		if node != survivor {
			node.Kill(t)
		}
	}
	for n := range 3 {
		limit := secs(5) // twice what a write waits for a leader
		if n == 0 {      // it may have reached the leader that died: its outcome is looked for longer
			limit = secs(10)
		}
		began := time.Now()
		r := survivor.Do(t, http.MethodPost, v1Instance, persistent(s.at("10.0.0.2", 80)))
		require.Less(t, time.Since(began), limit)
		t.Logf("refused after %v: %s", time.Since(began), r.Body)
		require.Equal(t, http.StatusServiceUnavailable, r.Status)
		require.Contains(t, r.Body, "no leader")
		if n > 0 { // then it knows that the others are dead, too
			require.NotContains(t, r.Body, "outcome unknown")
		}
		began = time.Now()
		reply := client.RegisterPersistent(t, s, Instance("10.0.0.3", 80, Fields{"ephemeral": false}))
		require.Less(t, time.Since(began), limit)
		require.Equal(t, 500, reply.ResultCode)
		require.Contains(t, reply.Message, "no leader")

		client.Register(t, ephemeral, Instance(fmt.Sprintf("10.0.1.%d", n), 80)).OK(t)
		register(t, survivor, ephemeral.at("10.0.2.1", 80+n))
		require.Len(t, list(t, survivor, ephemeral.Params()).Hosts, n+2)
		requireHosts(t, survivor, s, "10.0.0.1:80")
		require.Equal(t, http.StatusOK, survivor.Do(t, http.MethodGet, "/livez", nil).Status)
	}
}

func TestC169_RemovedVoterCallsNoElections(t *testing.T) {
	t.Parallel()
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On())
	removed := c.followers(t)[0]
	name := state(t, removed, "").Name
	network.Isolate(t, removed, c.Nodes...)
	others := slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Node) bool { return n == removed })
	eventually(t, secs(20), func() error {
		if _, stderr, code := others[0].Tool(t, "node", "remove", name); code != 0 {
			return errors.New(stderr)
		}
		return nil
	})
	c.await(t)
	// A machine that stands still for half a second has the others elect, too; a node that
	// calls for elections does so every second.
	limit := state(t, others[0], "").Term + 10
	calm := func() error {
		for _, node := range c.Nodes {
			if st := state(t, node, ""); st.Term > limit {
				return fmt.Errorf("%s is %s in term %d", st.Name, st.Role, st.Term)
			}
		}
		return nil
	}
	always(t, secs(10), calm) // while it hears nothing
	network.Heal(t)
	always(t, secs(40), calm)
	register(t, others[0], persistent(newService(t).at("10.0.0.1", 80)))
}

func TestC171_TruncatedSnapshot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nodes int
		keep  func(size int64) int64
	}{
		"one node, empty":   {1, func(int64) int64 { return 0 }},
		"one node, half":    {1, func(size int64) int64 { return size / 2 }},
		"three nodes, half": {3, func(size int64) int64 { return size / 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := []*Node{nil}
			if c.nodes == 1 {
				nodes[0] = StartNode(t)
			} else {
				nodes = StartCluster(t, c.nodes).Nodes
			}
			n := nodes[len(nodes)-1]
			s := newService(t)
			for k := range 3 { // of three snapshots two are kept
				register(t, n, persistent(s.at(fmt.Sprintf("10.0.0.%d", k), 80)))
				n.RequireTool(t, "snapshot", "save", filepath.Join(t.TempDir(), "saved"))
			}
			register(t, n, persistent(s.at("10.0.0.3", 80)))
			n.Kill(t)
			all := snapshotsOf(t, n)
			require.NotEmpty(t, all)
			newest := all[0]
			info, err := os.Stat(newest)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(newest, c.keep(info.Size())))
			require.NoError(t, n.Start())
			require.Len(t, list(t, n, s.Params()).Hosts, 4)
			require.Contains(t, n.Logs(), "snapshot is damaged, started from an older state and the log")
		})
	}
	t.Run("nothing else", func(t *testing.T) {
		t.Parallel()
		n := StartNode(t)
		register(t, n, persistent(newService(t).at("10.0.0.1", 80)))
		n.RequireTool(t, "snapshot", "save", filepath.Join(t.TempDir(), "saved"))
		n.Stop(t)
		all := snapshotsOf(t, n)
		require.NotEmpty(t, all)
		snapshot := all[0]
		require.NoError(t, os.Truncate(snapshot, 0))
		require.NoError(t, os.Remove(filepath.Join(n.DataDir(), "raft", "raft.db")))
		before := len(n.Logs())
		require.Error(t, n.Start(), "it must not start empty")
		require.Equal(t, 1, n.ExitCode(t))
		require.Contains(t, n.Logs()[before:], snapshot)
		require.FileExists(t, snapshot)
	})
}

// snapshotsOf returns the files of the snapshots of a node, the newest first.
func snapshotsOf(t *testing.T, n *Node) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(n.DataDir(), "raft", "snapshots", "*", "state.bin"))
	require.NoError(t, err)
	slices.SortFunc(found, func(a, b string) int {
		one, err := os.Stat(a)
		require.NoError(t, err)
		other, err := os.Stat(b)
		require.NoError(t, err)
		return other.ModTime().Compare(one.ModTime())
	})
	return found
}

func TestC173_LogStaysBounded(t *testing.T) {
	t.Parallel()
	toggles := 20_000
	if fullSize() {
		toggles = 100_000
	}
	n := StartNode(t)
	s := newService(t)
	register(t, n, persistent(s.at("10.0.0.1", 80)))
	began := time.Now()
	manyWrites(t, n, toggles, http.MethodPut, func(k int) Params {
		return persistent(s.at("10.0.0.1", 80)).With(Params{"enabled": strconv.FormatBool(k%2 == 0)})
	})
	took := time.Since(began)
	size := sizeOf(t, n.DataDir())
	require.Less(t, size, int64(64<<20))
	limit := secs(2)
	if raceDetector() { // no user's binary; it is ten times as slow
		limit = secs(10)
	}
	started := within(t, limit, func() time.Duration {
		n.Stop(t)
		began := time.Now()
		require.NoError(t, n.Start())
		return time.Since(began)
	})
	t.Logf("%d writes in %v, data folder %d MB, started in %v", toggles, took, size>>20, started)
}

// sizeOf returns the bytes that the files of a folder take on the disk.
func sizeOf(t *testing.T, dir string) (size int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // a temporary file
			err = nil
		}
		return err
	}))
	return size
}

func TestC179_FollowerFarBehind(t *testing.T) {
	t.Parallel()
	writes := 30_000
	if fullSize() {
		writes = 200_000
	}
	c := StartCluster(t, 3)
	s := newService(t)
	register(t, c.Nodes[0], persistent(s.at("10.0.0.1", 80)))
	leader := c.await(t)
	behind := c.followers(t)[0]
	behind.Stop(t)
	before, done := state(t, leader, "").LastIndex, 0
	for done < writes || len(snapshotsOf(t, leader)) < 2 { // till then the log has it all
		manyWrites(t, leader, writes/3, http.MethodPost, func(k int) Params {
			k += done
			return persistent(s.at(fmt.Sprintf("10.0.%d.%d", k>>8&3, k&255), 80)).With(Params{"metadata": "k=" + strconv.Itoa(k)})
		})
		done += writes / 3
	}
	entries := state(t, leader, "").LastIndex - before
	began := time.Now()
	require.NoError(t, behind.Start())
	eventually(t, secs(20), func() error {
		if has, wants := state(t, behind, "").AppliedIndex, state(t, leader, "").LastIndex; has < wants {
			return fmt.Errorf("it has applied %d of %d", has, wants)
		}
		return nil
	})
	t.Logf("%d writes, %d log entries, caught up %v after its start", done, entries, time.Since(began))
	require.Len(t, list(t, behind, s.Params()).Hosts, 1024)
	require.NotEmpty(t, snapshotsOf(t, behind), "it was sent a snapshot")
}

// A node that was frozen for ten thousand writes pushes what changed, and nothing else.
func TestPersistent_FrozenFollowerPushesOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	moving, still := newService(t), newService(t)
	for _, s := range []Service{moving, still} {
		register(t, c.Nodes[0], persistent(s.at("10.0.0.1", 80)))
	}
	c.settle(t)
	frozen, leader := c.followers(t)[0], c.await(t)
	subs := []*Conn{subscriber(t, frozen, moving, ""), subscriber(t, frozen, still, "")}
	for _, sub := range subs {
		sub.Quiet(t, secs(1)) // the first pushes are acknowledged
	}
	frozen.Pause(t)
	manyWrites(t, leader, 10_000, http.MethodPost, func(k int) Params {
		return persistent(moving.at("10.0.0.1", 80)).With(Params{"metadata": "k=" + strconv.Itoa(k)})
	})
	register(t, leader, persistent(moving.at("10.0.0.2", 80)))
	frozen.Resume(t)
	last := subs[0].PushUntil(t, secs(20), func(s ServiceInfo) bool { return len(s.Hosts) == 2 })
	require.Len(t, last.Hosts, 2)
	subs[1].Quiet(t, secs(3))
	pushes := len(subs[0].Collect(t, secs(1)))
	require.Less(t, pushes, 20, "pushes are merged")
}

func TestC105_OverrideSurvivesAReconnectToAnotherNode(t *testing.T) {
	t.Parallel()
	const expiry = 3 * time.Second
	c := StartCluster(t, 3, WithEnv("ROLLCALL_OVERRIDE_EXPIRY="+expiry.String()))
	s := newService(t)
	one := Instance("10.0.0.1", 8080)
	detailOf := func() error { // as operators see it, on every node
		for k, node := range c.Nodes {
			r, err := node.TryRaw(http.MethodGet, v2Instance, s.at("10.0.0.1", 8080).encode(), "")
			switch {
			case err != nil:
				return err
			case r.Status == http.StatusOK && !strings.Contains(r.Body, `"enabled":false`) && strings.Contains(r.Body, `"enabled"`):
				return fmt.Errorf("n%d shows it as enabled: %s", k+1, r.Body)
			}
			if addrs := list(t, node, s.Params()).Addrs(); len(addrs) > 0 {
				return fmt.Errorf("n%d lists it: %v", k+1, addrs)
			}
		}
		return nil
	}
	conn := Connect(t, c.Nodes[0].GRPCAddr())
	conn.Register(t, s, one).OK(t)
	for _, node := range c.Nodes {
		eventually(t, soon, hostsAre(t, node, s, "10.0.0.1:8080"))
	}
	update(t, c.Nodes[1], s.at("10.0.0.1", 8080).With(Params{"enabled": "false"}))
	for _, node := range c.Nodes {
		eventually(t, soon, hostsAre(t, node, s))
	}
	for _, next := range c.Nodes[1:] {
		conn.Close()
		conn = Connect(t, next.GRPCAddr())
		conn.Register(t, s, one).OK(t)
		always(t, 2*expiry, detailOf)
	}
}

func TestC107_DisabledHTTPInstanceAndARestart(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s := newService(t)
	address := s.at("10.0.0.1", 8080)
	register(t, c.Nodes[0], address)
	beating(t, c.Nodes[0], time.Second, address)
	for _, node := range c.Nodes {
		eventually(t, soon, hostsAre(t, node, s, "10.0.0.1:8080"))
	}
	update(t, c.Nodes[1], address.With(Params{"enabled": "false"}))
	for _, node := range c.Nodes {
		eventually(t, soon, hostsAre(t, node, s))
	}
	third := c.Nodes[2]
	third.Stop(t)
	require.NoError(t, third.Launch())
	always(t, secs(10), func() error {
		for k, node := range c.Nodes {
			r, err := node.TryRaw(http.MethodGet, v1List, s.Params().encode(), "")
			if err != nil || r.Status != http.StatusOK { // it is starting
				if node == third {
					continue
				}
				return fmt.Errorf("n%d: %d %w", k+1, r.Status, err)
			}
			var info ServiceInfo
			r.JSON(t, &info)
			if len(info.Hosts) > 0 {
				return fmt.Errorf("n%d lists %v", k+1, info.Addrs())
			}
		}
		return nil
	})
	require.Equal(t, http.StatusOK, third.Do(t, http.MethodGet, "/readyz", nil).Status)
}
