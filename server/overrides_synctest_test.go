package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// overridden returns the weights that a client sees of a service, by ip.
func (f *fixture) overridden(k naming.ServiceKey) map[string]float64 {
	out := make(map[string]float64)
	for _, i := range f.ServiceInfo(k, naming.Filter{}).Hosts {
		out[i.IP] = i.Weight
	}
	return out
}

// override lays a weight over an instance.
func (f *fixture) override(t *testing.T, k naming.ServiceKey, ip string, weight float64) {
	t.Helper()
	require.NoError(t, f.ChangeInstance(t.Context(), k, host(ip).Key(), naming.Change{Weight: &weight}))
}

// overrides returns how many overrides a service has.
func (f *fixture) overrides(k naming.ServiceKey) int {
	st, _ := f.router.Stat(k)
	return st.Overrides
}

func TestOverride_ChangesWhatIsSeen(t *testing.T) {
	f := newFixture(t)
	f.register(t, service("a"), host("10.0.0.1", meta("zone", "a", "v", "1")))
	k := host("10.0.0.1").Key()
	weight, off, on := 5.0, false, true
	change := func(c naming.Change) *naming.Instance {
		t.Helper()
		f.noticed()
		require.NoError(t, f.ChangeInstance(t.Context(), service("a"), k, c))
		require.Equal(t, []naming.ServiceKey{service("a")}, f.noticed())
		i, err := f.Instance(service("a"), k)
		require.NoError(t, err)
		return i
	}
	i := change(naming.Change{Weight: &weight})
	require.InDelta(t, 5, i.Weight, 0)
	require.True(t, i.Enabled, "nothing else changes")
	require.Equal(t, map[string]string{"zone": "a", "v": "1"}, i.Metadata)
	i = change(naming.Change{Metadata: map[string]string{"zone": "b", "x": "y"}})
	require.Equal(t, map[string]string{"zone": "b", "v": "1", "x": "y"}, i.Metadata)
	require.InDelta(t, 5, i.Weight, 0)
	i = change(naming.Change{Metadata: map[string]string{}})
	require.Equal(t, map[string]string{"zone": "a", "v": "1"}, i.Metadata, "what earlier changes laid over goes")
	i = change(naming.Change{Enabled: &off})
	require.False(t, i.Enabled)
	require.Empty(t, f.hosts(service("a")))
	i = change(naming.Change{Enabled: &on})
	require.True(t, i.Enabled)
	require.Equal(t, 1, f.overrides(service("a")))
}

func TestOverride_Refusals(t *testing.T) {
	f := newFixture(t)
	ctx, k := t.Context(), host("10.0.0.1").Key()
	heavy := 10001.0
	fault(t, naming.FaultServiceUnknown, f.ChangeInstance(ctx, service("a"), k, naming.Change{}))
	f.register(t, service("a"), host("10.0.0.1"))
	fault(t, naming.FaultInstanceUnknown, f.ChangeInstance(ctx, service("a"), host("10.0.0.2").Key(), naming.Change{}))
	fault(t, naming.FaultInstanceUnknown, f.ChangeInstance(ctx, service("a"), host("10.0.0.1", cluster("c")).Key(), naming.Change{}))
	fault(t, naming.FaultWeight, f.ChangeInstance(ctx, service("a"), k, naming.Change{Weight: &heavy}))
	fault(t, naming.FaultParam, f.ChangeInstance(ctx, naming.ServiceKey{}, k, naming.Change{}))
	_, err := f.ChangeMetadata(ctx, naming.ServiceKey{}, nil, nil, nil)
	fault(t, naming.FaultParam, err)
	_, err = f.ChangeMetadata(ctx, service("a"), nil, map[string]string{"\xff": ""}, nil)
	fault(t, naming.FaultParam, err)
	f.persistent.Fail(consistency.ErrNoLeader)
	require.ErrorIs(t, f.ChangeInstance(ctx, service("a"), k, naming.Change{}), consistency.ErrNoLeader)
	_, err = f.ChangeMetadata(ctx, service("a"), nil, map[string]string{"k": "v"}, nil)
	require.ErrorIs(t, err, consistency.ErrNoLeader)
}

