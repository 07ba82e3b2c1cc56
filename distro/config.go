package distro

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"
	"unicode"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
)

// MembersConfig says how a node takes part in membership. Start from
// [DefaultMembersConfig].
type MembersConfig struct {
	// Self is what the other nodes shall know of this one. Its GossipPort and
	// Alive are filled in; its IP is where the others reach this node, unless
	// Advertise says so.
	Self Member
	Bind string // IP address to listen on, TCP and UDP
	Port int    // for both; 0 takes a free one
	// Advertise is where other nodes reach this node: an IP address or a host name,
	// which is resolved once; with a port where that differs from Port. Empty:
	// Self.IP, else Bind.
	Advertise string
	// Join are the addresses, host:port, where other nodes may be found. Names are
	// resolved anew at each attempt, and all their addresses are tried. This
	// node's own address among them does no harm.
	Join []string
	// Places is a file where the addresses of the other nodes are kept, for a start at
	// which none of Join answers. Empty: they are not kept.
	Places  string
	Cluster string // name that all nodes have in common; nodes with another are refused
	// Keys encrypt gossip with AES: the first one what this node sends, and what it
	// gets may have any of them, so that the key can be changed node by node. 16, 24
	// or 32 bytes each. None: no encryption.
	Keys [][]byte

	ProbeInterval    time.Duration // one other node is probed each time
	ProbeTimeout     time.Duration // after it a probe goes by way of others
	SuspicionMult    int           // a silent node is dead after so many probe intervals, more with over ten nodes
	PushPullInterval time.Duration // the whole state is exchanged with one other node
	GossipInterval   time.Duration // news are passed on each time
	ReclaimTime      time.Duration // after its death a name is free for another address
	DialTimeout      time.Duration // for one connection to another node
	StreamTimeout    time.Duration // for a message to be read, sent or answered once it began
	SendTimeout      time.Duration // the longest that Send waits
	JoinTimeout      time.Duration // the longest that Start waits for its first attempt to join
	RejoinInterval   time.Duration // lost nodes and addresses of Join are tried again
	Remember         time.Duration // a lost node is tried for so long
	LeaveTimeout     time.Duration // the longest that Close waits for the others to be told
	LeaveDelay       time.Duration // Close answers probes for so long after that

	Logger  *slog.Logger          // nil discards
	Metrics prometheus.Registerer // nil: none
	// Transport replaces the sockets, for tests. Members close it.
	Transport memberlist.NodeAwareTransport
}

// Limits of what travels in a node's meta data, in bytes.
const (
	maxName    = 128
	maxID      = 64
	maxVersion = 64
	maxCluster = 64
)

// DefaultMembersConfig returns the timings that were measured to serve best: the
// death of a process is known everywhere in about 3 s, and a machine with four
// times as much to do as it can caused no false alarm. Self and Bind are to be
// filled in.
func DefaultMembersConfig() MembersConfig {
	return MembersConfig{
		Cluster:          "rollcall",
		ProbeInterval:    500 * time.Millisecond,
		ProbeTimeout:     250 * time.Millisecond,
		SuspicionMult:    4,
		PushPullInterval: 15 * time.Second,
		GossipInterval:   200 * time.Millisecond,
		ReclaimTime:      time.Second,
		DialTimeout:      2 * time.Second,
		StreamTimeout:    10 * time.Second,
		SendTimeout:      5 * time.Second,
		JoinTimeout:      5 * time.Second,
		RejoinInterval:   3 * time.Second,
		Remember:         72 * time.Hour,
		LeaveTimeout:     2 * time.Second,
		LeaveDelay:       500 * time.Millisecond,
	}
}

// Validate returns what is wrong with the configuration, every fault joined.
func (c MembersConfig) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("members: "+format, args...))
		}
	}
	check(c.Self.Name != "", "the node's name is missing")
	check(len(c.Self.Name) <= maxName, "the node's name has %d bytes, it may have %d", len(c.Self.Name), maxName)
	for _, r := range c.Self.Name {
		if !unicode.IsPrint(r) {
			check(false, "the node's name %q has a character that cannot be printed", c.Self.Name)
			break
		}
	}
	faults = append(faults, c.Self.check())
	check(c.Self.IP == "" || validIP(c.Self.IP), "the node's address is %q: it must be an IP address", c.Self.IP)
	check(len(c.Cluster) <= maxCluster, "the cluster's name has %d bytes, it may have %d", len(c.Cluster), maxCluster)
	check(c.Transport != nil || validIP(c.Bind), "bind is %q: it must be an IP address, such as 0.0.0.0 or 127.0.0.1", c.Bind)
	check(validPort(c.Port), "the port is %d: it must be between 0 and 65535", c.Port)
	if c.Transport == nil && validIP(c.Bind) {
		check(c.Advertise != "" || c.Self.IP != "" || !netip.MustParseAddr(c.Bind).IsUnspecified(),
			"the address that other nodes reach this node at is missing, and bind is %q", c.Bind)
	}
	for _, seed := range c.Join {
		check(validHostPort(seed), "the address to join %q: it must be host:port", seed)
	}
	for _, key := range c.Keys {
		check(memberlist.ValidateKey(key) == nil, "a gossip key has %d bytes: it must have 16, 24 or 32", len(key))
	}
	for _, t := range []struct {
		name  string
		value time.Duration
	}{
		{"probe interval", c.ProbeInterval},
		{"probe timeout", c.ProbeTimeout},
		{"push/pull interval", c.PushPullInterval},
		{"gossip interval", c.GossipInterval},
		{"reclaim time", c.ReclaimTime},
		{"dial timeout", c.DialTimeout},
		{"stream timeout", c.StreamTimeout},
		{"send timeout", c.SendTimeout},
		{"join timeout", c.JoinTimeout},
		{"rejoin interval", c.RejoinInterval},
		{"time to remember lost nodes", c.Remember},
		{"leave timeout", c.LeaveTimeout},
	} {
		check(t.value > 0, "the %s is %s, it must be positive", t.name, t.value)
	}
	check(c.LeaveDelay >= 0, "the leave delay is negative")
	check(c.ProbeTimeout < c.ProbeInterval, "the probe timeout is not shorter than the probe interval")
	check(c.SuspicionMult >= 2, "the suspicion multiplier is %d, it must be 2 or more", c.SuspicionMult)
	return errors.Join(faults...)
}

// check returns what of the member does not fit into its meta data.
func (m Member) check() error {
	var faults []error
	if len(m.ID) > maxID {
		faults = append(faults, fmt.Errorf("members: the node's id has %d bytes, it may have %d", len(m.ID), maxID))
	}
	if len(m.Version) > maxVersion {
		faults = append(faults, fmt.Errorf("members: the version has %d bytes, it may have %d", len(m.Version), maxVersion))
	}
	for _, port := range []int{m.HTTPPort, m.GRPCPort, m.PeerPort, m.RaftPort} {
		if !validPort(port) {
			faults = append(faults, fmt.Errorf("members: the port %d is not between 0 and 65535", port))
		}
	}
	return errors.Join(faults...)
}

func validPort(port int) bool { return port >= 0 && port <= 65535 }

func validIP(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

func validHostPort(text string) bool {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" {
		return false
	}
	n, err := strconv.Atoi(port)
	return err == nil && n > 0 && n <= 65535
}
