// Package distro holds the ephemeral datums of the nodes: available always,
// converging.
//
// # Today
//
// One node: every datum is its own, every write is applied here at once, and
// there are no peers to tell. The store stands behind its final interface,
// [consistency.Store]; membership, ownership, deltas, verify and repair come in
// behind it.
//
// # Invariants
//
//   - A write is visible to readers of this node when it returns.
//   - Versions of this node only grow, see [consistency.Clock].
//   - Nothing here waits for disk or network: ephemeral registration and discovery
//     work without a quorum.
//
// # Decisions
//
//   - Writers apply their change themselves, one at a time under one mutex, and do
//     not hand it to a goroutine: the hand-over costs more than the change.
package distro
