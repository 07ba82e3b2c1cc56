package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Rules D and O: the data model, ownership and registration.
//
// Not tested: D8 (the order of a list means nothing; no test relies on one), O14
// (the 1.x model without owners, which Rollcall doesn't have).

func TestD1_DefaultsOfNamespaceGroupAndCluster(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	register(t, n, Params{"serviceName": s.Name, "ip": "10.0.0.1", "port": "1"})
	for _, p := range []Params{
		{"namespaceId": "public", "groupName": "DEFAULT_GROUP"}, {"namespaceId": ""}, {"groupName": ""}, {"clusters": "DEFAULT"},
	} {
		require.Equal(t, []string{"10.0.0.1:1"}, list(t, n, s.Params().With(p)).Addrs(), "%v", p)
	}
	h := onlyHost(t, readEverywhere(t, n, s))
	require.Equal(t, "DEFAULT", h.ClusterName)
	require.Equal(t, "DEFAULT_GROUP@@"+s.Name, h.ServiceName)
	require.Equal(t, "10.0.0.1#1#DEFAULT#DEFAULT_GROUP@@"+s.Name, h.InstanceID)

	// A namespace that nobody created works; namespaces and groups are apart.
	for _, other := range []Service{
		{Namespace: uniqueName(t), Name: s.Name}, {Group: "g1", Name: s.Name}, {Namespace: uniqueName(t), Group: "g1", Name: s.Name},
	} {
		require.Empty(t, list(t, n, other.Params()).Hosts)
		register(t, n, other.at("10.0.0.2", 2))
		require.Equal(t, []string{"10.0.0.2:2"}, readEverywhere(t, n, other).Addrs())
	}
	requireHosts(t, n, s, "10.0.0.1:1")
}

func TestD2_GroupedName(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := Service{Group: "g-1.x:y", Name: uniqueName(t)}
	grouped := Params{"serviceName": s.Group + "@@" + s.Name}
	register(t, n, grouped.With(Params{"ip": "10.0.0.1", "port": "1"}))
	// The group inside the name wins over the parameter.
	register(t, n, grouped.With(Params{"ip": "10.0.0.1", "port": "2", "groupName": "ignored"}))
	for _, p := range []Params{grouped, s.Params(), grouped.With(Params{"groupName": "ignored"})} {
		info := list(t, n, p)
		require.Equal(t, []string{"10.0.0.1:1", "10.0.0.1:2"}, info.Addrs(), "%v", p)
		require.Equal(t, s.Group+"@@"+s.Name, info.Name)
		require.Equal(t, s.Group, info.GroupName)
	}
	byGRPC := Connect(t, n.GRPCAddr()).List(t, s, "", false)
	require.Equal(t, s.Name, byGRPC.Name, "over gRPC the name is bare")
	require.Equal(t, s.Group, byGRPC.GroupName)
	require.Len(t, byGRPC.Hosts, 2)
	require.Equal(t, 10200, beat(t, n, grouped.With(Params{"ip": "10.0.0.1", "port": "1"})).Code)
	deregister(t, n, grouped.With(Params{"ip": "10.0.0.1", "port": "1"}))
	requireHosts(t, n, s, "10.0.0.1:2")
}

