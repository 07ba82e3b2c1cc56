package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Section F of the cases: register, deregister, update; and of section H what one
// node shows (C103, C109).
//
// C105 and C107, which take several nodes, are in cases_persistent_test.go.

func TestC063_SecondRegistrationFromTheSameConnection(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s, other := newService(t), newService(t)
	sub := subscriber(t, n, s, "")
	c := Connect(t, n.GRPCAddr())
	c.Register(t, s, Instance("10.0.0.1", 8080)).OK(t)
	sub.PushUntil(t, soon, has("10.0.0.1:8080"))
	c.Register(t, s, Instance("10.0.0.2", 8080)).OK(t)
	require.Equal(t, []string{"10.0.0.2:8080"}, readEverywhere(t, n, s).Addrs())
	pushed := sub.NextPush(t, soon)
	require.Equal(t, []string{"10.0.0.2:8080"}, pushed.Addrs(), "one push, that never shows both or none")
	sub.Quiet(t, secs(1))

	// In another service and from another connection nothing is replaced.
	c.Register(t, other, Instance("10.0.0.3", 8080)).OK(t)
	Connect(t, n.GRPCAddr()).Register(t, s, Instance("10.0.0.4", 8080)).OK(t)
	requireHosts(t, n, other, "10.0.0.3:8080")
	requireHosts(t, n, s, "10.0.0.2:8080", "10.0.0.4:8080")
}

func TestC065_BatchRegisterReplacesTheSet(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "")
	c := Connect(t, n.GRPCAddr())
	a, b, d := Instance("10.0.0.1", 1), Instance("10.0.0.1", 2), Instance("10.0.0.1", 3)
	c.Batch(t, s, a, b).OK(t)
	require.ElementsMatch(t, []string{"10.0.0.1:1", "10.0.0.1:2"}, readEverywhere(t, n, s).Addrs())
	sub.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2"))
	c.Batch(t, s, d).OK(t)
	require.Equal(t, []string{"10.0.0.1:3"}, readEverywhere(t, n, s).Addrs())
	require.Equal(t, []string{"10.0.0.1:3"}, sub.NextPush(t, soon).Addrs())

	// Overlapping sets: what stays is never missing.
	c.Batch(t, s, a, b, d).OK(t)
	sub.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"))
	c.Batch(t, s, b, Instance("10.0.0.1", 4)).OK(t)
	pushed := sub.NextPush(t, soon)
	require.Equal(t, []string{"10.0.0.1:2", "10.0.0.1:4"}, pushed.Addrs())
	c.Batch(t, s).OK(t)
	require.Empty(t, readEverywhere(t, n, s).Hosts)
	require.Empty(t, sub.NextPush(t, soon).Hosts)
}

