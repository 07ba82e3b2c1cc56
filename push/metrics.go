package push

import (
	"sync"
	"time"

	"rollcall/naming"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	sent, acked, failed *prometheus.CounterVec
	latency             *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"transport"})
	}
	m := metrics{
		sent:   counter("rollcall_push_sent_total", "Pushes handed to a transport, repeats included."),
		acked:  counter("rollcall_push_acked_total", "Pushes that the client acknowledged."),
		failed: counter("rollcall_push_failed_total", "Pushes that were refused or not acknowledged in time."),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rollcall_push_ack_seconds", Help: "Time from sending a push to its acknowledgement.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"transport"}),
	}
	if reg != nil {
		reg.MustRegister(m.sent, m.acked, m.failed, m.latency)
	}
	return m
}

// counts are what operators ask for beside the metrics, which nobody can reset.
type counts struct {
	mu    sync.Mutex
	state naming.PushState
	sum   time.Duration
	max   time.Duration
}

// note counts a push that was acknowledged after a time, or has failed.
func (c *counts) note(ok bool, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok {
		c.state.Failed++
		return
	}
	c.state.Succeeded++
	c.sum += took
	c.max = max(c.max, took)
}

// State returns how pushes went since it was last reset, and resets it if asked to.
func (e *Engine) State(reset bool) naming.PushState {
	c := &e.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.state
	if out.Succeeded > 0 {
		out.AvgMs = (c.sum / time.Duration(out.Succeeded)).Milliseconds()
	}
	out.MaxMs = c.max.Milliseconds()
	if reset {
		c.state, c.sum, c.max = naming.PushState{}, 0, 0
	}
	return out
}