func TestD3_KindBelongsToService(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	persistent := Params{"ephemeral": "false"}

	t.Run("ephemeral service", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		register(t, n, s.at("127.0.0.1", 1))
		want := "Current service DEFAULT_GROUP@@" + s.Name + " is ephemeral service, can't register persistent instance."
		resp := n.Do(t, http.MethodPost, v1Instance, s.at("127.0.0.1", 2).With(persistent))
		require.Equal(t, http.StatusBadRequest, resp.Status)
		require.Contains(t, resp.Body, want)
		resp = n.Do(t, http.MethodPost, v2Instance, s.at("127.0.0.1", 2).With(persistent))
		require.Equal(t, http.StatusBadRequest, resp.Status)
		require.Contains(t, resp.Body, "is ephemeral service")
		reply := Connect(t, n.GRPCAddr()).RegisterPersistent(t, s, Instance("127.0.0.1", 2)).Refused(t, 400)
		require.Contains(t, reply.Message, want)
		requireHosts(t, n, s, "127.0.0.1:1")
	})
	t.Run("persistent service", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		register(t, n, s.at("127.0.0.1", 1).With(persistent))
		want := "Current service DEFAULT_GROUP@@" + s.Name + " is persistent service, can't register ephemeral instance."
		resp := n.Do(t, http.MethodPost, v1Instance, s.at("127.0.0.1", 2))
		require.Equal(t, http.StatusBadRequest, resp.Status)
		require.Contains(t, resp.Body, want)
		c := Connect(t, n.GRPCAddr())
		require.Contains(t, c.Register(t, s, Instance("127.0.0.1", 2)).Refused(t, 400).Message, want)
		require.Contains(t, c.Batch(t, s, Instance("127.0.0.1", 2)).Refused(t, 400).Message, "is persistent service, can't batch register ephemeral instance.")
		text := fullBeat(t, Fields{"ip": "127.0.0.1", "port": 2})
		resp = n.Do(t, http.MethodPut, v1Beat, s.Params().With(Params{"beat": text}))
		require.Equal(t, http.StatusBadRequest, resp.Status)
		require.Contains(t, resp.Body, "is persistent service")
		requireHosts(t, n, s, "127.0.0.1:1")
		deregister(t, n, s.at("127.0.0.1", 1).With(persistent))
	})
	t.Run("created", func(t *testing.T) {
		t.Parallel()
		// The v1 call creates a persistent service, v2 the kind that it is told.
		s, ephemeral := newService(t), newService(t)
		requireOK(t, n.Do(t, http.MethodPost, v1Service, s.Params()))
		resp := n.Do(t, http.MethodPost, v1Instance, s.at("127.0.0.1", 1))
		require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
		register(t, n, s.at("127.0.0.1", 1).With(persistent))
		deregister(t, n, s.at("127.0.0.1", 1).With(persistent))

		createService(t, n, ephemeral, nil)
		resp = n.Do(t, http.MethodPost, v1Instance, ephemeral.at("127.0.0.1", 1).With(persistent))
		require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
		register(t, n, ephemeral.at("127.0.0.1", 1))
	})
	// Deviation: an empty service that came into being by itself has no kind (C079);
	// on Nacos it keeps it until it is cleaned.
}

func TestD4_SettingsExistOnlyWhenWritten(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	register(t, n, s.at("10.0.0.1", 1).With(Params{"healthy": "false"}))
	got := settings(t, n, s)
	require.Zero(t, got.Threshold)
	require.Empty(t, got.Metadata)
	require.False(t, list(t, n, s.Params()).Protected, "no record, no protection")

	requireOK(t, n.Do(t, http.MethodPut, v1Service, s.Params().With(Params{"protectThreshold": "0.5", "metadata": metadataJSON(t, "a", "1")})))
	got = settings(t, n, s)
	require.InDelta(t, 0.5, got.Threshold, 1e-6)
	require.Equal(t, map[string]string{"a": "1"}, got.Metadata)
	require.True(t, list(t, n, s.Params()).Protected)

	// Fields that are not given are cleared, not kept.
	requireOK(t, n.Do(t, http.MethodPut, v1Service, s.Params().With(Params{"protectThreshold": "0.25"})))
	got = settings(t, n, s)
	require.Empty(t, got.Metadata)
	resp := n.Do(t, http.MethodGet, v1Service, newService(t).Params())
	require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
}

func TestD5_InstanceDefaults(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newService(t)
		w.send(t, n, s, Fields{"ip": "127.0.0.1", "port": 8080}).accepted(t)
		h := onlyHost(t, readEverywhere(t, n, s))
		require.Equal(t, "127.0.0.1:8080", h.Addr())
		require.InDelta(t, 1, h.Weight, 0)
		require.True(t, h.Enabled)
		require.Equal(t, !w.persistent, h.Ephemeral)
		require.Equal(t, "DEFAULT", h.ClusterName)
		require.Empty(t, h.Metadata)
		require.NotNil(t, h.Metadata)
		require.Equal(t, []int64{5000, 15000, 30000}, []int64{h.BeatInterval, h.BeatTimeout, h.DeleteTimeout})
		if h.Ephemeral {
			require.True(t, h.Healthy)
		}
	})
}