func TestC067_DeregisterOneMemberOfABatch(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	members := func() []Fields {
		return []Fields{Instance("10.0.0.1", 1), Instance("10.0.0.1", 2), Instance("10.0.0.1", 3)}
	}
	rest := []string{"10.0.0.1:1", "10.0.0.1:3"}
	for name, remove := range map[string]func(*testing.T, *Conn, Service){
		"the SDK's way": func(t *testing.T, c *Conn, s Service) {
			t.Helper()
			c.Batch(t, s, Instance("10.0.0.1", 1), Instance("10.0.0.1", 3)).OK(t)
		},
		"raw": func(t *testing.T, c *Conn, s Service) {
			t.Helper()
			c.Deregister(t, s, Instance("10.0.0.1", 2)).OK(t)
		},
		"raw with nothing but the address": func(t *testing.T, c *Conn, s Service) {
			t.Helper()
			c.Deregister(t, s, Fields{"ip": "10.0.0.1", "port": 2, "clusterName": "", "weight": 0, "metadata": nil}).OK(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			sub := subscriber(t, n, s, "")
			c := Connect(t, n.GRPCAddr())
			c.Batch(t, s, members()...).OK(t)
			sub.PushUntil(t, soon, has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"))
			remove(t, c, s)
			require.Equal(t, rest, readEverywhere(t, n, s).Addrs())
			require.Equal(t, rest, sub.NextPush(t, soon).Addrs())
			sub.Quiet(t, secs(1))
			// The rest goes one by one, too.
			c.Deregister(t, s, Instance("10.0.0.1", 1)).OK(t)
			require.Equal(t, rest[1:], readEverywhere(t, n, s).Addrs())
			c.Deregister(t, s, Instance("10.0.0.1", 3)).OK(t)
			require.Empty(t, readEverywhere(t, n, s).Hosts)
		})
	}
}

func TestC069_SameAddressFromTwoConnections(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	t.Run("gRPC twice", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		sub := subscriber(t, n, s, "")
		a, b := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
		a.Register(t, s, Instance("10.0.0.1", 8080, Fields{"weight": 1})).OK(t)
		b.Register(t, s, Instance("10.0.0.1", 8080, Fields{"weight": 100})).OK(t)
		require.InDelta(t, 100, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		sub.PushUntil(t, soon, func(i ServiceInfo) bool { return len(i.Hosts) == 1 && i.Hosts[0].Weight == 100 })
		a.Close()
		always(t, secs(2), hostsAre(t, n, s, "10.0.0.1:8080"))
		require.InDelta(t, 100, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		sub.Quiet(t, secs(0.5)) // nothing changed for a subscriber
		b.Close()
		eventually(t, soon, hostsAre(t, n, s))
		sub.PushUntil(t, soon, has())
	})
	t.Run("the newer one goes first", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		a, b := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
		a.Register(t, s, Instance("10.0.0.1", 8080, Fields{"weight": 1})).OK(t)
		b.Register(t, s, Instance("10.0.0.1", 8080, Fields{"weight": 100})).OK(t)
		b.Close()
		eventually(t, soon, func() error {
			info := list(t, n, s.Params())
			if len(info.Hosts) != 1 || info.Hosts[0].Weight != 1 {
				return fmt.Errorf("hosts %+v", info.Hosts)
			}
			return nil
		})
		a.Register(t, s, Instance("10.0.0.1", 8080, Fields{"weight": 3})).OK(t)
		require.InDelta(t, 3, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
	})
	t.Run("gRPC and HTTP", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		a := Connect(t, n.GRPCAddr())
		a.Register(t, s, Instance("10.0.0.1", 8080, Fields{"weight": 1})).OK(t)
		register(t, n, s.at("10.0.0.1", 8080).With(Params{"weight": "7"}))
		require.InDelta(t, 7, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		deregister(t, n, s.at("10.0.0.1", 8080))
		require.InDelta(t, 1, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		register(t, n, s.at("10.0.0.1", 8080).With(Params{"weight": "7"}))
		a.Deregister(t, s, Instance("10.0.0.1", 8080)).OK(t)
		require.InDelta(t, 7, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		deregister(t, n, s.at("10.0.0.1", 8080))
		requireHosts(t, n, s)
	})
	t.Run("in a batch and alone", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		a, b := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
		a.Batch(t, s, Instance("10.0.0.1", 1, Fields{"weight": 1}), Instance("10.0.0.1", 2)).OK(t)
		b.Register(t, s, Instance("10.0.0.1", 1, Fields{"weight": 9})).OK(t)
		info := readEverywhere(t, n, s)
		require.Equal(t, []string{"10.0.0.1:1", "10.0.0.1:2"}, info.Addrs())
		h, _ := info.Host("10.0.0.1:1")
		require.InDelta(t, 9, h.Weight, 0)
		a.Close()
		eventually(t, soon, hostsAre(t, n, s, "10.0.0.1:1"))
	})
}

func TestC071_DeregisterAnUnknownInstance(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newNamespace(t)
	nosuch := Service{Namespace: s.Namespace, Name: "nosuch"}
	register(t, n, s.at("10.0.0.1", 8080))
	subs := []*Conn{subscriber(t, n, s, ""), subscriber(t, n, nosuch, "")}
	c := Connect(t, n.GRPCAddr())
	for _, service := range []Service{s, nosuch} {
		p := service.at("10.9.9.9", 1)
		deregister(t, n, p)
		requireResultOK(t, n.Do(t, http.MethodDelete, v2Instance, p))
		deregister(t, n, p.With(Params{"clusterName": "c9"}))
		reply := c.Deregister(t, service, Instance("10.9.9.9", 1)).OK(t)
		require.Equal(t, "InstanceResponse", reply.Type)
		c.DeregisterPersistent(t, service, Instance("10.9.9.9", 1)).OK(t)
	}
	for _, sub := range subs {
		sub.Quiet(t, secs(2))
	}
	requireHosts(t, n, s, "10.0.0.1:8080")
	require.Equal(t, []string{"svc-a"}, serviceNames(t, n, s))
}

func TestC073_DeleteWhileBeatsGoOn(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	p := s.at("10.0.0.1", 8080)
	register(t, n, p)
	require.Equal(t, 10200, beat(t, n, p).Code)
	deregister(t, n, p)
	requireHosts(t, n, s)
	for range 3 {
		answer := beat(t, n, p)
		require.Equal(t, 20404, answer.Code)
		requireHosts(t, n, s)
	}
	text := fullBeat(t, Fields{"ip": "10.0.0.1", "port": 8080, "weight": 1, "serviceName": "DEFAULT_GROUP@@" + s.Name, "cluster": "DEFAULT"})
	require.Equal(t, 10200, beat(t, n, s.Params().With(Params{"beat": text})).Code)
	requireHosts(t, n, s, "10.0.0.1:8080")
	require.Equal(t, 10200, beat(t, n, p).Code, "light beats keep it alive from now on")
}

func TestC075_DeleteAServiceThatHasInstances(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, ephemeral := range map[string]string{"ephemeral": "true", "persistent": "false"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			p := s.at("127.0.0.1", 8080).With(Params{"ephemeral": ephemeral})
			register(t, n, p)
			resp := n.Do(t, http.MethodDelete, v1Service, s.Params())
			require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
			require.NotEmpty(t, resp.Body)
			resp = n.Do(t, http.MethodDelete, v2Service, s.Params())
			require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
			require.Equal(t, 21009, resp.Result(t).Code, resp.Body)
			requireHosts(t, n, s, "127.0.0.1:8080")
			deregister(t, n, p)
			requireOK(t, n.Do(t, http.MethodDelete, v1Service, s.Params()))
			resp = n.Do(t, http.MethodDelete, v1Service, s.Params())
			require.Equal(t, http.StatusBadRequest, resp.Status, "it is gone: %s", resp.Body)
			resp = n.Do(t, http.MethodDelete, v2Service, s.Params())
			require.Equal(t, 21008, resp.Result(t).Code, resp.Body)
		})
	}
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		c := Connect(t, n.GRPCAddr())
		c.Register(t, s, Instance("10.0.0.1", 8080)).OK(t)
		resp := n.Do(t, http.MethodDelete, v1Service, s.Params())
		require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
		requireHosts(t, n, s, "10.0.0.1:8080")
		c.Deregister(t, s, Instance("10.0.0.1", 8080)).OK(t)
		requireOK(t, n.Do(t, http.MethodDelete, v1Service, s.Params()))
	})
}

