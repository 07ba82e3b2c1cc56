package integration

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// Rules S: selecting.
//
// Left: S6 (label selectors).

// lists returns the service's list as every road shows it: v1, v2, the query and a
// fresh subscription over gRPC. A push is among them unless healthyOnly is set,
// which exists for queries alone.
func lists(t *testing.T, n *Node, s Service, clusters string, healthyOnly bool) []ServiceInfo {
	t.Helper()
	only := Params{}
	if healthyOnly {
		only["healthyOnly"] = "true"
	}
	c := Connect(t, n.GRPCAddr())
	all := []ServiceInfo{
		list(t, n, s.Params().With(Params{"clusters": clusters}).With(only)),
		listV2(t, n, s.Params().With(Params{"clusterName": clusters}).With(only)),
		c.List(t, s, clusters, healthyOnly),
	}
	if !healthyOnly {
		all = append(all, c.Subscribe(t, s, clusters), c.NextPush(t, soon))
	}
	return all
}

func TestS1_ClusterFilter(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	for port, cluster := range []string{"c1", "c2", "c11", "DEFAULT"} {
		register(t, n, s.at("10.0.0.1", port).With(Params{"clusterName": cluster}))
	}
	for clusters, want := range map[string][]string{
		"": {"10.0.0.1:0", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"}, "c1": {"10.0.0.1:0"}, "c2,c1": {"10.0.0.1:0", "10.0.0.1:1"},
		"c": {}, "C1": {}, "DEFAULT": {"10.0.0.1:3"}, "c1,c1": {"10.0.0.1:0"},
	} {
		for _, info := range lists(t, n, s, clusters, false) {
			require.ElementsMatch(t, want, info.Addrs(), "%q", clusters)
			require.Equal(t, clusters, info.Clusters)
		}
	}
	for _, bad := range []string{"a b", "a;b", "ä"} {
		resp := n.Do(t, http.MethodGet, v1List, s.Params().With(Params{"clusters": bad}))
		require.Equal(t, http.StatusBadRequest, resp.Status, "%q: %s", bad, resp.Body)
		c := Connect(t, n.GRPCAddr())
		reply := c.Call(t, "ServiceQueryRequest", s.fields().With(Fields{"cluster": bad})).Refused(t, 400)
		require.NotNil(t, reply.ServiceInfo, "some clients need one in every answer")
		reply = c.Call(t, "SubscribeServiceRequest", s.fields().With(Fields{"clusters": bad, "subscribe": true})).Refused(t, 400)
		require.NotNil(t, reply.ServiceInfo)
	}
}

func TestS2_DisabledIsNeverReturned(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	createService(t, n, s, Params{"protectThreshold": "1"})
	register(t, n, s.at("10.0.0.1", 1).With(Params{"enabled": "false"}))
	register(t, n, s.at("10.0.0.1", 2).With(Params{"enabled": "false", "healthy": "false"}))
	register(t, n, s.at("10.0.0.1", 3))
	for _, healthyOnly := range []bool{false, true} {
		for _, info := range lists(t, n, s, "", healthyOnly) {
			require.Equal(t, []string{"10.0.0.1:3"}, info.Addrs())
			require.True(t, info.Hosts[0].Enabled)
		}
	}
}

func TestS3_ProtectionThreshold(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, c := range map[string]struct {
		threshold       string // "": no settings record
		healthy, sick   int
		wantProtected   bool
		wantHealthySeen int
	}{
		"no record, none healthy":       {"", 0, 2, false, 0},
		"0, none healthy":               {"0", 0, 2, true, 2},
		"0, one healthy":                {"0", 1, 1, false, 1},
		"negative, none healthy":        {"-1", 0, 2, true, 2},
		"negative, one healthy":         {"-1", 1, 1, false, 1},
		"equal":                         {"0.5", 1, 1, true, 2},
		"just below":                    {"0.49", 1, 1, false, 1},
		"two of three":                  {"0.5", 2, 1, false, 2},
		"one of three":                  {"0.5", 1, 2, true, 3},
		"1, all healthy":                {"1", 2, 0, true, 2},
		"1, one sick":                   {"1", 1, 1, true, 2},
		"0.99, all healthy":             {"0.99", 2, 0, false, 2},
		"nothing to protect":            {"1", 0, 0, false, 0},
		"nothing to protect without it": {"", 0, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			if c.threshold != "" {
				createService(t, n, s, Params{"protectThreshold": c.threshold})
			}
			for port := range c.healthy {
				register(t, n, s.at("10.0.0.1", port))
			}
			for port := range c.sick {
				register(t, n, s.at("10.0.0.2", port).With(Params{"healthy": "false"}))
			}
			for _, info := range lists(t, n, s, "", false) {
				require.Len(t, info.Hosts, c.healthy+c.sick)
				require.Equal(t, c.wantProtected, info.Protected)
				seen := 0
				for _, h := range info.Hosts {
					if h.Healthy {
						seen++
					}
				}
				require.Equal(t, c.wantHealthySeen, seen)
			}
			for port := range c.sick { // the stored state stays
				require.False(t, detail(t, n, s.at("10.0.0.2", port)).Healthy)
			}
		})
	}
	t.Run("a record comes by a cluster update", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 1).With(Params{"healthy": "false"}))
		require.False(t, onlyHost(t, list(t, n, s.Params())).Healthy)
		requireOK(t, n.Do(t, http.MethodPut, v1Cluster, s.Params().With(Params{
			"clusterName": "DEFAULT", "checkPort": "80", "useInstancePort4Check": "true", "healthChecker": `{"type":"TCP"}`,
		})))
		info := list(t, n, s.Params())
		require.True(t, info.Protected)
		require.True(t, onlyHost(t, info).Healthy)
	})
}

