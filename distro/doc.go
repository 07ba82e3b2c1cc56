// Package distro holds the ephemeral datums of the nodes: available always,
// converging.
//
// # Today
//
// [Members] knows which nodes there are and carries messages between them. [Store]
// does not use it yet: every datum is its own, every write is applied here at once,
// and there are no peers to tell. The store stands behind its final interface,
// [consistency.Store]; ownership, deltas, verify and repair come in behind it.
//
// # Invariants
//
//   - A write is visible to readers of this node when it returns.
//   - Versions of this node only grow, see [consistency.Clock].
//   - Nothing here waits for disk or network: ephemeral registration and discovery
//     work without a quorum, and without any other node.
//   - A node name belongs to one process at a time. Another process is told apart by
//     its boot id, which the caller makes: larger at each start, by the clock and by
//     what it kept on disk.
//   - What listeners of Members are told is a difference of states: it may skip
//     what passed while they were busy, it never ends wrong.
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
// # Goroutines
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
// Label of all packets and streams: the cluster's name. A key encrypts packets and
// streams with AES-GCM; the label is authenticated with them. Whoever has the key,
// or reaches the port of nodes without one, can speak for any node.
//
// # Decisions
//
//   - Writers apply their change themselves, one at a time under one mutex, and do
//     not hand it to a goroutine: the hand-over costs more than the change.
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
