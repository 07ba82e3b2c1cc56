package server

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

func TestSearch(t *testing.T) {
	f := newFixture(t)
	f.begin(t)
	other := naming.ServiceKey{Namespace: "dev", Group: "G-2", Name: "a.b"}
	require.NoError(t, f.Register(t.Context(), other, "10.0.0.1:80", host("10.0.0.1")))
	require.NoError(t, f.Register(t.Context(), service("ab"), "10.0.0.1:80", host("10.0.0.1")))
	require.NoError(t, f.CreateService(t.Context(), service("empty"), naming.Settings{}))
	for _, c := range []struct {
		q    naming.Search
		want []naming.ServiceKey
	}{
		{naming.Search{}, []naming.ServiceKey{other, service("ab"), service("empty")}},
		{naming.Search{Namespace: "public"}, []naming.ServiceKey{service("ab"), service("empty")}},
		{naming.Search{Namespace: "nobody"}, nil},
		{naming.Search{NotEmpty: true}, []naming.ServiceKey{other, service("ab")}},
		{naming.Search{Name: " a.b "}, []naming.ServiceKey{other}},
		{naming.Search{Group: "-"}, []naming.ServiceKey{other}},
		{naming.Search{Name: ".*"}, nil},
	} {
		require.Equal(t, c.want, f.Search(c.q), "%+v", c.q)
	}
}

func TestUpdateCluster(t *testing.T) {
	f := newFixture(t)
	f.begin(t)
	c := naming.Cluster{CheckPort: 81, Checker: naming.Checker{Type: naming.CheckNone}}
	fault(t, naming.FaultServiceUnknown, f.UpdateCluster(t.Context(), service("a"), "c", c))
	require.NoError(t, f.Register(t.Context(), service("a"), "10.0.0.1:80", host("10.0.0.1", persistent)))
	for _, bad := range []string{"", " ", "a,b", "a b", strings.Repeat("a", 65)} {
		fault(t, naming.FaultParam, f.UpdateCluster(t.Context(), service("a"), bad, c))
	}
	s, _ := f.Service(service("a"))
	require.Nil(t, s.Settings)
	require.NoError(t, f.UpdateCluster(t.Context(), service("a"), "c_1", c))
	s, _ = f.Service(service("a"))
	require.Equal(t, map[string]*naming.Cluster{"c_1": &c}, s.Clusters)
	require.Equal(t, &naming.Settings{Kind: naming.KindPersistent, Selector: naming.Selector{Type: "none"}}, s.Settings, "protection holds from now on")

	require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", false, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
	require.NoError(t, f.DeleteService(t.Context(), service("a")))
	require.Empty(t, f.router.Services(""), "its clusters went with it")
}

func TestSetHealth(t *testing.T) {
	f := newFixture(t)
	f.begin(t)
	p, e := host("10.0.0.1", persistent), host("10.0.0.2")
	require.NoError(t, f.Register(t.Context(), service("p"), p.Key().Address(), p))
	require.NoError(t, f.Register(t.Context(), service("e"), e.Key().Address(), e))
	fault(t, naming.FaultHealthChecked, f.SetHealth(t.Context(), service("p"), p.Key(), false))
	for _, svc := range []string{"p", "e"} {
		require.NoError(t, f.UpdateCluster(t.Context(), service(svc), "DEFAULT", naming.Cluster{Checker: naming.Checker{Type: naming.CheckTCP}}))
	}
	fault(t, naming.FaultHealthChecked, f.SetHealth(t.Context(), service("p"), p.Key(), false))
	for _, svc := range []string{"p", "e"} {
		require.NoError(t, f.UpdateCluster(t.Context(), service(svc), "DEFAULT", naming.Cluster{Checker: naming.Checker{Type: naming.CheckNone}}))
	}
	fault(t, naming.FaultHealthChecked, f.SetHealth(t.Context(), service("e"), e.Key(), false))
	fault(t, naming.FaultInstanceUnknown, f.SetHealth(t.Context(), service("p"), e.Key(), false))
	fault(t, naming.FaultHealthChecked, f.SetHealth(t.Context(), service("unknown"), e.Key(), false))
	for _, healthy := range []bool{false, true} {
		require.NoError(t, f.SetHealth(t.Context(), service("p"), p.Key(), healthy))
		i, err := f.Instance(service("p"), p.Key())
		require.NoError(t, err)
		require.Equal(t, healthy, i.Healthy)
		require.InDelta(t, p.Weight, i.Weight, 0)
	}
}

