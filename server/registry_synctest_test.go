package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func TestConnectionLost_InstancesLinger(t *testing.T) {
	for name, c := range map[string]struct {
		linger time.Duration
		want   []string
	}{
		"protocol's time": {500 * ms, []string{"10s 10.0.0.2", "10.5s"}},
		"none":            {0, []string{"10s 10.0.0.2", "10.1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
				require.NoError(t, f.Register(t.Context(), service("a"), "conn2", host("10.0.0.2")))
				s := tell(f, service("a"))
				pass(10 * time.Second)
				require.NoError(t, f.Deregister(t.Context(), service("a"), "conn1", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
				require.Len(t, s.since(), 1, "a deregistration is at once")
				s.lines = []string{"10s 10.0.0.2"}
				f.ConnectionLost("conn2", []naming.ServiceKey{service("a"), service("never published")}, false)
				f.ConnectionLost("conn2", nil, false)
				pass(time.Minute)
				require.Equal(t, c.want, s.since())
				require.Empty(t, f.timers.slots[0])
			}, func(c2 *Config) { c2.Linger = c.linger })
		})
	}
}

func TestConnectionLost_WhoComesBackInTimeIsNotSeenToGo(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
		before := f.ServiceInfo(service("a"), naming.Filter{})
		f.ConnectionLost("conn1", []naming.ServiceKey{service("a")}, false)
		pass(400 * ms)
		require.NoError(t, f.Register(t.Context(), service("a"), "conn2", host("10.0.0.1")))
		require.Same(t, before, f.ServiceInfo(service("a"), naming.Filter{}))
		pass(time.Minute)
		require.Same(t, before, f.ServiceInfo(service("a"), naming.Filter{}))
		require.Empty(t, f.router.Store(true).Published(service("a"), "conn1"))
	})
}

func TestConnectionLost_BatchGoesAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.RegisterBatch(t.Context(), service("a"), "conn", []*naming.Instance{host("10.0.0.1"), host("10.0.0.2")}))
		s := tell(f, service("a"))
		f.ConnectionLost("conn", []naming.ServiceKey{service("a")}, false)
		pass(time.Minute)
		require.Equal(t, []string{"500ms"}, s.since())
	})
}
