package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"rollcall/client"
	"rollcall/client/clienttest"
	"rollcall/naming"
	"rollcall/server/wire"
)

// once returns a rewrite that replaces the first message of a type.
func once(typ string, replace func(body string) (string, string)) func(string, []byte) (string, []byte) {
	var mu sync.Mutex
	done := false
	return func(t string, body []byte) (string, []byte) {
		mu.Lock()
		defer mu.Unlock()
		if t != typ || done {
			return t, body
		}
		done = true
		newType, text := replace(string(body))
		return newType, []byte(text)
	}
}

// Whatever a server says in answer to a registration or a subscription that is no
// success and no refusal, it is asked again.
func TestMisbehaviour_AnswersThatAreNone(t *testing.T) {
	for name, replace := range map[string]func(string) (string, string){
		"wrong type": func(body string) (string, string) { return "HealthCheckResponse", body },
		"no type":    func(body string) (string, string) { return "", body },
		"no JSON":    func(string) (string, string) { return wire.TypeInstanceAnswer, "<html>" },
		"cut off":    func(body string) (string, string) { return wire.TypeInstanceAnswer, body[:len(body)/2] },
		"empty":      func(string) (string, string) { return wire.TypeInstanceAnswer, "" },
		"a list":     func(string) (string, string) { return wire.TypeInstanceAnswer, "[]" },
		"code text":  func(string) (string, string) { return wire.TypeInstanceAnswer, `{"resultCode":"ok"}` },
	} {
		t.Run(name, func(t *testing.T) {
			node := clienttest.Start(t)
			c := dial(t, config(t, node))
			node.Rewrite(once(wire.TypeInstanceAnswer, replace))
			require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
			require.GreaterOrEqual(t, node.Calls(wire.TypeInstance), 2)
			node.Rewrite(once(wire.TypeSubscribeAnswer, func(body string) (string, string) {
				typ, body := replace(body)
				return strings.ReplaceAll(typ, wire.TypeInstanceAnswer, wire.TypeSubscribeAnswer), body
			}))
			subscribed(t, c, svc("s"), naming.Filter{}).await(host(1))
		})
	}
}