func TestD6_MetadataKeyHasTheCluster(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	a, b := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
	a.Register(t, s, Instance("10.0.0.1", 1, Fields{"clusterName": "c1"})).OK(t)
	b.Register(t, s, Instance("10.0.0.1", 1, Fields{"clusterName": "c2"})).OK(t)
	info := readEverywhere(t, n, s)
	require.Len(t, info.Hosts, 2, "one row per ip:port:cluster")
	update(t, n, s.at("10.0.0.1", 1).With(Params{"clusterName": "c1", "weight": "5"}))
	require.InDelta(t, 5, onlyHost(t, list(t, n, s.Params().With(Params{"clusters": "c1"}))).Weight, 0)
	require.InDelta(t, 1, onlyHost(t, list(t, n, s.Params().With(Params{"clusters": "c2"}))).Weight, 0)
}

func TestD7_OnlyWritingCreatesServices(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newNamespace(t)
	c := Connect(t, n.GRPCAddr())
	require.Empty(t, c.List(t, s, "", false).Hosts)
	require.Empty(t, c.Subscribe(t, s, "").Hosts)
	require.Empty(t, list(t, n, s.Params()).Hosts)
	require.Empty(t, listV2(t, n, s.Params()).Hosts)
	ListenUDP(t, true).Subscribe(t, n, s.Params())
	beat(t, n, s.at("10.0.0.1", 1))
	deregister(t, n, s.at("10.0.0.1", 1))
	c.Deregister(t, s, Instance("10.0.0.1", 1)).OK(t)
	require.Empty(t, serviceNames(t, n, s))
	require.Zero(t, c.Services(t, s.Namespace, "", 1, 10).OK(t).Count)

	second := Service{Namespace: s.Namespace, Name: "svc-b"}
	c.Register(t, s, Instance("10.0.0.1", 1)).OK(t)
	requireOK(t, n.Do(t, http.MethodPost, v1Service, second.Params()))
	require.ElementsMatch(t, []string{"svc-a", "svc-b"}, serviceNames(t, n, s), "counted at once")
	reply := c.Services(t, s.Namespace, "", 1, 10).OK(t)
	require.Equal(t, 2, reply.Count)
	require.ElementsMatch(t, []string{"svc-a", "svc-b"}, reply.ServiceNames)
}

func TestO1_OneEntryPerOwnerAndService(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c, d := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
	for port := 1; port <= 5; port++ {
		c.Register(t, s, Instance("10.0.0.1", port)).OK(t)
		require.Equal(t, []string{fmt.Sprintf("10.0.0.1:%d", port)}, readEverywhere(t, n, s).Addrs())
	}
	d.Register(t, s, Instance("10.0.0.1", 9)).OK(t)
	requireHosts(t, n, s, "10.0.0.1:5", "10.0.0.1:9")
	// Over HTTP each ip:port is an owner of its own.
	overHTTP := newService(t)
	for port := 1; port <= 3; port++ {
		register(t, n, overHTTP.at("10.0.0.1", port))
	}
	requireHosts(t, n, overHTTP, "10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3")
}

func TestO2_RegisteringAgainReplacesAll(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		if w.name == "beat" {
			t.Skip("a beat of a known instance changes nothing")
		}
		s := newService(t)
		send := w.send
		if w.grpc && !w.persistent { // the same owner both times
			c := Connect(t, n.GRPCAddr())
			send = func(t *testing.T, _ *Node, s Service, f Fields) outcome {
				t.Helper()
				if w.name == "gRPC batch" {
					return grpcOutcome(c.Batch(t, s, f))
				}
				return grpcOutcome(c.Register(t, s, f))
			}
		}
		send(t, n, s, Instance("127.0.0.1", 1, Fields{
			"weight": 5, "clusterName": "c1", "metadata": map[string]string{"a": "1", "b": "2"},
		})).accepted(t)
		send(t, n, s, Instance("127.0.0.1", 1, Fields{
			"weight": 2, "clusterName": "c1", "healthy": w.persistent, "metadata": map[string]string{"b": "3"},
		})).accepted(t)
		h := onlyHost(t, readEverywhere(t, n, s))
		require.InDelta(t, 2, h.Weight, 0)
		require.Equal(t, map[string]string{"b": "3"}, h.Metadata, "no merge")
		if !w.persistent { // the probes decide on a persistent one
			require.False(t, h.Healthy, "as sent")
		}
		send(t, n, s, Instance("127.0.0.1", 1, Fields{"clusterName": "c1", "enabled": false})).accepted(t)
		requireHosts(t, n, s)
		send(t, n, s, Instance("127.0.0.1", 1, Fields{"clusterName": "c1"})).accepted(t)
		h = onlyHost(t, readEverywhere(t, n, s))
		require.Empty(t, h.Metadata)
		require.InDelta(t, 1, h.Weight, 0)
	})
}

