package raftstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/raft"
)

const (
	snapshotFolder = "snapshots" // within Dir; the name is the library's
	snapshotFile   = "state.bin" // within the folder of one snapshot; the name is the library's
	damagedFolder  = "damaged"   // within Dir: snapshots that could not be read
	unfinished     = ".tmp"      // ends the name of a snapshot whose writing was interrupted
	keptSnapshots  = 2
	firstTerm      = 1
)

// snapshotID is what the name of a snapshot's folder tells: term-index-milliseconds.
type snapshotID struct {
	name    string
	term    uint64
	index   uint64
	takenMs uint64
}

// listSnapshots returns the snapshots in the folder, newest first, also those that
// the library skips because their description cannot be read.
func listSnapshots(dir string) ([]snapshotID, error) {
	entries, err := os.ReadDir(filepath.Join(dir, snapshotFolder))
	if err != nil {
		return nil, err
	}
	var out []snapshotID
	for _, e := range entries {
		parts := strings.Split(e.Name(), "-")
		if !e.IsDir() || len(parts) != 3 || strings.HasSuffix(parts[2], unfinished) {
			continue
		}
		term, errTerm := strconv.ParseUint(parts[0], 10, 64)
		index, errIndex := strconv.ParseUint(parts[1], 10, 64)
		if errTerm != nil || errIndex != nil {
			continue
		}
		taken, _ := strconv.ParseUint(parts[2], 10, 64)
		out = append(out, snapshotID{e.Name(), term, index, taken})
	}
	slices.SortFunc(out, func(a, b snapshotID) int {
		return cmp.Or(cmp.Compare(b.term, a.term), cmp.Compare(b.index, a.index), cmp.Compare(b.name, a.name))
	})
	return out, nil
}

// oldestKept returns the index of the older one of the snapshots that are kept; 0
// while there are fewer, so that the log alone can take the place of the first.
func oldestKept(snapshots raft.SnapshotStore) (uint64, error) {
	list, err := snapshots.List()
	if err != nil || len(list) < keptSnapshots {
		return 0, err
	}
	return list[len(list)-1].Index, nil
}

// recovery restores the newest snapshot that can be read, makes sure that the log
// goes on from there, and puts damaged snapshots aside.
type recovery struct {
	dir       string
	snapshots raft.SnapshotStore
	logs      raft.LogStore
	fsm       *fsm
	log       *slog.Logger
}