func TestNamespaces(t *testing.T) {
	f := newFixture(t)
	f.begin(t)
	ids := func(r *fixture) (out []string) {
		for _, n := range r.Namespaces() {
			out = append(out, n.ID+"="+n.Name)
		}
		return out
	}
	require.Equal(t, []string{"public=public"}, ids(f))
	require.NoError(t, f.CreateNamespace(t.Context(), naming.Namespace{ID: "dev", Name: "Dev"}))
	fault(t, naming.FaultNamespaceExists, f.CreateNamespace(t.Context(), naming.Namespace{ID: "dev", Name: "Dev"}))
	fault(t, naming.FaultNamespaceExists, f.CreateNamespace(t.Context(), naming.Namespace{ID: "public", Name: "second"}))
	fault(t, naming.FaultParam, f.CreateNamespace(t.Context(), naming.Namespace{ID: "a b", Name: "n"}))
	fault(t, naming.FaultParam, f.CreateNamespace(t.Context(), naming.Namespace{ID: "a", Name: "n@"}))
	fault(t, naming.FaultParam, f.CreateNamespace(t.Context(), naming.Namespace{ID: "a", Name: "n", Description: strings.Repeat("d", 257)}))
	require.NoError(t, f.UpdateNamespace(t.Context(), naming.Namespace{ID: "dev", Name: "Other"}))
	fault(t, naming.FaultNamespaceUnknown, f.UpdateNamespace(t.Context(), naming.Namespace{ID: "nobody", Name: "n"}))
	fault(t, naming.FaultNamespace, f.UpdateNamespace(t.Context(), naming.Namespace{ID: "public", Name: "n"}))
	require.Equal(t, []string{"public=public", "dev=Other"}, ids(f))
	require.Equal(t, []string{"public=public", "dev=Other"}, ids(f.reopen(t)), "after a restart")
	require.Empty(t, f.Search(naming.Search{}), "a namespace is no service")

	require.NoError(t, f.CreateNamespace(t.Context(), naming.Namespace{Name: "made up"}))
	made := f.Namespaces()[1] // digits come before letters
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$|^dev$`, made.ID)

	for range 2 {
		require.NoError(t, f.DeleteNamespace(t.Context(), "dev"))
		require.NoError(t, f.DeleteNamespace(t.Context(), "public"))
	}
	_, err := f.Namespace("dev")
	fault(t, naming.FaultNamespaceUnknown, err)
	n, err := f.Namespace("public")
	require.NoError(t, err)
	require.Equal(t, "Default Namespace", n.Description)
	f.persistent.Fail(consistency.ErrNoLeader)
	require.ErrorIs(t, f.CreateNamespace(t.Context(), naming.Namespace{ID: "x", Name: "x"}), consistency.ErrNoLeader)
}

func TestClients(t *testing.T) {
	f := newFixture(t)
	f.begin(t)
	before := time.Now()
	f.connected = func() []naming.Client {
		return []naming.Client{{ID: "1_10.0.0.7_5", Ephemeral: true, Connection: true, App: "shop"}}
	}
	require.NoError(t, f.Register(t.Context(), service("a"), "10.0.0.1:80", host("10.0.0.1")))
	require.NoError(t, f.Register(t.Context(), service("b"), "10.0.0.1:80", host("10.0.0.1")))
	require.NoError(t, f.Register(t.Context(), service("p"), "10.0.0.2:80", host("10.0.0.2", persistent)))
	require.NoError(t, f.RegisterBatch(t.Context(), service("a"), "1_10.0.0.7_5", []*naming.Instance{host("10.0.0.3"), host("10.0.0.4")}))
	require.NoError(t, f.Register(t.Context(), service("a"), "2_10.0.0.8_6", host("10.0.0.5")), "of another node")

	var ids []string
	for _, c := range f.Clients() {
		ids = append(ids, c.ID)
	}
	require.Equal(t, []string{"10.0.0.1:80#true", "10.0.0.2:80#false", "1_10.0.0.7_5", "2_10.0.0.8_6"}, ids)
	c, ok := f.Client("10.0.0.1:80#true")
	require.True(t, ok)
	require.False(t, c.Updated.Before(before.Add(-time.Second)))
	require.Equal(t, []any{true, false, "10.0.0.1", 80}, []any{c.Ephemeral, c.Connection, c.IP, c.Port})
	c, _ = f.Client("1_10.0.0.7_5")
	require.Equal(t, "shop", c.App)
	c, ok = f.Client("2_10.0.0.8_6")
	require.True(t, ok && c.Connection)
	_, ok = f.Client("nobody")
	require.False(t, ok)

	require.Len(t, f.Publishers(service("a")), 4)
	var services []string
	for _, p := range f.PublishedBy("10.0.0.1:80#true") {
		services = append(services, p.Service.Name+" "+p.Instance.IP)
	}
	require.Equal(t, []string{"a 10.0.0.1", "b 10.0.0.1"}, services)
	require.Len(t, f.PublishedBy("1_10.0.0.7_5"), 2)
	require.Empty(t, f.PublishedBy("nobody"))
}

// A client that was asked to move and deregisters over its new connection is gone at
// once, though its former one lingers.
func TestDeregister_EndsTheLingerOfTheFormerConnection(t *testing.T) {
	f := newFixture(t, func(c *Config) { c.Linger, c.MoveLinger = time.Hour, time.Hour })
	f.begin(t)
	svc := service("a")
	require.NoError(t, f.RegisterBatch(t.Context(), svc, "old", []*naming.Instance{host("10.0.0.1"), host("10.0.0.2")}))
	require.NoError(t, f.Register(t.Context(), svc, "other", host("10.0.0.1", cluster("c"))))
	f.ConnectionLost("old", []naming.ServiceKey{svc}, true)
	require.NoError(t, f.Register(t.Context(), svc, "new", host("10.0.0.1")))
	require.NoError(t, f.Deregister(t.Context(), svc, "new", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
	require.Len(t, f.Publishers(svc), 2)
	s, _ := f.Service(svc)
	require.Len(t, s.Instances, 2)
	require.Equal(t, []string{"10.0.0.2", "10.0.0.1"}, []string{s.Instances[0].IP, s.Instances[1].IP}, "what else is there stays")
	require.Equal(t, "c", s.Instances[1].Cluster)
}

func TestLogLevels(t *testing.T) {
	var out strings.Builder
	levels := new(logLevels)
	log := slog.New(levels.handler(slog.NewTextHandler(&out, nil))).With("node", "n")
	http := log.With("component", "http")
	says := func() string {
		out.Reset()
		log.Debug("plain debug")
		log.Info("plain info")
		http.Debug("http debug")
		http.Warn("http warn")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, `msg="`)
			words, _, _ := strings.Cut(rest, `"`)
			got = append(got, words)
		}
		return strings.Join(got, ", ")
	}
	require.Equal(t, "plain info, http warn", says())
	require.NoError(t, levels.set("http", "debug"))
	require.Equal(t, "plain info, http debug, http warn", says())
	require.NoError(t, levels.set("root", "ERROR"))
	require.Equal(t, "http debug, http warn", says())
	require.NoError(t, levels.set("naming-server", "OFF"), "as the original calls it")
	require.Empty(t, says())
	fault(t, naming.FaultValue, levels.set("nobody", "INFO"))
	fault(t, naming.FaultValue, levels.set("http", "loud"))
	require.Empty(t, says())
}
