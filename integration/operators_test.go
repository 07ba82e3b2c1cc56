package integration

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// onAll waits until every node answers a request so that ok holds.
func (c *Cluster) onAll(t *testing.T, path string, p Params, ok func(body string) bool) {
	t.Helper()
	for _, n := range c.Nodes {
		require.Eventually(t, func() bool {
			return ok(n.Do(t, http.MethodGet, path, p).Body)
		}, 10*time.Second, 20*time.Millisecond, "%s of %s", path, n.name)
	}
}

// Namespaces, switches and settings of clusters are written on one node and are those
// of all, also of one that was restarted.
func TestOperators_WhatOneNodeIsToldAllHave(t *testing.T) {
	c := StartCluster(t, 3)
	n1, n2, n3 := c.Nodes[0], c.Nodes[1], c.Nodes[2]
	ok := func(r Response) {
		t.Helper()
		require.Equal(t, http.StatusOK, r.Status, r.Body)
	}
	svc := newService(t)
	register(t, n2, persistent(svc.at("10.0.0.1", 80)))
	settings := svc.Params()
	ok(n1.Do(t, http.MethodPost, "/nacos/v1/console/namespaces", Params{"customNamespaceId": "dev", "namespaceName": "Dev"}))
	ok(n2.Do(t, http.MethodPut, "/nacos/v1/ns/operator/switches", Params{"entry": "clientBeatInterval", "value": "7000"}))
	settings["clusterName"], settings["checkPort"], settings["useInstancePort4Check"] = "DEFAULT", "81", "false"
	settings["healthChecker"], settings["metadata"] = `{"type":"NONE"}`, "zone=east"
	ok(n3.Do(t, http.MethodPut, "/nacos/v1/ns/cluster", settings))
	n1.Restart(t)

	c.onAll(t, "/nacos/v2/console/namespace/list", nil, func(body string) bool {
		var got struct {
			Data []struct{ Namespace, NamespaceShowName string }
		}
		return json.Unmarshal([]byte(body), &got) == nil && len(got.Data) == 2 && got.Data[1].Namespace == "dev" && got.Data[1].NamespaceShowName == "Dev"
	})
	c.onAll(t, "/nacos/v1/ns/operator/switches", nil, func(body string) bool {
		var got struct{ ClientBeatInterval int }
		return json.Unmarshal([]byte(body), &got) == nil && got.ClientBeatInterval == 7000
	})
	c.onAll(t, "/nacos/v1/ns/catalog/service", svc.Params(), func(body string) bool {
		var got struct {
			Clusters []struct {
				DefaultCheckPort int
				HealthChecker    struct{ Type string }
				Metadata         map[string]string
			}
		}
		return json.Unmarshal([]byte(body), &got) == nil && len(got.Clusters) == 1 && got.Clusters[0].DefaultCheckPort == 81 &&
			got.Clusters[0].HealthChecker.Type == "NONE" && got.Clusters[0].Metadata["zone"] == "east"
	})
	c.onAll(t, "/nacos/v1/core/cluster/nodes", nil, func(body string) bool {
		var got struct {
			Data []struct{ Address, State string }
		}
		if json.Unmarshal([]byte(body), &got) != nil || len(got.Data) != 3 {
			return false
		}
		for _, m := range got.Data {
			if m.State != "UP" || !slices.ContainsFunc(c.Nodes, func(n *Node) bool { return n.Addr() == m.Address }) {
				return false
			}
		}
		return true
	})
}

// Any node has another one, which has more clients than its share, send some away.
func TestOperators_ClientsAreSpread(t *testing.T) {
	c := StartCluster(t, 3, WithArgs("--move-rate", "0"))
	crowded, asked := c.Nodes[0], c.Nodes[2]
	conns := make([]*Conn, 30)
	for k := range conns {
		conns[k] = Connect(t, crowded.GRPCAddr())
	}
	c.onAll(t, "/nacos/v2/core/loader/cluster", nil, func(body string) bool {
		var got struct{ Max, Total int }
		return json.Unmarshal([]byte(body), &got) == nil && got.Max == 30 && got.Total == 30
	})
	r := asked.Do(t, http.MethodGet, "/nacos/v2/core/loader/smartReloadCluster", Params{"loaderFactor": "0"})
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	told := make(map[string]int)
	for _, conn := range conns {
		for {
			m, any := conn.next(time.Second)
			if !any {
				break
			}
			if m.Type != "ConnectResetRequest" {
				continue
			}
			var to struct{ ServerIP, ServerPort string }
			require.NoError(t, json.Unmarshal(m.Body, &to))
			told[net.JoinHostPort(to.ServerIP, to.ServerPort)]++
			break
		}
	}
	require.Equal(t, map[string]int{c.Nodes[1].Addr(): 10, c.Nodes[2].Addr(): 10}, told)
}
