// Package consistency holds what both replicated stores share: the datum (one
// replicated record), the table of datums, the contract of a store, and the
// router that chooses between the two.
//
// # Invariants
//
//   - A datum is one record: one published instance, one service's settings, one
//     operator override. Never a service's whole list.
//   - Instances are keyed by their publisher (the id of a connection, or ip:port
//     of a client that registers over HTTP), so the clean-up of an old connection
//     cannot remove what a new one registered. What a publisher has in one service
//     is replaced as a whole by [Store.Publish].
//   - Change first, notify second: listeners of [ServiceChanged] get the key only
//     and read the newest state. A lost, doubled or reordered notice cannot
//     deliver stale data.
//   - Each store owns one [DataStore] and is its only writer.
//   - Values in datums are immutable; they are shared with readers.
//
// # Decisions
//
//   - [Store.Publish] stands beside Put and Delete: "everything that this
//     publisher has in this service becomes exactly that" is what a registration,
//     a batch and a deregistration mean, and it must be one change with one
//     notice. As a sequence of puts, subscribers would see half a batch.
//   - [Store.Stat] answers in constant time whether a service exists and of which
//     kind it is. Asking for the whole service would make each registration cost
//     as much as the service is large.
//   - A service without any datum does not exist here. That a service which has
//     just become empty is still listed for a while is the server's business.
package consistency
