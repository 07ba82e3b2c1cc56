package consistency_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/consistency/storetest"
	"rollcall/naming"
)

type routed struct {
	*consistency.Router
	ephemeral, persistent *storetest.Fake
}

func newRouted() routed {
	e, p := storetest.NewFake(), storetest.NewFake()
	return routed{consistency.NewRouter(e, p), e, p}
}

func routedKey() naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}
}

func instance(ip string, ephemeral bool, weight float64) *naming.Instance {
	i := naming.NewInstance(ip, 80)
	i.Ephemeral, i.Weight = ephemeral, weight
	return &i
}

func (r routed) publish(t *testing.T, publisher string, i *naming.Instance) {
	t.Helper()
	require.NoError(t, r.Publish(t.Context(), i.Ephemeral, consistency.Publication{
		Service: routedKey(), Publisher: publisher, Instances: []*naming.Instance{i},
	}))
}

func settingsDatum(kind naming.Kind) consistency.Datum {
	return consistency.Datum{
		Key:      consistency.Key{Service: routedKey(), Kind: consistency.KindSettings},
		Settings: &naming.Settings{Kind: kind},
	}
}

func TestRouter_WritesGoToTheStoreOfTheirKind(t *testing.T) {
	r := newRouted()
	require.Same(t, r.ephemeral, r.Store(true))
	require.Same(t, r.persistent, r.Store(false))

	r.publish(t, "p", instance("10.0.0.1", true, 1))
	require.Equal(t, []int{1, 0}, []int{r.ephemeral.Writes(), r.persistent.Writes()})
	r.publish(t, "p", instance("10.0.0.2", false, 1))
	require.Equal(t, []int{1, 1}, []int{r.ephemeral.Writes(), r.persistent.Writes()})

	i := instance("10.0.0.3", true, 1)
	k := consistency.Key{Service: routedKey(), Kind: consistency.KindInstance, Publisher: "q", Instance: i.Key()}
	require.NoError(t, r.Put(t.Context(), consistency.Datum{Key: k, Instance: i}))
	require.Equal(t, []int{2, 1}, []int{r.ephemeral.Writes(), r.persistent.Writes()})
	require.NoError(t, r.Put(t.Context(), settingsDatum(naming.KindEphemeral)))
	k.Kind = consistency.KindOverride
	require.NoError(t, r.Put(t.Context(), consistency.Datum{Key: k, Override: &naming.Override{}}))
	require.NoError(t, r.DeletePersistent(t.Context(), settingsDatum(naming.KindNone).Key))
	require.Equal(t, []int{2, 4}, []int{r.ephemeral.Writes(), r.persistent.Writes()})

	fault := &consistency.RedirectError{Node: "n2"}
	r.persistent.Fail(fault)
	var redirect *consistency.RedirectError
	require.ErrorAs(t, r.Put(t.Context(), settingsDatum(naming.KindNone)), &redirect)
	require.EqualError(t, redirect, "node n2 must take this request")
}

func TestRouter_ServiceJoinsBothStores(t *testing.T) {
	r := newRouted()
	_, ok := r.Service(routedKey())
	require.False(t, ok)

	r.publish(t, "c", instance("10.0.0.2", true, 1))
	s, ok := r.Service(routedKey())
	require.True(t, ok)
	require.Len(t, s.Instances, 1)

	require.NoError(t, r.Put(t.Context(), settingsDatum(naming.KindEphemeral)))
	s, ok = r.Service(routedKey())
	require.True(t, ok)
	require.Len(t, s.Instances, 1, "settings from one store, instances from the other")
	require.NotNil(t, s.Settings)

	r.publish(t, "p", instance("10.0.0.1", false, 1))
	r.publish(t, "q", instance("10.0.0.2", false, 9))
	r.publish(t, "d", instance("10.0.0.3", true, 1))
	s, ok = r.Service(routedKey())
	require.True(t, ok)
	var shown []string
	for _, i := range s.Instances {
		shown = append(shown, i.IP)
	}
	require.Equal(t, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, shown)
	require.False(t, s.Instances[1].Ephemeral, "of one address the persistent instance is shown")
	require.NotNil(t, s.Find(naming.InstanceKey{Cluster: naming.DefaultCluster, IP: "10.0.0.3", Port: 80}), "still sorted by key")

	empty := newRouted()
	empty.publish(t, "p", instance("10.0.0.1", false, 1))
	s, ok = empty.Service(routedKey())
	require.True(t, ok)
	require.Len(t, s.Instances, 1)
}

func TestRouter_StatTellsTheKind(t *testing.T) {
	r := newRouted()
	check := func(want naming.Kind, stat consistency.Stat) {
		t.Helper()
		st, kind := r.Stat(routedKey())
		require.Equal(t, want, kind)
		if st.Exists {
			stat.Key = routedKey()
		}
		st.Settings, st.Metadata = nil, nil
		require.Equal(t, stat, st)
	}
	check(naming.KindNone, consistency.Stat{})
	require.NoError(t, r.Put(t.Context(), settingsDatum(naming.KindPersistent)))
	check(naming.KindPersistent, consistency.Stat{Exists: true})
	r.publish(t, "c", instance("10.0.0.1", true, 1))
	check(naming.KindEphemeral, consistency.Stat{Exists: true, Instances: 1})
	require.NoError(t, r.DeletePersistent(t.Context(), settingsDatum(naming.KindNone).Key))
	check(naming.KindEphemeral, consistency.Stat{Exists: true, Instances: 1})
	r.publish(t, "p", instance("10.0.0.2", false, 1))
	check(naming.KindPersistent, consistency.Stat{Exists: true, Instances: 2})
}

func TestRouter_ServicesJoinsBothStores(t *testing.T) {
	r := newRouted()
	publish := func(name string, ephemeral bool) {
		require.NoError(t, r.Publish(t.Context(), ephemeral, consistency.Publication{
			Service:   naming.ServiceKey{Namespace: "n", Group: "g", Name: name},
			Publisher: "p", Instances: []*naming.Instance{instance("10.0.0.1", ephemeral, 1)},
		}))
	}
	names := func() (out []string) {
		for _, k := range r.Services("n") {
			out = append(out, k.Name)
		}
		return out
	}
	require.Empty(t, names())
	publish("b", true)
	require.Equal(t, []string{"b"}, names())
	publish("a", false)
	publish("b", false)
	publish("c", true)
	require.Equal(t, []string{"a", "b", "c"}, names())
	require.Len(t, r.Services(""), 3)
	require.Empty(t, r.Services("other"))
}

func TestRouter_ListenHearsBothStores(t *testing.T) {
	r := newRouted()
	var heard int
	r.Listen(func(consistency.ServiceChanged) { heard++ })
	r.publish(t, "p", instance("10.0.0.1", true, 1))
	r.publish(t, "p", instance("10.0.0.2", false, 1))
	require.Equal(t, 2, heard)
}

func TestRouter_ReadyNeedsBothStores(t *testing.T) {
	r := newRouted()
	require.NoError(t, r.Ready())
	loading := errors.New("still loading")
	r.ephemeral.Fail(loading)
	require.ErrorIs(t, r.Ready(), loading)
	r.persistent.Fail(consistency.ErrNotReady)
	require.ErrorIs(t, r.Ready(), loading)
	require.ErrorIs(t, r.Ready(), consistency.ErrNotReady)
}