// Deviation: Nacos pushes after every registration; suppressing what changes
// nothing is compatible, and clients that register twice at their start (Go) cause
// no needless push.
func TestO2a_IdenticalRegistrationPushesNothing(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "")
	socket := ListenUDP(t, true)
	socket.Subscribe(t, n, s.Params())
	socket.Next(t, soon)
	c := Connect(t, n.GRPCAddr())
	one := Instance("10.0.0.1", 1, Fields{"weight": 2.5, "metadata": Fields{"a": "1", "b": "2"}})
	c.Register(t, s, one).OK(t)
	register(t, n, s.at("10.0.0.2", 2).With(Params{"metadata": metadataJSON(t, "a", "1", "b", "2")}))
	both := has("10.0.0.1:1", "10.0.0.2:2")
	sub.PushUntil(t, soon, both)
	socket.Until(t, soon, both)
	sub.Quiet(t, secs(0.7))
	for range 5 {
		c.Register(t, s, one).OK(t)
		register(t, n, s.at("10.0.0.2", 2).With(Params{"metadata": metadataJSON(t, "b", "2", "a", "1")}))
		requireResultOK(t, n.Do(t, http.MethodPost, v2Instance, s.at("10.0.0.2", 2).With(Params{"metadata": metadataJSON(t, "a", "1", "b", "2")})))
		require.Equal(t, 10200, beat(t, n, s.at("10.0.0.2", 2)).Code)
	}
	sub.Quiet(t, secs(1.5))
	socket.Quiet(t, 100*time.Millisecond)
	// The smallest difference is pushed.
	c.Register(t, s, one.With(Fields{"weight": 2.6})).OK(t)
	sub.NextPush(t, soon)
	c.Register(t, s, one.With(Fields{"metadata": Fields{"a": "1"}})).OK(t)
	sub.NextPush(t, soon)
}

func TestO3_BatchAndSingleReplaceEachOther(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	c.Batch(t, s, Instance("10.0.0.1", 1), Instance("10.0.0.1", 2)).OK(t)
	require.Equal(t, []string{"10.0.0.1:1", "10.0.0.1:2"}, readEverywhere(t, n, s).Addrs())
	c.Register(t, s, Instance("10.0.0.1", 3)).OK(t)
	require.Equal(t, []string{"10.0.0.1:3"}, readEverywhere(t, n, s).Addrs())
	c.Batch(t, s, Instance("10.0.0.1", 4)).OK(t)
	require.Equal(t, []string{"10.0.0.1:4"}, readEverywhere(t, n, s).Addrs())
	reply := c.Batch(t, s).OK(t) // an empty list is none, not an error
	require.Equal(t, "BatchInstanceResponse", reply.Type)
	require.Empty(t, readEverywhere(t, n, s).Hosts)
	c.Batch(t, s).OK(t)

	// Refused as a whole, with nothing changed.
	c.Batch(t, s, Instance("10.0.0.1", 5)).OK(t)
	for _, kind := range []string{"batchDeregisterInstance", "registerInstance", "other", ""} {
		c.Call(t, "BatchInstanceRequest", s.fields().With(Fields{"type": kind, "instances": []Fields{Instance("10.0.0.1", 6)}})).Refused(t, 400)
	}
	c.Batch(t, s, Instance("10.0.0.1", 6), Instance("10.0.0.1", 70000)).Refused(t, 400)
	c.Call(t, "BatchInstanceRequest", s.fields().With(Fields{"type": "batchRegisterInstance"})).Refused(t, 400)
	c.Call(t, "BatchInstanceRequest", s.fields().With(Fields{"type": "batchRegisterInstance", "instances": nil})).Refused(t, 400)
	require.Equal(t, []string{"10.0.0.1:5"}, readEverywhere(t, n, s).Addrs())
}

