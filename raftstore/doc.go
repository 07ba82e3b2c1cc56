// Package raftstore keeps persistent datums in a replicated log: a write is
// committed by a majority of the voting nodes or refused. A standalone node is the
// same with one voter.
//
// # Invariants
//
//   - The table of datums has one writer: the FSM. What it does depends on the log
//     entry alone, on no clock, no random number, no network and no order of a map.
//     Equal logs give equal snapshots, to the byte.
//   - An entry or a snapshot that this program does not understand, or an entry whose
//     checksum does not match, stops it: Start fails, or Config.Failed is called. To
//     skip one would make the nodes differ without anyone noticing.
//   - The version of a datum is index<<16 | position: the index of its log entry,
//     and the place of the operation within the entry. It grows along the log.
//   - A write that returns nil is on the disk of a majority and applied here.
//     ErrNoLeader, ErrReadOnly and ErrClosed mean that nothing was written,
//     ErrUnknownOutcome that it may have been: the caller's time was over,
//     leadership was lost or the store closed while the entry was under way.
//   - A write that carries a request (consistency.WithRequest) is applied once,
//     however often it is sent and to whichever leader: the FSM remembers the
//     request and the content of the operation for ten minutes, or for the last
//     half million such writes if these are fewer. Time is what leaders put into
//     their commands, so all nodes forget alike.
//   - The server's id is a UUID in the stable store, so it dies with the data. A
//     node with an empty disk and an old id could vote twice in one term. Its name
//     and its address are no part of Raft: they come from the membership and may be
//     others after each start.
//   - The nodes that share a log have a name in it, the cluster id. A node whose
//     folder has another one than most of its peers takes no part, and a connection
//     says which server of which cluster it is meant for.
//   - Every snapshot that is kept can be started from: the log is never cut behind
//     the older one.
//
// # Beginning, growing, shrinking
//
// A store with Expect 1 begins alone, at once. With Expect N the stores wait until
// the same N have been there for BootstrapWait and none of the peers has data; the
// one with the smallest id then writes a configuration of all N. With more than N
// such nodes at the same moment two might begin; the wait is there so that each
// knows of the other by then. Expect 0 waits to be taken in.
//
// The leader takes every living peer in that Raft does not have yet, without a vote,
// unless the peer has data of another cluster. raft-autopilot gives it a vote once it
// has been healthy for PromoteAfter, while there are fewer than MaxVoters or a voter
// has failed for six times that. A server is removed when it was away for DeadAfter,
// or when a healthy node has its name or its address; never so that fewer than three
// would remain. A leader that began with an empty disk has the names of servers that it
// never saw from its peers. What raft-autopilot knows as servers is Raft's
// configuration; the membership only says who is alive. With a view that is empty for a
// moment it would else remove servers that live.
//
// # Timings
//
// Heartbeat and election timeout are 500 ms. The library's defaults of 1 s miss the goal
// of 1.5 s from the death of a leader to the next write in half of the cases; 150 ms would
// do it in 0.3 s, and make an election of each stall of a slow disk. BenchmarkFailover
// shows 0.5 to 1.5 s, 1.0 s in the median, on one busy machine. A leader that is stopped
// hands leadership over first, which takes milliseconds.
//
// While a node leads, its own timeouts are twice as long: the library sends heartbeats
// in a tenth to a fifth of them, so every 100 to 200 ms. With 50 to 100 ms they were half
// of what an idle leader costs. The lease of 400 ms leaves an answer 200 ms. The design
// had 250 ms, for the shorter heartbeats.
//
// # Goroutines
//
//   - watchLeader follows who leads and how many vote, until Close.
//   - watchPeers takes views of the membership, until Close.
//   - manage begins with the expected nodes, and while this node leads it names the
//     cluster, takes peers in and runs the autopilot, until Close. The autopilot has
//     two goroutines of its own, which end before manage does.
//   - verify asks the followers who leads, for consistent reads, until Close.
//   - watchDisk looks for hanging work and free space, and notes how far the log is
//     committed, until Close.
//   - run (batcher) writes entries one after the other and hands the results to the
//     callers, until Close and until nothing is under way.
//   - awaitReady makes the store ready once, then ends.
//   - takeSnapshots takes a snapshot when many bytes were written, until Close.
//   - relay and tellCommits (pipeline), for each follower that is sent entries: until
//     that ends.
//   - readTable writes a backup that no snapshot on disk holds, until that is read.
//   - The library's: main loop, FSM, snapshots, transport, two per peer. Listeners
//     of ServiceChanged are called by the FSM's.
//
// # Formats
//
// The data folder holds raft.db (log, term, vote, id and cluster id, in bbolt by way
// of raft-boltdb), snapshots (two are kept), damaged (snapshots that could not be
// read and were put aside), commit (how far the log is known to be committed) and
// nodes.json (the names and addresses of the servers, as known last).
//
// A log entry is a version byte, now 3, the CRC-32C of the rest in four bytes, and
// the message Command of command.proto: one or more operations and the leader's
// time. A snapshot is the line "rollcall snapshot", a SnapshotHeader with the format
// number (now 3), the index, the cluster id and the number of records, then the
// SnapshotRecords, requests first and then datums by key, each message with its
// length in front as a varint; and the SHA-256 of all that. The library adds a CRC of
// its own, which says nothing about a file that was already wrong when it was handed
// over. A backup is the same file. Entries of versions 1 and 2
// and snapshots of formats 1 and 2 are read too.
//
// A connection begins with the line "rollcall raft 1", the id of the server that is
// meant and the cluster id of who dials (36 bytes each, zeros when unknown); then
// come the library's messages.
//
// # Decisions
//
//   - raft-boltdb as the log store, because it is what most programs with this
//     library use and can be opened with public tools. raft-wal writes twice as
//     fast. Either can take its place behind logStore.
//   - A batcher of our own in front of Apply, because the library's group commit
//     saves syncs but not the work per entry: with three nodes and 256 callers it
//     gave four times the rate and a fifth of the p99 latency. One entry at a
//     time: with two under way they are half as large, which cost three processes on
//     two cores a tenth of their rate, and a single node gained nothing.
//   - The FSM does not implement BatchingFSM: an entry has many operations already.
//   - Publications are encoded and read without the objects of the protobuf library
//     (publication.go): with them the three nodes of a benchmark on two cores reached
//     0.76 of what batched entries reach without a table, without them 0.80.
//     Generated code (vtprotobuf 0.6.0) gave nothing, and its releases lag behind.
//   - When Raft has been told to stop, its connections are closed at once: it waits for
//     its requests, and a peer that is frozen answers none for ten seconds.
//   - A pipeline to a follower ends with the first refusal. The library (v1.8.0) leaves
//     its sender behind, waiting for ever, when entries are under way behind a refused
//     one: after a change of leader that holds up the end of the process, and a follower
//     that refused for another reason, as with a full disk, would be sent nothing more.
//   - No log cache: it made no difference with three nodes, and would pin a thousand
//     entries of up to 128 KB in memory.
//   - Raft's configuration has the server's id in place of an address. The design had
//     the leader refresh real ones. But the library wants them unique, so nodes that
//     swap addresses, or one whose address another one has now, would need changes
//     in the right order through addresses that do not exist; and it changes the
//     address of a running peer without a lock, which the race detector shows.
//     nodes.json takes the place of the stored addresses when the membership is
//     silent.
//   - Recovery restores the snapshot and applies what is noted as committed before
//     the library runs, and tells it not to. The library alone falls back to an older
//     snapshot without looking whether the log goes on from there, and panics when it
//     does not; it applies no entry before it hears of a leader, so a node alone would
//     serve the state of its last snapshot; and its own way of restoring committed
//     entries (RestoreCommittedLogs of v1.8.0) skips the configurations among them.
//     Damage that cannot be mended is an error which names the file, never a start
//     with half of the data.
//   - Until there are two snapshots the whole log is kept: it takes the place of the
//     older one. The bound is the same as later, two snapshots' worth of entries.
//   - Bootstrap writes the library's two records itself, because the library calls
//     its own unfinished bootstrap "existing state" and then never elects a leader.
//   - The only voter starts with the timeouts of many voters and gets its shorter
//     ones right after the start. To the library a shortened timeout is a reason to
//     look at once whether there is a leader, so a standalone node takes writes a
//     few milliseconds after its start instead of half a second. Nodes that begin
//     together do the same.
//   - A node without a leader for StaleAfter since its start is ready with what it
//     has, and says that it is stale: readers are served without a majority. A node
//     that was never ready and has no data stays not ready.
//   - Consistent reads ask the leader for a read index and wait for it, rather than go
//     through the log: one round of heartbeats serves all that wait. The index is that
//     of the last command applied on the leader, not the commit index, because the
//     library counts an entry as applied before the FSM has it.
//   - While the disk takes no term or vote, the stable store waits instead of failing:
//     the library panics on a term that it cannot write. A node that answers nobody is
//     one that is away, which Raft is made for. With less than MinFreeBytes a leader
//     refuses writes and hands leadership over before it comes to that.
//   - While an entry or a disk write hangs for StallTimeout, a leader's messages fail in
//     the transport. The library's heartbeats come from goroutines that notice nothing,
//     so it would stay leader and accept nothing.
//   - A follower hears soon how far the log is committed, from a message beside the
//     library's. The library says it with the next entry or after its CommitTimeout, 50 to
//     100 ms by default, for which a write through a follower waited: 78 ms in the median
//     on one machine with three processes, now 3 ms. A shorter CommitTimeout would do it
//     too, with messages all the time also when nothing is written; ours is longer.
//   - Entries for a server that answers no heartbeat wait in the transport until it
//     does. The library would try them less and less often, and a node that comes back
//     after a minute would wait up to ten seconds.
//   - A snapshot that replaces the table gives notice of the services that look
//     different, not of all: a node that was away for a moment must not push
//     everything to everyone.
//   - Snapshot copies references to all datums while Apply waits, some 60 ms for
//     100,000. A table of copy-on-write parts would make that constant, and each
//     write dearer.
package raftstore
