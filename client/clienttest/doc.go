// Package clienttest runs a Rollcall node in the process of a test, for tests of
// applications that use package client, and of the client itself.
//
//	node := clienttest.Start(t)
//	cfg := client.DefaultConfig()
//	cfg.Servers = []string{node.Addr()}
//
// The node is the real one, with its data in a folder of the test. In front of it
// stands a gateway that can do what networks and failing servers do: [Node.Drop],
// [Node.Freeze], [Node.Stop] and [Node.Restart], [Node.DelayPushes], [Node.Move],
// [Node.Answer], [Node.Rewrite].
// [Node.Hide] takes an instance out of the lists.
//
// # Invariants
//
//   - This is the one package under client that imports the server: an application's
//     binary holds no server unless its tests do. It does not import client, so that
//     the tests of client can use it.
//   - A transport of a client has a transport of its own to the node; when one ends the
//     other does.
//
// # Goroutines
//
//   - the node's own.
//   - gateway: two servers' acceptors, started by [Start]; the libraries start one for
//     each connection, call and stream. A stream has one goroutine more, which takes
//     what the client sends. All end with [Node.Close], which the test's end calls.
//
// # Decisions
//
//   - The gateway knows payloads, not bytes alone: a proxy of TCP cannot delay a push
//     without delaying the answers beside it, nor answer one call with an error.
//   - Hiding goes through the node's own API (an operator's override), so clients see it
//     by the same push as in production.
package clienttest
