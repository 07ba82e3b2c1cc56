package raftstore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// childFolder is set in the environment of a child process: it writes to a store
// in that folder until it is killed.
const childFolder = "ROLLCALL_RAFTSTORE_TEST_CHILD"

// child writes instances of its own numbering from several goroutines and prints
// the number of each one that was acknowledged. Snapshots are frequent, so that a
// kill may hit one.
func child(dir string) {
	cfg := childConfig(dir)
	s, err := New(cfg)
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := w; ; n += 8 {
				if err := s.Publish(context.Background(), publication(service(n), host(n))); err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				mu.Lock()
				_, err := fmt.Fprintln(os.Stdout, n)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}

func childConfig(dir string) Config {
	cfg := DefaultConfig()
	cfg.Dir = dir
	cfg.Bind = "127.0.0.1:0"
	cfg.SnapshotBytes = 256 << 10
	cfg.TrailingLogs = 16
	return cfg
}

func TestStore_KilledProcessLosesNothingAcknowledged(t *testing.T) {
	t.Parallel() // it waits most of the time
	dir := t.TempDir()
	acknowledged := make(map[int]bool)
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childFolder+"="+dir)
		var faults strings.Builder
		cmd.Stderr = &faults
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for count := 0; count < 300+100*round && lines.Scan(); count++ {
			var n int
			_, err := fmt.Sscan(lines.Text(), &n)
			require.NoError(t, err)
			acknowledged[n] = true
		}

		_, err = New(testConfig(dir))
		require.ErrorIs(t, err, ErrInUse)
		require.ErrorContains(t, err, dir)

		require.NoError(t, cmd.Process.Kill()) // SIGKILL
		for lines.Scan() {                     // what it said before it died
			var n int
			if _, err := fmt.Sscan(lines.Text(), &n); err == nil {
				acknowledged[n] = true
			}
		}
		require.Error(t, cmd.Wait())
		require.Empty(t, faults.String())

		s, err := New(childConfig(dir))
		require.NoError(t, err)
		require.NoError(t, s.Start())
		ready(t, s)
		for n := range acknowledged {
			require.Len(t, s.Published(service(n), "10.0.0.1:8080"), 1, "service %d", n)
		}
		list, err := listSnapshots(dir)
		require.NoError(t, err)
		t.Logf("%d acknowledged, %d there, snapshot up to %d of %d", len(acknowledged), len(s.Services("")), list[0].index, s.raft.LastIndex())
		require.NoError(t, s.Close())
	}
}
