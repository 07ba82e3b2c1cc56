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
	// Whether it agrees with the others about ephemeral instances: how many nodes'
	// instances it holds otherwise than they do, and in how many buckets of 1,024 for
	// each of them. 0 at rest.
	Differs          int       `json:"differs"`
	DifferingBuckets int       `json:"differingBuckets"`
	Holds            []Holding `json:"holds,omitempty"` // by node and start, sorted

	RaftAddress string  `json:"raftAddress,omitempty"` // empty: unknown
	Leader      string  `json:"leader,omitempty"`      // name of the node that leads, as this one knows it
	Load        float64 `json:"load"`                  // average of a minute
	CPU         float64 `json:"cpu"`                   // used share of all processors
}

// Holding is what a node holds of the ephemeral instances of one start of a node. Two
// nodes hold the same when their digests are equal.
type Holding struct {
	Node      string `json:"node"`
	Instances int    `json:"instances"`
	Digest    string `json:"digest"`         // 16 hexadecimal digits
	Gone      string `json:"gone,omitempty"` // why that node is: left, restarted, refused or silent
}

// Search selects services by parts of their names. Texts are taken literally and
// trimmed; blank selects everything.
type Search struct {
	Namespace string // exact; empty: all
	Name      string // part of the plain name
	Group     string // part of the group
	NotEmpty  bool   // only services with instances
}

// Client is who publishes or subscribes, as operators see it. The client of a gRPC
// connection has its id; one of HTTP or UDP is "ip:port#true", or "ip:port#false" if
// what it publishes is persistent.
type Client struct {
	ID         string
	Ephemeral  bool
	Connection bool      // of gRPC
	Updated    time.Time // when it was last heard of; zero: not by this node
	App, Agent string    // empty: not known
	IP         string    // empty: not known
	Port       int       // 0: not known
}

// Published is one instance of a service with the client that published it.
type Published struct {
	Service  ServiceKey
	Client   string // its id
	Instance *Instance
}

// Connection is one connection of gRPC, as operators see it.
type Connection struct {
	ID         string
	ClientIP   string // as the client says
	RemoteIP   string // as the network says
	RemotePort int
	LocalPort  int
	Version    string // of the client, with its name
	App        string
	Tenant     string            // empty: none said
	Labels     map[string]string // never nil
	Abilities  map[string]bool   // nil: the client tells none
	Created    time.Time
	Active     time.Time // when the client last sent something
}

// PushState counts pushes since it was reset.
type PushState struct {
	Succeeded, Failed int64
	AvgMs, MaxMs      int64 // from sending to acknowledgement, milliseconds; 0: none
}
