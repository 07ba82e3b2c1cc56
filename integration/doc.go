// Package integration drives the real rollcall binary from outside, over the
// wire and through the official SDKs, and holds it to what design.md promises.
//
// [StartNode] builds ../cmd/rollcall once per test process and starts it as a
// child; [Node] stops, kills, pauses and restarts it. [Params], [Conn] and [UDP]
// are raw clients for HTTP, gRPC and the UDP push of 1.x: they send any bytes,
// valid or not, which no SDK would. The gRPC payload is encoded by hand because
// the official Go SDK registers the same protobuf names as the server does, and
// one process can't hold both.
//
// The tests are in four families:
//
//   - sdk_v2_test.go, sdk_v1_test.go: the official Go SDKs, unmodified.
//   - cases_*_test.go: faults of existing registries, TestC001 and so on after
//     the numbers of the collected cases.
//   - semantics_*_test.go: the rules of the naming protocol by their names
//     (TestD3, TestO1, TestP4 ...). Where Rollcall deviates on purpose the test
//     asserts Rollcall's behaviour and says so.
//   - compat (a package of its own): recorded answers of other servers, replayed.
//
// Most tests run in parallel against one shared node and use service names of
// their own. Tests that change switches, restart the node or need other options
// start a node of their own.
//
// Environment:
//
//   - ROLLCALL_RACE=1 builds the binary with the race detector; a reported race
//     fails the run.
//   - ROLLCALL_BINARY names a binary to use in place of a build.
//
// Goroutines: each started process has one that waits for its exit; each [Conn]
// has one that reads its stream; both end when the process or connection does.
//
// # Faults found and the tests that reproduce them
//
// A fix starts with a failing test and a row here: fault, test.
package integration
