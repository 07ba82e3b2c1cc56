package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Section D of the cases: listing, filters, protection threshold. What asks the
// catalog and the operators' lists is in cases_catalog_test.go.

// unhealthyPair registers two instances whose beats stop and waits until the
// server has found both unhealthy; they are not removed for a long time.
func unhealthyPair(t *testing.T, n *Node, s Service) {
	t.Helper()
	for _, port := range []string{"1", "2"} {
		register(t, n, s.at("10.0.0.1", port).With(Params{"metadata": beatTimes(t, secs(1), secs(1), 10*time.Minute)}))
	}
	for _, port := range []string{"1", "2"} {
		eventually(t, secs(20), func() error {
			if detail(t, n, s.at("10.0.0.1", port)).Healthy {
				return fmt.Errorf("port %s is still healthy", port)
			}
			return nil
		})
	}
}

// requireHealth requires that every host in a list is healthy, and its protection
// flag.
func requireHealth(t *testing.T, info ServiceInfo, protected bool, addrs ...string) {
	t.Helper()
	require.ElementsMatch(t, addrs, info.Addrs())
	for _, h := range info.Hosts {
		require.True(t, h.Healthy, h.Addr())
	}
	require.Equal(t, protected, info.Protected)
}

func TestC041_AllUnhealthyDefaultThreshold(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	createService(t, n, s, nil)
	sub := subscriber(t, n, s, "")
	unhealthyPair(t, n, s)
	both := []string{"10.0.0.1:1", "10.0.0.1:2"}

	only := Params{"healthyOnly": "true"}
	requireHealth(t, list(t, n, s.Params()), true, both...)
	requireHealth(t, list(t, n, s.Params().With(only)), true, both...)
	requireHealth(t, listV2(t, n, s.Params()), true, both...)
	requireHealth(t, listV2(t, n, s.Params().With(only)), true, both...)
	c := Connect(t, n.GRPCAddr())
	requireHealth(t, c.List(t, s, "", false), true, both...)
	requireHealth(t, c.List(t, s, "", true), true, both...)
	requireHealth(t, c.Subscribe(t, s, ""), true, both...)
	sub.PushUntil(t, soon, func(info ServiceInfo) bool {
		return info.Protected && len(info.Hosts) == 2 && info.Hosts[0].Healthy && info.Hosts[1].Healthy
	})
	for _, port := range []string{"1", "2"} {
		require.False(t, detail(t, n, s.at("10.0.0.1", port)).Healthy, "the truth stays in the detail")
	}

	// One that beats again ends the protection.
	require.Equal(t, 10200, beat(t, n, s.at("10.0.0.1", 1)).Code)
	info := list(t, n, s.Params())
	require.False(t, info.Protected)
	h, _ := info.Host("10.0.0.1:2")
	require.False(t, h.Healthy)
}

func TestC043_NegativeThreshold(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	// The compatible half: a negative threshold counts as 0.
	for _, threshold := range []string{"-1", "-0.5", "0"} {
		t.Run(threshold, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			createService(t, n, s, Params{"protectThreshold": threshold})
			for _, port := range []string{"1", "2"} {
				register(t, n, s.at("10.0.0.1", port).With(Params{"healthy": "false"}))
			}
			requireHealth(t, list(t, n, s.Params()), true, "10.0.0.1:1", "10.0.0.1:2")
			register(t, n, s.at("10.0.0.1", 3))
			info := list(t, n, s.Params())
			require.False(t, info.Protected)
			h, _ := info.Host("10.0.0.1:1")
			require.False(t, h.Healthy)
		})
	}
	// And a switch of the service, in its metadata, that turns protection off.
	t.Run("switched off", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		off := metadataJSON(t, "rollcall.protection", "off")
		createService(t, n, s, Params{"protectThreshold": "1", "metadata": off})
		for _, port := range []string{"1", "2"} {
			register(t, n, s.at("10.0.0.1", port).With(Params{"healthy": "false"}))
		}
		for _, info := range lists(t, n, s, "", false) {
			require.Len(t, info.Hosts, 2)
			require.False(t, info.Protected)
			for _, h := range info.Hosts {
				require.False(t, h.Healthy)
			}
		}
		for _, info := range lists(t, n, s, "", true) {
			require.Empty(t, info.Hosts)
		}
		// And on again.
		requireOK(t, n.Do(t, http.MethodPut, v1Service, s.Params().With(Params{"protectThreshold": "0"})))
		requireHealth(t, list(t, n, s.Params()), true, "10.0.0.1:1", "10.0.0.1:2")
	})
}

