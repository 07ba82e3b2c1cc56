package raftstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

// sink is a snapshot sink in memory that fails after limit bytes, if that is set.
type sink struct {
	bytes.Buffer
	limit             int
	closed, cancelled bool
}

func (s *sink) Write(p []byte) (int, error) {
	if s.limit > 0 && s.Len()+len(p) > s.limit {
		return 0, errors.New("disk full")
	}
	return s.Buffer.Write(p)
}
func (s *sink) ID() string    { return "id" }
func (s *sink) Close() error  { s.closed = true; return nil }
func (s *sink) Cancel() error { s.cancelled = true; return nil }

func persisted(t testing.TB, f *fsm) []byte {
	t.Helper()
	snapshot, err := f.Snapshot()
	require.NoError(t, err)
	defer snapshot.Release()
	var out sink
	require.NoError(t, snapshot.Persist(&out))
	require.True(t, out.closed)
	return out.Bytes()
}

// restored returns another FSM with the content of f.
func restored(t testing.TB, f *fsm) *fsm {
	t.Helper()
	out := newFSM(consistency.NewDataStore(), f.limit)
	out.requests.limit = f.requests.limit
	require.NoError(t, out.Restore(io.NopCloser(bytes.NewReader(persisted(t, f)))))
	return out
}

func filledFSM(t testing.TB, services int) *fsm {
	t.Helper()
	f := newFSM(consistency.NewDataStore(), 1<<40)
	for n := range services {
		for m, d := range []consistency.Datum{settings(service(n), 0.5), override(service(n), host(n), 2)} {
			d.Version = versionAt(uint64(n+1), m)
			f.table.Put(d)
		}
		f.table.Publish(publication(service(n), host(n), host(n+1)), versionAt(uint64(n+1), 2))
	}
	f.index.advance(uint64(services))
	return f
}

func TestSnapshot_RoundTrip(t *testing.T) {
	for _, services := range []int{0, 1, 500} {
		f := filledFSM(t, services)
		again := restored(t, f)
		require.ElementsMatch(t, content(f.table), content(again.table))
		require.Equal(t, f.index.load(), again.index.load())
	}
}

func TestSnapshot_IsOfOneMoment(t *testing.T) {
	f := filledFSM(t, 10)
	want := content(f.table)
	snapshot, err := f.Snapshot()
	require.NoError(t, err)
	f.table.Publish(publication(service(1), host(99)), versionAt(99, 0))
	f.table.Delete(settings(service(2), 0).Key)
	var out sink
	require.NoError(t, snapshot.Persist(&out))
	again := newFSM(consistency.NewDataStore(), 1)
	require.NoError(t, again.Restore(io.NopCloser(&out)))
	require.ElementsMatch(t, want, content(again.table))
}

func TestSnapshot_RestoreReplacesEverything(t *testing.T) {
	f := filledFSM(t, 3)
	target := filledFSM(t, 5)
	var changed []string
	target.table.Listen(func(c consistency.ServiceChanged) { changed = append(changed, c.Service.Name) })
	require.NoError(t, target.Restore(io.NopCloser(bytes.NewReader(persisted(t, f)))))
	require.ElementsMatch(t, content(f.table), content(target.table))
	require.ElementsMatch(t, []string{"service-3", "service-4"}, changed, "the others look as they did")
}

// Whatever byte is damaged or missing: the snapshot is refused and the state stays.
func TestSnapshot_DamageIsFound(t *testing.T) {
	whole := persisted(t, filledFSM(t, 2))
	target := filledFSM(t, 1)
	want := content(target.table)
	refused := func(b []byte, what string, n int) {
		t.Helper()
		require.Errorf(t, target.Restore(io.NopCloser(bytes.NewReader(b))), "%s %d of %d", what, n, len(whole))
	}
	for n := range whole {
		refused(whole[:n], "cut at byte", n)
		damaged := bytes.Clone(whole)
		damaged[n] ^= 0x10
		refused(damaged, "altered byte", n)
	}
	refused(append(bytes.Clone(whole), 0), "one more than", len(whole))
	require.Equal(t, want, content(target.table))

	newer := ofNewerFormat(whole)
	damaged := bytes.Clone(newer)
	damaged[len(damaged)-40] ^= 1
	err := target.Restore(io.NopCloser(bytes.NewReader(damaged)))
	require.ErrorContains(t, err, "format 4 is unknown")
	require.NotErrorIs(t, err, errNewer, "the format may be what is damaged")
	require.NoError(t, target.failure())
	err = target.Restore(io.NopCloser(bytes.NewReader(newer)))
	require.ErrorContains(t, err, "format 4 is unknown")
	require.ErrorIs(t, err, errNewer)
	require.Equal(t, err, target.failure())
}

