package distro

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/naming"
)

// Config of the ephemeral store. Start from [DefaultConfig]. The funcs are called
// from several goroutines.
type Config struct {
	Node string // this node's name, unique among the nodes
	// Members are the nodes and carry the messages between them. Give them to New
	// before they are started, and start them before the store. Nil: this node is
	// alone, and of the rest of the configuration nothing counts.
	Members *Members

	// Grace is how long what clients published over their connections to a node
	// stays after that node left, was restarted or is proven dead, and how long this
	// node decides nothing about others after it was paused.
	Grace time.Duration
	// GraceSilent is the same for a node that only does not answer. For so long
	// clients that beat are not taken to be silent either: it may hear them.
	GraceSilent time.Duration
	// MassWait is how long it stays when so much of all instances is concerned that
	// a fault of the network is likelier.
	MassWait time.Duration
	// Tombstones is how long deletions are remembered: longer than any message is
	// under way, and than any partition that shall heal without a trace.
	Tombstones  time.Duration
	Verify      time.Duration // nodes compare what they hold each time
	Pause       time.Duration // a longer gap in time means that this node was paused
	LoadTimeout time.Duration // the longest that the other nodes' data is waited for before Ready
	DrainTime   time.Duration // the longest that Close waits for changes to be sent

	// InContact tells whether this node is in contact with a Raft leader. Without
	// contact it removes nothing that others own. It is called while the store is
	// locked, so it must neither block nor call the store. Nil: always.
	InContact func() bool
	// Live tells whether this node has heard the heartbeat of a publisher over HTTP
	// within its time limits. Then the instance stays though another node has taken
	// it to be silent. It is called without a lock, and must not block for long. Nil:
	// never.
	Live func(svc naming.ServiceKey, publisher string) bool
	// Took tells that this node has become the owner of a publisher over HTTP,
	// whose time without a heartbeat begins anew. It is called without a lock; until
	// it was, MayExpire is false.
	Took func(svc naming.ServiceKey, publisher string, i *naming.Instance)
	// Refused tells whether a port of a member that does not answer is refused by
	// its host, so that the process must be dead. It may block until ctx ends. Nil:
	// never.
	Refused func(ctx context.Context, m Member) bool

	Logger  *slog.Logger          // nil discards
	Metrics prometheus.Registerer // nil: none
}

// DefaultConfig returns the times of the design. Node and Members are to be filled
// in.
func DefaultConfig() Config {
	return Config{
		Grace:       30 * time.Second,
		GraceSilent: 3 * time.Minute,
		MassWait:    10 * time.Minute,
		Tombstones:  15 * time.Minute,
		Verify:      5 * time.Second,
		Pause:       time.Second,
		LoadTimeout: 20 * time.Second,
		DrainTime:   2 * time.Second,
	}
}

// Validate returns what is wrong with the configuration, every fault joined.
func (c Config) Validate() error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("distro: "+format, args...))
		}
	}
	check(c.Node != "", "node is empty: a node needs a name")
	if c.Members == nil {
		return errors.Join(faults...)
	}
	check(c.Node == c.Members.Self().Name, "the node is %s, among the members it is %s", c.Node, c.Members.Self().Name)
	for _, t := range []struct {
		name string
		time time.Duration
	}{
		{"grace", c.Grace},
		{"grace for silence", c.GraceSilent},
		{"mass wait", c.MassWait},
		{"tombstone time", c.Tombstones},
		{"verify interval", c.Verify},
		{"pause", c.Pause},
		{"load timeout", c.LoadTimeout},
		{"drain time", c.DrainTime},
	} {
		check(t.time > 0, "the %s must be positive", t.name)
	}
	check(c.GraceSilent >= c.Grace, "the grace for silence %s is shorter than the grace %s", c.GraceSilent, c.Grace)
	check(c.MassWait >= c.GraceSilent, "the mass wait %s is shorter than the grace for silence %s", c.MassWait, c.GraceSilent)
	check(c.Tombstones >= c.MassWait, "the tombstone time %s is shorter than the mass wait %s", c.Tombstones, c.MassWait)
	return errors.Join(faults...)
}
