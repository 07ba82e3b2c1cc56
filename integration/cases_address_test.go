package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sections B and C of the cases: addresses, ports, clusters, weight.

func TestC023_IPv6Instance(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		if w.persistent {
			t.Skip("would be probed outside of the loopback network")
		}
		for _, ip := range []string{"fe80::3c:7d01:f92a:8dd0", "::1", "2001:DB8::1", "::ffff:10.0.0.1"} {
			s := newService(t)
			w.send(t, n, s, Instance(ip, 7001)).accepted(t)
			require.Equal(t, ip, onlyHost(t, readEverywhere(t, n, s)).IP, "verbatim")

			p := s.at(ip, 7001)
			update(t, n, p.With(Params{"weight": "2"}))
			require.InDelta(t, 2, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
			requireResultOK(t, n.Do(t, http.MethodPut, v2Instance, p.With(Params{"weight": "3"})))
			require.InDelta(t, 3, detail(t, n, p).Weight, 0)
			if w.grpc {
				continue // HTTP can't deregister what a connection published
			}
			require.Equal(t, 10200, beat(t, n, p).Code)
			deregister(t, n, p)
			requireHosts(t, n, s)
		}
	})
}

func TestC025_HostNameInsteadOfAddress(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		names := []string{"localhost"}
		if !w.persistent { // the others would be looked up by the prober
			names = append(names, "node1.internal", "a-b.c-d.example", "xn--bcher-kva.example", "x", "1x.example", "10.0.0.1.nip.io", "A_B")
		}
		for _, name := range names {
			s := newService(t)
			w.send(t, n, s, Instance(name, 80)).accepted(t)
			require.Equal(t, name, onlyHost(t, readEverywhere(t, n, s)).IP)
			require.Equal(t, name, detail(t, n, s.at(name, 80)).IP)
		}
	})
}

func TestC027_BrokenDottedQuad(t *testing.T) {
	t.Parallel()
	// Digits and dots that are no IPv4 address are refused (Nacos 1.4 does, 2.3 and
	// later doesn't).
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newNamespace(t)
		for _, ip := range []string{"10.0.0.999", "10.0.0", "1.2.3.4.5", "256.1.1.1", "1.2.3.", ".1.2.3", "1..2.3", "10", "....", "999.999.999.999"} {
			w.send(t, n, s, Instance(ip, 8080)).refused(t)
		}
		requireNothing(t, n, s)
		w.send(t, n, s, Instance("127.0.0.9", 8080)).accepted(t)
	})
	t.Run("blank and odd addresses", func(t *testing.T) {
		t.Parallel()
		eachWay(t, func(t *testing.T, n *Node, w way) {
			s := newNamespace(t)
			for _, ip := range []any{"", " ", "127.0. 0.1", "127.0.0.1 ", "中", repeated(129), nil} {
				w.send(t, n, s, Instance("", 8080).With(Fields{"ip": ip})).refused(t)
			}
			requireNothing(t, n, s)
		})
	})
	t.Run("one bad in a batch", func(t *testing.T) {
		t.Parallel()
		n := sharedNode(t)
		s := newNamespace(t)
		c := Connect(t, n.GRPCAddr())
		c.Batch(t, s, Instance("10.0.0.1", 1), Instance("10.0.0.999", 2)).Refused(t, 400)
		requireNothing(t, n, s) // all or nothing
	})
}

func TestC029_PortZeroIsLegal(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newService(t)
		w.send(t, n, s, Instance("127.0.0.1", 0)).accepted(t)
		h := onlyHost(t, readEverywhere(t, n, s))
		require.Zero(t, h.Port)
		require.Contains(t, h.Raw, "port")
		require.Zero(t, detail(t, n, s.at("127.0.0.1", 0)).Port)
		if !w.grpc && !w.persistent {
			require.Equal(t, 10200, beat(t, n, s.at("127.0.0.1", 0)).Code)
			deregister(t, n, s.at("127.0.0.1", 0))
			requireHosts(t, n, s)
		}
	})
}

