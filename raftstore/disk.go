package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"
)

const (
	slowWork      = time.Second            // an entry or a disk write that takes longer is logged
	watchInterval = 250 * time.Millisecond // of watchDisk
	commitFile    = "commit"               // within Dir: how far the log is committed, as far as known
	// stepDownPause keeps nodes whose disks are all full from passing leadership around.
	stepDownPause = 10 * time.Minute
)

// watchDisk looks for work that hangs and for space on the disk, and keeps note of
// how far the log is committed.
func (s *Store) watchDisk() {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var told [2]time.Time
	var steppedDown time.Time
	var committed uint64
	for {
		for n, w := range []*stopwatch{s.fsm.watch, s.logs.watch} {
			if begun, what := w.running(); !begun.IsZero() && begun != told[n] && time.Since(begun) >= s.cfg.StallTimeout {
				told[n] = begun
				s.log.Error("the node hangs, it does not lead while that lasts", "what", what, "since", begun)
			}
		}
		s.checkSpace()
		if l, _ := s.currentLeader(); l.self && s.logs.full() != nil && time.Since(steppedDown) > stepDownPause {
			steppedDown = time.Now()
			if err := s.StepDown(); err != nil {
				s.log.Warn("the disk is full and leadership was not handed over", "err", err)
			}
		}
		if index := s.raft.CommitIndex(); index > committed && writeCommit(s.cfg.Dir, index) == nil {
			committed = index
		}
		select {
		case <-ticker.C:
		case <-s.stopCh:
			_ = writeCommit(s.cfg.Dir, s.raft.CommitIndex())
			return
		}
	}
}

// checkSpace makes the node read-only while there is less than MinFreeBytes.
func (s *Store) checkSpace() {
	var full error
	if s.cfg.MinFreeBytes > 0 {
		free, err := freeBytes(s.cfg.Dir)
		if s.cfg.faults != nil && s.cfg.faults("space") != nil {
			free = 0
		}
		if err == nil && free < uint64(s.cfg.MinFreeBytes) {
			full = fmt.Errorf("the disk of %s has %d MB left, %d are kept free: free some, and writes are taken again", s.cfg.Dir, free>>20, s.cfg.MinFreeBytes>>20)
		}
	}
	was := s.logs.full()
	switch {
	case full != nil && was == nil:
		s.log.Error("persistent data is read-only", "err", full)
	case full == nil && was != nil:
		s.log.Info("persistent data can be written again, the disk has space")
	}
	s.logs.space.Store(&full)
}

// diskFault returns why this node cannot write its log; nil when it can.
func (s *Store) diskFault() error {
	if err := s.logs.broken(); err != nil {
		return err
	}
	return s.logs.full()
}

// stalled returns an error while an entry or a disk write hangs. Raft's main loop
// and its heartbeats know nothing of it, so a leader would stay leader and accept
// nothing: for as long as this returns an error it sends nothing either, and the
// others elect another one.
func (s *Store) stalled() error {
	for _, w := range []*stopwatch{s.fsm.watch, s.logs.watch} {
		if begun, what := w.running(); !begun.IsZero() && time.Since(begun) >= s.cfg.StallTimeout {
			return fmt.Errorf("this node hangs: %s", what)
		}
	}
	return nil
}

// writeCommit notes how far the log is committed. It is not synced: an old or a
// missing note only means that less is shown before there is a leader.
func writeCommit(dir string, index uint64) error {
	path := filepath.Join(dir, commitFile)
	line := fmt.Appendf(nil, "%d", index)
	line = fmt.Appendf(line, " %08x\n", crc32.ChecksumIEEE(line))
	if err := os.WriteFile(path+unfinished, line, 0o600); err != nil {
		return err
	}
	return os.Rename(path+unfinished, path)
}

// readCommit returns what was noted last; 0 when that cannot be read.
func readCommit(dir string) (uint64, error) {
	line, err := os.ReadFile(filepath.Join(dir, commitFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var index uint64
	var sum uint32
	number, _, _ := bytes.Cut(line, []byte(" "))
	if _, err := fmt.Sscanf(string(line), "%d %08x\n", &index, &sum); err != nil || sum != crc32.ChecksumIEEE(number) {
		return 0, nil //nolint:nilerr // a torn note is no note
	}
	return index, nil
}
