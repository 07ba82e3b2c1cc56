// Package server is one node: the use cases that clients and operators have
// ([Registry]) and the wiring of all parts ([Node]).
//
// # The life of a request
//
// A front end parses a request and calls the Registry, which validates it, builds
// datums and hands them to the store of their kind through consistency.Router. The
// store changes its table and then tells the Registry the service's key; the
// Registry marks the service's cached views stale and tells the push engine. Views
// are computed when a query or a push asks for them, once for each filter, and
// encoded once for each protocol.
//
// # Goroutines
//
//   - the sweeper runs what is due at a time: expiry of heartbeats, removal after
//     lost connections, cleaning. It never waits for disk or network.
//   - the cleaner makes the persistent writes that time calls for.
//   - of a node that has others: one that asks each of them for its state each second,
//     when the membership changes and when a client is lost (the roster), one that hands
//     on heartbeats and one for each message of them, and the library's for the calls of
//     the peer service.
//   - of a node that has others also: one that has clients go elsewhere (spread), and
//     one for each call with writes to the leader (outbox), four at most.
//   - with --pprof, one that serves profiles, and the library's for its connections.
//   - those of the stores, the push engine and the front ends, see there.
//
// # Several nodes
//
// Nodes find each other through distro.Members. Each serves rollcall.Peer (see
// server/wire/peer.proto): its state, which the roster keeps of the others and hands to
// raftstore for its membership, and persistent writes, which a node that does not
// lead forwards to the one that does, those that wait in one call (outbox.go). The answer
// comes back when the write is applied on the node that was asked, so that a client
// reads what it wrote; a node whose disk is full does not wait for that. Each write has one id for all its tries, here and
// there, so that one whose outcome was unknown is tried again and applied once. A
// question to a leader is given up as soon as another one leads: a frozen one neither
// answers nor closes its connections.
//
// A deregistration and a change of a service or of an override depend on what is there,
// and wait first until this node shows all that was acknowledged: so does a read with
// consistent=true, and a backup. What is to be restored waits in a file, as the leader
// that it has to go to may change.
//
// Ephemeral datums are replicated by distro. What a connection publishes belongs to the
// node that has the connection. A client over HTTP has an owner that all nodes agree
// on: it takes the client's registrations and deregistrations, which other nodes pass
// on and answer when they show the change themselves, so that whatever a client does
// next, and wherever, comes after it. An owner that does not answer within a second is
// passed over. Heartbeats are answered by any node from what it holds, and handed to
// the owner in batches ten times a second, as ages: no clock of another node counts.
// Only the owner takes a client to be silent, and only while every node that is alive
// has answered lately and distro says that no other node could hear the client. A
// connection that is lost counts when its linger is over and all nodes that are alive
// have answered since; those that do not are waited for until they count as silent.
//
// # What operators set
//
// Namespaces, settings of clusters and switches are persistent datums. Settings of
// clusters are part of a service; switches are read into one value that everybody asks
// ([Registry.Switches]), over which a node may lay its own until it ends. The levels of
// the logs of the parts are the node's own too.
//
// # Coming and going
//
// A node is ready when both stores have what there is, and when it has reached a leader
// or a majority; reaching nobody, it serves what it has after 20 s. One that began with an
// empty disk serves then, and says that it is ready only once it votes and no dead node
// does, or after a minute: whoever replaces one machine after the other waits for that
// before the next. A node that is stopped
// or drained (life.go) says so to the others, which makes them the owners of its clients
// over HTTP, and asks its clients over gRPC to go (spread.go). It serves them until they
// do. What they published stays until they are back elsewhere (moving.go), and a second
// longer, so that no node hears of the removal before it hears of the registration. On a
// node that stops it stays in any case: the other nodes keep it as that of a node that
// left. Leaving for good comes after the front ends are closed: a node outside Raft can
// show no write.
//
// The same spread moves clients to nodes that have fewer, some in a second and each one
// once, when this node has notably more than its share or another one notably less.
//
// # Order
//
// [New] opens every listener and the data folder, so that a port in use or a
// locked folder fails before anything runs. [Node.Start] starts stores, engine,
// registry and front ends; [Node.Close] is the reverse. The API answers "starting"
// until both stores are ready.
//
// # Decisions
//
//   - The stores are named in two files, not in node.go alone: node.go wires a node to
//     itself, link.go to the other nodes.
//   - Everything that happens at a time goes through one timer structure with
//     slots of a tenth of a second. Heartbeats refresh a time and are looked at when
//     their slot comes; nothing scans all instances.
//   - Front ends do not import this package, and it imports them: errors and values
//     that cross the border live in package naming, and the one place where errors
//     become codes is server/wire, below both.
//   - An empty service is kept by the Registry, not in a store: it is no datum, each
//     node decides for itself when it has been empty for long enough.
//   - Operators' overrides are laid over what a client published when it is read.
//     They end with an explicit deregistration, and some time after the instance
//     was lost; Config.KeepOverrides keeps them in the first case too.
package server
