// Package distro holds the ephemeral datums of the nodes: available always,
// converging.
//
// [Members] knows which nodes there are and carries messages between them. [Store]
// spreads published instances over them.
//
// # Invariants
//
//   - A write is visible to readers of this node when it returns.
//   - Versions of this node only grow, see [consistency.Clock].
//   - Nothing here waits for disk or network: ephemeral registration and discovery
//     work without a quorum, and without any other node.
//   - A node name belongs to one process at a time. Another process is told apart by
//     its boot id, which the caller makes: larger at each start, by the clock and by
//     what it kept on disk. That of a machine which replaces another one, with an empty
//     disk and a clock that is behind, is smaller; membership says that it follows.
//   - What listeners of Members are told is a difference of states: it may skip
//     what passed while they were busy, it never ends wrong.
//   - Of two versions of a datum the larger wins, on every node. Nothing else
//     decides, so messages may be lost, repeated and overtake each other. Who knows
//     that the larger one is wrong writes a still larger one: of a client that is
//     connected here, or of what this node wrote after all that an earlier run of it,
//     with a clock ahead, had written.
//   - Only an owner removes its own datums while it is there. No other node's word
//     removes what a connection to this node has published.
//   - Clocks of other nodes decide nothing but which of two versions is larger.
//
// # Membership
//
// hashicorp/memberlist says who is alive. A process that dies is known to be dead
// everywhere after about 3 s, one that leaves at once. What the library does not do
// is added here:
//
//   - It never heals a partition. The rejoin loop tries every 3 s all addresses of
//     the configuration, resolved anew, and all members that were lost in the last
//     72 h without saying good-bye.
//   - It does not say whether a node left or died. A node that closes sets a flag in
//     its meta data and sends each member a good-bye.
//   - Restarting faster than it notices causes no event. The boot id in the meta
//     data does: Updated with another Boot.
//   - Its callbacks hold its lock. They enter the change in our own table and wake
//     the dispatcher, which logs it and calls the listeners.
//   - It has no time limit for sending a message. Send has, and at most 32 messages
//     to one node are under way.
//   - It lets a node join whose name is taken: that node sees all, and nobody sees
//     it. Each join brings the other node's list, so a node sees there where that
//     one believes it to be. One that has just started asks until a list has its own
//     address. While the lists have another address it is not ready. If that one
//     answers a ping and is older, Start fails with both addresses; if not, it is
//     most likely this node itself before its address changed, which is known to be
//     dead in a few seconds. Then, and one second later, the name is free. A node
//     that was replaced while it was cut off finds out in the same way. The node
//     that keeps the name logs an error, the others a warning.
//
// # Replication
//
// The core is a state machine: writes, messages, members and the time go in, changes
// of the table and messages come out. It has no goroutine, no socket and no clock, so
// that the simulator of the tests can run many of them for hours of their time. The
// store feeds it under one mutex.
//
// Ownership. The datum of a connection belongs to the run of the node (its name and
// boot id) that holds the connection. That of a client over HTTP, whose publisher is
// an ip:port, is written by the node that rendezvous hashing chooses among those that
// are alive and neither draining nor leaving; the store redirects other writers to
// it. Heartbeats are no datums: whoever keeps them asks MayExpire before it takes a
// client to be silent.
//
// Versions are hybrid logical times with the writer's name. What somebody said gets
// a time of now. What a node concludes (a connection was lost, a client is silent, an
// orphan's time is over) gets the time of what it is concluded from, plus one: so
// whatever was said later than that wins, also where it arrives later.
//
// Deltas. A node keeps the datums of which it wrote the newest version in a list, in
// the order of the changes, each with the number of its last change. A peer is a
// place in that list. Batches say which numbers they cover, up to 64 KB or 256 KB to
// a peer that lacks much. The first 20 go at once, then one each 5 ms with what has
// come together. The receiver acknowledges after 50 ms; who is not acknowledged says
// after 150 ms what the last number is. A gap that is not filled after 50 ms is asked
// for, and the sender goes back. Deletions that come after a gap wait for what was
// before them, 2 s at most. A new peer starts at the beginning of the list: a
// snapshot is nothing else.
//
// Verify. For each run of a node there are 1,024 buckets, each with the XOR of one
// number for each datum and version, and the XOR of all is the root. Every 5 s, and
// in memberlist's push/pull, nodes tell each other their roots. Where a root differs
// from its owner's at the same number of change, twice, the digests of the buckets
// are sent, and the owner answers with the datums of those that differ. What it does
// not list, and could know of, is removed. Of an owner that is gone there is no last
// word: nodes complete each other both ways. Deletions are no part of digests; they
// are remembered for 15 min, or 262,144 of them.
//
// Join. A node is ready when it has all changes that each node which it saw alive had
// made when it was first heard, and when the roots of owners that are gone have been
// compared; or after 20 s, with a warning.
//
// Death. What a run of a node owned when it left, died or was restarted stays, as it
// is and without a notice. A client that comes back to another node takes its address
// over there: of one address the newest version is shown, and where that looks the
// same nobody is told. The node that takes it removes the orphan of that address, in
// a batch that also has what is shown instead. So does the deletion that follows from a
// lost connection, once the client is elsewhere: a node that does not hear that one
// learns of both. What nobody has taken is removed
// over the last tenth of the grace: 30 s when the node left or was restarted, or when
// two nodes were refused by its port; 3 min when it only does not answer. An heir does
// that, chosen for each datum among those that are alive by rendezvous hashing, while
// it is in contact with a Raft leader; the hash of a datum is its place in that time,
// so that a service shrinks evenly, and from the moment that it may, should that be
// later. (A share of 5 % of a service in a second, as once, left it 20 s longer.) Of
// what silent nodes own nothing is removed for 10 min if it is more than
// 30 % of all, and more than one and a half times the even part of one node: a node
// of three has 33 %. Datums of clients over HTTP are no orphans; their next owner
// writes them anew, at the next larger version, when the one that wrote them has been
// gone for the grace, or 10 min if it was silent.
//
// Pauses and cuts. A node that finds that it did not run for over a second, or that
// hears again from one that was gone, or first from one that has lived elsewhere,
// learns old things first: that a client has left one node, and not yet that it is on
// another. For 10 s and 5 s after that it holds back deletions that would take an
// instance from the view, also its own that follow from a lost connection; and longer, up
// to 3 min, while there is a node of which not all has arrived that it had to tell since.
// Its own losses wait until all nodes have been heard after that time, since its clients
// came back during it; for a leader too, while there is a node that it does not hear: it
// may be cut off again; and 10 s longer when a node that was waited for is proven dead, as
// its clients are on their way. A deletion that a client has asked for is never held back.
// For 30 s after a pause it concludes nothing about others. A node that nobody hears
// from, though it may be there for somebody, keeps the others from taking clients to be
// silent for 3 min, and for longer where there is no contact with a leader.
//
// # Goroutines
//
// Of Store, from Start to Close, which waits for them, if there are other nodes:
//
//   - merge decodes the messages of other nodes and gives them to the core. At most
//     4,096 messages or 64 MB wait for it; what does not fit is dropped and counted,
//     and asked for or repeated later.
//   - tick gives the core the time, every 100 ms.
//   - prove asks the ports of nodes that do not answer whether somebody listens, once
//     a second, ten times.
//   - One for each peer that is alive sends to it. It may hang in Send; the others do
//     not wait for it.
//
// Of Members, from Start to Close, which waits for them:
//
//   - dispatch calls the listeners and logs.
//   - rejoin tries to reach the nodes that are not alive; in a round up to four
//     attempts run at once, each for no longer than the stream timeout.
//   - One for each message of Send that is under way: the library blocks. It may
//     outlive Send, but not the stream timeout.
//
// Of the transport, from NewMembers to Close, which waits for them:
//
//   - accept takes connections of other nodes, take the streams of one of them,
//     forget waits for the end of a connection that was dialed.
//   - The library's two, for TCP and UDP; and yamux's: three for each connection,
//     and one for each stream until the other side has accepted it.
//
// Of the library, ended by Close but not waited for, because it offers no way to:
// its loops for probes, gossip, push/pull, packets, streams and its queue, and one
// goroutine for each incoming stream. A probe that is under way ends after up to
// eight probe intervals, 4 s by default. None calls back after Close has returned.
//
// # Formats
//
// Numbers are big-endian; a text has its length in one byte in front.
//
// Meta data of a node, below 256 bytes: a version byte, now 1; a byte of flags (1
// draining, 2 leaving, 4 voter); the boot id in 8 bytes; the HTTP, gRPC, peer and
// Raft ports in 2 bytes each; the texts cluster, id and version of the program. What
// follows is passed over, so that a later release can add to it. Name, IP address
// and gossip port are the library's own fields.
//
// Envelope of a user message or of a push/pull state: a version byte, now 1; a byte
// of kind (1 message, 2 good-bye, 3 state); the sender's boot id in 8 bytes; the
// text of its name; the payload.
//
// Payloads between stores: a version byte, now 1; a byte of kind; numbers as varints
// unless they are hashes or times, which have 8 bytes. A text is written once in a
// message: 0, its length and its bytes; 1 stands for the empty one, n for the text
// number n-2 before it. Names are first those of the service, then publisher, cluster
// and IP, flags in front; metadata are sorted. See encoding.go. A message of another
// version is passed over: raise it only together with a release that can read both.
//
// Hashes that nodes compare (FNV-1a over texts, the finalizer of MurmurHash3) are part
// of the format.
//
// Label of all packets and streams: the cluster's name. A key encrypts packets and
// streams with AES-GCM; the label is authenticated with them. Whoever has the key,
// or reaches the port of nodes without one, can speak for any node.
//
// # Decisions
//
//   - Writers apply their change themselves, one at a time under one mutex, and do
//     not hand it to a goroutine: the hand-over costs more than the change.
//   - A list of changes instead of a queue for each peer: a queue that is keyed by
//     datum, its bound of 100,000, its loss and the ring of what was sent have the
//     same answer as a place in the list, at no memory for a peer that is frozen and
//     eight comparisons for each change. A peer that was away goes on where it was.
//   - Datums of clients over HTTP count to the node that wrote them, not to the one
//     that the hash chooses: else each coming and going of a node would move digests
//     and owners of a share of all datums. Nobody has the last word about them; the
//     hash only says who writes.
//   - An orphan is not removed because a newer entry has its address. With clocks
//     minutes apart the newer one may be the older, and the simulator found instances
//     lost by it. Only the node that the client came to removes it.
//   - Deletions that somebody has concluded are passed over while their owner is seen
//     alive here. It hears of them too, and will say so again or not.
//   - Times far ahead are taken over. Clamping them would make nodes differ. Beyond
//     the year 4000 a message is malformed: a clock could not go on from there.
//   - Equal metadata of one service share memory: a map costs 300 bytes, more than
//     the rest of an instance.
//   - Settings, overrides and switches that are put here stay on this node. The
//     router gives them to the other store.
//   - Streams of the library are yamux streams of one connection to each node. Its
//     own way, a connection for each message, gives 40 % of the rate and runs out of
//     ports at some 470 messages a second between two hosts.
//   - That is one connection for each direction, not one for both: who dialed an
//     address knows whom it reached, who was dialed would have to believe it. And a
//     network that is cut one way only looks like what it is.
//   - A connection is closed when the node at its end is gone or was restarted, and
//     after 10 s without an answer. One that outlived a cut of the network would
//     wait for TCP's next retransmission, a minute later in the worst case.
//   - Compression is off: the library's divides the rate by 2.6 to 13.
//   - A good-bye of its own beside the flag: the library's message that a node is
//     gone overtakes the one with the flag easily, and then the flag is not looked at.
//   - Nobody tries to reach a node that left: it comes back by itself. So two halves
//     of which one thinks that the other left find each other by the configuration.
//   - Who wins a conflict is what the others already believe, not the boot id, since
//     clocks differ. The boot id decides only between two that start at the same
//     time.
package distro
