package server

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

func TestServicePage(t *testing.T) {
	f := newFixture(t)
	for _, n := range []int{3, 1, 5, 2, 4} { // each second one persistent
		f.register(t, service(fmt.Sprint("s", n)), host("10.0.0.1", func(i *naming.Instance) { i.Ephemeral = n%2 == 0 }))
	}
	f.register(t, naming.ServiceKey{Namespace: "public", Group: "other", Name: "s0"}, host("10.0.0.1"))
	f.register(t, naming.ServiceKey{Namespace: "dev", Group: "g", Name: "s9"}, host("10.0.0.1"))
	require.NoError(t, f.CreateService(t.Context(), service("s6"), naming.Settings{}))
	require.NoError(t, f.Deregister(t.Context(), service("s2"), "10.0.0.1:80", true, naming.InstanceKey{})) // empty, still listed

	all := []string{"s1", "s2", "s3", "s4", "s5", "s6"}
	for _, c := range []struct {
		no, size int64
		want     []string
	}{
		{1, 10, all},
		{1, 6, all},
		{1, 4, all[:4]},
		{2, 4, all[4:]},
		{3, 2, all[4:]},
		{4, 2, nil},
		{0, 2, all[:2]},
		{-1, 2, all[:2]},
		{math.MinInt64, 2, all[:2]},
		{1, 0, nil},
		{2, 0, nil},
		{1, -1, nil},
		{2, math.MinInt64, nil},
		{1, math.MaxInt64, all},
		{2, math.MaxInt64, nil},
		{3, math.MaxInt64, nil},
		{math.MaxInt64, 2, nil},
		{math.MaxInt64, 1, nil},
		{math.MaxInt32, math.MaxInt32, all}, // as the original, whose offset overflows
		{math.MaxInt64, math.MaxInt64, all},
	} {
		names, count, err := f.ServicePage("public", "g", "", c.no, c.size)
		require.NoError(t, err)
		require.Equal(t, c.want, names, "page %d of %d", c.no, c.size)
		require.Equal(t, 6, count)
	}
	names, count, err := f.ServicePage("public", "nobody", "", 1, 10)
	require.NoError(t, err)
	require.Empty(t, names)
	require.Zero(t, count)
	names, _, err = f.ServicePage("dev", "g", "", 1, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"s9"}, names)
}

func TestServiceKeys_OfAllNamespaces(t *testing.T) {
	f := newFixture(t)
	dev := naming.ServiceKey{Namespace: "dev", Group: "g", Name: "z"}
	f.register(t, service("a"), host("10.0.0.1"))
	f.register(t, dev, host("10.0.0.1"))
	require.NoError(t, f.Deregister(t.Context(), dev, "10.0.0.1:80", true, naming.InstanceKey{}))
	require.Equal(t, []naming.ServiceKey{dev, service("a")}, f.serviceKeys(""))
	require.Equal(t, []naming.ServiceKey{service("a")}, f.serviceKeys("public"))
}

func TestService_CreateUpdateDelete(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	fault(t, naming.FaultServiceUnknown, f.UpdateService(ctx, service("a"), naming.Settings{}))
	fault(t, naming.FaultServiceUnknown, f.DeleteService(ctx, service("a")))

	require.NoError(t, f.CreateService(ctx, service("a"), naming.Settings{ProtectThreshold: 0.5}))
	require.Equal(t, "specified service g@@a already exists!", fault(t, naming.FaultServiceExists, f.CreateService(ctx, service("a"), naming.Settings{})))
	s, ok := f.Service(service("a"))
	require.True(t, ok)
	require.InDelta(t, 0.5, s.Settings.ProtectThreshold, 0)
	require.NoError(t, f.UpdateService(ctx, service("a"), naming.Settings{ProtectThreshold: 0.7, Metadata: map[string]string{"k": "v"}}))
	s, _ = f.Service(service("a"))
	require.InDelta(t, 0.7, s.Settings.ProtectThreshold, 0)
	require.Equal(t, "v", s.Settings.Metadata["k"])

	f.register(t, service("a"), host("10.0.0.1"))
	require.Contains(t, fault(t, naming.FaultServiceNotEmpty, f.DeleteService(ctx, service("a"))), "is not empty")
	require.NoError(t, f.Deregister(ctx, service("a"), "10.0.0.1:80", true, naming.InstanceKey{}))
	require.NoError(t, f.DeleteService(ctx, service("a")))
	_, ok = f.Service(service("a"))
	require.False(t, ok)
	fault(t, naming.FaultServiceUnknown, f.DeleteService(ctx, service("a")))
	require.NoError(t, f.CreateService(ctx, service("a"), naming.Settings{}))

	// One that came with an instance exists, and may be given settings while it is empty.
	f.register(t, service("b"), host("10.0.0.1"))
	fault(t, naming.FaultServiceExists, f.CreateService(ctx, service("b"), naming.Settings{}))
	require.NoError(t, f.UpdateService(ctx, service("b"), naming.Settings{}))
	require.NoError(t, f.Register(ctx, service("c"), "conn", host("10.0.0.1")))
	require.NoError(t, f.Deregister(ctx, service("c"), "conn", true, naming.InstanceKey{}))
	require.NoError(t, f.DeleteService(ctx, service("c")))
	_, ok = f.Service(service("c"))
	require.False(t, ok)
}

func TestService_Refusals(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	for _, s := range []naming.Settings{
		{ProtectThreshold: 1.01}, {ProtectThreshold: math.NaN()}, {ProtectThreshold: math.Inf(1)}, {ProtectThreshold: math.Inf(-1)},
	} {
		fault(t, naming.FaultValue, f.CreateService(ctx, service("a"), s))
		fault(t, naming.FaultValue, f.UpdateService(ctx, service("a"), s))
	}
	fault(t, naming.FaultParam, f.CreateService(ctx, service("a"), naming.Settings{Metadata: map[string]string{"k": strings.Repeat("v", 64<<10)}}))
	fault(t, naming.FaultParam, f.CreateService(ctx, naming.ServiceKey{}, naming.Settings{}))
	fault(t, naming.FaultParam, f.UpdateService(ctx, naming.ServiceKey{}, naming.Settings{}))
	fault(t, naming.FaultParam, f.DeleteService(ctx, naming.ServiceKey{}))
	require.NoError(t, f.CreateService(ctx, service("a"), naming.Settings{ProtectThreshold: -1}), "counts as 0")

	f.persistent.Fail(consistency.ErrNoLeader)
	require.ErrorIs(t, f.CreateService(ctx, service("b"), naming.Settings{}), consistency.ErrNoLeader)
	require.ErrorIs(t, f.DeleteService(ctx, service("a")), consistency.ErrNoLeader)
	_, ok := f.Service(service("a"))
	require.True(t, ok)
	require.NoError(t, f.Register(ctx, service("b"), "conn", host("10.0.0.1")), "ephemeral instances need no leader")
}
