package clienttest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server"
)

// Node is a node that runs in the test's process. Its methods are safe for concurrent
// use; those that take t fail the test where something does not work.
type Node struct {
	cfg  server.Config
	log  *slog.Logger
	port int
	tls  *tls.Config
	gate *gateway
	web  *http.Server
	wg   sync.WaitGroup

	mu   sync.Mutex
	node *server.Node // nil while it is stopped
}

// Option changes how a node is made.
type Option func(*Node)

// WithConfig lets change alter the node's settings. Bind, Port and DataDir stay what
// they are.
func WithConfig(change func(*server.Config)) Option { return func(n *Node) { change(&n.cfg) } }

// WithLogger gives the node a logger; without it nothing is logged.
func WithLogger(log *slog.Logger) Option { return func(n *Node) { n.log = log } }

// WithTLS lets the node take gRPC over TLS alone. HTTP stays plain text.
func WithTLS(cfg *tls.Config) Option {
	return func(n *Node) {
		n.tls = cfg.Clone()
		n.tls.NextProtos = []string{"h2"}
	}
}

// readyTimeout bounds the start of a node.
const readyTimeout = 20 * time.Second

// portTries is how often ports are looked for.
const portTries = 100

// grpcOffset is the distance of the two ports that clients know (grpc.md 1.3).
const grpcOffset = 1000

// Start starts a node that ends with the test. It blocks until the node serves.
func Start(t testing.TB, options ...Option) *Node {
	t.Helper()
	n := &Node{cfg: server.DefaultConfig(), log: slog.New(slog.DiscardHandler)}
	for _, o := range options {
		o(n)
	}
	n.cfg.Node, n.cfg.Bind, n.cfg.Port, n.cfg.DataDir = "clienttest", "127.0.0.1", 0, t.TempDir()
	web, calls, err := listenPair()
	require.NoError(t, err)
	n.port = web.Addr().(*net.TCPAddr).Port
	n.gate = newGateway(n.backend)
	n.gate.tls = n.tls
	n.web = &http.Server{Handler: n.forward(), ReadHeaderTimeout: readyTimeout, ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug)}
	t.Cleanup(func() { n.Close(t) })
	n.wg.Go(func() { _ = n.web.Serve(n.gate.listen(web)) })
	n.wg.Go(func() { _ = n.gate.server.Serve(calls) })
	n.Restart(t)
	return n
}

// listenPair listens on two ports at the distance that clients expect.
func listenPair() (web, calls net.Listener, err error) {
	for range portTries {
		port := 21000 + rand.IntN(9000)
		ctx, config := context.Background(), net.ListenConfig{}
		if web, err = config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err != nil {
			continue
		}
		if calls, err = config.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+grpcOffset))); err == nil {
			return web, calls, nil
		}
		_ = web.Close()
	}
	return nil, nil, fmt.Errorf("find two free ports: %w", err)
}

// Addr returns the node's address for client.Config.Servers. It stays the same over
// Restart.
func (n *Node) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }

// Port returns the main port, on 127.0.0.1.
func (n *Node) Port() int { return n.port }

// backend returns where the node behind the gateway listens for gRPC; empty while it is
// stopped.
func (n *Node) backend() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.node == nil {
		return ""
	}
	return n.node.GRPCAddr()
}

// forward hands HTTP to the node.
func (n *Node) forward() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			host := "127.0.0.1:0" // refused
			n.mu.Lock()
			if n.node != nil {
				host = n.node.HTTPAddr()
			}
			n.mu.Unlock()
			r.SetURL(&url.URL{Scheme: "http", Host: host})
		},
		Transport: &http.Transport{DisableKeepAlives: true},
		ErrorLog:  slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
}

// Close ends the node and closes all connections. Closing again does nothing.
func (n *Node) Close(t testing.TB) {
	t.Helper()
	n.gate.freeze(false)
	n.Stop(t)
	n.gate.close()
	_ = n.web.Close()
	n.wg.Wait()
}

