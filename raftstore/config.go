package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// Config says how a store runs. Start from [DefaultConfig]. Its functions are called
// from several goroutines, with no lock of the store held.
type Config struct {
	Dir       string // data folder of this store alone; created if absent
	Node      string // name of this node, unique among the nodes
	Bind      string // host:port to listen on for other nodes; port 0 takes a free one
	Advertise string // host:port that other nodes dial; empty: what Bind became
	// Expect says who makes the first voters when there is no data yet. 1: this
	// node alone, at once. N: N nodes with the same Expect wait for each other, and
	// the one with the smallest id makes them all voters. 0: never this node, it
	// waits until the nodes that have data take it in. A folder with data in it
	// makes Expect meaningless.
	Expect int
	// Transport replaces the listener on Bind, for tests. The store closes it.
	Transport raft.Transport
	Logger    *slog.Logger          // nil discards
	Metrics   prometheus.Registerer // nil: none

	// Peers returns what the membership knows of the nodes, this one included or
	// not. It must not block. Nil: there is no membership, and this is the only
	// node unless Raft's configuration says otherwise.
	Peers func() []Peer
	// Stats asks the node with the server id for its [Store.Stats].
	Stats func(ctx context.Context, id string) (term, lastIndex uint64, lastContact time.Duration, err error)
	// ReadIndex asks the node with the name for its [Store.ReadIndex].
	ReadIndex func(ctx context.Context, node string) (uint64, error)
	// Failed is called once, when the log or a snapshot from the leader holds what
	// this program cannot apply, such as an entry of a newer version. The store takes
	// no part from then on, and the process should end. It must not block.
	Failed func(error)
	// Changed is called after the State of this store changed in what others see
	// of it as a Peer. It must not block.
	Changed func()

	// HeartbeatTimeout and ElectionTimeout hold while other nodes vote: without a
	// leader's word for between one and two of the first, a node calls for votes. A
	// leader says something every fifth to two fifths of it.
	HeartbeatTimeout time.Duration
	ElectionTimeout  time.Duration
	LeaseTimeout     time.Duration // a leader that hears no majority for so long steps down
	SoloTimeout      time.Duration // takes the place of the first two for the only voter

	// SnapshotBytes is how much is in the log when a snapshot is taken, if the last
	// one was not larger: then as much as that. An entry counts with 4 KB more than
	// its bytes.
	SnapshotBytes int64
	TrailingLogs  uint64 // entries that are kept behind a snapshot for slow nodes

	LeaderWait   time.Duration // how long a write waits for a leader, at most
	WriteTimeout time.Duration // how long a write waits in all, at most
	CloseTimeout time.Duration // how long Close waits for what is in flight

	PeersInterval  time.Duration // how often Peers is read when PeersChanged is not called
	BootstrapWait  time.Duration // how long the expected nodes must stay the same before they begin
	StaleAfter     time.Duration // without a leader for so long, a restarted node serves what it has
	MaxVoters      int           // further nodes follow without a vote
	PilotInterval  time.Duration // how often the leader looks at the others' health
	PromoteAfter   time.Duration // a node that has been healthy for so long may vote
	DeadAfter      time.Duration // a node that was away for so long is removed from Raft
	MinFreeBytes   int64         // with less free space on the disk writes are refused; 0: never
	StallTimeout   time.Duration // a leader whose disk or table hangs for so long goes silent
	faults         func(op string) error
	abruptShutdown bool
}

// DefaultConfig returns the timings that were measured to serve best; Dir and
// Bind are to be filled in.
func DefaultConfig() Config {
	return Config{
		Expect:           1,
		HeartbeatTimeout: 500 * time.Millisecond,
		ElectionTimeout:  500 * time.Millisecond,
		LeaseTimeout:     400 * time.Millisecond,
		SoloTimeout:      400 * time.Millisecond,
		SnapshotBytes:    16 << 20,
		TrailingLogs:     1024,
		LeaderWait:       2250 * time.Millisecond, // an election takes 0.6 to 1.3 s
		WriteTimeout:     10 * time.Second,
		CloseTimeout:     5 * time.Second,
		PeersInterval:    time.Second,
		BootstrapWait:    500 * time.Millisecond,
		StaleAfter:       5 * time.Second,
		MaxVoters:        5,
		PilotInterval:    time.Second,
		PromoteAfter:     5 * time.Second,
		DeadAfter:        72 * time.Hour,
		MinFreeBytes:     32 << 20,
		StallTimeout:     2 * time.Second,
	}
}

// Validate returns what is wrong with the configuration, every fault joined.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("raftstore: "+format, args...))
		}
	}
	check(c.Dir != "", "the data folder is missing")
	check(c.Bind != "" || c.Transport != nil, "the address to bind is missing")
	for _, t := range []struct {
		name  string
		value time.Duration
	}{
		{"heartbeat timeout", c.HeartbeatTimeout},
		{"election timeout", c.ElectionTimeout},
		{"lease timeout", c.LeaseTimeout},
		{"solo timeout", c.SoloTimeout},
		{"peers interval", c.PeersInterval},
		{"pilot interval", c.PilotInterval},
		{"stall timeout", c.StallTimeout},
	} {
		check(t.value >= 5*time.Millisecond, "the %s is %s, it must be 5ms or more", t.name, t.value)
	}
	check(c.ElectionTimeout >= c.HeartbeatTimeout, "the election timeout is shorter than the heartbeat timeout")
	check(c.LeaseTimeout > leadFactor*c.HeartbeatTimeout/5, "the lease timeout is not longer than a leader may take between two heartbeats, %s", leadFactor*c.HeartbeatTimeout/5)
	check(c.LeaseTimeout <= c.HeartbeatTimeout, "the lease timeout is longer than the heartbeat timeout")
	check(c.SoloTimeout >= c.LeaseTimeout, "the solo timeout is shorter than the lease timeout")
	check(c.SoloTimeout < c.HeartbeatTimeout, "the solo timeout is not shorter than the heartbeat timeout")
	check(c.SnapshotBytes > 0, "the number of bytes for a snapshot is not positive")
	check(c.LeaderWait > 0, "the wait for a leader is not positive")
	check(c.WriteTimeout > 0, "the write timeout is not positive")
	check(c.CloseTimeout > 0, "the close timeout is not positive")
	check(c.Expect >= 0, "the number of expected nodes is negative")
	check(c.Expect <= max(1, c.MaxVoters), "%d nodes are expected, at most %d vote", c.Expect, c.MaxVoters)
	check(c.Expect <= 1 || c.Peers != nil, "%d nodes are expected without a membership", c.Expect)
	check(c.Peers == nil || c.Node != "", "the node has no name")
	check(c.BootstrapWait >= 0, "the bootstrap wait is negative")
	check(c.StaleAfter > 0, "the time after which data is stale is not positive")
	check(c.PromoteAfter >= 0, "the time before a node may vote is negative")
	check(c.DeadAfter > 0, "the time after which a node is dead is not positive")
	check(c.MinFreeBytes >= 0, "the free space to keep is negative")
	return errors.Join(faults...)
}
