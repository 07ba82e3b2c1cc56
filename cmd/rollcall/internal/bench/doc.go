// Package bench is a load generator that speaks the protocols of Nacos: it drives
// Rollcall, Nacos and any server that is compatible with them, by address.
//
// A scenario makes one function for each worker; a worker calls it again and again,
// as fast as it is answered or at a rate. At a rate, the time of a call counts from
// when it was due, not from when a late worker came to it, so that a server which
// stalls does not look fast (coordinated omission). Times are kept in HDR
// histograms.
//
// Servers beside the first one are measured in turns with it, and a rate is the median of
// the turns: what else the machine does meets all of them.
//
// With limits, a process of its own answers the same calls with the same bytes and
// does nothing else, over a bare gRPC or net/http server; for persistent writes it puts
// each into a log of hashicorp/raft first. It takes turns like the others; what it reaches
// is the limit that the server is compared to.
//
// # Goroutines
//
// One for each worker, one that shows progress, and the library's of each connection;
// Run waits for all of its own.
package bench
