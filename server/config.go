package server

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"rollcall/naming"
	"rollcall/push"
)

// Config of a node. The doc tags are the text of the reference that is made from
// this type; koanf tags name flags, environment variables and YAML keys.
type Config struct {
	Node    string `koanf:"node" doc:"this node's name, unique among the nodes; empty: the host's name"`
	DataDir string `koanf:"data-dir" doc:"folder for persistent data; made if it is missing"`

	Bind      string `koanf:"bind" doc:"address to listen on"`
	Advertise string `koanf:"advertise" doc:"address that clients and other nodes reach this node at; empty: bind, or the first address of the host"`
	Port      int    `koanf:"port" doc:"port of HTTP and of UDP pushes; the other ports derive from it"`
	GRPCPort  int    `koanf:"grpc-port" doc:"port of gRPC for clients; 0: port + 1000"`
	PeerPort  int    `koanf:"peer-port" doc:"port of gRPC between nodes; 0: port + 1001"`
	RaftPort  int    `koanf:"raft-port" doc:"port of Raft; 0: port - 1000"`

	Join            string `koanf:"join" doc:"where other nodes may be found: host:port of their gossip, separated by commas; names are resolved anew at each attempt"`
	BootstrapExpect int    `koanf:"bootstrap-expect" doc:"how many new nodes with this setting begin together; 0: this one joins nodes that have begun"`
	Cluster         string `koanf:"cluster" doc:"name that all nodes have in common"`
	GossipPort      int    `koanf:"gossip-port" doc:"port of gossip, TCP and UDP; 0: port - 1001"`
	GossipKey       string `koanf:"gossip-key" doc:"encrypts gossip: 16, 24 or 32 bytes in base64; several, separated by commas, are all accepted and the first one is used; empty: no encryption"`

	LogLevel  string `koanf:"log-level" doc:"debug, info, warn or error"`
	LogFormat string `koanf:"log-format" doc:"text or json"`

	Pprof string `koanf:"pprof" doc:"host:port where profiles of this process are served, /debug/pprof/; whoever reaches it sees inside: keep it on 127.0.0.1; empty: nowhere"`

	BeatInterval        time.Duration `koanf:"beat-interval" doc:"time between two heartbeats that clients over HTTP are told, unless the instance states its own"`
	CacheTime           time.Duration `koanf:"cache-time" doc:"how long clients may keep a list before they ask again (cacheMillis)"`
	Linger              time.Duration `koanf:"linger" doc:"how long instances stay listed after their gRPC connection was lost, so that a reconnecting client is not seen to go"`
	MoveLinger          time.Duration `koanf:"move-linger" doc:"the same for a client that this node asked to go to another one: some come back only seconds later"`
	Grace               time.Duration `koanf:"grace" doc:"how long what clients registered over their connections to a node stays after that node stopped or is known to be dead; within it they come back to other nodes"`
	GraceSilent         time.Duration `koanf:"grace-silent" doc:"the same for a node that does not answer, but may be alive behind a broken network"`
	Idle                time.Duration `koanf:"idle" doc:"a gRPC connection without a message for this long is asked whether it is alive"`
	Detect              time.Duration `koanf:"detect" doc:"a gRPC connection that does not answer that question within this time is closed"`
	SetupWait           time.Duration `koanf:"setup-wait" doc:"how long a call waits for the setup of its connection when that is on its way"`
	EmptyServiceExpiry  time.Duration `koanf:"empty-service-expiry" doc:"a service that has been without instances for this long is removed, its settings included"`
	OverrideExpiry      time.Duration `koanf:"override-expiry" doc:"an operator's override ends when its instance has been gone for this long"`
	KeepOverrides       bool          `koanf:"keep-overrides" doc:"keep an override after an explicit deregistration, until it expires, as Nacos does"`
	MetadataLimit       int           `koanf:"metadata-limit" doc:"characters that the keys and values of an instance's metadata may have together"`
	MaxConnections      int           `koanf:"max-connections" doc:"gRPC connections of clients that this node takes; 0: no limit"`
	MaxConnectionsPerIP int           `koanf:"max-connections-per-ip" doc:"of these, with one client address; 0: no limit"`
	FuzzyPatterns       int           `koanf:"fuzzy-patterns" doc:"different patterns of fuzzy watches on this node"`
	FuzzyMatches        int           `koanf:"fuzzy-matches" doc:"services that one pattern shows"`
	ShutdownTimeout     time.Duration `koanf:"shutdown-timeout" doc:"how long a graceful stop may take, the hand-over of clients included"`
	LeaveOnStop         bool          `koanf:"leave-on-stop" doc:"a node that is asked to stop leaves for good: it counts no more for a majority"`
	MoveRate            int           `koanf:"move-rate" doc:"gRPC clients that are asked in a second to go to a node that has fewer, after one has come or was drained; 0: none are moved to spread them"`

	Push push.Config `koanf:"push"`
}

