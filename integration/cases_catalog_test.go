package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sections B, D and E of the cases where they ask the catalog, the operators' lists
// and the namespaces, in every version of the API.

// search is one way to look for services: by a part of the name and of the group, from
// a page. It returns the grouped names on the page, and how many fit.
type search struct {
	name string
	find func(t *testing.T, n *Node, namespace, name, group string, page, size int) (found []string, total int)
}

func searches() []search {
	type row struct{ Name, GroupName string }
	names := func(rows []row) []string {
		found := []string{}
		for _, r := range rows {
			found = append(found, r.GroupName+"@@"+r.Name)
		}
		return found
	}
	params := func(namespace, name, group string, page, size int) Params {
		return Params{
			"namespaceId": namespace, "serviceNameParam": name, "groupNameParam": group,
			"pageNo": fmt.Sprint(page), "pageSize": fmt.Sprint(size),
		}
	}
	out := []search{{"v1", func(t *testing.T, n *Node, namespace, name, group string, page, size int) ([]string, int) {
		t.Helper()
		resp := n.Do(t, http.MethodGet, "/nacos/v1/ns/catalog/services", params(namespace, name, group, page, size))
		require.Equal(t, http.StatusOK, resp.Status, resp.Body)
		var got struct {
			Count       int
			ServiceList []row
		}
		resp.JSON(t, &got)
		return names(got.ServiceList), got.Count
	}}}
	for _, path := range []string{"/nacos/v3/admin/ns/service/list", "/v3/console/ns/service/list"} {
		out = append(out, search{path, func(t *testing.T, n *Node, namespace, name, group string, page, size int) ([]string, int) {
			t.Helper()
			resp := n.Do(t, http.MethodGet, path, params(namespace, name, group, page, size))
			require.Equal(t, http.StatusOK, resp.Status, resp.Body)
			var got struct {
				TotalCount, PageNumber int
				PageItems              []row
			}
			require.NoError(t, json.Unmarshal(resp.Result(t).Data, &got))
			require.Equal(t, page, got.PageNumber)
			return names(got.PageItems), got.TotalCount
		}})
	}
	return out
}

func eachSearch(t *testing.T, run func(t *testing.T, n *Node, s search)) {
	t.Helper()
	for _, s := range searches() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			run(t, sharedNode(t), s)
		})
	}
}

func TestC013_TrailingSpaceInSearch(t *testing.T) {
	t.Parallel()
	eachSearch(t, func(t *testing.T, n *Node, s search) {
		at := newNamespace(t)
		at.Name = "svc-a"
		register(t, n, at.at("10.0.0.1", 1))
		for _, text := range []string{"svc-a ", " svc-a", "\tsvc-a\n", "vc-", "svc-a", "", " "} {
			found, total := s.find(t, n, at.Namespace, text, "", 1, 10)
			require.Equal(t, []string{"DEFAULT_GROUP@@svc-a"}, found, "%q", text)
			require.Equal(t, 1, total)
		}
		found, _ := s.find(t, n, at.Namespace, "svc a", "", 1, 10)
		require.Empty(t, found, "blanks within are no part of a name")
		found, _ = s.find(t, n, at.Namespace, "", " DEFAULT_GROUP ", 1, 10)
		require.Len(t, found, 1)
	})
}

