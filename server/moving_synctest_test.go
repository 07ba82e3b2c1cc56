package server

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func TestMoving_StaysUntilItsTimeIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
		f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, true)
		pass(9900 * ms)
		require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")))
		pass(400 * ms)
		require.Empty(t, f.hosts(service("a")))
		require.Empty(t, f.moving.services)
	})
}

// A client that is back is not seen to go, and what it published before does not outlive
// what it says next.
func TestMoving_BackElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
		before := f.ServiceInfo(service("a"), naming.Filter{})
		f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, true)
		pass(3 * time.Second)
		require.NoError(t, f.Register(t.Context(), service("a"), "elsewhere", host("10.0.0.1")))
		pass(time.Second)
		require.NotEmpty(t, f.router.Store(true).Published(service("a"), "conn1"), "another node may not know yet")
		pass(500 * ms)
		require.Same(t, before, f.ServiceInfo(service("a"), naming.Filter{}))
		require.Empty(t, f.router.Store(true).Published(service("a"), "conn1"))
		require.NoError(t, f.Deregister(t.Context(), service("a"), "elsewhere", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		require.Empty(t, f.hosts(service("a")))
	})
}

func TestMoving_BackElsewhereAndGone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
		f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, true)
		require.NoError(t, f.Register(t.Context(), service("a"), "elsewhere", host("10.0.0.1")))
		pass(400 * ms)
		require.NoError(t, f.Deregister(t.Context(), service("a"), "elsewhere", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		pass(300 * ms)
		require.Empty(t, f.hosts(service("a")))
	})
}

// Whoever was asked to go may be on a node that this one does not hear.
func TestMoving_NobodyIsGoneWhileNodesAreMissing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var heard atomic.Bool
		f.nodes.mayExpire = heard.Load
		require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
		f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, true)
		pass(time.Minute)
		require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")))
		heard.Store(true)
		pass(9 * time.Second)
		require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")), "the node that was missing may be dead: its clients are on their way")
		pass(2 * time.Second)
		require.Empty(t, f.hosts(service("a")))
	})
}

func TestMoving_BatchIsBackAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.RegisterBatch(t.Context(), service("a"), "conn1", []*naming.Instance{host("10.0.0.1"), host("10.0.0.2")}))
		f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, true)
		require.NoError(t, f.Register(t.Context(), service("a"), "elsewhere", host("10.0.0.1")))
		pass(time.Second)
		require.Len(t, f.router.Store(true).Published(service("a"), "conn1"), 2)
		require.NoError(t, f.RegisterBatch(t.Context(), service("a"), "elsewhere", []*naming.Instance{host("10.0.0.1"), host("10.0.0.2")}))
		pass(2 * time.Second)
		require.Empty(t, f.router.Store(true).Published(service("a"), "conn1"))
		require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, f.hosts(service("a")))
	})
}

// So may whoever left by itself, when this node is the one that is cut off.
func TestMoving_CutOffNode(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var heard, led atomic.Bool
		led.Store(true)
		f.nodes.mayExpire, f.nodes.led = heard.Load, led.Load
		for _, conn := range []string{"conn1", "conn2"} {
			require.NoError(t, f.Register(t.Context(), service("a"), conn, host("10.0.0."+conn[4:])))
		}
		f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, false)
		pass(time.Second)
		require.Equal(t, []string{"10.0.0.2"}, f.hosts(service("a")), "most nodes are here: the client is not on another one")
		led.Store(false)
		f.ConnectionLost("conn2", []naming.ServiceKey{service("a")}, false)
		pass(time.Hour)
		require.Equal(t, []string{"10.0.0.2"}, f.hosts(service("a")))
		heard.Store(true)
		led.Store(true)
		pass(11 * time.Second)
		require.Empty(t, f.hosts(service("a")))
	})
}

// A cut is noticed after a moment: until then nobody is taken to be gone from a node that
// may be cut off already.
func TestConnectionLost_IsBelievedOnceAllNodesWereHeard(t *testing.T) {
	const beginsAt = 10 * time.Second
	for name, c := range map[string]struct {
		heard  time.Duration // when all nodes answer a question that was asked after the loss
		cutOff bool          // what comes out when they never do
		gone   time.Duration // 0: never
	}{
		"at once":            {heard: 300 * ms, gone: 500 * ms},
		"soon":               {heard: 1200 * ms, gone: 1300 * ms},
		"never, most here":   {heard: time.Hour, gone: 3100 * ms},
		"never, most beyond": {heard: time.Hour, cutOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				begin := time.Now()
				lost := begin.Add(beginsAt)
				f.nodes.heardSince = func(at time.Time) bool {
					require.Equal(t, lost, at)
					return time.Since(lost) >= c.heard
				}
				var asked []time.Duration
				f.nodes.askAll = func() { asked = append(asked, time.Since(lost)) }
				f.nodes.mayExpire = func() bool { return time.Since(lost) < time.Second || !c.cutOff }
				f.nodes.led = func() bool { return time.Since(lost) < time.Second || !c.cutOff }
				require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
				pass(beginsAt)
				s := tell(f, service("a"))
				f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, false)
				require.Equal(t, []time.Duration{0}, asked, "all nodes, without waiting for the next time")
				pass(time.Minute)
				if c.gone == 0 {
					require.Empty(t, s.since())
					return
				}
				require.Equal(t, []string{c.gone.String()}, s.since())
			})
		})
	}
}

// While a node is drained, every connection that ends counts as one that moves.
func TestMoving_DrainedNode(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Wanted())
		f.draining.Store(true)
		require.Error(t, f.Wanted())
		require.NoError(t, f.Ready(), "who is there is served")
		require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
		f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, false)
		pass(9 * time.Second)
		require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")))
		pass(2 * time.Second)
		require.Empty(t, f.hosts(service("a")))
	})
}

// A node that stops decides about nobody who is not back: the other nodes wait.
func TestMoving_StoppingNode(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
		require.NoError(t, f.Register(t.Context(), service("a"), "conn2", host("10.0.0.2")))
		f.stopping.Store(true)
		for _, conn := range []string{"conn1", "conn2"} {
			f.ConnectionLost(conn, []naming.ServiceKey{service("a")}, false)
		}
		require.NoError(t, f.Register(t.Context(), service("a"), "elsewhere", host("10.0.0.1")))
		pass(time.Minute)
		require.Empty(t, f.router.Store(true).Published(service("a"), "conn1"))
		require.NotEmpty(t, f.router.Store(true).Published(service("a"), "conn2"))
		require.Equal(t, []string{"10.0.0.1", "10.0.0.2"}, f.hosts(service("a")))
	})
}
