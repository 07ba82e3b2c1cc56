package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

const ms = time.Millisecond

// registry is a Registry that knows one state of every service, and remembers what
// it was told.
type registry struct {
	mu        sync.Mutex
	populated map[naming.ServiceKey]bool
	calls     []string
	hosts     []*naming.Instance // of every service
	info      map[string]*naming.ServiceInfo
	refTime   int64
	fault     error // of each call that can fail
	notReady  error
	during    func() // runs within each write
}

func newRegistry() *registry { return &registry{info: make(map[string]*naming.ServiceInfo)} }

// set changes the state of all services.
func (r *registry) set(hosts ...*naming.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts = hosts
	clear(r.info)
}

func (r *registry) call(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

func (r *registry) write(format string, args ...any) error {
	r.call(format, args...)
	r.mu.Lock()
	fault, during := r.fault, r.during
	r.mu.Unlock()
	if during != nil {
		during()
	}
	return fault
}

func (r *registry) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = err
}

// told returns the calls since it was called last, with "conn" for the id of any
// connection.
func (r *registry) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.calls
	r.calls = nil
	return out
}

func show(i *naming.Instance) string {
	return fmt.Sprintf("{id=%q %s %s w=%v healthy=%v enabled=%v ephemeral=%v %v}", i.ID, i.Key().Address(), i.Cluster, i.Weight, i.Healthy, i.Enabled, i.Ephemeral, i.Metadata)
}

func (r *registry) Register(_ context.Context, svc naming.ServiceKey, publisher string, instances ...*naming.Instance) error {
	return r.write("Register %s %s %s", svc, publisher, show(instances[0]))
}

func (r *registry) RegisterBatch(_ context.Context, svc naming.ServiceKey, publisher string, instances []*naming.Instance) error {
	var all []string
	for _, i := range instances {
		all = append(all, show(i))
	}
	return r.write("RegisterBatch %s %s [%s]", svc, publisher, strings.Join(all, " "))
}

func (r *registry) Deregister(_ context.Context, svc naming.ServiceKey, publisher string, ephemeral bool, k naming.InstanceKey) error {
	return r.write("Deregister %s %s ephemeral=%v %q %d", svc, publisher, ephemeral, k.IP, k.Port)
}

func (r *registry) ServiceInfo(svc naming.ServiceKey, f naming.Filter) *naming.ServiceInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprint(svc, f)
	if r.info[name] == nil {
		info := f.View(&naming.Service{Key: svc, Instances: r.hosts})
		r.refTime++
		info.CacheMs, info.LastRefTimeMs = 10000, r.refTime
		r.info[name] = info
	}
	return r.info[name]
}

func (r *registry) Idle(naming.ServiceKey) {}

func (r *registry) ServicePage(namespace, group, selector string, no, size int64) (names []string, count int, err error) {
	r.call("ServicePage %s %s %s%d %d", namespace, group, selector, no, size)
	return []string{"a", "b"}, 7, nil
}

func (r *registry) ConnectionLost(publisher string, services []naming.ServiceKey, moved bool) {
	r.call("ConnectionLost %s %v", publisher, services)
	if moved {
		r.call("moved %s", publisher)
	}
}

func (r *registry) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notReady
}

// Refusal knows the kinds of answers, not the codes, which are the server's.
func (r *registry) Refusal(err error) wire.Refusal {
	out := wire.Refusal{Status: 400, Text: err.Error()}
	var invalid *naming.InvalidError
	switch {
	case !errors.As(err, &invalid):
		out.Status = 500
	case invalid.Fault == naming.FaultParam:
		out.Param = true
	case invalid.Fault == naming.FaultKind:
		out.Wrapped = "errCode: 400, errMsg: " + err.Error() + " "
	}
	return out
}

// Search finds the services that were registered, and were not lost.
func (r *registry) Search(q naming.Search) []naming.ServiceKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []naming.ServiceKey
	for k, there := range r.populated {
		if there && k.Namespace == q.Namespace {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, naming.ServiceKey.Compare)
	return out
}

func (r *registry) Populated(svc naming.ServiceKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.populated[svc]
}

// populate makes services that have an instance, or have none any more.
func (r *registry) populate(there bool, services ...naming.ServiceKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.populated == nil {
		r.populated = make(map[naming.ServiceKey]bool)
	}
	for _, svc := range services {
		r.populated[svc] = there
	}
}

