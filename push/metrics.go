package push

import (
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
