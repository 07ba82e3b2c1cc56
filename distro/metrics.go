package distro

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// memberMetrics counts what membership does.
type memberMetrics struct {
	alive     prometheus.GaugeFunc
	joins     *prometheus.CounterVec // by result
	conflicts prometheus.Counter
	sends     *prometheus.CounterVec // by result
	sentBytes prometheus.Counter
	receives  prometheus.Counter
	gotBytes  prometheus.Counter
}

func newMemberMetrics(m *Members, reg prometheus.Registerer) *memberMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	byResult := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
	}
	x := &memberMetrics{
		alive: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rollcall_members_alive", Help: "Nodes that are known to be alive, this one included.",
		}, func() float64 { return float64(len(m.Alive())) }),
		joins:     byResult("rollcall_members_join_attempts_total", "Attempts to join other nodes, by result: ok, failed."),
		conflicts: counter("rollcall_members_conflicts_total", "Times that a node was heard of under a name which another one has."),
		sends:     byResult("rollcall_members_sends_total", "Messages to other nodes, by result: ok, failed, timeout."),
		sentBytes: counter("rollcall_members_sent_bytes_total", "Bytes of the messages to other nodes that were sent."),
		receives:  counter("rollcall_members_received_total", "Messages of other nodes."),
		gotBytes:  counter("rollcall_members_received_bytes_total", "Bytes of the messages of other nodes."),
	}
	if reg != nil {
		reg.MustRegister(x.all()...)
	}
	return x
}

func (x *memberMetrics) all() []prometheus.Collector {
	return []prometheus.Collector{x.alive, x.joins, x.conflicts, x.sends, x.sentBytes, x.receives, x.gotBytes}
}

func (x *memberMetrics) unregister(reg prometheus.Registerer) {
	if reg != nil {
		for _, c := range x.all() {
			reg.Unregister(c)
		}
	}
}

func (x *memberMetrics) rejoined(err error) { x.joins.WithLabelValues(result(err)).Inc() }

func (x *memberMetrics) sent(size int, err error) {
	x.sends.WithLabelValues(result(err)).Inc()
	if err == nil {
		x.sentBytes.Add(float64(size))
	}
}

func (x *memberMetrics) received(size int) {
	x.receives.Inc()
	x.gotBytes.Add(float64(size))
}

func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "timeout"
	}
	return "failed"
}