// portOffset is the distance of the gRPC port above and the Raft port below the
// main port (grpc.md 1.3).
const portOffset = 1000

// maxMetadataLimit keeps an instance within what one persistent write may hold,
// whatever characters its metadata is made of.
const maxMetadataLimit = 256 << 10

// maxGrace keeps what is orphaned from outliving the memory of what was deleted.
const maxGrace = 10 * time.Minute

// DefaultConfig returns a standalone node on the protocol's ports.
func DefaultConfig() Config {
	return Config{
		DataDir: "./rollcall-data",
		Bind:    "0.0.0.0", Port: 8848,
		BootstrapExpect: 1, Cluster: "rollcall",
		LogLevel: "info", LogFormat: "text",
		BeatInterval: naming.DefaultBeatInterval, CacheTime: 10 * time.Second,
		Linger: 500 * time.Millisecond, MoveLinger: 10 * time.Second, Grace: 30 * time.Second, GraceSilent: 3 * time.Minute, Idle: 6 * time.Second, Detect: 3 * time.Second,
		SetupWait:          100 * time.Millisecond,
		EmptyServiceExpiry: time.Minute, OverrideExpiry: time.Minute,
		MetadataLimit: naming.DefaultMetadataLimit,
		FuzzyPatterns: 20, FuzzyMatches: 500,
		ShutdownTimeout: 10 * time.Second,
		MoveRate:        100,
		Push:            push.DefaultConfig(),
	}
}

// withDerived fills in what derives from other values. With port 0 every port is
// chosen by the system.
func (c Config) withDerived() Config {
	if c.GRPCPort == 0 && c.Port != 0 {
		c.GRPCPort = c.Port + portOffset
	}
	if c.RaftPort == 0 && c.Port != 0 {
		c.RaftPort = c.Port - portOffset
	}
	if c.PeerPort == 0 && c.Port != 0 {
		c.PeerPort = c.Port + portOffset + 1
	}
	if c.GossipPort == 0 && c.Port != 0 {
		c.GossipPort = c.Port - portOffset - 1
	}
	return c
}

// clustered tells whether there are to be other nodes.
func (c Config) clustered() bool { return c.Join != "" || c.BootstrapExpect != 1 }

// joins returns the addresses of Join.
func (c Config) joins() []string {
	var out []string
	for address := range strings.SplitSeq(c.Join, ",") {
		if address = strings.TrimSpace(address); address != "" {
			out = append(out, address)
		}
	}
	return out
}

