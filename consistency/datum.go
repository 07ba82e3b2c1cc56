package consistency

import (
	"cmp"
	"sync"
	"time"

	"rollcall/naming"
)

// Kind tells what a datum is about.
type Kind uint8

// The kinds of datums.
const (
	KindInstance  Kind = iota + 1 // one published instance
	KindSettings                  // one service's settings
	KindOverride                  // one operator override of an instance
	KindSwitch                    // one switch of all nodes
	KindNamespace                 // one namespace
	KindCluster                   // one cluster's settings
)

// Key names a datum. It is comparable.
type Key struct {
	Service   naming.ServiceKey // of a namespace its id alone
	Kind      Kind
	Publisher string             // of an instance; else empty
	Instance  naming.InstanceKey // of an instance or override; of a cluster its name alone; else zero
	Switch    string             // name of a switch; its Service is zero
}

// Compare orders keys by service, kind, publisher, instance and switch.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		k.Service.Compare(o.Service), cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Publisher, o.Publisher),
		k.Instance.Compare(o.Instance), cmp.Compare(k.Switch, o.Switch),
	)
}

// Datum is one replicated record. The field that its Kind names is set.
type Datum struct {
	Key
	Version  Version // set by the store
	Instance *naming.Instance
	Settings *naming.Settings
	Override *naming.Override
	Value    string // of a switch
	// Namespace has the id that the key has.
	Namespace *naming.Namespace
	Cluster   *naming.Cluster
}

// NamespaceKey names the datum of a namespace.
func NamespaceKey(id string) Key {
	return Key{Service: naming.ServiceKey{Namespace: id}, Kind: KindNamespace}
}

// ClusterKey names the datum of a cluster's settings.
func ClusterKey(svc naming.ServiceKey, cluster string) Key {
	return Key{Service: svc, Kind: KindCluster, Instance: naming.InstanceKey{Cluster: cluster}}
}

// Publication is everything that one publisher has in one service.
type Publication struct {
	Service   naming.ServiceKey
	Publisher string
	Instances []*naming.Instance // empty: the publisher withdraws
}

// ServiceChanged is the notice that the state of a service may have changed; the
// zero key stands for the switches, and one without a name for the namespace.
type ServiceChanged struct {
	Service naming.ServiceKey
}

// Version orders the values of one datum: the larger wins. For persistent data
// Time is the index in the log; for ephemeral data it is hybrid logical time, 48
// bits of milliseconds and 16 bits of counter, with ties broken by node.
type Version struct {
	Time uint64
	Node string
}

// Compare orders versions by time, then by node.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Time, o.Time), cmp.Compare(v.Node, o.Node))
}

// Clock is a hybrid logical clock (Kulkarni et al., Logical Physical Clocks,
// 2014). It follows the wall clock as it was at the start plus monotonic time, so
// a jump of the wall clock in a running process changes nothing. Safe for
// concurrent use.
type Clock struct {
	node  string
	start time.Time // carries the monotonic reading
	mu    sync.Mutex
	last  uint64
}

const counterBits = 16

// NewClock returns a clock whose versions carry the node's name.
func NewClock(node string) *Clock { return &Clock{node: node, start: time.Now()} }

// Next returns a version larger than every one that Next returned or Observe saw.
func (c *Clock) Next() Version {
	ms := c.start.UnixMilli() + time.Since(c.start).Milliseconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, uint64(ms)<<counterBits)
	return Version{Time: c.last, Node: c.node}
}

// Observe raises the clock above a version that came from elsewhere. A version
// far ahead is taken over as it is: clamping it would make replicas differ.
func (c *Clock) Observe(v Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, v.Time)
}
