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
	Deadline  time.Time // when the instances of connections begin to be removed; zero unless Gone
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

// storeMetrics counts what the store does.
type storeMetrics struct {
	malformed prometheus.Counter
	funcs     []prometheus.Collector
}

func newStoreMetrics(s *Store, reg prometheus.Registerer) *storeMetrics {
	x := &storeMetrics{malformed: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "rollcall_distro_malformed_total", Help: "Messages of other nodes that could not be read.",
	})}
	x.funcs = append(x.funcs, x.malformed)
	gauge := func(name, help string, of func(State) float64) {
		x.funcs = append(x.funcs, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return of(s.State()) }))
	}
	counter := func(name, help string, of func(State) float64) {
		x.funcs = append(x.funcs, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return of(s.State()) }))
	}
	gauge("rollcall_distro_queue", "Changes that wait to be sent, of the peer with the most.", func(st State) (most float64) {
		for _, p := range st.Peers {
			most = max(most, float64(p.Queue))
		}
		return most
	})
	gauge("rollcall_distro_lag_seconds", "Time that the oldest change has waited to be sent.", func(st State) (most float64) {
		for _, p := range st.Peers {
			most = max(most, p.Lag.Seconds())
		}
		return most
	})
	gauge("rollcall_distro_orphans", "Instances whose owner is gone.", func(st State) (n float64) {
		for _, o := range st.Owners {
			if o.Gone != "" {
				n += float64(o.Instances)
			}
		}
		return n
	})
	gauge("rollcall_distro_tombstones", "Deletions that are remembered.", func(st State) float64 { return float64(st.Tombstones) })
	counter("rollcall_distro_repairs_total", "Differences to other nodes that were looked into.", func(st State) float64 { return float64(st.Repairs) })
	counter("rollcall_distro_removed_orphans_total", "Orphans that this node removed.", func(st State) float64 { return float64(st.Removed) })
	counter("rollcall_distro_dropped_total", "Messages of and to other nodes that did not fit.", func(st State) float64 {
		return float64(st.Dropped + s.inbox.dropped.Load())
	})
	if reg != nil {
		reg.MustRegister(x.funcs...)
	}
	return x
}

func (x *storeMetrics) unregister(reg prometheus.Registerer) {
	if x != nil && reg != nil {
		for _, c := range x.funcs {
			reg.Unregister(c)
		}
	}
}