// run leaves the newest readable snapshot in the FSM and as the library's newest.
// It returns an error that names the file when entries would be missing: the
// library itself would panic, or silently begin with what an old snapshot held.
func (r *recovery) run() error {
	if err := r.sweep(); err != nil {
		return err
	}
	list, err := listSnapshots(r.dir)
	if err != nil {
		return err
	}
	var faults []error
	var restored, newest uint64
	for n, s := range list {
		newest = max(newest, s.index)
		err := r.restore(s.name)
		if err == nil {
			restored, list = s.index, list[:n]
			break
		}
		if errors.Is(err, errNewer) {
			return fmt.Errorf("snapshot %s: %w", filepath.Join(r.dir, snapshotFolder, s.name, snapshotFile), err)
		}
		faults = append(faults, fmt.Errorf("snapshot %s is damaged: %w", filepath.Join(r.dir, snapshotFolder, s.name, snapshotFile), err))
	}
	commit, err := readCommit(r.dir)
	if err != nil {
		return err
	}
	if err := r.replay(restored, newest, commit); err != nil {
		return errors.Join(append(faults, err)...)
	}
	for n, s := range list { // all of these are damaged
		to := filepath.Join(r.dir, damagedFolder, s.name)
		r.log.Error("snapshot is damaged, started from an older state and the log", "index", restored, "moved", to, "err", faults[n])
		if err := moveAside(filepath.Join(r.dir, snapshotFolder, s.name), to); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes what snapshots that were interrupted by the end of the process have left
// behind; the library never does.
func (r *recovery) sweep() error { return removeUnfinished(r.dir, "*") }

// removeUnfinished removes what is left of snapshots whose names match.
func removeUnfinished(dir, names string) error {
	left, err := filepath.Glob(filepath.Join(dir, snapshotFolder, names+unfinished))
	if err != nil {
		return err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// tidySnapshots removes what is left of a snapshot that could not be begun, on a full
// disk: the library would keep it, and warn of it at each later snapshot.
type tidySnapshots struct {
	raft.SnapshotStore
	dir string
}

// Create implements [raft.SnapshotStore].
func (s tidySnapshots) Create(version raft.SnapshotVersion, index, term uint64, servers raft.Configuration, serversIndex uint64, transport raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, servers, serversIndex, transport)
	if err != nil {
		return nil, errors.Join(err, removeUnfinished(s.dir, fmt.Sprintf("%d-%d-*", term, index)))
	}
	return sink, nil
}

func (r *recovery) restore(name string) error {
	_, content, err := r.snapshots.Open(name)
	if err != nil {
		return err
	}
	return r.fsm.Restore(content)
}

// replay makes sure that the log holds every entry behind index restored, at least
// up to index newest, which a snapshot has reached once, and applies those that are
// known to be committed. The library applies nothing before it hears of a leader.
func (r *recovery) replay(restored, newest, commit uint64) error {
	first, err := r.logs.FirstIndex()
	if err != nil {
		return err
	}
	last, err := r.logs.LastIndex()
	if err != nil {
		return err
	}
	if last < newest && restored < newest {
		return r.lost(restored+1, newest, first, last)
	}
	if last > restored && first > restored+1 {
		return r.lost(restored+1, first-1, first, last)
	}
	for index := restored + 1; index <= last; index++ {
		var entry raft.Log
		if err := r.logs.GetLog(index, &entry); err != nil {
			return fmt.Errorf("read log entry %d of %d to %d in %s: %w", index, first, last, filepath.Join(r.dir, logFile), err)
		}
		if entry.Type != raft.LogCommand {
			continue
		}
		if _, err := commandBody(entry.Data); errors.Is(err, errMalformed) {
			return fmt.Errorf("log entry %d in %s is damaged: %w: if other nodes have the data, move %s away and start, "+
				"they will send it; else restore a backup into an empty data folder", index, filepath.Join(r.dir, logFile), err, r.dir)
		}
		if index <= commit {
			r.fsm.Apply(&entry)
		}
		if err := r.fsm.failure(); err != nil {
			return err
		}
	}
	return nil
}

func (r *recovery) lost(from, to, first, last uint64) error {
	return fmt.Errorf("changes %d to %d are neither in a snapshot that can be read nor in the log %s, which holds %d to %d: "+
		"restore a backup into an empty data folder, or move %s away to start without data",
		from, to, filepath.Join(r.dir, logFile), first, last, r.dir)
}

func moveAside(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// bootstrap makes this node the only voter unless the folder holds Raft data. A
// bootstrap that was interrupted between its two writes is completed; the
// library takes it for existing data, and no leader would ever be found.
func bootstrap(logs raft.LogStore, stable raft.StableStore, snapshots raft.SnapshotStore, self raft.Server) error {
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	list, err := snapshots.List()
	if err != nil {
		return err
	}
	if last > 0 || len(list) > 0 {
		return nil
	}
	if err := stable.SetUint64([]byte(keyCurrentTerm), firstTerm); err != nil {
		return err
	}
	return logs.StoreLog(&raft.Log{
		Index: 1, Term: firstTerm, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{self}}),
	})
}

// forgetInterruptedBootstrap undoes a bootstrap with others that was interrupted
// between its two writes: nobody has heard of it, for the first election is for a
// later term, and the library refuses another one.
func forgetInterruptedBootstrap(logs raft.LogStore, stable raft.StableStore, snapshots raft.SnapshotStore) error {
	last, err := logs.LastIndex()
	if err != nil {
		return err
	}
	list, err := snapshots.List()
	if err != nil {
		return err
	}
	term, err := stable.GetUint64([]byte(keyCurrentTerm))
	if err != nil || last > 0 || len(list) > 0 || term != firstTerm {
		return nil //nolint:nilerr // the library reports what it cannot read
	}
	return stable.SetUint64([]byte(keyCurrentTerm), 0)
}