var _ Registry = (*registry)(nil)

// node is a front end that serves in memory.
type node struct {
	*Server
	registry *registry
	engine   *push.Engine
	metrics  *prometheus.Registry
	listener *listener
}

// listener gives each connection an address of its own, as TCP does.
type listener struct {
	*bufconn.Listener
	mu   sync.Mutex
	port int // of the next connection
}

type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.port++
	return addressed{c, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: l.port}}, nil
}

// start returns a front end that serves until the end of the test.
func start(t *testing.T, adjust ...func(*Config)) *node {
	t.Helper()
	cfg := Config{IP: "10.0.0.1", Idle: 7 * time.Second, Detect: 3 * time.Second, SetupWait: 100 * ms, Workers: 4}
	for _, a := range adjust {
		a(&cfg)
	}
	n := &node{registry: newRegistry(), metrics: prometheus.NewRegistry(), listener: &listener{Listener: bufconn.Listen(256 << 10), port: 40000}}
	var err error
	n.engine, err = push.New(push.DefaultConfig(), n.registry, n.metrics)
	require.NoError(t, err)
	require.NoError(t, n.engine.Start())
	n.Server = New(cfg, n.listener, n.registry, n.engine, slog.New(slog.DiscardHandler), n.metrics)
	require.NoError(t, n.Start())
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, n.engine.Close())
	})
	return n
}

// client is one connection, at the level of messages.
type client struct {
	*grpc.ClientConn
	n      *node
	stream grpc.ClientStream

	mu  sync.Mutex
	got []*wire.Payload // from the stream
	end error           // of the stream; nil: it is open
}

// dial returns a connection that has said nothing.
func (n *node) dial(t *testing.T) *client {
	t.Helper()
	conn, err := grpc.NewClient(
		"passthrough:///node",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return n.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})),
	)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &client{ClientConn: conn, n: n}
}

// call sends a unary request and returns the answer as "Type body".
func (c *client) call(t *testing.T, typ, body string) string {
	t.Helper()
	answer := new(wire.Payload)
	require.NoError(t, c.Invoke(t.Context(), "/Request/request", &wire.Payload{Type: typ, Body: [][]byte{[]byte(body)}}, answer))
	require.Empty(t, answer.ClientIP)
	require.Empty(t, answer.Headers)
	return answer.Type + " " + string(answer.JSON())
}

// open opens the stream and reads what comes.
func (c *client) open(t *testing.T) {
	t.Helper()
	c.openSilent(t)
	stream := c.stream
	go func() {
		for {
			p := new(wire.Payload)
			err := stream.RecvMsg(p)
			c.mu.Lock()
			if err == nil {
				c.got = append(c.got, p)
			} else {
				c.end = err
			}
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// openSilent opens the stream and does not read it.
func (c *client) openSilent(t *testing.T) {
	t.Helper()
	var err error
	c.stream, err = c.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/BiRequestStream/requestBiStream")
	require.NoError(t, err)
}

// say sends a message on the stream.
func (c *client) say(t *testing.T, typ, body string) {
	t.Helper()
	require.NoError(t, c.stream.SendMsg(&wire.Payload{Type: typ, ClientIP: "10.0.0.9", Body: [][]byte{[]byte(body)}}))
}

const namingSetup = `{"clientVersion":"Nacos-Go-Client:v2.3.5","tenant":"","labels":{"module":"naming","source":"sdk","AppName":"shop"},"clientAbilities":{}}`

// messages returns what came on the stream since it was called last.
func (c *client) messages() []*wire.Payload {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.got
	c.got = nil
	return out
}

// ended returns how the stream ended, nil while it is open.
func (c *client) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end
}

// alive tells whether the transport is up.
func (c *client) alive() bool { return c.GetState() == connectivity.Ready }

func host(ip string) *naming.Instance {
	i := naming.NewInstance(ip, 80)
	return &i
}

func service(name string) naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "g", Name: name}
}

// named is the beginning of a request's body that names a service.
func named(name string) string {
	return `{"namespace":"public","groupName":"g","serviceName":"` + name + `"`
}

// counter returns the value of a metric.
func (n *node) counter(t *testing.T, name string) int {
	t.Helper()
	families, err := n.metrics.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
