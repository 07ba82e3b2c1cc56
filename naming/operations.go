package naming

import "time"

// Change is what an operator wants changed of an instance; nil leaves a value as
// it is.
type Change struct {
	Weight  *float64
	Enabled *bool
	// Metadata replaces the entries that earlier changes laid over the published
	// ones.
	Metadata map[string]string
}

// BeatAnswer is what a client is told after a heartbeat.
type BeatAnswer struct {
	Known    bool          // false: the instance is not registered, and was not
	Interval time.Duration // until the next heartbeat
}

// Counts are numbers of one node for operators.
type Counts struct {
	Services, Instances  int // empty services included
	Subscriptions        int
	Connections          int // of gRPC
	EphemeralPublishers  int // clients that register over HTTP and beat
	PersistentPublishers int // addresses with persistent instances
}

// Switches change how a node behaves while it runs. Immutable once stored.
type Switches struct {
	LightBeatEnabled             bool  `json:"lightBeatEnabled"`             // clients may leave the JSON out of heartbeats
	DefaultInstanceEphemeral     bool  `json:"defaultInstanceEphemeral"`     // kind of a registration over HTTP that states none
	AutoChangeHealthCheckEnabled bool  `json:"autoChangeHealthCheckEnabled"` // kept for tools that read it
	ClientBeatIntervalMs         int64 `json:"clientBeatInterval"`           // what clients are told, milliseconds
}

// NodeState is what a node knows of itself or another one.
type NodeState struct {
	Name         string `json:"name"`
	Address      string `json:"address"` // of HTTP
	Self         bool   `json:"self"`    // the node that tells
	Alive        bool   `json:"alive"`
	Role         string `json:"role"` // leader, follower, candidate; unknown of a node that does not answer
	Voter        bool   `json:"voter"`
	Term         uint64 `json:"term"`
	LastIndex    uint64 `json:"lastIndex"`
	AppliedIndex uint64 `json:"appliedIndex"`
	Lag          uint64 `json:"lag"` // log entries that it has not applied and the leader has
	// What is wrong with its persistent data. Stale: it is as it was before the start,
	// for there was no leader since. ReadOnly: why its disk takes none. Refused: why it
	// takes no part, such as a data folder of other nodes. Empty when nothing is.
	Stale       bool   `json:"stale"`
	ReadOnly    string `json:"readOnly"`
	Refused     string `json:"refused"`
	Version     string `json:"version"`
	Ready       bool   `json:"ready"`
	Draining    bool   `json:"draining"`    // its clients go elsewhere
	Connections int    `json:"connections"` // of clients over gRPC
	Instances   int    `json:"instances"`   // ephemeral ones that it holds
	Differs     int    `json:"differs"`     // nodes whose ephemeral instances it holds otherwise than they do; 0 at rest
}