func TestChangeMetadata(t *testing.T) {
	f := newFixture(t)
	for _, ip := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"} {
		f.register(t, service("a"), host(ip, meta("own", ip)))
	}
	f.override(t, service("a"), "10.0.0.3", 9)
	change := func(keys []naming.InstanceKey, set map[string]string, remove ...string) (changed []string) {
		t.Helper()
		list, err := f.ChangeMetadata(t.Context(), service("a"), keys, set, remove)
		require.NoError(t, err)
		for _, i := range list {
			changed = append(changed, i.IP)
		}
		return changed
	}
	sees := func(want ...map[string]string) {
		t.Helper()
		var got []map[string]string
		for _, i := range f.ServiceInfo(service("a"), naming.Filter{}).Hosts {
			got = append(got, i.Metadata)
		}
		require.Equal(t, want, got)
	}
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, change(nil, map[string]string{"a": "1", "b": "2"}))
	sees(map[string]string{"own": "10.0.0.1", "a": "1", "b": "2"}, map[string]string{"own": "10.0.0.2", "a": "1", "b": "2"}, map[string]string{"own": "10.0.0.3", "a": "1", "b": "2"})

	some := []naming.InstanceKey{host("10.0.0.2").Key(), host("10.0.0.9").Key()}
	require.Equal(t, []string{"10.0.0.2"}, change(some, map[string]string{"a": "x"}), "unknown ones are left out")
	require.Equal(t, []string{"10.0.0.2"}, change(some, nil, "b", "own", "nope"))
	sees(map[string]string{"own": "10.0.0.1", "a": "1", "b": "2"}, map[string]string{"own": "10.0.0.2", "a": "x"}, map[string]string{"own": "10.0.0.3", "a": "1", "b": "2"})
	require.Equal(t, map[string]float64{"10.0.0.1": 1, "10.0.0.2": 1, "10.0.0.3": 9}, f.overridden(service("a")), "weights stay")

	list, err := f.ChangeMetadata(t.Context(), service("unknown"), nil, map[string]string{"a": "b"}, nil)
	require.NoError(t, err)
	require.Empty(t, list)
	require.Empty(t, change([]naming.InstanceKey{}, map[string]string{"a": "b"}), "none is not all")
}

func TestOverride_SurvivesRegistrationAndBeats(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		f.override(t, service("a"), "10.0.0.1", 5)
		for range 100 {
			pass(10 * time.Second)
			f.register(t, service("a"), host("10.0.0.1", func(i *naming.Instance) { i.Weight = 2 }))
			pass(10 * time.Second)
			require.True(t, f.beat(t, service("a"), "10.0.0.1"))
			require.Equal(t, map[string]float64{"10.0.0.1": 5}, f.overridden(service("a")))
		}
	})
}

func TestOverride_EndsWithDeregistration(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		f.register(t, service("a"), host("10.0.0.2"))
		f.override(t, service("a"), "10.0.0.1", 5)
		f.override(t, service("a"), "10.0.0.2", 6)
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		require.Equal(t, 1, f.overrides(service("a")))
		f.register(t, service("a"), host("10.0.0.1"))
		require.Equal(t, map[string]float64{"10.0.0.1": 1, "10.0.0.2": 6}, f.overridden(service("a")), "a new process on the address does not inherit it")
	})
}

func TestOverride_StaysWhileAnotherPublisherHasTheInstance(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn1", host("10.0.0.1")))
		require.NoError(t, f.Register(t.Context(), service("a"), "conn2", host("10.0.0.1")))
		f.override(t, service("a"), "10.0.0.1", 5)
		require.NoError(t, f.Deregister(t.Context(), service("a"), "conn1", true, naming.InstanceKey{}))
		require.Equal(t, map[string]float64{"10.0.0.1": 5}, f.overridden(service("a")))
		require.NoError(t, f.Deregister(t.Context(), service("a"), "conn2", true, naming.InstanceKey{}))
		require.Zero(t, f.overrides(service("a")))
	})
}

func TestOverride_ThatCannotBeDroppedExpires(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		f.override(t, service("a"), "10.0.0.1", 5)
		f.persistent.Fail(consistency.ErrNoLeader)
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{}), "the instance is gone all the same")
		require.Equal(t, 1, f.overrides(service("a")))
		pass(200 * time.Second) // tries fail
		require.Equal(t, 1, f.overrides(service("a")))
		f.persistent.Fail(nil)
		pass(65 * time.Second)
		require.Zero(t, f.overrides(service("a")))
	})
}