func TestO4_BatchOfTheRestDeregisters(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "")
	c := Connect(t, n.GRPCAddr())
	c.Batch(t, s, Instance("10.0.0.1", 1), Instance("10.0.0.1", 2), Instance("10.0.0.1", 3)).OK(t)
	sub.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"))
	c.Batch(t, s, Instance("10.0.0.1", 1), Instance("10.0.0.1", 3)).OK(t)
	require.Equal(t, []string{"10.0.0.1:1", "10.0.0.1:3"}, sub.NextPush(t, soon).Addrs())
	c.Batch(t, s, Instance("10.0.0.1", 3)).OK(t)
	require.Equal(t, []string{"10.0.0.1:3"}, sub.NextPush(t, soon).Addrs())
	c.Batch(t, s).OK(t)
	require.Empty(t, sub.NextPush(t, soon).Hosts)
}

func TestO5_DeregisterComparesNoAddress(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "")
	c, other := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
	c.Register(t, s, Instance("10.0.0.1", 1)).OK(t)
	sub.PushUntil(t, soon, has("10.0.0.1:1"))
	// Another connection has no entry here: success, and no event.
	reply := other.Deregister(t, s, Instance("10.0.0.1", 1)).OK(t)
	require.Equal(t, "InstanceResponse", reply.Type)
	sub.Quiet(t, secs(1))
	// Its own entry goes, whatever address is named.
	c.Deregister(t, s, Instance("10.9.9.9", 9)).OK(t)
	require.Empty(t, readEverywhere(t, n, s).Hosts)
	require.Empty(t, sub.NextPush(t, soon).Hosts)
	c.Deregister(t, s, Instance("10.0.0.1", 1)).OK(t)
	sub.Quiet(t, secs(1))
	// Deviation: of a batch only the named member goes (C067).
}

func TestO6_HTTPAndGRPCOwnersAreApart(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	c.Register(t, s, Instance("10.0.0.1", 1)).OK(t)
	register(t, n, s.at("10.0.0.2", 2))
	deregister(t, n, s.at("10.0.0.1", 1)) // ok, and nothing happens
	requireHosts(t, n, s, "10.0.0.1:1", "10.0.0.2:2")
	Connect(t, n.GRPCAddr()).Deregister(t, s, Instance("10.0.0.2", 2)).OK(t)
	requireHosts(t, n, s, "10.0.0.1:1", "10.0.0.2:2")
	// Deviation: what names another cluster removes nothing; Nacos does not compare it.
	register(t, n, s.at("10.0.0.3", 3).With(Params{"clusterName": "c1"}))
	deregister(t, n, s.at("10.0.0.3", 3).With(Params{"clusterName": "c2"}))
	requireHosts(t, n, s, "10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3")
	deregister(t, n, s.at("10.0.0.3", 3).With(Params{"clusterName": "c1"}))
	requireHosts(t, n, s, "10.0.0.1:1", "10.0.0.2:2")
}

// Deviation: Nacos lists the same address with different content twice; here the
// newest registration's row is shown, and the older one when the newest is gone.
func TestO7_SameAddressFromTwoOwnersIsOneRow(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	a, b := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
	by := func(name string) Fields { return Instance("10.0.0.1", 1, Fields{"metadata": Fields{"by": name}}) }
	shows := func(name string) {
		t.Helper()
		require.Equal(t, name, onlyHost(t, readEverywhere(t, n, s)).Metadata["by"])
	}
	a.Register(t, s, by("a")).OK(t)
	shows("a")
	b.Register(t, s, by("b")).OK(t)
	shows("b")
	a.Register(t, s, by("a2")).OK(t)
	shows("a2")
	b.Deregister(t, s, by("b")).OK(t)
	shows("a2")
	b.Register(t, s, by("b")).OK(t)
	shows("b")
	b.Deregister(t, s, by("b")).OK(t)
	shows("a2")

	// Equal content: listed as long as one of them is there, without a push.
	equal := newService(t)
	sub := subscriber(t, n, equal, "")
	a.Register(t, equal, by("x")).OK(t)
	sub.PushUntil(t, soon, has("10.0.0.1:1"))
	b.Register(t, equal, by("x")).OK(t)
	a.Deregister(t, equal, by("x")).OK(t)
	sub.Quiet(t, secs(1))
	requireHosts(t, n, equal, "10.0.0.1:1")
	b.Deregister(t, equal, by("x")).OK(t)
	require.Empty(t, sub.NextPush(t, soon).Hosts)
}

