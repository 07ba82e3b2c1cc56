// Package grpcapi is the gRPC front end for clients: requests in, Registry calls
// out, pushes on the stream.
//
// # A connection
//
// A connection is the HTTP/2 transport. It gets its id when it is accepted, is
// registered by the setup on its stream, and ends with the transport: then its
// subscriptions go at once, and its instances after the registry's linger. A
// connection that is silent is asked on the stream whether it is alive, and closed
// if it does not answer. The server ends a connection by closing the transport,
// never by an answer alone: some clients take a 301 for a sign of health.
//
// A client may be asked to go to another node (ConnectResetRequest). It opens a
// connection there, then closes this one, then registers again; the Java client takes
// up to 3 s for that, the Go client goes only to a server that is named, and the Python
// and Rust clients do nothing: their transport has to be closed.
//
// The transport of a setup beyond the limits of connections is closed; the client tries
// the next server.
//
// # Fuzzy watches
//
// A watch is a set of patterns of one connection. Each pattern has the services that it
// has shown. The client is first told all that match, in batches of which it acknowledges
// each, then every service that gets its first instance or loses its last. What is not
// acknowledged is sent again. A client that comes back says what it knows, and is told
// the difference.
//
// # Goroutines
//
//   - the acceptor, started by [Server.Start] (the library's own go with it).
//   - per stream: the library's handler goroutine writes, a reader goroutine reads
//     what the client sends. Both end with the stream; [Server.Close] waits. The setup
//     is read by one more, which ends with that: its deep stack would stay.
//   - per connection a timer of the runtime looks for silence, and per fuzzy watch
//     another for what is not acknowledged; no goroutine waits.
//
// # Decisions
//
//   - Connections are tied to their transport by transport credentials, which see
//     the net.Conn, may wrap it, and reach every call through its peer. A stats
//     handler would see the transport too, but costs on every call and cannot
//     close one.
//   - One writer for each stream: whatever waits for a slow client waits there and
//     nowhere else. A write that makes no progress for [writeStall] ends the
//     connection.
package grpcapi
