package client_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/client/clienttest"
	"rollcall/naming"
)

func TestMaintain_Services(t *testing.T) {
	node := clienttest.Start(t)
	eachMode(t, func(t *testing.T, mode client.Mode) {
		c := dial(t, configIn(t, mode, node))
		s := svc("shop")
		want := client.Settings{ProtectThreshold: 0.5, Metadata: map[string]string{"owner": "ops"}, Ephemeral: true}
		require.NoError(t, c.CreateService(bounded(t), s, want))
		got, err := c.ServiceSettings(bounded(t), s)
		require.NoError(t, err)
		require.Equal(t, want, got)
		var refusal *client.ServerError
		require.ErrorAs(t, c.CreateService(bounded(t), s, want), &refusal)
		require.Equal(t, 21007, refusal.Code)
		want.ProtectThreshold, want.Metadata = 0, nil
		require.NoError(t, c.UpdateService(bounded(t), s, want))
		got, err = c.ServiceSettings(bounded(t), s)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.NoError(t, c.Register(bounded(t), s, host(1)))
		require.ErrorAs(t, c.DeleteService(bounded(t), s), &refusal)
		require.Equal(t, 21009, refusal.Code)
		require.NoError(t, c.Deregister(bounded(t), s, host(1)))
		require.NoError(t, c.DeleteService(bounded(t), s))
		_, err = c.ServiceSettings(bounded(t), s)
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, 21008, refusal.Code)
		require.Error(t, c.CreateService(bounded(t), svc("a b"), want))
	})
}

func TestMaintain_Instances(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	w := subscribed(t, c, svc("s"), naming.Filter{})
	i := host(1)
	require.NoError(t, c.Register(bounded(t), svc("s"), i))
	w.await(i)
	weight, off, on := 7.5, false, true
	key := i.Key()
	require.NoError(t, c.ChangeInstance(bounded(t), svc("s"), key, naming.Change{Weight: &weight, Metadata: map[string]string{"by": "operator"}}))
	require.Eventually(t, func() bool {
		c := w.last().Changed
		return len(c) == 1 && c[0].Weight == 7.5 && c[0].Metadata["by"] == "operator"
	}, soon, time.Millisecond)
	require.NoError(t, c.ChangeInstance(bounded(t), svc("s"), key, naming.Change{Enabled: &off}))
	w.await()
	require.NoError(t, c.ChangeInstance(bounded(t), svc("s"), naming.InstanceKey{IP: key.IP, Port: key.Port}, naming.Change{Enabled: &on}))
	w.await(i)
	require.InDelta(t, 7.5, w.last().Service.Instances[0].Weight, 0)
	var refusal *client.ServerError
	err := c.ChangeInstance(bounded(t), svc("s"), naming.InstanceKey{IP: "10.9.9.9", Port: 9}, naming.Change{Enabled: &on})
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, 404, refusal.Status)
}

// Servers of 3.x may have their own paths alone, servers of 1.x have no v2.
func TestMaintain_OtherServers(t *testing.T) {
	var offered string
	var asked []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		answer := func(text string) { _, _ = w.Write([]byte(text)) }
		switch path := r.URL.Path; {
		case path == "/nacos/v1/ns/operator/metrics":
			answer(`{"status":"UP"}`)
		case offered == "v1" && path == "/nacos/v1/ns/service":
			answer(`{"name":"s","protectThreshold":"0.25","metadata":{"a":1}}`)
		case offered == "v3" && (path == "/nacos/v3/admin/ns/service" || path == "/nacos/v3/admin/ns/instance"):
			answer(`{"code":0,"message":"success","data":{"protectThreshold":0.25,"metadata":{"a":"1"},"weight":4.0,"enabled":false}}`)
		case offered == "v3" && path == "/nacos/v3/admin/ns/instance/partial":
			asked = append(asked, r.Form.Get("weight")+" "+r.Form.Get("enabled")+" "+r.Form.Get("metadata"))
			answer(`{"code":0,"message":"success","data":"ok"}`)
		case offered == "v1":
			w.WriteHeader(http.StatusNotFound)
		default:
			w.WriteHeader(http.StatusGone)
		}
	}))
	t.Cleanup(s.Close)
	cfg := config(t)
	cfg.Servers, cfg.Mode = []string{s.URL}, client.ModeHTTP
	for _, offered = range []string{"v1", "v3"} {
		c := dial(t, cfg)
		got, err := c.ServiceSettings(bounded(t), svc("s"))
		require.NoError(t, err, offered)
		require.Equal(t, client.Settings{ProtectThreshold: 0.25, Metadata: map[string]string{"a": "1"}}, got)
		if offered == "v3" {
			on := true
			require.NoError(t, c.ChangeInstance(bounded(t), svc("s"), naming.InstanceKey{IP: "10.0.0.1", Port: 1}, naming.Change{Enabled: &on}))
			require.Equal(t, []string{"4 true "}, asked)
		}
		require.NoError(t, c.Close())
	}
	offered = ""
	c := dial(t, cfg)
	require.ErrorIs(t, c.DeleteService(bounded(t), svc("s")), client.ErrUnsupported)
}
