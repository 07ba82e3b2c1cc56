package push

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// What changes while pushes are off is sent once they are on again, as it then is.
func TestEngine_PushesOffAndOn(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		a := subscribed(t, e, e.GRPC(), service("a"), accept)
		b := subscribed(t, e, e.GRPC(), service("b"), accept)
		e.Enable(true)
		pass(time.Minute)
		require.Empty(t, a.take(), "they were on already")
		e.Enable(false)
		w := 0
		for range 3 {
			w = r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(time.Second)
		}
		late := connect(t, e, e.GRPC(), accept)
		late.Subscribe(service("a"), naming.Filter{})
		pass(time.Minute)
		require.Empty(t, a.take())
		require.Empty(t, late.take())
		e.Enable(true)
		pass(0)
		for _, c := range []*client{a, late} {
			got := c.take()
			require.Len(t, got, 1)
			require.Equal(t, w, weight(got[0].Push))
		}
		require.Empty(t, b.take())
	})
}

func TestEngine_StateCountsUntilItIsReset(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), func(c *client, p Push) {
			time.Sleep(time.Duration(weight(p)) * 100 * ms)
			c.Ack(p.Seq, true)
		})
		e.State(true)
		require.Equal(t, naming.PushState{}, e.State(false))
		for range 3 { // acknowledged after 100, 200 and 300 ms
			r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(2 * time.Second)
		}
		require.Len(t, c.take(), 3)
		require.Equal(t, naming.PushState{Succeeded: 3, AvgMs: 200, MaxMs: 300}, e.State(false))
		require.Equal(t, naming.PushState{Succeeded: 3, AvgMs: 200, MaxMs: 300}, e.State(true))
		require.Equal(t, naming.PushState{}, e.State(false))
	})
}

func TestEngine_WhoIsSubscribed(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, _ *registry, _ *prometheus.Registry) {
		s := e.NewSubscriber(Peer{ID: "c1", App: "shop"}, e.GRPC(), func() {})
		defer s.Close()
		s.Subscribe(service("b"), naming.Filter{})
		s.Subscribe(service("a"), naming.Filter{})
		s.Subscribe(service("a"), clusters("x"))
		services, peer := e.SubscribedBy("c1")
		require.Equal(t, []naming.ServiceKey{service("a"), service("b")}, services)
		require.Equal(t, "shop", peer.App)
		services, _ = e.SubscribedBy("c2")
		require.Empty(t, services)
		require.Equal(t, 3, e.SubscriptionsBy(e.GRPC().Transport))
		require.Zero(t, e.SubscriptionsBy(e.UDP().Transport))
	})
}
