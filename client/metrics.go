package client

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what the client does. All are registered by New and unregistered by
// Close.
type metrics struct {
	connects  prometheus.Counter
	failed    prometheus.Counter
	pushes    prometheus.Counter
	calls     *prometheus.CounterVec
	all       []prometheus.Collector
	registrar prometheus.Registerer
}

func newMetrics() *metrics {
	m := &metrics{
		connects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_client_connects_total", Help: "Connections to servers that were set up.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_client_connect_failures_total", Help: "Attempts to reach a server that failed.",
		}),
		pushes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_client_pushes_total", Help: "Lists that servers pushed.",
		}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rollcall_client_calls_total", Help: "Calls for registrations and subscriptions, replays included, by result.",
		}, []string{"what", "result"}),
	}
	m.all = []prometheus.Collector{m.connects, m.failed, m.pushes, m.calls}
	return m
}

// watch adds gauges of the wishes.
func (m *metrics) watch(k *keeper) {
	gauge := func(name, help string, of func() int) {
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(of()) }))
	}
	gauge("rollcall_client_registrations", "Services in which the client registers instances.", func() int { n, _, _ := k.counts(); return n })
	gauge("rollcall_client_subscriptions", "Services that the client is subscribed to.", func() int { _, n, _ := k.counts(); return n })
	gauge("rollcall_client_unmet", "Registrations and subscriptions that no server has taken yet.", func() int { _, _, n := k.counts(); return n })
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	for n, c := range m.all {
		if err := r.Register(c); err != nil {
			for _, done := range m.all[:n] {
				r.Unregister(done)
			}
			return fmt.Errorf("register metrics: %w; give each client labels of its own with prometheus.WrapRegistererWith", err)
		}
	}
	m.registrar = r
	return nil
}

func (m *metrics) unregister() {
	if m.registrar == nil {
		return
	}
	for _, c := range m.all {
		m.registrar.Unregister(c)
	}
}

func (m *metrics) call(what string, err error) {
	result := "ok"
	var refusal *ServerError
	switch {
	case errors.As(err, &refusal):
		result = "refused"
	case err != nil:
		result = "failed"
	}
	m.calls.WithLabelValues(what, result).Inc()
}