func TestS4_HealthyOnlyUnderProtection(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	createService(t, n, s, Params{"protectThreshold": "0.5"})
	sick := Params{"healthy": "false"}
	// The list is cut first; then all that is left is healthy, 1/1 > 0.5.
	register(t, n, s.at("10.0.0.1", 1))
	register(t, n, s.at("10.0.0.1", 2).With(sick))
	for _, info := range lists(t, n, s, "", true) {
		requireHealth(t, info, false, "10.0.0.1:1")
	}
	// Deviation: where not one is healthy, protection answers healthyOnly, too (C041);
	// on Nacos the list is empty then.
	register(t, n, s.at("10.0.0.1", 1).With(sick))
	for _, info := range lists(t, n, s, "", true) {
		requireHealth(t, info, true, "10.0.0.1:1", "10.0.0.1:2")
	}
	// A threshold of 1 protects always.
	always := newService(t)
	createService(t, n, always, Params{"protectThreshold": "1"})
	register(t, n, always.at("10.0.0.1", 1))
	register(t, n, always.at("10.0.0.1", 2).With(sick))
	for _, info := range lists(t, n, always, "", true) {
		requireHealth(t, info, true, "10.0.0.1:1")
	}
}

func TestS5_WeightRange(t *testing.T) {
	t.Parallel()
	// Deviation: every road checks the weight, not HTTP alone. What is in range is
	// kept exactly: nothing is raised, weight 0 is not dropped.
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newService(t)
		for port, weight := range []float64{0, 0.0001, 0.01, 0.5, 1, 99.75, 10000} {
			w.send(t, n, s, Instance("127.0.0.1", port, Fields{"weight": weight})).accepted(t)
			h, ok := list(t, n, s.Params()).Host(Host{IP: "127.0.0.1", Port: port}.Addr())
			require.True(t, ok)
			require.InDelta(t, weight, h.Weight, 0)
		}
		for _, weight := range []float64{-0.01, 10000.01, 1e300} {
			w.send(t, n, s, Instance("127.0.0.1", 99, Fields{"weight": weight})).refused(t)
		}
		require.Len(t, list(t, n, s.Params()).Hosts, 7)
	})
}

func TestS7_HealthyOnly(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	for _, info := range lists(t, n, s, "", true) { // unknown service: empty, no error
		require.Empty(t, info.Hosts)
	}
	register(t, n, s.at("10.0.0.1", 1).With(Params{"healthy": "false"}))
	for _, info := range lists(t, n, s, "", true) {
		require.Empty(t, info.Hosts)
	}
	register(t, n, s.at("10.0.0.1", 2))
	for _, info := range lists(t, n, s, "", true) {
		require.Equal(t, []string{"10.0.0.1:2"}, info.Addrs())
	}
	for _, text := range []string{"yes", "1", "on"} { // only true is true here
		require.Len(t, list(t, n, s.Params().With(Params{"healthyOnly": text})).Hosts, 2, text)
	}
	require.Len(t, list(t, n, s.Params().With(Params{"healthyOnly": "TRUE"})).Hosts, 1)
	// Python's misspelling has no effect.
	c := Connect(t, n.GRPCAddr())
	reply := c.Call(t, "ServiceQueryRequest", s.fields().With(Fields{"cluster": "", "healthOnly": true})).OK(t)
	require.Len(t, reply.ServiceInfo.Hosts, 2)
}