// serviceSettings is the answer of the service detail of v1.
type serviceSettings struct {
	Threshold float64           `json:"protectThreshold"`
	Metadata  map[string]string `json:"metadata"`
}

func settings(t *testing.T, n *Node, s Service) serviceSettings {
	t.Helper()
	resp := n.Do(t, http.MethodGet, v1Service, s.Params())
	require.Equal(t, http.StatusOK, resp.Status, resp.Body)
	var got serviceSettings
	resp.JSON(t, &got)
	return got
}

func TestC077_CreateAServiceTwice(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	first := s.Params().With(Params{"protectThreshold": "0.25", "metadata": metadataJSON(t, "owner", "me")})
	second := s.Params().With(Params{"protectThreshold": "0.75", "metadata": metadataJSON(t, "owner", "you")})
	requireOK(t, n.Do(t, http.MethodPost, v1Service, first))
	resp := n.Do(t, http.MethodPost, v1Service, second)
	require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
	resp = n.Do(t, http.MethodPost, v2Service, second)
	require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
	require.Equal(t, 21007, resp.Result(t).Code, resp.Body)
	got := settings(t, n, s)
	require.InDelta(t, 0.25, got.Threshold, 1e-6)
	require.Equal(t, map[string]string{"owner": "me"}, got.Metadata)

	requireOK(t, n.Do(t, http.MethodPut, v1Service, second))
	got = settings(t, n, s)
	require.InDelta(t, 0.75, got.Threshold, 1e-6)
	require.Equal(t, map[string]string{"owner": "you"}, got.Metadata)

	// The settings of a service that came into being by a registration can be set.
	registered := newService(t)
	register(t, n, registered.at("10.0.0.1", 8080))
	requireOK(t, n.Do(t, http.MethodPut, v1Service, registered.Params().With(Params{"protectThreshold": "0.5", "metadata": metadataJSON(t, "a", "b")})))
	got = settings(t, n, registered)
	require.InDelta(t, 0.5, got.Threshold, 1e-6)
	require.Equal(t, map[string]string{"a": "b"}, got.Metadata)
	requireHosts(t, n, registered, "10.0.0.1:8080")
}

