package raftstore

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of one store. What the state tells is read when the metrics
// are collected.
type metrics struct {
	s *Store

	applied       prometheus.Counter
	batch         prometheus.Histogram
	write         prometheus.Histogram
	writes        *prometheus.CounterVec
	snapshots     prometheus.Counter
	snapshotBytes prometheus.Gauge
	snapshotIndex prometheus.Gauge
	snapshotTime  prometheus.Gauge
	gauges        map[string]*prometheus.Desc
	lag           *prometheus.Desc
}

func newMetrics(s *Store) *metrics {
	m := &metrics{
		s:       s,
		applied: prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_raft_applied_operations_total", Help: "Operations applied to the table."}),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rollcall_raft_entry_operations", Help: "Operations in one log entry.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		write: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "rollcall_raft_write_seconds", Help: "Time of a successful write on the leader.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}),
		writes:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "rollcall_raft_writes_total", Help: "Writes asked of this node, by outcome."}, []string{"outcome"}),
		snapshots:     prometheus.NewCounter(prometheus.CounterOpts{Name: "rollcall_raft_snapshots_total", Help: "Snapshots taken."}),
		snapshotBytes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_raft_snapshot_bytes", Help: "Size of the newest snapshot; 0 when there is none."}),
		snapshotIndex: prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_raft_snapshot_index", Help: "Last entry in the newest snapshot; 0 when there is none."}),
		snapshotTime:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "rollcall_raft_snapshot_timestamp_seconds", Help: "Unix time at which the newest snapshot was taken here or received; 0 when there is none."}),
		gauges:        make(map[string]*prometheus.Desc),
		lag:           prometheus.NewDesc("rollcall_raft_peer_lag_entries", "Log entries that a node lacks, as the leader knows.", []string{"peer"}, nil),
	}
	for name, help := range map[string]string{
		"leader":        "1 while this node leads.",
		"has_leader":    "1 while a leader is known.",
		"voter":         "1 when this node has a vote.",
		"voters":        "Nodes that have a vote.",
		"term":          "Present term.",
		"last_index":    "Last entry in the log.",
		"commit_index":  "Last entry known to be committed.",
		"applied_index": "Last entry applied.",
		"lag_entries":   "Committed entries that are not applied yet.",
		"read_only":     "1 while the disk takes no persistent data.",
		"stale":         "1 while data is served as it was before the start.",
		"refused":       "1 while the data folder belongs to another cluster.",
	} {
		m.gauges[name] = prometheus.NewDesc("rollcall_raft_"+name, help, nil, nil)
	}
	return m
}

func (m *metrics) counters() []prometheus.Collector {
	return []prometheus.Collector{m.applied, m.batch, m.write, m.writes, m.snapshots, m.snapshotBytes, m.snapshotIndex, m.snapshotTime}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.counters() {
		c.Describe(ch)
	}
	for _, d := range m.gauges {
		ch <- d
	}
	ch <- m.lag
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.counters() {
		c.Collect(ch)
	}
	st := m.s.State()
	voters := 0
	for _, server := range st.Servers {
		if server.Voter {
			voters++
		}
		if st.Role == RoleLeader && server.LagKnown {
			name := server.Name
			if name == "" {
				name = server.ID
			}
			ch <- prometheus.MustNewConstMetric(m.lag, prometheus.GaugeValue, float64(server.Lag), name)
		}
	}
	for name, value := range map[string]float64{
		"leader":        flag(st.Role == RoleLeader),
		"has_leader":    flag(st.Leader != ""),
		"voter":         flag(st.Voter),
		"voters":        float64(voters),
		"term":          float64(st.Term),
		"last_index":    float64(st.LastIndex),
		"commit_index":  float64(st.CommitIndex),
		"applied_index": float64(st.AppliedIndex),
		"lag_entries":   float64(max(st.CommitIndex, st.AppliedIndex) - st.AppliedIndex),
		"read_only":     flag(st.ReadOnly != nil),
		"stale":         flag(st.Stale),
		"refused":       flag(st.Refused != nil),
	} {
		ch <- prometheus.MustNewConstMetric(m.gauges[name], prometheus.GaugeValue, value)
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// snapshotKept notes the newest snapshot, which was taken here or received.
func (m *metrics) snapshotKept(index uint64, bytes int64, at time.Time) {
	m.snapshotBytes.Set(float64(bytes))
	m.snapshotIndex.Set(float64(index))
	m.snapshotTime.Set(float64(at.UnixMilli()) / 1000)
}