func TestC031_PortOutOfRange(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newNamespace(t)
		for _, port := range []any{-1, 65536, 70000, "abc", "80.5", "8080x", "99999999999999999999", "0x50"} {
			w.send(t, n, s, Instance("127.0.0.1", port)).refused(t)
		}
		if !w.grpc && w.name != "beat" {
			w.send(t, n, s, Instance("127.0.0.1", "")).refused(t)
			w.send(t, n, s, Instance("127.0.0.1", nil)).refused(t)
		}
		requireNothing(t, n, s)
		w.send(t, n, s, Instance("127.0.0.1", 65535)).accepted(t)
		requireHosts(t, n, s, "127.0.0.1:65535")
	})
	t.Run("other calls", func(t *testing.T) {
		t.Parallel()
		n := sharedNode(t)
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 8080))
		for _, port := range []string{"-1", "65536", "abc"} {
			for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet} {
				resp := n.Do(t, method, v1Instance, s.at("10.0.0.1", port))
				require.Equal(t, http.StatusBadRequest, resp.Status, "%s %s: %s", method, port, resp.Body)
			}
			resp := n.Do(t, http.MethodPut, v1Beat, s.at("10.0.0.1", port))
			require.Equal(t, http.StatusBadRequest, resp.Status, "beat %s: %s", port, resp.Body)
		}
		requireHosts(t, n, s, "10.0.0.1:8080")
	})
}

func TestC033_MissingClusterIsDefault(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		for _, cluster := range []any{nil, ""} {
			s := newService(t)
			f := Instance("127.0.0.1", 8080)
			if cluster == nil {
				delete(f, "clusterName")
			} else {
				f["clusterName"] = cluster
			}
			w.send(t, n, s, f).accepted(t)
			h := onlyHost(t, readEverywhere(t, n, s))
			require.Equal(t, "DEFAULT", h.ClusterName)
			require.Len(t, list(t, n, s.Params().With(Params{"clusters": "DEFAULT"})).Hosts, 1)
			if w.grpc || w.persistent {
				continue
			}
			// Beats with and without a cluster mean the same instance.
			require.Equal(t, 10200, beat(t, n, s.at("127.0.0.1", 8080)).Code)
			text := fullBeat(t, Fields{"ip": "127.0.0.1", "port": 8080, "serviceName": "DEFAULT_GROUP@@" + s.Name})
			require.Equal(t, 10200, beat(t, n, s.Params().With(Params{"beat": text})).Code)
			text = fullBeat(t, Fields{"ip": "127.0.0.1", "port": 8080, "serviceName": "DEFAULT_GROUP@@" + s.Name, "cluster": "DEFAULT"})
			require.Equal(t, 10200, beat(t, n, s.Params().With(Params{"beat": text})).Code)
			require.Equal(t, "DEFAULT", onlyHost(t, readEverywhere(t, n, s)).ClusterName)
			deregister(t, n, s.at("127.0.0.1", 8080).With(Params{"clusterName": "DEFAULT"}))
			requireHosts(t, n, s)
		}
	})
}

func TestC035_WeightZeroIsKept(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newService(t)
		w.send(t, n, s, Instance("127.0.0.1", 1, Fields{"weight": 0})).accepted(t)
		w.send(t, n, s, Instance("127.0.0.1", 2, Fields{"weight": 1})).accepted(t)
		w.send(t, n, s, Instance("127.0.0.1", 3, Fields{"weight": 0.001})).accepted(t)
		none := Instance("127.0.0.1", 4)
		delete(none, "weight")
		w.send(t, n, s, none).accepted(t)
		w.send(t, n, s, Instance("127.0.0.1", 5, Fields{"weight": 10000})).accepted(t)

		info := readEverywhere(t, n, s)
		require.Len(t, info.Hosts, 5)
		for addr, weight := range map[string]float64{
			"127.0.0.1:1": 0, "127.0.0.1:2": 1, "127.0.0.1:3": 0.001, "127.0.0.1:4": 1, "127.0.0.1:5": 10000,
		} {
			h, ok := info.Host(addr)
			require.True(t, ok, addr)
			require.InDelta(t, weight, h.Weight, 0, addr)
			require.Contains(t, h.Raw, "weight", addr)
		}
		h, _ := info.Host("127.0.0.1:1")
		require.Equal(t, "0.0", string(h.Raw["weight"]), "a double is written as one")
		require.InDelta(t, 0, detail(t, n, s.at("127.0.0.1", 1)).Weight, 0)
	})
	t.Run("by update", func(t *testing.T) {
		t.Parallel()
		n := sharedNode(t)
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 1))
		update(t, n, s.at("10.0.0.1", 1).With(Params{"weight": "0"}))
		require.InDelta(t, 0, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		requireOK(t, n.Do(t, http.MethodPatch, v1Instance, s.at("10.0.0.1", 1).With(Params{"weight": "4"})))
		require.InDelta(t, 4, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
		requireOK(t, n.Do(t, http.MethodPatch, v1Instance, s.at("10.0.0.1", 1).With(Params{"weight": "0"})))
		require.InDelta(t, 0, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
	})
}