func TestC079_KindMayChangeWhenEmpty(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	persistent := Params{"ephemeral": "false"}
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		for range 3 { // there and back
			register(t, n, s.at("127.0.0.1", 1))
			resp := n.Do(t, http.MethodPost, v1Instance, s.at("127.0.0.1", 2).With(persistent))
			require.Equal(t, http.StatusBadRequest, resp.Status, "not while it has an ephemeral one: %s", resp.Body)
			deregister(t, n, s.at("127.0.0.1", 1))
			register(t, n, s.at("127.0.0.1", 2).With(persistent))
			require.False(t, onlyHost(t, list(t, n, s.Params())).Ephemeral)
			resp = n.Do(t, http.MethodPost, v1Instance, s.at("127.0.0.1", 1))
			require.Equal(t, http.StatusBadRequest, resp.Status, "not while it has a persistent one: %s", resp.Body)
			deregister(t, n, s.at("127.0.0.1", 2).With(persistent))
		}
	})
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		c := Connect(t, n.GRPCAddr())
		one, two := Instance("127.0.0.1", 1), Instance("127.0.0.1", 2)
		for range 3 {
			c.Register(t, s, one).OK(t)
			c.RegisterPersistent(t, s, two).Refused(t, 400)
			c.Deregister(t, s, one).OK(t)
			c.RegisterPersistent(t, s, two).OK(t)
			c.Register(t, s, one).Refused(t, 400)
			c.Batch(t, s, one).Refused(t, 400)
			c.DeregisterPersistent(t, s, two).OK(t)
		}
		c.Batch(t, s, one).OK(t)
		c.Batch(t, s).OK(t)
		c.RegisterPersistent(t, s, two).OK(t)
		c.DeregisterPersistent(t, s, two).OK(t)
	})
	t.Run("after a lost connection", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		c := Connect(t, n.GRPCAddr())
		c.Register(t, s, Instance("127.0.0.1", 1)).OK(t)
		c.Close()
		eventually(t, soon, hostsAre(t, n, s))
		register(t, n, s.at("127.0.0.1", 2).With(persistent))
		deregister(t, n, s.at("127.0.0.1", 2).With(persistent))
	})
}

func TestC081_EditDoesNotChangeTheKind(t *testing.T) {
	t.Parallel()
	n := StartNode(t)
	s := newService(t)
	persistent := Params{"ephemeral": "false"}
	addrs := []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	for port := 1; port <= 3; port++ {
		register(t, n, s.at("127.0.0.1", port).With(persistent))
	}
	threePersistent := func() {
		t.Helper()
		for _, info := range []ServiceInfo{list(t, n, s.Params()), listV2(t, n, s.Params())} {
			require.ElementsMatch(t, addrs, info.Addrs())
			for _, h := range info.Hosts {
				require.False(t, h.Ephemeral, h.Addr())
			}
		}
	}
	// A console says ephemeral=false, other tools say nothing.
	update(t, n, s.at("127.0.0.1", 1).With(persistent).With(Params{"weight": "4"}))
	threePersistent()
	update(t, n, s.at("127.0.0.1", 2).With(Params{"weight": "5"}))
	threePersistent()
	requireOK(t, n.Do(t, http.MethodPatch, v1Instance, s.at("127.0.0.1", 3).With(Params{"weight": "6"})))
	threePersistent()
	requireResultOK(t, n.Do(t, http.MethodPut, v2Instance, s.at("127.0.0.1", 3).With(persistent).With(Params{"weight": "7"})))
	threePersistent()

	n.Stop(t)
	n.Restart(t)
	threePersistent()
	info := list(t, n, s.Params())
	for addr, weight := range map[string]float64{addrs[0]: 4, addrs[1]: 5, addrs[2]: 7} {
		h, _ := info.Host(addr)
		require.InDelta(t, weight, h.Weight, 0, addr)
	}
	n.Kill(t)
	n.Restart(t)
	threePersistent()

	// Disabled: hidden from clients, still persistent when it is back.
	update(t, n, s.at("127.0.0.1", 1).With(persistent).With(Params{"enabled": "false"}))
	requireHosts(t, n, s, addrs[1:]...)
	n.Kill(t)
	n.Restart(t)
	requireHosts(t, n, s, addrs[1:]...)
	update(t, n, s.at("127.0.0.1", 1).With(persistent).With(Params{"enabled": "true"}))
	threePersistent()
}