func TestO8_HTTPOwnerExpiresTheOtherStays(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	c.Register(t, s, Instance("10.0.0.1", 1, Fields{"metadata": Fields{"by": "grpc"}})).OK(t)
	register(t, n, s.at("10.0.0.1", 1).With(Params{"metadata": beatTimes(t, secs(1), secs(1), secs(2))}))
	requireHosts(t, n, s, "10.0.0.1:1")
	eventually(t, secs(20), func() error {
		info := list(t, n, s.Params())
		if len(info.Hosts) != 1 {
			t.Fatalf("hosts %v while the HTTP owner expires", info.Addrs())
		}
		if info.Hosts[0].Metadata["by"] != "grpc" {
			return fmt.Errorf("metadata %v", info.Hosts[0].Metadata)
		}
		return nil
	})
	require.True(t, onlyHost(t, readEverywhere(t, n, s)).Healthy)
}

func TestO9_LastClusterWins(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	for _, cluster := range []string{"c1", "c2", "c1"} {
		c.Register(t, s, Instance("10.0.0.1", 1, Fields{"clusterName": cluster})).OK(t)
		require.Equal(t, cluster, onlyHost(t, readEverywhere(t, n, s)).ClusterName)
	}
	overHTTP := newService(t)
	for _, cluster := range []string{"c1", "c2", "c1"} {
		register(t, n, overHTTP.at("10.0.0.1", 1).With(Params{"clusterName": cluster}))
		require.Equal(t, cluster, onlyHost(t, readEverywhere(t, n, overHTTP)).ClusterName)
	}
	// Deviation: doubles within one batch are one row per ip:port:cluster; Nacos shows
	// both.
	batch := newService(t)
	c.Batch(t, batch, Instance("10.0.0.1", 1, Fields{"weight": 1}), Instance("10.0.0.1", 1, Fields{"weight": 2}),
		Instance("10.0.0.1", 1, Fields{"clusterName": "c2"})).OK(t)
	info := list(t, n, batch.Params())
	require.Len(t, info.Hosts, 2)
	require.NotEqual(t, info.Hosts[0].ClusterName, info.Hosts[1].ClusterName)
}

func TestO10_AcknowledgedIsStored(t *testing.T) {
	t.Parallel()
	n := StartNode(t) // killed below
	persistent := Params{"ephemeral": "false"}
	const count = 50
	var services []Service
	for range count {
		s := newService(t)
		register(t, n, s.at("127.0.0.1", 1).With(persistent))
		require.Equal(t, []string{"127.0.0.1:1"}, list(t, n, s.Params()).Addrs())
		services = append(services, s)
	}
	deregister(t, n, services[0].at("127.0.0.1", 1).With(persistent))
	n.Kill(t) // at once: what was acknowledged has been committed
	n.Restart(t)
	requireHosts(t, n, services[0])
	for _, s := range services[1:] {
		requireHosts(t, n, s, "127.0.0.1:1")
	}
}

