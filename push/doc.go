// Package push tells subscribers that a service changed.
//
// # How a change travels
//
// [Engine.Notify] marks the service. A quiet service is flushed at once; changes
// that follow are merged until the service has been quiet for a while, or the
// maximum has passed since the first of them. A flush puts each subscription
// whose view differs from what it was last sent into its subscriber's queue and
// wakes the subscriber's sender. The sender takes one [Push] after the other with
// [Subscriber.Next], which reads the newest state at that moment, and reports the
// client's answer with [Subscriber.Ack].
//
// # Invariants
//
//   - A subscription is recorded before the subscriber reads the answer, so no
//     change can fall between the two.
//   - Newest wins: a subscription stands in its subscriber's queue at most once,
//     and what is sent is read when it is sent. A slow subscriber costs one queue
//     entry for each subscription and delays nobody.
//   - What a subscriber is sent never goes back in time; a retry carries the
//     newest state.
//   - A view that did not change is not sent, but for the one push that follows a
//     new subscription: clients that start with a cache wait for it. A subscription
//     gets no push before that one.
//
// # Goroutines
//
//   - The dispatcher, started by [Engine.Start] and ended by [Engine.Close], does
//     all flushing and all timing: acknowledgements, retries, first pushes.
//
// # Decisions
//
//   - Senders pull. An engine whose workers push would need a worker for each
//     blocked subscriber, or one slow connection would hold up others; a pulling
//     connection writes at its own pace, and the engine's memory is bounded by the
//     number of subscriptions. So there is no Sender interface: a subscriber is
//     woken by a func value, and a front end has one writer for each connection
//     (gRPC) or for all (UDP).
//   - Acknowledgement times are the same for all subscribers of one transport, so
//     deadlines are a queue in order of time, not a heap or a timer each.
//   - Subscriptions of one subscriber to one service with different filters live
//     side by side. Nacos keeps the last one only, and the first subscriber in the
//     process goes silent.
package push
