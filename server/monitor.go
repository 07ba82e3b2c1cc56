package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"rollcall/push"
)

// monitor shows figures under the names that dashboards of the original read
// (http.md 4.7).
type monitor struct {
	registry *Registry
	engine   *push.Engine

	naming, subscribers, publishers *prometheus.Desc
}

func newMonitor(r *Registry, e *push.Engine) *monitor {
	return &monitor{
		registry: r, engine: e,
		naming:      prometheus.NewDesc("nacos_monitor", "Figures by the names of Nacos.", []string{"module", "name"}, nil),
		subscribers: prometheus.NewDesc("nacos_naming_subscriber", "Subscriptions over UDP (v1) and gRPC (v2).", []string{"version"}, nil),
		publishers:  prometheus.NewDesc("nacos_naming_publisher", "Clients that publish over HTTP (v1) and gRPC (v2).", []string{"version"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (m *monitor) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.naming
	ch <- m.subscribers
	ch <- m.publishers
}

// Collect implements [prometheus.Collector].
func (m *monitor) Collect(ch chan<- prometheus.Metric) {
	c := m.registry.Counts()
	state := m.engine.State(false)
	avg, most := float64(state.AvgMs), float64(state.MaxMs)
	if state.Succeeded == 0 {
		avg, most = -1, -1 // as the original begins
	}
	for name, value := range map[string]float64{
		"serviceCount": float64(c.Services), "ipCount": float64(c.Instances), "subscriberCount": float64(c.Subscriptions),
		"longConnection": float64(c.Connections), "totalPush": float64(state.Succeeded + state.Failed), "failedPush": float64(state.Failed),
		"avgPushCost": avg, "maxPushCost": most,
	} {
		ch <- prometheus.MustNewConstMetric(m.naming, prometheus.GaugeValue, value, "naming", name)
	}
	udp, grpc := m.engine.SubscriptionsBy("udp"), m.engine.SubscriptionsBy("grpc")
	ch <- prometheus.MustNewConstMetric(m.subscribers, prometheus.GaugeValue, float64(udp), "v1")
	ch <- prometheus.MustNewConstMetric(m.subscribers, prometheus.GaugeValue, float64(grpc), "v2")
	ch <- prometheus.MustNewConstMetric(m.publishers, prometheus.GaugeValue, float64(c.EphemeralPublishers+c.PersistentPublishers), "v1")
	ch <- prometheus.MustNewConstMetric(m.publishers, prometheus.GaugeValue, float64(c.Connections), "v2")
}

// metricNames returns the sorted names of what a registry holds.
func metricNames(g prometheus.Gatherer) ([]string, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(families))
	for _, f := range families { // sorted by name
		names = append(names, f.GetName())
	}
	return names, nil
}