func TestC083_UpdatingWhatIsNotThere(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newNamespace(t)
	unknown := Service{Namespace: s.Namespace, Name: "nosuch"}
	register(t, n, s.at("10.0.0.1", 8080))
	subs := []*Conn{subscriber(t, n, s, ""), subscriber(t, n, unknown, "")}
	for name, p := range map[string]Params{
		"unknown service": unknown.at("10.0.0.1", 8080),
		"unknown address": s.at("10.9.9.9", 1),
		"unknown port":    s.at("10.0.0.1", 8081),
		"unknown cluster": s.at("10.0.0.1", 8080).With(Params{"clusterName": "c9"}),
	} {
		p = p.With(Params{"weight": "2", "metadata": metadataJSON(t, "a", "b")})
		for _, method := range []string{http.MethodPut, http.MethodPatch} {
			resp := n.Do(t, method, v1Instance, p)
			require.Contains(t, []int{400, 404}, resp.Status, "%s %s: %s", method, name, resp.Body)
			require.NotEmpty(t, resp.Body)
		}
		resp := n.Do(t, http.MethodPut, v2Instance, p)
		require.Contains(t, []int{400, 404}, resp.Status, "%s: %s", name, resp.Body)
		// 21004 is what Nacos says of an unknown service.
		require.Contains(t, []int{21003, 21004, 21008, 20004}, resp.Result(t).Code, "%s: %s", name, resp.Body)
	}
	for _, sub := range subs {
		sub.Quiet(t, secs(1))
	}
	require.Equal(t, []string{"svc-a"}, serviceNames(t, n, s))
	h := onlyHost(t, readEverywhere(t, n, s))
	require.InDelta(t, 1, h.Weight, 0)
	require.Empty(t, h.Metadata)

	// What was refused has left nothing that a later registration would meet.
	register(t, n, s.at("10.9.9.9", 1))
	register(t, n, unknown.at("10.0.0.1", 8080))
	for _, info := range []ServiceInfo{list(t, n, s.Params()), list(t, n, unknown.Params())} {
		for _, h := range info.Hosts {
			require.InDelta(t, 1, h.Weight, 0, h.Addr())
			require.Empty(t, h.Metadata, h.Addr())
		}
	}
}

func TestC085_SetHealthWhereTheServerChecks(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	refuse := func(t *testing.T, p Params) {
		t.Helper()
		for _, path := range []string{v1Health, "/nacos/v1/ns/health"} {
			resp := n.Do(t, http.MethodPut, path, p)
			require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
			require.NotEmpty(t, resp.Body)
		}
		for _, path := range []string{v2Health, "/nacos/v2/ns/health"} {
			resp := n.Do(t, http.MethodPut, path, p)
			require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
			require.Equal(t, 21011, resp.Result(t).Code, resp.Body)
		}
	}
	t.Run("ephemeral", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 8080))
		refuse(t, s.at("10.0.0.1", 8080).With(Params{"healthy": "false"}))
		require.True(t, onlyHost(t, list(t, n, s.Params())).Healthy)
	})
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		Connect(t, n.GRPCAddr()).Register(t, s, Instance("10.0.0.1", 8080)).OK(t)
		refuse(t, s.at("10.0.0.1", 8080).With(Params{"healthy": "false"}))
		require.True(t, onlyHost(t, list(t, n, s.Params())).Healthy)
	})
	t.Run("TCP", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		p := s.at("127.0.0.1", 8080).With(Params{"ephemeral": "false"})
		register(t, n, p)
		refuse(t, p.With(Params{"healthy": "false"})) // no record: checked by TCP
		requireOK(t, n.Do(t, http.MethodPut, v1Cluster, s.Params().With(Params{
			"clusterName": "DEFAULT", "checkPort": "80", "useInstancePort4Check": "true", "healthChecker": `{"type":"TCP"}`,
		})))
		refuse(t, p.With(Params{"healthy": "false"}))
		deregister(t, n, p)
	})
	t.Run("NONE", func(t *testing.T) {
		t.Parallel()
		// Here it is the operator's word that counts.
		s := newService(t)
		p := s.at("127.0.0.1", 8080).With(Params{"ephemeral": "false"})
		register(t, n, p)
		requireOK(t, n.Do(t, http.MethodPut, v1Cluster, s.Params().With(Params{
			"clusterName": "DEFAULT", "checkPort": "80", "useInstancePort4Check": "true", "healthChecker": `{"type":"NONE"}`,
		})))
		requireOK(t, n.Do(t, http.MethodPut, v1Health, p.With(Params{"healthy": "false"})))
		require.False(t, detail(t, n, p).Healthy)
		requireResultOK(t, n.Do(t, http.MethodPut, v2Health, p.With(Params{"healthy": "true"})))
		require.True(t, detail(t, n, p).Healthy)

		resp := n.Do(t, http.MethodPut, v1Health, p)
		require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
		require.Contains(t, resp.Body, "healthy")
		resp = n.Do(t, http.MethodPut, v2Health, p)
		require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
		require.Equal(t, 21010, resp.Result(t).Code, resp.Body)
		deregister(t, n, p)
	})
}