// ofNewerFormat returns a snapshot as a newer version of the program might write it.
func ofNewerFormat(snapshot []byte) []byte {
	b := bytes.Clone(snapshot[:len(snapshot)-sha256.Size])
	b[len(snapshotMagic)+2] = snapshotFormat + 1
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// An older program must neither start with part of the data nor put the newer part
// aside.
func TestStart_NewerData_IsRefused(t *testing.T) {
	t.Run("snapshot", func(t *testing.T) {
		cfg, _, newer, _ := folderWithTwoSnapshots(t)
		path := filepath.Join(newer, snapshotFile)
		whole, err := os.ReadFile(path)
		require.NoError(t, err)
		replaceState(t, newer, ofNewerFormat(whole))
		startRefused(t, cfg, "format 4 is unknown")
		require.FileExists(t, path)
	})
	t.Run("log entry", func(t *testing.T) {
		cfg, _, _, _ := folderWithTwoSnapshots(t)
		s, err := New(cfg)
		require.NoError(t, err)
		last, err := s.logs.LastIndex()
		require.NoError(t, err)
		require.NoError(t, s.logs.StoreLog(&raft.Log{Index: last + 1, Term: 9, Data: []byte{commandVersion + 1, 1, 2, 3, 4, 5}}))
		require.NoError(t, writeCommit(cfg.Dir, last+1))
		require.NoError(t, s.Close())
		_, cfg.Transport = raft.NewInmemTransport("")
		startRefused(t, cfg, "command version 4 is unknown")
	})
}

// replaceState gives the snapshot in a folder another content, and a description that
// fits to it.
func replaceState(t *testing.T, folder string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(folder, snapshotFile), content, 0o600))
	path := filepath.Join(folder, "meta.json")
	meta := make(map[string]any)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &meta))
	meta["Size"] = len(content)
	meta["CRC"] = binary.BigEndian.AppendUint64(nil, crc64.Checksum(content, crc64.MakeTable(crc64.ECMA)))
	text, err = json.Marshal(meta)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// startRefused expects that a store does not start, and says why in one line.
func startRefused(t *testing.T, cfg Config, why string) {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	err = s.Start()
	require.ErrorIs(t, err, errNewer)
	require.ErrorContains(t, err, why)
	require.NotContains(t, err.Error(), "\n")
}

// What a newer leader writes stops a node while it runs; the others go on.
func TestStore_NewerEntry_Fails(t *testing.T) {
	failedCh := make(chan error, 3)
	c := startCluster(t, 3, func(cfg *Config) {
		patient(cfg)
		cfg.Failed = func(err error) { failedCh <- err }
	})
	lead := c.leader()
	c.writeAll(lead, 0, 1)
	err := lead.raft.Apply([]byte{commandVersion + 1, 1, 2, 3, 4, 5}, time.Second).Error()
	require.NoError(t, err, "it is in the log")
	for range 3 {
		require.ErrorIs(t, <-failedCh, errNewer)
	}
	require.ErrorIs(t, lead.Ready(), errNewer)
	require.ErrorIs(t, lead.Publish(t.Context(), publication(service(1), host(1))), errNewer)
	require.ErrorIs(t, lead.State().Refused, errNewer)
}

func TestSnapshot_FailedPersistIsCancelled(t *testing.T) {
	f := filledFSM(t, 1000)
	snapshot, err := f.Snapshot()
	require.NoError(t, err)
	out := sink{limit: 100_000}
	require.ErrorContains(t, snapshot.Persist(&out), "disk full")
	require.True(t, out.cancelled)
	require.False(t, out.closed)
}