func TestOverride_KeptAsNacosDoes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		f.override(t, service("a"), "10.0.0.1", 5)
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{}))
		pass(30 * time.Second)
		f.register(t, service("a"), host("10.0.0.1"))
		require.Equal(t, map[string]float64{"10.0.0.1": 5}, f.overridden(service("a")))
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{}))
		pass(65 * time.Second)
		require.Zero(t, f.overrides(service("a")))
	}, func(c *Config) { c.KeepOverrides = true })
}

func TestOverride_ExpiresSomeTimeAfterTheInstanceWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
		f.register(t, service("a"), host("10.0.0.2", meta(naming.MetaClientBeat, "true")))
		f.override(t, service("a"), "10.0.0.1", 5)
		f.override(t, service("a"), "10.0.0.2", 6)
		pass(time.Hour)
		lose := func() {
			f.ConnectionLost("conn", []naming.ServiceKey{service("a")}, false)
			pass(600 * ms)
			require.Len(t, f.hosts(service("a")), 1)
		}
		lose()
		pass(59 * time.Second)
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
		require.Equal(t, map[string]float64{"10.0.0.1": 5, "10.0.0.2": 6}, f.overridden(service("a")), "back in time")
		pass(30 * time.Second)
		lose()
		pass(20 * time.Second)
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
		pass(5 * time.Second)
		lose() // the time starts anew
		pass(59 * time.Second)
		require.Equal(t, 2, f.overrides(service("a")))
		pass(3 * time.Second)
		require.Equal(t, 1, f.overrides(service("a")))
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
		require.Equal(t, map[string]float64{"10.0.0.1": 1, "10.0.0.2": 6}, f.overridden(service("a")))
		pass(time.Hour)
		require.Equal(t, 1, f.overrides(service("a")), "that of the other instance stays")
		require.Empty(t, f.absent.since)
		require.Empty(t, f.absent.planned)
	})
}

func TestOverride_OfInstancesThatDoNotComeBackAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		f.override(t, service("a"), "10.0.0.1", 5)
		f.register(t, service("a"), host("10.0.0.2"))
		f.override(t, service("a"), "10.0.0.2", 6)

		next := f.reopen(t)
		next.begin(t)
		pass(10 * time.Second)
		next.register(t, service("a"), host("10.0.0.1", meta(naming.MetaClientBeat, "true")))
		require.Equal(t, map[string]float64{"10.0.0.1": 5}, next.overridden(service("a")))
		pass(55 * time.Second)
		require.Equal(t, 1, next.overrides(service("a")))
		require.Equal(t, map[string]float64{"10.0.0.1": 5}, next.overridden(service("a")))
	})
}

func TestOverride_OfAnInstanceThatWasLostAMomentAgo(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		off := false
		disable := func(ip string) error {
			return f.ChangeInstance(t.Context(), service("a"), host(ip).Key(), naming.Change{Enabled: &off})
		}
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
		f.register(t, service("a"), host("10.0.0.2", beatTimes("500", "500")))
		require.NoError(t, f.Register(t.Context(), service("a"), "moves", host("10.0.0.3")))
		f.register(t, service("a"), host("10.0.0.4"))
		f.ConnectionLost("conn", []naming.ServiceKey{service("a")}, false)
		require.NoError(t, f.Register(t.Context(), service("a"), "moves", host("10.0.0.9")))
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.4:80", true, naming.InstanceKey{IP: "10.0.0.4", Port: 80}))
		pass(5 * time.Second)
		require.Equal(t, []string{"10.0.0.9"}, f.hosts(service("a")))
		require.NoError(t, disable("10.0.0.1"), "its connection was lost")
		require.NoError(t, disable("10.0.0.2"), "it was silent")
		require.NoError(t, disable("10.0.0.3"), "it was replaced")
		fault(t, naming.FaultInstanceUnknown, disable("10.0.0.4")) // it said good-bye

		pass(5 * time.Second)
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
		require.Equal(t, []string{"10.0.0.9"}, f.hosts(service("a")), "the change holds")
		require.NoError(t, f.Deregister(t.Context(), service("a"), "conn", true, naming.InstanceKey{}))
		fault(t, naming.FaultInstanceUnknown, disable("10.0.0.1")) // now on purpose

		pass(time.Minute)
		fault(t, naming.FaultInstanceUnknown, disable("10.0.0.2"))
		require.Empty(t, f.recent.byKey)
		require.Zero(t, f.overrides(service("a")))
	})
}
