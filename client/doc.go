// Package client is the Go SDK: it registers an application's instances with a
// registry that speaks the Nacos protocols, Rollcall or Nacos itself, finds those of
// others, and survives what happens to servers and networks meanwhile.
//
//	c, err := client.New(ctx, cfg)                   // cfg from DefaultConfig
//	err = c.Register(ctx, svc, naming.NewInstance("10.0.0.7", 8080))
//	sub, err := c.Subscribe(ctx, other, naming.Filter{}, func(change client.Change) { ... })
//	instance, err := c.Select(ctx, other, "")        // one, by weight
//
// [Admin] is apart from that: single calls over HTTP, for the command line.
//
// # Invariants
//
//   - What the application wants is recorded before it is sent, and replayed on every
//     new connection until a server has taken it: registrations, subscriptions, and
//     deregistrations that were cut off. Only a server's refusal of something new ends
//     a wish; it is told to the caller.
//   - A connection is one transport. It is never dialled again: the server ties all
//     that it holds to it.
//   - One subscription for each service at the server, to all clusters; filters act
//     here. Changes that a subscription is told add up: each is the difference to the
//     list that it was told before.
//   - Lists are ordered by the server's time within a connection. The answer to a
//     question is newer than all that came before the question, whatever its time; a
//     push that is older than what is there makes the client ask.
//   - Lists and instances are immutable once they are visible; readers share them
//     without a lock.
//
// # What misbehaviour of servers leads to
//
//	an unreadable push             acknowledged, logged; every list is asked for again
//	a field of another JSON type   read as text where that has a meaning, else unreadable
//	null                           counts as not given; hosts: null is an empty list
//	an answer of another type      counts as no answer: the call is repeated with pauses
//	301 to a call                  the connection is made anew, after growing pauses
//	300, 503, -401, 500            the call is repeated on the same connection, with pauses
//	a clock that goes back         the push is not taken; the client asks, and takes the answer
//	no answer within CallTimeout   the connection is asked for a sign of health, and left
//	                               without one
//
// # Formats
//
//   - CacheDir/naming/NAMESPACE/GROUP%40%40NAME: a list as gRPC carries it, in one line;
//     other SDKs read and write the same (semantics.md 12.3).
//   - CacheDir/naming/NAMESPACE/failover: such files, and the switch (12.4).
//
// # Goroutines
//
//   - connector: owns the connection; looks for servers, watches over the session.
//   - session reader: one for each session, takes what the server sends.
//   - keeper workers ([Config.Calls]): make the calls of wishes.
//   - schedule ([ModeHTTP]): one clock and four workers for each session, for heartbeats
//     and polls.
//   - UDP reader ([ModeHTTP] with [Config.UDPPushes]): takes pushed datagrams.
//   - disk writer and failover watcher ([Config.CacheDir]).
//   - delivery workers ([Config.Callbacks]): call subscriptions' callbacks.
//
// All start in [New] and end in [Client.Close], which also has a goroutine of its own to
// be bounded. Timers of the runtime wait for pauses and holds; no goroutine does.
//
// # Without a connection
//
// With [ModeHTTP] a session stands for the time in which a server answers: when it does
// not, another one is looked for, and everything is replayed there. Instances live by
// heartbeats, at the interval that the server answers; an unknown one (20404) is
// registered again. Lists are polled before the server's lease of the subscription ends,
// empty ones too: pushes would end with the lease. Datagrams are taken from any address,
// as the protocol has it: servers push from addresses of their own. One that cannot be
// read is not acknowledged, so that the server repeats it.
//
// # Decisions
//
//   - New starts what it makes: a client without its goroutines is of no use, and the
//     usual signature of Go clients says so.
//   - A wish is a pure state machine (wish.go), driven by keeper: every order of events
//     is tested without a server. A periodic task that replays what is missing, as other
//     SDKs have it, leaves a provider unlisted for up to its period.
//   - A server is left only when its successor holds everything (ConnectResetRequest);
//     other SDKs close first, and subscribers see a gap.
//   - A watch is kept as a set of services, and told as differences of that set: a server
//     tells its batches, repetitions and differences in any order.
//   - After a reconnect what was listed stays listed for [Config.Hold]: a restarted
//     server has lost all ephemeral instances, and their providers are reconnecting as
//     this client is. The price is that a real removal in that time shows late.
//   - Lists are read by a parser of our own (parse.go) that shares with the list before
//     what did not change; encoding/json would allocate each text anew.
package client
