// Package httpapi is the HTTP front end, and the sender of UDP pushes to clients
// of the 1.x protocol.
//
// # Parameters
//
// Query and form body are one pool in which the query wins. They are split
// leniently, since clients of the protocol send bodies that are not escaped:
// at &, at the first =, and unescaped where that is possible. See [parse].
//
// # Answers
//
// v1 answers text or bare JSON, v2 a result with a code. A refused parameter is
// plain text with a line end and without a content type on every path, because
// the original refuses it in a filter. No answer to a client's mistake is a 5xx.
// v3 has the form of v2. One file holds one resource in one version of the API; what
// versions share is in the file of the oldest.
//
// # Routes
//
// One table ([table]) has every path of the protocol with its methods, what they do and
// which parameters they take. It is served, and /openapi.yaml is made from it. What the
// original has and Rollcall has not is answered by path, see [absent]; what switches
// shut, before any handler.
//
// # Goroutines
//
//   - the acceptor, started by [Server.Start] (net/http's own go with it).
//   - the UDP writer sends pushes of all UDP subscribers, one datagram after the
//     other: sending a datagram does not wait for the client.
//   - the UDP reader takes acknowledgements.
//   - the UDP sweeper drops subscribers that have not asked for a while.
package httpapi