func TestO11_RegistrationChecks(t *testing.T) {
	t.Parallel()
	// Deviation: one validator for all roads; on Nacos batch and persistent
	// registrations over gRPC skip most of it.
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newNamespace(t)
		times := func(interval, timeout, remove string) Fields {
			return Fields{"metadata": map[string]string{
				"preserved.heart.beat.interval": interval, "preserved.heart.beat.timeout": timeout, "preserved.ip.delete.timeout": remove,
			}}
		}
		for _, bad := range []Fields{
			{"clusterName": "a_b"},
			{"clusterName": "a b"},
			{"clusterName": "a,b"},
			{"clusterName": "ä"},
			{"clusterName": repeated(65)},
			{"metadata": map[string]string{"preserved.heart.beat.interval": "40000"}},
			times("5000", "4000", "30000"), times("5000", "15000", "4000"),
			{"metadata": map[string]string{"preserved.instance.id.generator": "other"}},
		} {
			w.send(t, n, s, Instance("127.0.0.1", 1, bad)).refused(t)
		}
		requireNothing(t, n, s)
		for port, good := range []Fields{
			{"clusterName": "a-B-9"},
			{"clusterName": repeated(64)},
			times("5000", "5000", "5000"),
			{"metadata": map[string]string{"preserved.heart.beat.interval": "abc"}},
			{"metadata": map[string]string{"preserved.instance.id.generator": "snowflake"}},
		} {
			w.send(t, n, s, Instance("127.0.0.1", port, good)).accepted(t)
		}
		require.Len(t, list(t, n, s.Params()).Hosts, 5)
	})
	t.Run("names", func(t *testing.T) {
		t.Parallel()
		eachWay(t, func(t *testing.T, n *Node, w way) {
			for _, s := range []Service{
				{Name: repeated(513)}, {Name: "a", Group: "G 1"}, {Name: "a", Group: "g/1"}, {Name: "a", Group: repeated(129)}, {Name: " "}, {Name: ""},
			} {
				w.send(t, n, s, Instance("127.0.0.1", 1)).refused(t)
			}
			unique := uniqueName(t)
			long := Service{Name: unique + repeated(512-len(unique)), Group: unique + repeated(128-len(unique))}
			w.send(t, n, long, Instance("127.0.0.1", 1)).accepted(t)
			requireHosts(t, n, long, "127.0.0.1:1")
		})
	})
}

func TestO12_RegistrationWithoutANamingClient(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newNamespace(t)
	// A connection of another module has no naming client behind it.
	c := Connect(t, n.GRPCAddr(), WithSetup(Fields{"labels": Fields{"source": "sdk", "module": "config"}}))
	c.Register(t, s, Instance("10.0.0.1", 1)).Refused(t, -401)
	c.Batch(t, s, Instance("10.0.0.1", 1)).Refused(t, -401)
	c.Call(t, "SubscribeServiceRequest", s.fields().With(Fields{"subscribe": true, "clusters": ""})).Refused(t, -401)
	require.Empty(t, c.List(t, s, "", false).Hosts, "queries work")
	require.True(t, c.Alive())
	requireNothing(t, n, s)
	// A transport without a setup is not even a connection.
	bare := Dial(t, n.GRPCAddr())
	bare.Register(t, s, Instance("10.0.0.1", 1)).Refused(t, 301)
	requireNothing(t, n, s)
}

// Deviation: on Nacos such metadata makes every read of the service fail.
func TestO12a_InternalMetadataNamesAreOrdinary(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newService(t)
		metadata := map[string]string{"customInstanceId": "x", "publishInstanceEnable": "no", "publishInstanceWeight": "heavy"}
		w.send(t, n, s, Instance("127.0.0.1", 1, Fields{"metadata": metadata})).accepted(t)
		h := onlyHost(t, readEverywhere(t, n, s))
		require.Equal(t, metadata, h.Metadata)
		require.InDelta(t, 1, h.Weight, 0)
	})
}

// Deviation: on Nacos a query may return the list of half a second ago.
func TestO13_QueriesReadOwnWrites(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "") // with and without subscribers
	quiet := newService(t)
	c := Connect(t, n.GRPCAddr())
	for i := range 30 {
		one := Instance("10.0.0.1", 1000+i)
		for _, service := range []Service{s, quiet} {
			c.Register(t, service, one).OK(t)
			require.Equal(t, []string{fmt.Sprintf("10.0.0.1:%d", 1000+i)}, c.List(t, service, "", false).Addrs())
			require.Equal(t, []string{fmt.Sprintf("10.0.0.1:%d", 1000+i)}, list(t, n, service.Params()).Addrs())
			register(t, n, service.at("10.0.0.2", i))
			require.Len(t, c.List(t, service, "", false).Hosts, 2)
			update(t, n, service.at("10.0.0.2", i).With(Params{"weight": "3"}))
			h, _ := list(t, n, service.Params()).Host(fmt.Sprintf("10.0.0.2:%d", i))
			require.InDelta(t, 3, h.Weight, 0)
			deregister(t, n, service.at("10.0.0.2", i))
			require.Len(t, list(t, n, service.Params()).Hosts, 1)
			c.Deregister(t, service, one).OK(t)
			require.Empty(t, c.List(t, service, "", false).Hosts)
			require.Empty(t, list(t, n, service.Params()).Hosts)
		}
	}
	require.True(t, sub.Alive())
}
