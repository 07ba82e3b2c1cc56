// Package client talks to a registry that speaks the Nacos protocols, Rollcall or
// Nacos itself. Today it holds what the command line needs: one-shot calls over
// HTTP, and a watch over gRPC.
//
// # Goroutines
//
//   - [Client.Watch] runs in its caller; one goroutine of its own keeps the
//     connection known to the server, and ends before Watch returns.
package client