// Stop breaks all connections and ends the node, as if its process had been killed.
// Connections to its address are refused or broken until Restart.
func (n *Node) Stop(t testing.TB) {
	t.Helper()
	n.mu.Lock()
	node := n.node
	n.node = nil
	n.mu.Unlock()
	n.gate.drop()
	if node != nil {
		require.NoError(t, node.Close())
	}
}

// Restart starts the node, after a Stop if it runs, with the data that it had. It
// blocks until the node serves. Ephemeral instances are gone, as after any restart.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.Stop(t)
	node, err := server.New(n.cfg, "clienttest", n.log)
	for tries := 1; err != nil && tries < portTries && errors.Is(err, syscall.EADDRINUSE); tries++ {
		node, err = server.New(n.cfg, "clienttest", n.log) // a port that is free for TCP may be taken for UDP
	}
	require.NoError(t, err)
	if err := node.Start(); err != nil {
		require.NoError(t, node.Close())
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return node.Ready() == nil }, readyTimeout, 5*time.Millisecond)
	n.mu.Lock()
	n.node = node
	n.mu.Unlock()
}

// Drop breaks all connections of clients; they may come back at once.
func (n *Node) Drop() { n.gate.drop() }

// Freeze lets nothing through in either direction until Thaw: connections stay open, as
// to a paused process or through a broken network.
func (n *Node) Freeze() { n.gate.freeze(true) }

// Thaw ends Freeze.
func (n *Node) Thaw() { n.gate.freeze(false) }

// DelayPushes holds each push over gRPC back for a while; 0 ends that for pushes to
// come.
func (n *Node) DelayPushes(d time.Duration) { n.gate.delay.Store(int64(d)) }

// Move asks all clients that are connected over gRPC to go to another node; to nil means
// to any other.
func (n *Node) Move(to *Node) {
	port := ""
	if to != nil {
		port = strconv.Itoa(to.port)
	}
	n.gate.move(port)
}

// Answer gives the next count calls of a type over gRPC an error of the protocol's
// connection level in place of what the node would say, such as 301 for an unknown
// connection; the node does not see them. An empty type means any. It replaces what an
// earlier call said of the type; count 0 ends it.
func (n *Node) Answer(typ string, count, code int) { n.gate.answer(typ, count, code) }

// Rewrite lets a function replace what the node says over gRPC, answers and pushes: it is
// given the type and the JSON of each message, and returns those that are sent. nil ends
// that. It is called from many goroutines.
func (n *Node) Rewrite(rewrite func(typ string, body []byte) (string, []byte)) {
	if rewrite == nil {
		n.gate.rewrite.Store(nil)
		return
	}
	n.gate.rewrite.Store(&rewrite)
}

// Calls returns how many calls of a type came over gRPC.
func (n *Node) Calls(typ string) int { return n.gate.count(typ) }

// Connections returns how many connections of clients over gRPC there are.
func (n *Node) Connections() int { return n.gate.connections() }

// Hide takes an instance out of the lists that clients see, as an operator does who
// disables it. The instance must be registered.
func (n *Node) Hide(t testing.TB, svc naming.ServiceKey, i naming.InstanceKey) {
	t.Helper()
	n.enable(t, svc, i, false)
}

// Show ends Hide.
func (n *Node) Show(t testing.TB, svc naming.ServiceKey, i naming.InstanceKey) {
	t.Helper()
	n.enable(t, svc, i, true)
}

func (n *Node) enable(t testing.TB, svc naming.ServiceKey, i naming.InstanceKey, on bool) {
	t.Helper()
	form := url.Values{
		"namespaceId": {svc.Namespace}, "groupName": {svc.Group}, "serviceName": {svc.Name},
		"ip": {i.IP}, "port": {strconv.Itoa(i.Port)}, "clusterName": {i.Cluster}, "enabled": {strconv.FormatBool(on)},
	}
	n.mu.Lock()
	node := n.node
	n.mu.Unlock()
	require.NotNil(t, node, "the node is stopped")
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPatch, "http://"+node.HTTPAddr()+"/nacos/v1/ns/instance", strings.NewReader(form.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s", text)
}