func TestC015_GroupSearchAndLiteralTexts(t *testing.T) {
	t.Parallel()
	eachSearch(t, func(t *testing.T, n *Node, s search) {
		at := newNamespace(t)
		at.Group, at.Name = "G1", "A-B"
		register(t, n, at.at("10.0.0.1", 1))
		for _, c := range []struct {
			name, group string
			found       int
		}{
			{"", "-", 0},
			{"", "G1", 1},
			{"", "G1@@A", 0},
			{"G1", "", 0},
			{"A-B", "G1", 1},
			{".", "", 0},
			{"A.B", "", 0},
			{"*", "", 0},
			{".*", ".*", 0},
			{"[", "", 0},
			{"(", "", 0},
			{`\`, "", 0},
			{"a-b", "", 0},
		} {
			found, total := s.find(t, n, at.Namespace, c.name, c.group, 1, 10)
			require.Len(t, found, c.found, "name %q, group %q", c.name, c.group)
			require.Equal(t, c.found, total)
		}
		for _, expr := range []string{"[", "*", "("} {
			resp := n.Do(t, http.MethodGet, "/nacos/v1/ns/service/names", Params{"namespaceId": at.Namespace, "expr": expr})
			require.Equal(t, http.StatusOK, resp.Status, resp.Body)
			require.Contains(t, resp.Body, `"count":0`)
		}
	})
}

func TestC017_NamespacePublic(t *testing.T) {
	t.Parallel()
	n := StartNode(t) // namespaces are listed as a whole
	for _, create := range []struct{ path, id string }{
		{"/nacos/v1/console/namespaces", "customNamespaceId"},
		{"/nacos/v2/console/namespace", "namespaceId"},
		{"/nacos/v3/admin/core/namespace", "namespaceId"},
		{"/v3/console/core/namespace", "customNamespaceId"},
	} {
		resp := n.Do(t, http.MethodPost, create.path, Params{create.id: "public", "namespaceName": "second"})
		if create.path == "/nacos/v1/console/namespaces" {
			require.Equal(t, "false", resp.Body)
		} else {
			require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
			require.Equal(t, 22002, resp.Result(t).Code)
		}
		for _, path := range []string{"/nacos/v1/console/namespaces", "/nacos/v2/console/namespace/list", "/nacos/v3/admin/core/namespace/list"} {
			var all struct {
				Data []struct{ NamespaceShowName string }
			}
			n.Do(t, http.MethodGet, path, nil).JSON(t, &all)
			require.Len(t, all.Data, 1, path)
			require.Equal(t, "public", all.Data[0].NamespaceShowName)
		}
	}
	for _, path := range []string{"/nacos/v1/console/namespaces", "/nacos/v2/console/namespace", "/nacos/v3/admin/core/namespace"} {
		require.Equal(t, http.StatusOK, n.Do(t, http.MethodDelete, path, Params{"namespaceId": "public"}).Status)
		require.Equal(t, http.StatusOK, n.Do(t, http.MethodGet, "/nacos/v3/admin/core/namespace", Params{"namespaceId": "public"}).Status, "it stays")
	}
}

func TestC019_NamespaceIDsWithBlanks(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for _, id := range []string{"dev ", " dev", "d v", "dev\t", "d.v", repeated(65)} {
		for path, name := range map[string]string{
			"/nacos/v1/console/namespaces":   "customNamespaceId",
			"/nacos/v2/console/namespace":    "namespaceId",
			"/nacos/v3/admin/core/namespace": "namespaceId",
			"/v3/console/core/namespace":     "customNamespaceId",
		} {
			resp := n.Do(t, http.MethodPost, path, Params{name: id, "namespaceName": "n"})
			require.Equal(t, http.StatusBadRequest, resp.Status, "%s %q: %s", path, id, resp.Body)
		}
		require.NotContains(t, n.Do(t, http.MethodGet, "/nacos/v2/console/namespace/list", nil).Body, `"`+id+`"`)
	}
}

func TestNamespaces_SurviveARestart(t *testing.T) {
	t.Parallel()
	n := StartNode(t)
	requireResultTrue(t, n.Do(t, http.MethodPost, "/nacos/v2/console/namespace", Params{"namespaceId": "dev", "namespaceName": "Dev", "namespaceDesc": "d"}))
	n.Kill(t)
	n.Restart(t)
	resp := n.Do(t, http.MethodGet, "/nacos/v3/admin/core/namespace", Params{"namespaceId": "dev"})
	require.Contains(t, resp.Body, `"namespaceShowName":"Dev","namespaceDesc":"d"`)
}

func requireResultTrue(t *testing.T, r Response) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.Status, r.Body)
	require.JSONEq(t, "true", string(r.Result(t).Data))
}

func TestC045_ThresholdWithASelector(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	// Without a CMDB a selector lets every host pass: then both numbers are of all.
	createService(t, n, s, Params{"protectThreshold": "0.7", "selector": `{"type":"label","expression":"CONSUMER.label.zone = PROVIDER.label.zone"}`})
	for port, healthy := range map[string]string{"1": "true", "2": "false"} {
		register(t, n, s.at("10.0.0.1", port).With(Params{"healthy": healthy}))
	}
	info := list(t, n, s.Params().With(Params{"clientIP": "10.9.9.9"}))
	requireHealth(t, info, true, "10.0.0.1:1", "10.0.0.1:2")
}

func TestC051_OperatorsFindDisabledInstances(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	for port := 1; port <= 3; port++ {
		register(t, n, s.at("10.0.0.1", port))
	}
	update(t, n, s.at("10.0.0.1", 2).With(Params{"enabled": "false"}))
	page := Params{"clusterName": "DEFAULT", "pageNo": "1", "pageSize": "10"}
	lists := map[string]func(Response) []Host{
		"/nacos/v1/ns/catalog/instances": func(r Response) (hosts []Host) {
			var got struct{ List []Host }
			r.JSON(t, &got)
			return got.List
		},
		"/nacos/v2/ns/catalog/instances": func(r Response) []Host {
			var got struct{ Instances []Host }
			require.NoError(t, json.Unmarshal(r.Result(t).Data, &got))
			return got.Instances
		},
		"/nacos/v3/admin/ns/instance/list": func(r Response) (hosts []Host) {
			require.NoError(t, json.Unmarshal(r.Result(t).Data, &hosts))
			return hosts
		},
		"/v3/console/ns/instance/list": func(r Response) []Host {
			var got struct{ PageItems []Host }
			require.NoError(t, json.Unmarshal(r.Result(t).Data, &got))
			return got.PageItems
		},
	}
	disabled := func(want int) {
		t.Helper()
		for path, hosts := range lists {
			resp := n.Do(t, http.MethodGet, path, s.Params().With(page))
			require.Equal(t, http.StatusOK, resp.Status, "%s: %s", path, resp.Body)
			all := hosts(resp)
			require.Len(t, all, 3, path)
			require.Len(t, slices.DeleteFunc(all, func(h Host) bool { return h.Enabled }), want, path)
		}
	}
	disabled(1)
	update(t, n, s.at("10.0.0.1", 2).With(Params{"enabled": "true"}))
	disabled(0)
	require.Len(t, list(t, n, s.Params()).Hosts, 3)
}

func TestC055To059_Pages(t *testing.T) {
	t.Parallel()
	eachSearch(t, func(t *testing.T, n *Node, s search) {
		at := newNamespace(t)
		for k := range 12 {
			at.Name = fmt.Sprintf("svc-%02d", k)
			register(t, n, at.at("10.0.0.1", 1))
		}
		for _, c := range []struct{ page, size, found int }{{1, 10, 10}, {2, 10, 2}, {3, 10, 0}, {9, 10, 0}, {1, 12, 12}, {2, 12, 0}, {1, 500, 12}, {2147483647, 2147483647, 0}} {
			found, total := s.find(t, n, at.Namespace, "", "", c.page, c.size)
			require.Len(t, found, c.found, "page %d of %d", c.page, c.size)
			require.Equal(t, 12, total)
		}
	})
	t.Run("below the first", func(t *testing.T) { // the first page, or a refusal
		t.Parallel()
		n := sharedNode(t)
		s := newService(t)
		register(t, n, s.at("10.0.0.1", 1))
		for _, page := range []string{"0", "-1"} {
			p := s.Params().With(Params{"pageNo": page, "pageSize": "10", "clusterName": "DEFAULT", "namespaceId": s.Namespace})
			for _, path := range []string{"/nacos/v1/ns/catalog/services", "/nacos/v1/ns/catalog/instances", "/nacos/v2/ns/catalog/instances"} {
				resp := n.Do(t, http.MethodGet, path, p)
				require.Equal(t, http.StatusOK, resp.Status, resp.Body)
				require.NotContains(t, resp.Body, `[]`, path)
			}
			for _, path := range []string{"/nacos/v3/admin/ns/service/list", "/nacos/v3/admin/ns/service/subscribers", "/v3/console/ns/instance/list"} {
				resp := n.Do(t, http.MethodGet, path, p)
				require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
				require.Equal(t, 20002, resp.Result(t).Code)
			}
		}
	})
}

func TestC061_SubscribersOfTheExactService(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	longer := s
	longer.Name += "1"
	Connect(t, n.GRPCAddr()).Subscribe(t, s, "")
	Connect(t, n.GRPCAddr()).Subscribe(t, longer, "")
	Connect(t, n.GRPCAddr()).Subscribe(t, longer, "")
	count := func(path string, s Service) int {
		t.Helper()
		resp := n.Do(t, http.MethodGet, path, s.Params())
		require.Equal(t, http.StatusOK, resp.Status, resp.Body)
		if path == "/nacos/v2/ns/client/service/subscriber/list" || path == "/nacos/v3/admin/ns/client/service/subscriber/list" {
			var clients []struct{ ClientID string }
			require.NoError(t, json.Unmarshal(resp.Result(t).Data, &clients))
			return len(clients)
		}
		var got struct {
			Count, TotalCount int
		}
		if path == "/nacos/v1/ns/service/subscribers" {
			resp.JSON(t, &got)
		} else {
			require.NoError(t, json.Unmarshal(resp.Result(t).Data, &got))
		}
		return got.Count + got.TotalCount
	}
	for _, path := range []string{"/nacos/v1/ns/service/subscribers", "/nacos/v3/admin/ns/service/subscribers", "/nacos/v2/ns/client/service/subscriber/list", "/nacos/v3/admin/ns/client/service/subscriber/list"} {
		require.Equal(t, 1, count(path, s), path)
	}
	require.Equal(t, 2, count("/nacos/v2/ns/client/service/subscriber/list", longer), "two clients of one address are two")
}
