package client_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"rollcall/client"
	"rollcall/client/clienttest"
	"rollcall/naming"
)

// backend is a gRPC server that counts its calls.
type backend struct {
	instance naming.Instance
	server   *grpc.Server
	calls    atomic.Int64
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := new(backend)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b.instance = naming.NewInstance("127.0.0.1", l.Addr().(*net.TCPAddr).Port)
	b.server = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		b.calls.Add(1)
		return next(ctx, q)
	}))
	healthpb.RegisterHealthServer(b.server, health.NewServer())
	doneCh := make(chan struct{})
	go func() {
		defer close(doneCh)
		_ = b.server.Serve(l)
	}()
	t.Cleanup(func() {
		b.server.Stop()
		<-doneCh
	})
	return b
}

func TestResolver_FollowsInstancesAndWeights(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	one, two, three := newBackend(t), newBackend(t), newBackend(t)
	s := naming.ServiceKey{Group: "shop", Name: "orders"}
	two.instance.Weight = 3
	three.instance.Cluster = "west"
	register := func(list ...naming.Instance) {
		t.Helper()
		require.NoError(t, c.RegisterBatch(bounded(t), s, list))
	}
	register(one.instance, two.instance, three.instance)

	balancer.Register(client.Balancer())
	conn, err := grpc.NewClient("rollcall:///shop/orders?cluster=DEFAULT", grpc.WithResolvers(c.Resolver()),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"`+client.BalancerName+`":{}}]}`))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	stub := healthpb.NewHealthClient(conn)
	call := func() error {
		_, err := stub.Check(bounded(t), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		return err
	}
	share := func() float64 {
		a, b := one.calls.Load(), two.calls.Load()
		for range 400 {
			require.NoError(t, call())
		}
		return float64(two.calls.Load()-b) / float64(one.calls.Load()-a+two.calls.Load()-b)
	}
	require.NoError(t, call())
	require.Eventually(t, func() bool { return share() > 0.6 }, soon, time.Millisecond, "three of four calls")
	require.Zero(t, three.calls.Load(), "of another cluster")

	two.instance.Weight = 1.0 / 3
	register(one.instance, two.instance)
	require.Eventually(t, func() bool { return share() < 0.4 }, soon, time.Millisecond, "one of four calls")

	register(one.instance)
	require.Eventually(t, func() bool { return share() == 0 }, soon, time.Millisecond)
	register()
	require.Eventually(t, func() bool {
		_, err := stub.Check(bounded(t), &healthpb.HealthCheckRequest{})
		return status.Code(err) == codes.Unavailable
	}, soon, time.Millisecond)
	register(two.instance)
	require.NoError(t, call())
}

func TestResolver_BadTargets(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	for _, target := range []string{"rollcall:///", "rollcall:///a/b/c", "rollcall://host/orders", "rollcall:///orders?zone=a", "rollcall:///or%20ders"} {
		conn, err := grpc.NewClient(target, grpc.WithResolvers(c.Resolver()), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err == nil {
			_, err = healthpb.NewHealthClient(conn).Check(bounded(t), &healthpb.HealthCheckRequest{})
			require.NoError(t, conn.Close())
		}
		require.Error(t, err, target)
	}
}

func TestTransport_SendsToInstances(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Host+" "+r.URL.Path+" "+string(body))
	}))
	t.Cleanup(server.Close)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	here := naming.NewInstance("127.0.0.1", port)
	require.NoError(t, c.Register(bounded(t), svc("orders"), here))
	require.NoError(t, c.Register(bounded(t), naming.ServiceKey{Group: "shop", Name: "orders"}, here))

	inner := &http.Transport{DisableKeepAlives: true}
	h := &http.Client{Transport: c.Transport(inner)}
	post := func(url string) (string, error) {
		r, err := http.NewRequestWithContext(bounded(t), http.MethodPost, url, bytes.NewReader([]byte("text")))
		require.NoError(t, err)
		answer, err := h.Do(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		require.Equal(t, url, answer.Request.URL.String())
		body, err := io.ReadAll(answer.Body)
		return string(body), err
	}
	for url, want := range map[string]string{
		"http://orders/a/b":                             "orders /a/b text",
		"http://orders.shop/c":                          "orders.shop /c text",
		"http://127.0.0.1:" + strconv.Itoa(port) + "/d": "127.0.0.1:" + strconv.Itoa(port) + " /d text",
	} {
		got, err := post(url)
		require.NoError(t, err, url)
		require.Equal(t, want, got)
	}
	_, err := post("http://nobody/")
	require.ErrorIs(t, err, client.ErrNoInstance)

	// An instance that cannot be reached: one more is tried.
	dead := naming.NewInstance("127.0.0.1", 1)
	dead.Weight = 100
	w := subscribed(t, c, svc("orders"), naming.Filter{})
	require.NoError(t, c.Register(bounded(t), svc("orders"), dead))
	w.await(here, dead)
	for range 20 {
		got, err := post("http://orders/e")
		require.NoError(t, err)
		require.Equal(t, "orders /e text", got)
	}
	inner.CloseIdleConnections()
}

func TestHealth_Handler(t *testing.T) {
	node := clienttest.Start(t)
	c := dial(t, config(t, node))
	ask := func() (int, string) {
		w := httptest.NewRecorder()
		c.Health().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health", nil))
		return w.Code, w.Body.String()
	}
	code, text := ask()
	require.Equal(t, 200, code)
	require.Equal(t, "UP\n", text)
	node.Stop(t)
	require.Eventually(t, func() bool { code, text = ask(); return code == 503 }, soon, time.Millisecond)
	require.Equal(t, "DOWN\n", text)
	node.Restart(t)
	require.Eventually(t, func() bool { code, _ = ask(); return code == 200 }, soon, time.Millisecond)
}
