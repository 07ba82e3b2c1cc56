// Package compat plays recordings of real Nacos servers against a node: the
// requests, the answers and the pushes of HTTP, gRPC and UDP.
//
// # What is compared with what
//
// testdata holds the recordings, one file for each group and version, byte for
// byte as they were made. A scenario is a list of steps; a [Player] takes them
// one after the other, and each answer is held against the recorded one: status,
// content type, the recorded headers, the body. In bodies
//
//   - placeholders (`${ms}`, `${service}`) stand for a shape or for a value that
//     the run made up or was told before ([Names]);
//   - numbers are compared by value, the order of keys is free, null is not the
//     same as absent;
//   - arrays that a real server builds from hash sets are sets, others are not;
//   - keys more than recorded are allowed in the list of a service and in its
//     hosts, which clients read leniently, and where the other version has them;
//   - with `partial`, arrays and maps may hold more, and counts be larger.
//
// The two recorded versions differ in places, and one answer per request is
// enough: where both were asked the same, either answer will do (unless it is a
// failure of that version), and the scenario is played once.
//
// # Where the server is to answer otherwise
//
// The recordings say it in words (`instead` at a step, `mayDiffer` at a
// scenario). readings.json says what the words mean, as strictly as they allow:
// answers given by what they have other than the recorded one ([Variant]).
// `instead` replaces the recorded answer, `also` stands beside it. An answer that
// decides how later steps look names itself with `then`, and later variants with
// `when` count only after it, and then alone: a server that refuses the request
// and yet stores what it asked for meets neither. Words without a reading, and
// readings of words that are no more, fail TestReadings_CoverAllWords.
//
// A plain refusal (a status or a code without a body) must carry a text; a 405
// must carry Allow.
//
// # What is out of reach
//
// testdata/reach.json lists groups and scenarios that the server does not serve
// yet, each with a reason; they show as skipped. Everything else must pass. With
// COMPAT_CHECK_STALE=1 they are played too, and an entry that passes is a failure.
//
// # How to run it
//
//	go test ./compat                                  # builds and starts a node
//	go test ./compat -run TestGolden/http-instance    # a group
//	go test ./compat -run 'TestGolden/udp-push/2.5.1/udp-life$'
//	ROLLCALL_TEST_ADDR=127.0.0.1:8848 go test ./compat -run TestGolden
//
// A replay is nearly all waiting (expiry, clean-up, silence), so scenarios go
// side by side, up to 256 unless -parallel says otherwise; the whole takes as
// long as its longest scenario, about two minutes. Groups that change or count
// something over the whole server have a node to themselves.
//
// # How it checks itself
//
// A fake server that answers out of the recording passes every scenario, and
// fails the one step whose answer has one value changed. Over every recorded
// body the matcher accepts a sample and refuses that sample with a value, a type,
// a key or an element changed.
//
// # Decisions
//
//   - A gRPC connection dials again after the server dropped its transport, as a
//     client would; the new transport is unregistered, so this cannot hide a
//     connection that was dropped by mistake.
//   - Lengths of datagrams are not compared, since the names have other lengths;
//     that a text is compressed from 1024 bytes on is.
//   - The header Connection of a health check is not compared: the two versions
//     write it differently.
//
// # Goroutines
//
// A player owns one reader for each stream and each socket, and one worker (or an
// HTTP server) for each listener; all end before Play returns.
package compat