func TestC045_ThresholdOnTheSelectedSet(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	createService(t, n, s, Params{"protectThreshold": "0.7"})
	at := func(port int, cluster, healthy string) {
		register(t, n, s.at("10.0.0.1", port).With(Params{"clusterName": cluster, "healthy": healthy}))
	}
	at(1, "zoneZ", "true")
	at(2, "zoneZ", "false")
	for port := 3; port <= 6; port++ {
		at(port, "zoneY", "true")
	}

	sub := subscriber(t, n, s, "zoneZ")
	c := Connect(t, n.GRPCAddr())
	check := func(both ServiceInfo) { // 1/2 <= 0.7
		t.Helper()
		requireHealth(t, both, true, "10.0.0.1:1", "10.0.0.1:2")
	}
	check(list(t, n, s.Params().With(Params{"clusters": "zoneZ"})))
	check(listV2(t, n, s.Params().With(Params{"clusterName": "zoneZ"})))
	check(c.List(t, s, "zoneZ", false))
	check(c.Subscribe(t, s, "zoneZ"))

	// 5/6 > 0.7: not protected, for the same two hosts.
	all := list(t, n, s.Params())
	require.False(t, all.Protected)
	require.Len(t, all.Hosts, 6)
	h, _ := all.Host("10.0.0.1:2")
	require.False(t, h.Healthy)

	// A disabled host belongs to neither number: 1/1.
	update(t, n, s.at("10.0.0.1", 2).With(Params{"clusterName": "zoneZ", "enabled": "false"}))
	info := list(t, n, s.Params().With(Params{"clusters": "zoneZ"}))
	requireHealth(t, info, false, "10.0.0.1:1")
	pushed := sub.PushUntil(t, soon, has("10.0.0.1:1"))
	require.False(t, pushed.Protected)
}

func TestC047_ClusterFilterOnQuery(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	for port, cluster := range map[int]string{1: "c1", 2: "c2", 3: "c3", 4: "c11"} {
		Connect(t, n.GRPCAddr()).Register(t, s, Instance("10.0.0.1", port, Fields{"clusterName": cluster})).OK(t)
	}
	c := Connect(t, n.GRPCAddr())
	for clusters, want := range map[string][]string{
		"c1":           {"10.0.0.1:1"},
		"c2":           {"10.0.0.1:2"},
		"c1,c2":        {"10.0.0.1:1", "10.0.0.1:2"},
		"c2,nosuch,c1": {"10.0.0.1:1", "10.0.0.1:2"},
		"C1":           {},
		"nosuch":       {},
		"":             {"10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4"},
	} {
		byQuery := c.List(t, s, clusters, false)
		require.ElementsMatch(t, want, byQuery.Addrs(), "query of %q", clusters)
		require.Equal(t, clusters, byQuery.Clusters, "echoed")
		require.ElementsMatch(t, want, list(t, n, s.Params().With(Params{"clusters": clusters})).Addrs(), "v1 of %q", clusters)
		require.ElementsMatch(t, want, listV2(t, n, s.Params().With(Params{"clusterName": clusters})).Addrs(), "v2 of %q", clusters)
		sub := Connect(t, n.GRPCAddr())
		require.ElementsMatch(t, want, sub.Subscribe(t, s, clusters).Addrs(), "subscription of %q", clusters)
		pushed := sub.NextPush(t, soon)
		require.ElementsMatch(t, want, pushed.Addrs(), "push of %q", clusters)
		require.Equal(t, clusters, pushed.Clusters, "echoed")
	}
	require.Equal(t, "c1", onlyHost(t, c.List(t, s, "c1", false)).ClusterName)
}

