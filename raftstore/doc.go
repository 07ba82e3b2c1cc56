// Package raftstore keeps persistent datums in a replicated log: a write is
// committed by a majority of the voting nodes or refused. A standalone node is the
// same with one voter.
//
// # Invariants
//
//   - The table of datums has one writer: the FSM. What it does depends on the log
//     entry alone, on no clock, no random number, no network and no order of a map.
//   - An entry or a snapshot that this program does not understand stops it. To
//     skip one would make the nodes differ without anyone noticing.
//   - The version of a datum is index<<16 | position: the index of its log entry,
//     and the place of the operation within the entry. It grows along the log.
//   - A write that returns nil is on the disk of a majority and applied here.
//     ErrNoLeader and ErrClosed mean that nothing was written, ErrUnknownOutcome
//     that it may have been: the caller's time was over, leadership was lost or the
//     store closed while the entry was under way.
//   - The server's id is a UUID in the stable store, so it dies with the data. A
//     node with an empty disk and an old id could vote twice in one term.
//   - Every snapshot that is kept can be started from: the log is never cut behind
//     the older one.
//
// # Goroutines
//
//   - watchLeader follows who leads and how many vote, until Close.
//   - dispatch (batcher) sends entries to Raft, until Close.
//   - collect (batcher) hands results to the callers, until nothing is under way.
//   - awaitApplied makes the store ready once, then ends.
//   - takeSnapshots takes a snapshot when many bytes were written, until Close.
//   - The library's: main loop, FSM, snapshots, transport, one per peer. Listeners
//     of ServiceChanged are called by the FSM's.
//
// # Formats
//
// The data folder holds raft.db (log, term, vote and id, in bbolt by way of
// raft-boltdb), snapshots (two are kept) and damaged (snapshots that could not be
// read and were put aside).
//
// A log entry is a version byte, now 1, and the message Command of command.proto:
// one or more operations. A snapshot is the line "rollcall snapshot", a
// SnapshotHeader with the format number (now 1), the index and the number of
// records, then the SnapshotRecords, each message with its length in front as a
// varint; and the SHA-256 of all that. The library adds a CRC of its own, which
// says nothing about a file that was already wrong when it was handed over.
//
// # Decisions
//
//   - raft-boltdb as the log store, because it is what most programs with this
//     library use and can be opened with public tools. raft-wal writes twice as
//     fast; a bbolt store of our own could apply the log before a leader is known.
//     Either can take its place behind logStore.
//   - A batcher of our own in front of Apply, because the library's group commit
//     saves syncs but not the work per entry: with three nodes and 256 callers it
//     gave four times the rate and a fifth of the p99 latency. Two entries in
//     flight: with one the disk waits for the callers; four were no better here.
//   - The FSM does not implement BatchingFSM: an entry has many operations already.
//   - No log cache: there is nobody to read recent entries to while one node votes,
//     and it would pin a thousand entries of up to 128 KB in memory.
//   - Recovery restores the snapshot before the library runs, and tells it not to.
//     The library alone falls back to an older snapshot without looking whether the
//     log goes on from there, and panics when it does not. Damage that cannot be
//     mended is an error which names the file, never a start with half of the data.
//   - Until there are two snapshots the whole log is kept: it takes the place of the
//     older one. The bound is the same as later, two snapshots' worth of entries.
//   - Bootstrap writes the library's two records itself, because the library calls
//     its own unfinished bootstrap "existing state" and then never elects a leader.
//   - The only voter starts with the timeouts of many voters and gets its shorter
//     ones right after the start. To the library a shortened timeout is a reason to
//     look at once whether there is a leader, so a standalone node takes writes a
//     few milliseconds after its start instead of half a second.
//   - Snapshot copies references to all datums while Apply waits, some 60 ms for
//     100,000. A table of copy-on-write parts would make that constant, and each
//     write dearer.
package raftstore
