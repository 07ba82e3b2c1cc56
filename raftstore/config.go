package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
)

// Config says how a store runs. Start from [DefaultConfig].
type Config struct {
	Dir       string // data folder of this store alone; created if absent
	Node      string // name of this node, for logs
	Bind      string // host:port to listen on for other nodes; port 0 takes a free one
	Advertise string // host:port that other nodes dial; empty: what Bind became
	// Bootstrap makes an empty data folder the only voter of new Raft data. Without
	// it the node waits until another one takes it in.
	Bootstrap bool
	// Transport replaces the listener on Bind, for tests. The store closes it.
	Transport raft.Transport
	Logger    *slog.Logger // nil discards

	// HeartbeatTimeout and ElectionTimeout hold while other nodes vote: without a
	// leader's word for between one and two of the first, a node calls for votes.
	HeartbeatTimeout time.Duration
	ElectionTimeout  time.Duration
	LeaseTimeout     time.Duration // a leader that hears no majority for so long steps down
	SoloTimeout      time.Duration // takes the place of the first two for the only voter

	SnapshotInterval time.Duration // how often to look whether SnapshotEntries is reached
	SnapshotEntries  uint64        // a snapshot is taken after so many log entries
	SnapshotBytes    int64         // or after so many bytes in them
	TrailingLogs     uint64        // entries that are kept behind a snapshot for slow nodes

	LeaderWait   time.Duration // how long a write waits for a leader, at most
	WriteTimeout time.Duration // how long a write waits in all, at most
	CloseTimeout time.Duration // how long Close waits for what is in flight
}

// DefaultConfig returns the timings that were measured to serve best; Dir and
// Bind are to be filled in.
func DefaultConfig() Config {
	return Config{
		Bootstrap:        true,
		HeartbeatTimeout: 500 * time.Millisecond,
		ElectionTimeout:  500 * time.Millisecond,
		LeaseTimeout:     250 * time.Millisecond,
		SoloTimeout:      250 * time.Millisecond,
		SnapshotInterval: time.Second,
		SnapshotEntries:  4096,
		SnapshotBytes:    16 << 20,
		TrailingLogs:     1024,
		LeaderWait:       3 * time.Second,
		WriteTimeout:     10 * time.Second,
		CloseTimeout:     5 * time.Second,
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
		{"snapshot interval", c.SnapshotInterval},
	} {
		check(t.value >= 5*time.Millisecond, "the %s is %s, it must be 5ms or more", t.name, t.value)
	}
	check(c.ElectionTimeout >= c.HeartbeatTimeout, "the election timeout is shorter than the heartbeat timeout")
	check(c.LeaseTimeout <= c.HeartbeatTimeout, "the lease timeout is longer than the heartbeat timeout")
	check(c.SoloTimeout >= c.LeaseTimeout, "the solo timeout is shorter than the lease timeout")
	check(c.SoloTimeout < c.HeartbeatTimeout, "the solo timeout is not shorter than the heartbeat timeout")
	check(c.SnapshotEntries > 0, "the number of entries for a snapshot is not positive")
	check(c.SnapshotBytes > 0, "the number of bytes for a snapshot is not positive")
	check(c.LeaderWait > 0, "the wait for a leader is not positive")
	check(c.WriteTimeout > 0, "the write timeout is not positive")
	check(c.CloseTimeout > 0, "the close timeout is not positive")
	return errors.Join(faults...)
}