func TestC087_SeveralEndpointsOfOneProcess(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	want := map[string]string{"10.0.0.1:8000": "http", "10.0.0.1:9000": "grpc"}
	check := func(t *testing.T, s Service, pushed ServiceInfo) {
		t.Helper()
		for _, info := range []ServiceInfo{readEverywhere(t, n, s), pushed} {
			require.Len(t, info.Hosts, 2)
			for addr, kind := range want {
				h, ok := info.Host(addr)
				require.True(t, ok, addr)
				require.Equal(t, map[string]string{"kind": kind}, h.Metadata, addr)
			}
		}
	}
	both := has("10.0.0.1:8000", "10.0.0.1:9000")
	t.Run("batch", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		sub := subscriber(t, n, s, "")
		c := Connect(t, n.GRPCAddr())
		c.Batch(t, s, Instance("10.0.0.1", 8000, Fields{"metadata": Fields{"kind": "http"}}),
			Instance("10.0.0.1", 9000, Fields{"metadata": Fields{"kind": "grpc"}})).OK(t)
		check(t, s, sub.PushUntil(t, soon, both))
	})
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		sub := subscriber(t, n, s, "")
		register(t, n, s.at("10.0.0.1", 8000).With(Params{"metadata": metadataJSON(t, "kind", "http")}))
		register(t, n, s.at("10.0.0.1", 9000).With(Params{"metadata": metadataJSON(t, "kind", "grpc")}))
		check(t, s, sub.PushUntil(t, soon, both))
	})
	t.Run("two connections", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		sub := subscriber(t, n, s, "")
		Connect(t, n.GRPCAddr()).Register(t, s, Instance("10.0.0.1", 8000, Fields{"metadata": Fields{"kind": "http"}})).OK(t)
		Connect(t, n.GRPCAddr()).Register(t, s, Instance("10.0.0.1", 9000, Fields{"metadata": Fields{"kind": "grpc"}})).OK(t)
		check(t, s, sub.PushUntil(t, soon, both))
	})
	t.Run("one address in two clusters over HTTP", func(t *testing.T) {
		t.Parallel()
		// Over HTTP the publisher is ip:port, so the newer one replaces the older (O9).
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 8000).With(Params{"clusterName": "c1"}))
		register(t, n, s.at("10.0.0.1", 8000).With(Params{"clusterName": "c2"}))
		require.Equal(t, "c2", onlyHost(t, readEverywhere(t, n, s)).ClusterName)
	})
}

func TestC103_OverrideExpires(t *testing.T) {
	t.Parallel()
	n := StartNode(t, WithEnv("ROLLCALL_OVERRIDE_EXPIRY=3s"))
	one := Instance("10.0.0.1", 8080, Fields{"weight": 1})
	comeBack := func(t *testing.T, s Service, after time.Duration) float64 {
		t.Helper()
		a := Connect(t, n.GRPCAddr())
		a.Register(t, s, one).OK(t)
		update(t, n, s.at("10.0.0.1", 8080).With(Params{"weight": "0"}))
		require.InDelta(t, 0, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		a.Close()
		eventually(t, soon, hostsAre(t, n, s))
		pause(t, after)
		Connect(t, n.GRPCAddr()).Register(t, s, one).OK(t)
		return onlyHost(t, readEverywhere(t, n, s)).Weight
	}
	t.Run("back within it", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		require.Zero(t, comeBack(t, s, 0))
		// Being back, it doesn't expire.
		always(t, secs(6), func() error {
			if w := onlyHost(t, list(t, n, s.Params())).Weight; w != 0 {
				return fmt.Errorf("weight %v", w)
			}
			return nil
		})
	})
	t.Run("back after it", func(t *testing.T) {
		t.Parallel()
		require.InDelta(t, 1, comeBack(t, newService(t), secs(3+6)), 0)
	})
}