func TestMisbehaviour_Pushes(t *testing.T) {
	lastRef := regexp.MustCompile(`"lastRefTime":\d+`)
	for name, c := range map[string]struct {
		rewrite func(body string) (string, string)
		// what the subscriber must see in the end is what the node has
	}{
		"no JSON":    {func(string) (string, string) { return wire.TypeNotifySubscriber, "{" }},
		"no service": {func(string) (string, string) { return wire.TypeNotifySubscriber, `{"requestId":"1"}` }},
		"null": {func(string) (string, string) {
			return wire.TypeNotifySubscriber, `{"requestId":"1","serviceInfo":null}`
		}},
		"hosts of wrong shape": {func(body string) (string, string) {
			return wire.TypeNotifySubscriber, strings.Replace(body, `"hosts":[`, `"hosts":[7,`, 1)
		}},
		"unknown type": {func(body string) (string, string) { return "SomethingElseRequest", body }},
		"clock went back": {func(body string) (string, string) {
			return wire.TypeNotifySubscriber, lastRef.ReplaceAllString(body, `"lastRefTime":1`)
		}},
		"number as id": {func(body string) (string, string) {
			return wire.TypeNotifySubscriber, regexp.MustCompile(`"requestId":"(\d+)"`).ReplaceAllString(body, `"requestId":$1`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // the client waits most of the time
			node := clienttest.Start(t)
			cl := dial(t, config(t, node))
			w := subscribed(t, cl, svc("s"), naming.Filter{})
			require.NoError(t, cl.Register(bounded(t), svc("s"), host(1)))
			w.await(host(1))
			node.Rewrite(once(wire.TypeNotifySubscriber, c.rewrite))
			require.NoError(t, cl.Register(bounded(t), svc("s"), host(2)))
			if name == "unknown type" { // nobody acknowledges it: the server sends again
				require.NoError(t, cl.Register(bounded(t), svc("s"), host(3)))
				w.await(host(1), host(2), host(3))
				return
			}
			w.await(host(1), host(2))
			require.Zero(t, w.removals())
		})
	}
}

// A push of nulls and strings in place of numbers is read for what it means.
func TestMisbehaviour_NullsAndTexts(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	w := subscribed(t, c, svc("s"), naming.Filter{})
	node.Rewrite(func(typ string, body []byte) (string, []byte) {
		text := strings.NewReplacer(`"checksum":""`, `"checksum":null`, `"port":80`, `"port":"80"`, `"metadata":{}`, `"metadata":null`, `"clusters":""`, `"clusters":null`).Replace(string(body))
		return typ, []byte(text)
	})
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	w.await(host(1))
	require.NoError(t, c.Deregister(bounded(t), svc("s"), host(1)))
	w.await()
}

// A server that opens connections and drops them again is not asked without end.
func TestMisbehaviour_ServerThatDropsConnections(t *testing.T) {
	node := clienttest.Start(t)
	cfg := config(t, node)
	cfg.BackoffMin, cfg.BackoffMax = 20*time.Millisecond, 300*time.Millisecond
	c := dial(t, cfg)
	stop := time.After(1500 * time.Millisecond)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for dropping := true; dropping; {
		select {
		case <-stop:
			dropping = false
		case <-tick.C:
			node.Drop()
		}
	}
	require.Less(t, node.Calls(wire.TypeServerCheck), 40)
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
}

// Servers before 2.3 acknowledge no setup and have no abilities: the client waits a
// moment, and goes to HTTP for persistent instances.
func TestClient_ServersWithoutAbilities(t *testing.T) {
	node := clienttest.Start(t)
	node.Rewrite(func(typ string, body []byte) (string, []byte) {
		if typ == wire.TypeServerCheckAnswer {
			body = []byte(strings.Replace(string(body), `,"supportAbilityNegotiation":true`, "", 1))
		}
		return typ, body // the acknowledgement comes all the same, unasked
	})
	c := dial(t, config(t, node))
	w := subscribed(t, c, svc("s"), naming.Filter{})
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	w.await(host(1))
	p := host(2)
	p.Ephemeral = false
	require.NoError(t, c.Register(bounded(t), svc("ledger"), p))
	require.Zero(t, node.Calls(wire.TypePersistentInstance))
	list, err := c.Instances(bounded(t), svc("ledger"), naming.Filter{})
	require.NoError(t, err)
	require.Len(t, list.Instances, 1)
	require.NoError(t, c.Deregister(bounded(t), svc("ledger"), p))
	_, err = c.Watch(bounded(t), "", "*", func(client.ServicesChange) {})
	require.ErrorIs(t, err, client.ErrUnsupported)
}

func TestClient_TLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // has a certificate for 127.0.0.1
	t.Cleanup(web.Close)
	node := clienttest.Start(t, clienttest.WithTLS(&tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}))
	pool := x509.NewCertPool()
	pool.AddCert(web.Certificate())
	cfg := config(t, node)
	cfg.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	c := dial(t, cfg)
	w := subscribed(t, c, svc("s"), naming.Filter{})
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	w.await(host(1))
	node.Drop()
	require.NoError(t, c.Register(bounded(t), svc("s"), host(2)))
	w.await(host(1), host(2))

	cfg.ConnectWait = 50 * time.Millisecond
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12} // does not know the certificate
	require.Equal(t, client.Down, dial(t, cfg).Status())
	cfg.TLS = nil
	require.Equal(t, client.Down, dial(t, cfg).Status())
}

// Close leaves nothing behind, whatever went on before.
func TestClient_CloseLeavesNoGoroutines(t *testing.T) {
	eachMode(t, func(t *testing.T, mode client.Mode) {
		before := goleak.IgnoreCurrent()
		node := clienttest.Start(t)
		cfg := configIn(t, mode, node)
		cfg.CacheDir, cfg.LoadCacheAtStart = t.TempDir(), true
		for range 3 {
			c, err := client.New(t.Context(), cfg)
			require.NoError(t, err)
			for n := range 20 {
				require.NoError(t, c.Register(bounded(t), name(n), host(n)))
				_, err := c.SubscribeChan(bounded(t), name(n), naming.Filter{})
				require.NoError(t, err)
			}
			node.Drop()
			_, err = c.Select(bounded(t), name(3), "")
			require.NoError(t, err)
			require.NoError(t, c.Close())
		}
		node.Close(t)
		goleak.VerifyNone(t, before)
	})
}