// gossipKeys returns the keys of GossipKey.
func (c Config) gossipKeys() ([][]byte, error) {
	var keys [][]byte
	if c.GossipKey == "" {
		return nil, nil
	}
	for n, text := range strings.Split(c.GossipKey, ",") {
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("gossip-key: key %d is no base64: %w", n+1, err)
		}
		if len(key) != 16 && len(key) != 24 && len(key) != 32 {
			return nil, fmt.Errorf("gossip-key: key %d has %d bytes: it must have 16, 24 or 32; make one with: openssl rand -base64 32", n+1, len(key))
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Validate refuses values that cannot work, each by its name.
func (c Config) Validate() error {
	c = c.withDerived()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.DataDir == "" {
		bad("data-dir is empty: name a folder for persistent data")
	}
	if net.ParseIP(c.Bind) == nil {
		bad("bind is %q: it must be an IP address, such as 0.0.0.0 or 127.0.0.1", c.Bind)
	}
	if c.Advertise != "" && net.ParseIP(c.Advertise) == nil {
		bad("advertise is %q: it must be an IP address or empty", c.Advertise)
	}
	type named struct {
		name string
		port int
	}
	ports := []named{{"port", c.Port}, {"grpc-port", c.GRPCPort}, {"raft-port", c.RaftPort}}
	if c.clustered() {
		ports = append(ports, named{"peer-port", c.PeerPort}, named{"gossip-port", c.GossipPort})
	}
	for _, p := range ports {
		if p.port < 0 || p.port > 65535 {
			bad("%s is %d: it must be from 0 to 65535; set it, or choose another --port", p.name, p.port)
		}
	}
	if c.BootstrapExpect < 0 || c.BootstrapExpect > 9 {
		bad("bootstrap-expect is %d: it must be from 0 to 9", c.BootstrapExpect)
	}
	for _, address := range c.joins() {
		if _, _, err := net.SplitHostPort(address); err != nil {
			bad("join has %q: it must be host:port", address)
		}
	}
	if c.clustered() && c.Port == 0 {
		bad("port is 0: a node with others needs ports that they can know")
	}
	if _, err := c.gossipKeys(); err != nil {
		errs = append(errs, err)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"beat-interval", c.BeatInterval},
		{"cache-time", c.CacheTime},
		{"grace", c.Grace},
		{"idle", c.Idle},
		{"detect", c.Detect},
		{"empty-service-expiry", c.EmptyServiceExpiry},
		{"override-expiry", c.OverrideExpiry},
		{"shutdown-timeout", c.ShutdownTimeout},
	} {
		if d.d <= 0 {
			bad("%s is %v: it must be above zero", d.name, d.d)
		}
	}
	if c.Linger < 0 || c.MoveLinger < 0 || c.SetupWait < 0 {
		bad("linger is %v, move-linger is %v and setup-wait is %v: they must not be negative", c.Linger, c.MoveLinger, c.SetupWait)
	}
	if c.MoveRate < 0 {
		bad("move-rate is %d: it must not be negative; 0 moves none", c.MoveRate)
	}
	if c.MaxConnections < 0 || c.MaxConnectionsPerIP < 0 {
		bad("max-connections is %d and max-connections-per-ip is %d: they must not be negative; 0 is no limit", c.MaxConnections, c.MaxConnectionsPerIP)
	}
	if c.FuzzyPatterns < 0 || c.FuzzyMatches <= 0 {
		bad("fuzzy-patterns is %d and fuzzy-matches is %d: the first must not be negative, the second must be above zero", c.FuzzyPatterns, c.FuzzyMatches)
	}
	if c.GraceSilent < c.Grace || c.GraceSilent > maxGrace {
		bad("grace-silent is %v: it must be from grace (%v) to %v", c.GraceSilent, c.Grace, maxGrace)
	}
	if c.MetadataLimit <= 0 || c.MetadataLimit > maxMetadataLimit {
		bad("metadata-limit is %d: it must be from 1 to %d", c.MetadataLimit, maxMetadataLimit)
	}
	if _, _, err := net.SplitHostPort(c.Pprof); c.Pprof != "" && err != nil {
		bad("pprof is %q: it must be host:port, such as 127.0.0.1:6060", c.Pprof)
	}
	if err := c.Push.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
