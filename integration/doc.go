// Package integration drives the real rollcall binary from outside, over the
// wire and through the official SDKs, and holds it to what design.md promises.
//
// [StartNode] builds ../cmd/rollcall once per test process and starts it as a
// child; [Node] stops, kills, pauses and restarts it. [Params], [Conn] and [UDP]
// are raw clients for HTTP, gRPC and the UDP push of 1.x: they send any bytes,
// valid or not, which no SDK would. Package wire has the gRPC message.
//
// The tests are in six families:
//
//   - sdk_client_test.go, client_*_test.go: Rollcall's own client, over gRPC and HTTP: the
//     stories of the official SDKs, and servers that are killed, restarted, paused
//     and cut off under 200 registrations and 200 subscriptions.
//   - sdk_v2_test.go, sdk_v1_test.go: the official Go SDKs, unmodified. They have data
//     races of their own, so they stay out of test binaries with the race detector;
//     the server under test may have it (ROLLCALL_RACE).
//   - cases_*_test.go: faults of existing registries, TestC001 and so on after
//     the numbers of the collected cases.
//   - semantics_*_test.go: the rules of the naming protocol by their names
//     (TestD3, TestO1, TestP4 ...). Where Rollcall deviates on purpose the test
//     asserts Rollcall's behaviour and says so.
//   - the stories of several nodes: cluster_test.go, persistent_test.go, consistent_test.go
//     (Raft), ephemeral_test.go (gossip), life_test.go (join, leave, drain, replace),
//     fault_test.go (each fault that docs/failures.md speaks of), rolling_test.go (restarts
//     under load, the previous build beside this one), kubernetes_test.go, chaos_test.go
//     (faults by chance), compose_test.go (containers). [Fleet] are their clients, which
//     behave as SDKs do; [Network] gives each node a host of its own, in a network
//     namespace. Each ends with [Cluster.Check]: all nodes list the same, what was
//     acknowledged is there, what was removed is not, no process is left.
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
//   - ROLLCALL_TEST_CLUSTER=1 runs the stories that take up to two minutes each. Only make
//     test-cluster sets it, so that they run once and not in make test and make race too.
//   - ROLLCALL_TEST_FLEET is the number of clients of each kind in the large stories: 300;
//     2000 is what is promised.
//   - ROLLCALL_TEST_PREVIOUS is the revision of the previous build: the last tag, or the
//     commit before.
//   - ROLLCALL_TEST_CHAOS and ROLLCALL_TEST_SEED, see TestChaos; ROLLCALL_TEST_COMPOSE, see
//     scripts/test-compose.sh.
//   - ROLLCALL_LONG=1 runs some tests at the size that is promised: 20 kills of the
//     leader instead of 3, 100,000 changes of one instance (C173) instead of 20,000,
//     200,000 writes that a follower missed (C179) instead of 30,000, 12 cuts of the
//     leader's cables under checked histories instead of 3.
//
// Goroutines: each started process has one that waits for its exit; each [Conn]
// has one that reads its stream; both end when the process or connection does.
//
// Paths that the server doesn't have yet (cluster settings, health by an operator's
// word, some switches, the v3 client API) make their tests skip with a message, not
// fail; what no test covers is named at the head of each file.
//
// # Faults found and the tests that reproduce them
//
// A fix starts with a failing test and a row here.
//
//	fault                                                           test
//	a connection that answered the question whether it is alive     TestL2_SilentConnection,
//	was closed, when its answer was faster than a timer was late    TestNode_PausedNodeRemovesNothing
//	a blank at the end of a namespace or an ip was cut off          TestC019_NamespaceWithBlanks,
//	                                                                TestC027_BrokenDottedQuad
//	heartbeat times shortened by an operator counted only when      TestH2_TimesFromMetadataAreExact
//	the time that was planned before had come
//	a write or a consistent read waited ten seconds for a frozen    TestConsistent_AFormerLeaderShowsWhatItMissed
//	leader
//	a deregistration through another node than the registration     TestConsistent_WritesKnowWhatOtherNodesTook
//	was answered with ok and did nothing
//	a write through a node whose disk is full waited ten seconds    TestPersistent_FullDisk
//	for that node to show it
//	a node alone could not save what it served                      TestPersistent_LostMajorityIsRestoredIntoNewNodes
//	a node that came back as the leader was not dialed for up to    TestC161_TwoOfThreeKilledAtOnce,
//	two minutes, and writes through the others failed with 500      TestPeers_ANodeThatComesBackIsReachedSoon
//	a write without a leader took more than three seconds to be     TestC167_NoQuorum
//	refused
//	between the removal of a former registration and the news of    TestLife_GrowsToFiveAndShrinks
//	the new one, a third node showed neither
//	writes through a node that had left Raft waited for ever        TestLife_LeavesForGoodAndComesBack
//	clients that moved between two nodes were gone at a third one   TestChaos (a node cut one way while
//	that did not hear the node that they went to                    clients are spread), TestCore_WhoMoves
//	clients that an isolated node had sent to another one were     TestChaos (a node isolated while clients
//	gone there after ten seconds                                    are spread), TestMoving_NobodyIsGone
//	a consistent read was refused at once when the node asked       TestNodes_WaitConsistentAsksAgain-
//	as the leader had just lost that                                AfterTheLeaderWentAway
package integration