func TestStore_SnapshotsByBytes(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.SnapshotBytes = 2000
	s := start(t, cfg)
	writeAll(t, s, 0, 20)
	require.Eventually(t, func() bool {
		list, err := listSnapshots(cfg.Dir)
		return err == nil && len(list) > 0
	}, wait, tick)
}

// fullDisk is a snapshot store that begins snapshots as the library does, and fails.
type fullDisk struct {
	raft.SnapshotStore
	dir string
}

func (f fullDisk) Create(_ raft.SnapshotVersion, index, term uint64, _ raft.Configuration, _ uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if err := os.MkdirAll(filepath.Join(f.dir, snapshotFolder, fmt.Sprintf("%d-%d-1796095460016.tmp", term, index)), 0o750); err != nil {
		return nil, err
	}
	return nil, errors.New("no space left on device")
}

func TestSnapshot_OneThatCannotBeBegunLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	under := filepath.Join(dir, snapshotFolder, "1-8-1.tmp") // one that is being written
	require.NoError(t, os.MkdirAll(under, 0o750))
	s := tidySnapshots{fullDisk{dir: dir}, dir}
	_, err := s.Create(1, 7, 1, raft.Configuration{}, 1, nil)
	require.ErrorContains(t, err, "no space left on device")
	left, err := filepath.Glob(filepath.Join(dir, snapshotFolder, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{under}, left)
}

// folderWithTwoSnapshots returns a folder with two snapshots, the log clamped to the older
// one, some entries behind the newer one, and what was in it.
func folderWithTwoSnapshots(t *testing.T) (cfg Config, older, newer string, want []string) {
	t.Helper()
	cfg = testConfig(t.TempDir())
	cfg.TrailingLogs = 1
	s, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, s.Start())
	for n := range 3 { // of three, two are kept
		writeAll(t, s, 10*n, 10)
		older, newer = newer, takeSnapshot(t, s)
	}
	writeAll(t, s, 30, 2)
	want = content(s.table)
	first, err := s.logs.FirstIndex()
	require.NoError(t, err)
	list, err := listSnapshots(cfg.Dir)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, list[1].index+1, first, "the log reaches back to the older snapshot and no further")
	require.NoError(t, s.Close())
	_, cfg.Transport = raft.NewInmemTransport("")
	return cfg, older, newer, want
}

func TestStart_DamagedNewestSnapshot_StartsFromTheOlder(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, folder string){
		"state truncated": func(t *testing.T, folder string) {
			t.Helper()
			require.NoError(t, os.Truncate(filepath.Join(folder, snapshotFile), 100))
		},
		"state empty": func(t *testing.T, folder string) {
			t.Helper()
			require.NoError(t, os.Truncate(filepath.Join(folder, snapshotFile), 0))
		},
		"state missing": func(t *testing.T, folder string) {
			t.Helper()
			require.NoError(t, os.Remove(filepath.Join(folder, snapshotFile)))
		},
		"state altered": flipByte,
		"description empty": func(t *testing.T, folder string) {
			t.Helper()
			require.NoError(t, os.Truncate(filepath.Join(folder, "meta.json"), 0))
		},
		"everything gone": func(t *testing.T, folder string) {
			t.Helper()
			require.NoError(t, os.RemoveAll(folder))
			require.NoError(t, os.Mkdir(folder, 0o750))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, older, newer, want := folderWithTwoSnapshots(t)
			damage(t, newer)
			s := ready(t, start(t, cfg))
			require.ElementsMatch(t, want, content(s.table))
			require.NoDirExists(t, newer)
			require.DirExists(t, filepath.Join(cfg.Dir, damagedFolder, filepath.Base(newer)), "it is put aside, not destroyed")
			require.DirExists(t, older)
			writeAll(t, s, 50, 1)
			takeSnapshot(t, s)
			require.DirExists(t, older, "a damaged snapshot does not count as one of those that are kept")
		})
	}
}