func TestC109_NewInstanceOnAnOldAddress(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	// An explicit deregistration ends the override; the next one on the same address
	// starts with what it registers.
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		a, b := Connect(t, n.GRPCAddr()), Connect(t, n.GRPCAddr())
		a.Register(t, s, Instance("10.0.0.1", 8080)).OK(t)
		update(t, n, s.at("10.0.0.1", 8080).With(Params{"weight": "0", "enabled": "true", "metadata": metadataJSON(t, "by", "operator")}))
		require.InDelta(t, 0, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		a.Deregister(t, s, Instance("10.0.0.1", 8080)).OK(t)
		b.Register(t, s, Instance("10.0.0.1", 8080)).OK(t)
		h := onlyHost(t, readEverywhere(t, n, s))
		require.InDelta(t, 1, h.Weight, 0)
		require.Empty(t, h.Metadata)
	})
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 8080))
		update(t, n, s.at("10.0.0.1", 8080).With(Params{"enabled": "false"}))
		requireHosts(t, n, s)
		deregister(t, n, s.at("10.0.0.1", 8080))
		register(t, n, s.at("10.0.0.1", 8080).With(Params{"weight": "2"}))
		require.InDelta(t, 2, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
	})
	t.Run("one of a batch", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		c := Connect(t, n.GRPCAddr())
		c.Batch(t, s, Instance("10.0.0.1", 1), Instance("10.0.0.1", 2)).OK(t)
		for _, port := range []int{1, 2} {
			update(t, n, s.at("10.0.0.1", port).With(Params{"weight": "5"}))
		}
		c.Deregister(t, s, Instance("10.0.0.1", 1)).OK(t)
		c.Batch(t, s, Instance("10.0.0.1", 1), Instance("10.0.0.1", 2)).OK(t)
		info := readEverywhere(t, n, s)
		for addr, weight := range map[string]float64{"10.0.0.1:1": 1, "10.0.0.1:2": 5} {
			h, ok := info.Host(addr)
			require.True(t, ok, addr)
			require.InDelta(t, weight, h.Weight, 0, addr)
		}
	})
	t.Run("persistent", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		p := s.at("127.0.0.1", 8080).With(Params{"ephemeral": "false"})
		register(t, n, p)
		update(t, n, p.With(Params{"weight": "5"}))
		require.InDelta(t, 5, onlyHost(t, list(t, n, s.Params())).Weight, 0)
		deregister(t, n, p)
		register(t, n, p)
		require.InDelta(t, 1, onlyHost(t, list(t, n, s.Params())).Weight, 0)
		deregister(t, n, p)
	})
}

// Overrides written by a batch and one by one say the same.
func TestC109_MetadataBatch(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	register(t, n, s.at("10.0.0.1", 1).With(Params{"metadata": metadataJSON(t, "a", "1")}))
	resp := n.Do(t, http.MethodPut, "/nacos/v1/ns/instance/metadata/batch", s.Params().With(Params{
		"metadata": metadataJSON(t, "b", "x,y"), "instances": `[{"ip":"10.0.0.1","port":"1","ephemeral":"true"},{"ip":"10.0.0.1","port":"9"}]`,
	}))
	require.Equal(t, http.StatusOK, resp.Status, resp.Body)
	var body struct {
		Updated []string `json:"updated"`
	}
	require.NoError(t, json.Unmarshal([]byte(resp.Body), &body), resp.Body)
	require.Equal(t, []string{"10.0.0.1:1:unknown:DEFAULT:ephemeral"}, body.Updated)
	require.Equal(t, map[string]string{"a": "1", "b": "x,y"}, onlyHost(t, readEverywhere(t, n, s)).Metadata)
	deregister(t, n, s.at("10.0.0.1", 1))
	register(t, n, s.at("10.0.0.1", 1).With(Params{"metadata": metadataJSON(t, "a", "1")}))
	require.Equal(t, map[string]string{"a": "1"}, onlyHost(t, readEverywhere(t, n, s)).Metadata)
}
