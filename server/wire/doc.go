// Package wire holds what travels on the network: the gRPC payload, the JSON
// bodies of HTTP, gRPC and UDP, and the code that a refused request answers with.
// It knows no state and does no I/O.
//
// # Formats
//
//   - The gRPC payload is protobuf (grpc.md 1.1), written and read by hand: the
//     layout is five fields, the hot parts are passed on without a copy, and a
//     generated type would clash with the one that clients of the original
//     protocol register under the same name in the same process.
//   - JSON of answers is appended by hand in a fixed key order. Clients compare
//     texts; a list that did not change must not look changed.
//   - JSON of requests is read leniently: numbers and booleans may come as
//     strings, null counts as not given, unknown keys are ignored. encoding/json
//     decides what that means; the requests of every day, as long as they are plain,
//     are read by gjson to the same values, in 40 % of the time (quick.go).
package wire