func flipByte(t *testing.T, folder string) {
	t.Helper()
	path := filepath.Join(folder, snapshotFile)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[len(b)/2] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

func TestStart_NoSnapshotCanBeRead_IsRefused(t *testing.T) {
	cfg, older, newer, _ := folderWithTwoSnapshots(t)
	flipByte(t, older)
	flipByte(t, newer)
	for range 2 { // and again: a refused start leaves things as they are
		s, err := New(cfg)
		require.NoError(t, err)
		err = s.Start()
		require.ErrorContains(t, err, filepath.Join(older, snapshotFile)+" is damaged")
		require.ErrorContains(t, err, filepath.Join(newer, snapshotFile)+" is damaged")
		require.ErrorContains(t, err, "restore a backup")
		require.NoError(t, s.Close())
	}
	require.DirExists(t, newer)
}

// The log must go on from the older snapshot and reach what the newer one held.
func TestStart_LogDoesNotReachTheSnapshot_IsRefused(t *testing.T) {
	for name, deleted := range map[string]func(first, last uint64) (from, to uint64){
		"gap":     func(first, _ uint64) (from, to uint64) { return first + 3, first + 3 },
		"begins":  func(first, _ uint64) (from, to uint64) { return first, first + 1 },
		"too old": func(first, last uint64) (from, to uint64) { return first + 2, last },
		"empty":   func(first, last uint64) (from, to uint64) { return first, last },
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _, newer, _ := folderWithTwoSnapshots(t)
			require.NoError(t, os.Truncate(filepath.Join(newer, snapshotFile), 0))
			s, err := New(cfg)
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()
			first, err := s.logs.FirstIndex()
			require.NoError(t, err)
			last, err := s.logs.LastIndex()
			require.NoError(t, err)
			from, to := deleted(first, last)
			require.NoError(t, s.logs.BoltStore.DeleteRange(from, to))
			err = s.Start()
			require.ErrorContains(t, err, logFile)
			require.DirExists(t, newer)
		})
	}
}

func TestStart_SweepsInterruptedSnapshots(t *testing.T) {
	cfg := testConfig(t.TempDir())
	left := filepath.Join(cfg.Dir, snapshotFolder, "2-30-1700000000000"+unfinished)
	require.NoError(t, os.MkdirAll(left, 0o750))
	start(t, cfg)
	require.NoDirExists(t, left)
}

// The library writes the term and then the first entry; killed in between, it
// would take the folder for one that is in use, and never find a leader.
func TestStart_CompletesAnInterruptedBootstrap(t *testing.T) {
	cfg := testConfig(t.TempDir())
	s, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, s.logs.SetUint64([]byte("CurrentTerm"), 1))
	require.NoError(t, s.Close())
	_, cfg.Transport = raft.NewInmemTransport("")
	writeAll(t, start(t, cfg), 0, 1)
}

// A bit of an entry has flipped on disk. That is found before anything is served.
func TestStart_DamagedLogEntry_IsRefused(t *testing.T) {
	cfg := testConfig(t.TempDir())
	s := start(t, cfg)
	writeAll(t, s, 0, 5)
	last, err := s.logs.LastIndex()
	require.NoError(t, err)
	var entry raft.Log
	require.NoError(t, s.logs.GetLog(last, &entry))
	require.NoError(t, s.Close())
	_, cfg.Transport = raft.NewInmemTransport("")
	s, err = New(cfg)
	require.NoError(t, err)
	entry.Data[len(entry.Data)-10] ^= 1
	require.NoError(t, s.logs.StoreLog(&entry))
	err = s.Start()
	require.ErrorContains(t, err, fmt.Sprintf("log entry %d in %s is damaged", last, filepath.Join(cfg.Dir, logFile)))
	require.ErrorContains(t, err, "if other nodes have the data")
	require.NoError(t, s.Close())
}

// Killed while it began with others: nobody has heard of that, so it begins again.
func TestStart_ForgetsAnInterruptedBeginning(t *testing.T) {
	c := newCluster(t, nil)
	n := c.start("n1", 3)
	require.NoError(t, n.logs.SetUint64([]byte(keyCurrentTerm), firstTerm))
	c.kill("n1")
	for _, name := range []string{"n1", "n2", "n3"} {
		c.start(name, 3)
	}
	c.awaitReady()
}