func TestC049_DetailOfUnknownInstance(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	known, unknown := newService(t), newNamespace(t)
	register(t, n, known.at("10.0.0.1", 8080))
	for name, p := range map[string]Params{
		"other address":  known.at("10.9.9.9", 1),
		"other port":     known.at("10.0.0.1", 8081),
		"other cluster":  known.at("10.0.0.1", 8080).With(Params{"clusterName": "c9"}),
		"other group":    known.at("10.0.0.1", 8080).With(Params{"groupName": "other"}),
		"unknown":        unknown.at("10.0.0.1", 8080),
		"no such port 0": known.at("10.0.0.1", 0),
	} {
		resp := n.Do(t, http.MethodGet, v1Instance, p)
		require.Equal(t, http.StatusNotFound, resp.Status, "%s: %s", name, resp.Body)
		require.NotEmpty(t, resp.Body)
		resp = n.Do(t, http.MethodGet, v2Instance, p)
		require.Equal(t, http.StatusNotFound, resp.Status, "%s: %s", name, resp.Body)
		require.Contains(t, []int{20004, 21003}, resp.Result(t).Code, "%s: %s", name, resp.Body)
	}
	require.Empty(t, serviceNames(t, n, unknown), "asking creates nothing")
}

func TestC051_DisabledInstance(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	sub := subscriber(t, n, s, "")
	socket := ListenUDP(t, true)
	socket.Subscribe(t, n, s.Params())
	socket.Next(t, soon)
	for port := 1; port <= 3; port++ {
		register(t, n, s.at("10.0.0.1", port).With(Params{"weight": "2", "metadata": metadataJSON(t, "v", "1")}))
	}
	all := has("10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3")
	two := has("10.0.0.1:1", "10.0.0.1:3")
	sub.PushUntil(t, soon, all)
	socket.Until(t, soon, all)

	for _, put := range []func(Params){
		func(p Params) { update(t, n, p) },
		func(p Params) { requireResultOK(t, n.Do(t, http.MethodPut, v2Instance, p)) },
		func(p Params) { requireOK(t, n.Do(t, http.MethodPatch, v1Instance, p)) },
	} {
		put(s.at("10.0.0.1", 2).With(Params{"enabled": "false"}))
		require.True(t, two(readEverywhere(t, n, s)))
		sub.PushUntil(t, soon, two)
		socket.Until(t, soon, two)
		require.Equal(t, 2, detail(t, n, s.at("10.0.0.1", 2)).Port, "an operator still finds it")
		// Its beats go on and don't bring it back.
		require.Equal(t, 10200, beat(t, n, s.at("10.0.0.1", 2)).Code)
		require.True(t, two(list(t, n, s.Params())))

		put(s.at("10.0.0.1", 2).With(Params{"enabled": "true"}))
		require.True(t, all(readEverywhere(t, n, s)))
		sub.PushUntil(t, soon, all)
		socket.Until(t, soon, all)
	}

	// Registered as disabled.
	hidden := newService(t)
	for _, w := range waysOf(t, n) {
		if w.persistent || w.name == "beat" { // a beat has no such field
			continue
		}
		w.send(t, n, hidden, Instance("127.0.0.1", 9, Fields{"enabled": false})).accepted(t)
		requireHosts(t, n, hidden)
	}
}

func TestC053_ResponseAlwaysHasHosts(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	createService(t, n, s, Params{"protectThreshold": "1"})
	for _, isCheck := range []string{"true", "false", "True", "1"} {
		empty := list(t, n, s.Params().With(Params{"isCheck": isCheck}))
		require.Empty(t, empty.Hosts)
		require.Contains(t, empty.Raw, "reachProtectionThreshold")
	}
	register(t, n, s.at("10.0.0.1", 8080).With(Params{"healthy": "false"}))
	for _, isCheck := range []string{"true", "false"} {
		requireHealth(t, list(t, n, s.Params().With(Params{"isCheck": isCheck})), true, "10.0.0.1:8080")
	}
	unknown := newService(t)
	for _, p := range []Params{nil, {"isCheck": "true"}, {"clusters": "c9"}, {"healthyOnly": "true"}, {"groupName": "g9"}} {
		require.Empty(t, list(t, n, unknown.Params().With(p)).Hosts)
	}
}
