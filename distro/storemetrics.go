package distro

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what a store knows of all nodes, for operators.
type State struct {
	Ready  bool
	Owners []OwnerState // sorted by node and boot; this node is among them
	Peers  []PeerState  // the nodes that are alive, sorted by name

	Ahead      time.Duration // how far another node's clock was ahead of this one's
	Tombstones int
	Repairs    uint64 // comparisons that found a difference and were asked for
	Repaired   uint64 // datums that an owner no longer has and that were removed here
	Removed    uint64 // orphans that this node removed
	Dropped    uint64 // messages that did not fit and will be repeated
}

// OwnerState is what a store holds of one run of a node. All nodes agree when they
// tell the same of the owners that are not gone: Instances and Root.
type OwnerState struct {
	Node      string
	Boot      uint64
	Instances int
	Root      uint64    // digest of the instances and their versions
	Gone      string    // empty, or why the owner is: left, restarted, refused or silent
	Deadline  time.Time // when the instances of connections have been removed; zero unless Gone
}

// Buckets returns the digests of the buckets that this node holds of a run of a node,
// nil of one that it knows nothing of.
func (s *Store) Buckets(node string, boot uint64) []uint64 {
	if s.core == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.core.owners[origin{node, boot}]; o != nil {
		return o.digests()
	}
	return nil
}

// PeerState is how far one peer is.
type PeerState struct {
	Node   string
	Queue  int           // changes that it is still to be sent
	Lag    time.Duration // how long the oldest of them has waited
	Behind uint64        // changes of this node that it has not confirmed
	Misses uint64        // changes of the peer that are known to exist and not here
}

// State returns what the store knows of all nodes.
func (s *Store) State() State {
	if s.core == nil {
		_, instances := s.data.Counts()
		return State{Ready: s.Ready() == nil, Owners: []OwnerState{{Node: s.cfg.Node, Instances: instances}}}
	}
	ready := s.Ready() == nil
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.state(s.now(), ready)
}

// storeMetrics tells what the store does.
type storeMetrics struct {
	store     *Store
	malformed prometheus.Counter

	queue, lag, unconfirmed                                  *prometheus.Desc
	orphans, tombstones, repairs, repaired, removed, dropped *prometheus.Desc
}

func newStoreMetrics(s *Store, reg prometheus.Registerer) *storeMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("rollcall_distro_"+name, help, labels, nil)
	}
	x := &storeMetrics{
		store: s,
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_distro_malformed_total", Help: "Messages of other nodes that could not be read.",
		}),
		queue:       desc("queue", "Changes that wait to be sent to a node that is alive.", "peer"),
		lag:         desc("lag_seconds", "Time that the oldest change for a node has waited to be sent.", "peer"),
		unconfirmed: desc("unconfirmed", "Changes of this node that another one has not confirmed.", "peer"),
		orphans:     desc("orphans", "Instances whose owner is gone."),
		tombstones:  desc("tombstones", "Deletions that are remembered."),
		repairs:     desc("repairs_total", "Differences to other nodes that were looked into."),
		repaired:    desc("repaired_total", "Instances removed because their owner no longer had them."),
		removed:     desc("removed_orphans_total", "Orphans that this node removed."),
		dropped:     desc("dropped_total", "Messages of and to other nodes that did not fit."),
	}
	if reg != nil {
		reg.MustRegister(x)
	}
	return x
}

func (x *storeMetrics) unregister(reg prometheus.Registerer) {
	if x != nil && reg != nil {
		reg.Unregister(x)
	}
}

// Describe implements [prometheus.Collector].
func (x *storeMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		x.malformed.Desc(), x.queue, x.lag, x.unconfirmed,
		x.orphans, x.tombstones, x.repairs, x.repaired, x.removed, x.dropped,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (x *storeMetrics) Collect(ch chan<- prometheus.Metric) {
	st := x.store.State()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value))
	}
	for _, p := range st.Peers {
		gauge(x.queue, float64(p.Queue), p.Node)
		gauge(x.lag, p.Lag.Seconds(), p.Node)
		gauge(x.unconfirmed, float64(p.Behind), p.Node)
	}
	orphans := 0
	for _, o := range st.Owners {
		if o.Gone != "" {
			orphans += o.Instances
		}
	}
	gauge(x.orphans, float64(orphans))
	gauge(x.tombstones, float64(st.Tombstones))
	counter(x.repairs, st.Repairs)
	counter(x.repaired, st.Repaired)
	counter(x.removed, st.Removed)
	counter(x.dropped, st.Dropped+x.store.inbox.dropped.Load())
	ch <- x.malformed
}