func TestC037_WeightNaN(t *testing.T) {
	t.Parallel()
	bad := []any{"NaN", "nan", "Infinity", "-Infinity", "Inf", -1, -0.001, 10000.001, 10001, "1e309", "abc"}
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newService(t)
		sub := subscriber(t, n, s, "")
		w.send(t, n, s, Instance("127.0.0.1", 1)).accepted(t)
		sub.PushUntil(t, soon, has("127.0.0.1:1"))
		for _, weight := range bad {
			w.send(t, n, s, Instance("127.0.0.1", 2, Fields{"weight": weight})).refused(t)
		}
		requireHosts(t, n, s, "127.0.0.1:1")
		w.send(t, n, s, Instance("127.0.0.1", 3)).accepted(t)
		sub.PushUntil(t, soon, has("127.0.0.1:1", "127.0.0.1:3"))
	})
	t.Run("by update", func(t *testing.T) {
		t.Parallel()
		n := sharedNode(t)
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 1).With(Params{"weight": "3"}))
		for _, weight := range bad {
			p := formOf(t, s, Fields{"ip": "10.0.0.1", "port": 1, "weight": weight})
			for _, method := range []string{http.MethodPut, http.MethodPatch} {
				resp := n.Do(t, method, v1Instance, p)
				require.Equal(t, http.StatusBadRequest, resp.Status, "%s %v: %s", method, weight, resp.Body)
			}
			resp := n.Do(t, http.MethodPut, v2Instance, p)
			require.Equal(t, http.StatusBadRequest, resp.Status, "%v: %s", weight, resp.Body)
		}
		require.InDelta(t, 3, onlyHost(t, readEverywhere(t, n, s)).Weight, 0)
	})
	t.Run("bare in JSON", func(t *testing.T) {
		t.Parallel()
		n := sharedNode(t)
		s := newService(t)
		c := Connect(t, n.GRPCAddr())
		body := `{"namespace":"public","groupName":"DEFAULT_GROUP","serviceName":"` + s.Name +
			`","type":"registerInstance","instance":{"ip":"10.0.0.1","port":1,"weight":NaN}}`
		reply := c.Call(t, "InstanceRequest", body)
		require.Contains(t, []int{400, 502}, reply.ErrorCode, reply.Body)
		resp := n.Do(t, http.MethodPut, v1Beat, s.Params().With(Params{"beat": `{"ip":"10.0.0.1","port":1,"weight":NaN}`}))
		require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
		requireHosts(t, n, s)
	})
}

func TestC039_BeatThatRecreatesWithoutWeight(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	register(t, n, s.at("10.0.0.1", 8080).With(Params{"weight": "5", "metadata": beatTimes(t, secs(1), secs(1), secs(2))}))
	require.InDelta(t, 5, onlyHost(t, list(t, n, s.Params())).Weight, 0)
	eventually(t, secs(20), hostsAre(t, n, s))

	text := fullBeat(t, Fields{"ip": "10.0.0.1", "port": 8080, "serviceName": "DEFAULT_GROUP@@" + s.Name})
	require.Equal(t, 10200, beat(t, n, s.Params().With(Params{"beat": text})).Code)
	h := onlyHost(t, readEverywhere(t, n, s))
	require.InDelta(t, 1, h.Weight, 0)
	require.True(t, h.Healthy)
	require.True(t, h.Enabled)
	require.True(t, h.Ephemeral)

	// A weight that is given counts, zero too.
	other := newService(t)
	text = fullBeat(t, Fields{"ip": "10.0.0.1", "port": 8080, "weight": 0})
	require.Equal(t, 10200, beat(t, n, other.Params().With(Params{"beat": text})).Code)
	require.InDelta(t, 0, onlyHost(t, list(t, n, other.Params())).Weight, 0)
}
