package push

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// service returns the key of a service by a short name.
func service(name string) naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "g", Name: name}
}

func clusters(list string) naming.Filter { return naming.Filter{Clusters: list} }

// subscriptionKey is what a subscriber wants.
type subscriptionKey struct {
	service naming.ServiceKey
	filter  naming.Filter
}

// registry is a Source: each service has one instance in each of its clusters,
// whose weight is the number of the change that it was last set by.
type registry struct {
	mu       sync.Mutex
	services map[naming.ServiceKey]*naming.Service
	views    map[subscriptionKey]*naming.ServiceInfo
	idle     []naming.ServiceKey
	change   int
	refTime  int64
}

func newRegistry() *registry {
	return &registry{
		services: make(map[naming.ServiceKey]*naming.Service),
		views:    make(map[subscriptionKey]*naming.ServiceInfo),
	}
}

// set changes a cluster of a service and returns the number of the change, which
// is the weight that the views show from now on.
func (r *registry) set(svc naming.ServiceKey, cluster string) (weight int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.change++
	i := naming.NewInstance("10.0.0.1", 80)
	i.Cluster, i.Weight = cluster, float64(r.change)
	s := r.services[svc]
	if s == nil {
		s = &naming.Service{Key: svc}
		r.services[svc] = s
	}
	s.Instances = slices.DeleteFunc(slices.Clone(s.Instances), func(o *naming.Instance) bool { return o.Cluster == cluster })
	s.Instances = append(s.Instances, &i)
	slices.SortFunc(s.Instances, func(a, b *naming.Instance) int { return a.Key().Compare(b.Key()) })
	return r.change
}

// content returns what is registered of a service, for restore.
func (r *registry) content(svc naming.ServiceKey) naming.Service {
	r.mu.Lock()
	defer r.mu.Unlock()
	return *r.services[svc]
}

func (r *registry) restore(s naming.Service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.services[s.Key] = &s
}

// ServiceInfo implements Source as the server does: equal content is the same
// value.
func (r *registry) ServiceInfo(svc naming.ServiceKey, f naming.Filter) *naming.ServiceInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.services[svc]
	if s == nil {
		s = &naming.Service{Key: svc}
	}
	info, key := f.View(s), subscriptionKey{svc, f}
	if old := r.views[key]; old != nil && old.SameContent(info) {
		return old
	}
	r.refTime++
	info.LastRefTimeMs = r.refTime
	r.views[key] = info
	return info
}

// Idle implements Source.
func (r *registry) Idle(svc naming.ServiceKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, svc)
}

func (r *registry) idled() []naming.ServiceKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.idle)
}

// weight returns the number of the newest change that a push shows; 0 for none.
func weight(p Push) int {
	w := 0
	for _, i := range p.Info.Hosts {
		w = max(w, int(i.Weight))
	}
	return w
}

// start returns a started engine with the default times, which is closed at the
// end of the test.
func start(t *testing.T, source Source) (*Engine, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	e, err := New(DefaultConfig(), source, reg)
	require.NoError(t, err)
	require.NoError(t, e.Start())
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e, reg
}

// received is a push and when it came, counted from the start of the client.
type received struct {
	Push
	at time.Duration
}

// client is a subscriber with a sender of its own, as a connection has.
type client struct {
	*Subscriber
	wakeCh  chan struct{}
	stopCh  chan struct{}
	started time.Time

	mu     sync.Mutex
	pushes []received
}

// connect returns a client that takes each push at once and hands it to answer,
// which may acknowledge it; nil never does.
func connect(t *testing.T, e *Engine, policy Policy, answer func(*client, Push)) *client {
	t.Helper()
	c := &client{wakeCh: make(chan struct{}, 1), stopCh: make(chan struct{}), started: time.Now()}
	c.Subscriber = e.NewSubscriber(Peer{IP: "10.0.0.9"}, policy, func() {
		select {
		case c.wakeCh <- struct{}{}:
		default:
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-c.stopCh:
				return
			case <-c.wakeCh:
			}
			for p, ok := c.Next(); ok; p, ok = c.Next() {
				c.mu.Lock()
				c.pushes = append(c.pushes, received{p, time.Since(c.started)})
				c.mu.Unlock()
				if answer != nil {
					answer(c, p)
				}
			}
		}
	})
	t.Cleanup(func() {
		c.Close()
		close(c.stopCh)
		wg.Wait()
	})
	return c
}

func accept(c *client, p Push) { c.Ack(p.Seq, true) }

func refuse(c *client, p Push) { c.Ack(p.Seq, false) }

// take returns what came since it was called last.
func (c *client) take() []received {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.pushes
	c.pushes = nil
	return out
}

// times returns when pushes came.
func times(pushes []received) []time.Duration {
	out := make([]time.Duration, 0, len(pushes))
	for _, p := range pushes {
		out = append(out, p.at)
	}
	return out
}

// counters returns the values of a metric by transport.
func counters(t *testing.T, reg prometheus.Gatherer, name string) map[string]int {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := make(map[string]int)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			n := int(m.GetCounter().GetValue())
			if h := m.GetHistogram(); h != nil {
				n = int(h.GetSampleCount())
			}
			out[m.GetLabel()[0].GetValue()] = n
		}
	}
	return out
}

// queued returns the number of entries in a subscriber's queue.
func queued(s *Subscriber) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// awaited returns the number of pushes that wait for an acknowledgement.
func awaited(s *Subscriber) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.inFlight)
}
