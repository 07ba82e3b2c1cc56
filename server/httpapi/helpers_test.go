package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

const wait = 20 * time.Second

// registry is a Registry that knows one state of every service, and remembers what
// it was told.
type registry struct {
	mu       sync.Mutex
	calls    []string
	service  naming.Service // of every name; without instances and settings unknown
	refTime  int64
	switches naming.Switches
	beat     naming.BeatAnswer
	fault    error // of each call that can fail
	notReady error
	info     map[string]*naming.ServiceInfo
}

func newRegistry() *registry {
	return &registry{
		switches: naming.DefaultSwitches(),
		info:     make(map[string]*naming.ServiceInfo),
	}
}

// set changes the state of all services.
func (r *registry) set(hosts ...*naming.Instance) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.service.Instances = hosts
	clear(r.info)
}

func (r *registry) call(format string, args ...any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
	return r.fault
}

// told returns the calls since it was called last.
func (r *registry) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.calls
	r.calls = nil
	return out
}

// show writes an instance for comparison.
func show(i *naming.Instance) string {
	if i == nil {
		return "nil"
	}
	return fmt.Sprintf("{id=%q %s %s w=%v healthy=%v enabled=%v ephemeral=%v %v}", i.ID, i.Key().Address(), i.Cluster, i.Weight, i.Healthy, i.Enabled, i.Ephemeral, i.Metadata)
}

func (r *registry) Register(_ context.Context, svc naming.ServiceKey, publisher string, instances ...*naming.Instance) error {
	return r.call("Register %s %s %s", svc, publisher, show(instances[0]))
}

func (r *registry) Deregister(_ context.Context, svc naming.ServiceKey, publisher string, ephemeral bool, k naming.InstanceKey) error {
	text := fmt.Sprintf("Deregister %s %s ephemeral=%v %s %d", svc, publisher, ephemeral, k.IP, k.Port)
	if k.Cluster != "" {
		text += " of " + k.Cluster
	}
	return r.call("%s", text)
}

func (r *registry) ChangeInstance(_ context.Context, svc naming.ServiceKey, k naming.InstanceKey, c naming.Change) error {
	text := fmt.Sprintf("ChangeInstance %s %v", svc, k)
	if c.Weight != nil {
		text += fmt.Sprint(" w=", *c.Weight)
	}
	if c.Enabled != nil {
		text += fmt.Sprint(" enabled=", *c.Enabled)
	}
	if c.Metadata != nil {
		text += fmt.Sprint(" ", c.Metadata)
	}
	return r.call("%s", text)
}

func (r *registry) ChangeMetadata(_ context.Context, svc naming.ServiceKey, keys []naming.InstanceKey, set map[string]string, remove []string) ([]*naming.Instance, error) {
	err := r.call("ChangeMetadata %s %v set=%v remove=%v", svc, keys, set, remove)
	s, _ := r.Service(svc)
	return s.Instances, err
}

func (r *registry) Instance(svc naming.ServiceKey, k naming.InstanceKey) (*naming.Instance, error) {
	s, _ := r.Service(svc)
	if i := s.Find(k); i != nil {
		return i, nil
	}
	return nil, &naming.InvalidError{Fault: naming.FaultResourceUnknown, Field: "ip", Text: "no matched ip found!"}
}

func (r *registry) Beat(_ context.Context, svc naming.ServiceKey, ip string, port int, full *naming.Instance) (naming.BeatAnswer, error) {
	err := r.call("Beat %s %s %d %s", svc, ip, port, show(full))
	return r.beat, err
}

func (r *registry) ServiceInfo(svc naming.ServiceKey, f naming.Filter) *naming.ServiceInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprint(svc, f)
	if r.info[name] == nil {
		s := r.service
		s.Key = svc
		info := f.View(&s)
		r.refTime++
		info.CacheMs, info.LastRefTimeMs = 10000, r.refTime
		r.info[name] = info
	}
	return r.info[name]
}

func (r *registry) Idle(naming.ServiceKey) {}

func (r *registry) Service(svc naming.ServiceKey) (naming.Service, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.service
	s.Key = svc
	return s, s.Settings != nil || len(s.Instances) > 0
}

func (r *registry) ServicePage(namespace, group, selector string, no, size int64) (names []string, count int, err error) {
	_ = r.call("ServicePage %s %s %s%d %d", namespace, group, selector, no, size)
	return []string{"a", "b"}, 7, nil
}

func (r *registry) CreateService(_ context.Context, svc naming.ServiceKey, s naming.Settings) error {
	return r.call("CreateService %s %+v", svc, s)
}

func (r *registry) UpdateService(_ context.Context, svc naming.ServiceKey, s naming.Settings) error {
	return r.call("UpdateService %s %+v", svc, s)
}

func (r *registry) DeleteService(_ context.Context, svc naming.ServiceKey) error {
	return r.call("DeleteService %s", svc)
}

func (r *registry) AwaitConsistent(context.Context) error { return r.call("AwaitConsistent") }

func (r *registry) Counts() naming.Counts {
	return naming.Counts{Services: 1, Instances: 2, Subscriptions: 3, Connections: 4, EphemeralPublishers: 5, PersistentPublishers: 6}
}

func (r *registry) Switches() naming.Switches { return r.switches }

func (r *registry) ChangeSwitch(_ context.Context, entry, value string, here bool) error {
	if here {
		return r.call("ChangeSwitch %s %q here", entry, value)
	}
	return r.call("ChangeSwitch %s %q", entry, value)
}

func (r *registry) Wanted() error { return r.Ready() }

func (r *registry) UpdateCluster(_ context.Context, svc naming.ServiceKey, cluster string, c naming.Cluster) error {
	return r.call("UpdateCluster %s %s %+v", svc, cluster, c)
}

func (r *registry) SetHealth(_ context.Context, svc naming.ServiceKey, k naming.InstanceKey, healthy bool) error {
	return r.call("SetHealth %s %v %v", svc, k, healthy)
}

func (r *registry) Search(q naming.Search) []naming.ServiceKey {
	_ = r.call("Search %+v", q)
	return []naming.ServiceKey{{Namespace: "dev", Group: "g", Name: "a"}, {Namespace: "public", Group: "g", Name: "a"}, {Namespace: "public", Group: "g", Name: "b"}}
}

func (r *registry) Clients() []naming.Client {
	return []naming.Client{
		{ID: "10.0.0.1:80#true", Ephemeral: true, IP: "10.0.0.1", Port: 80, Updated: time.UnixMilli(1700000000000)},
		{ID: "1_10.0.0.7_5", Ephemeral: true, Connection: true, App: "shop", Agent: "Nacos-Java-Client:v2.2.0", IP: "10.0.9.9", Port: 5, Updated: time.UnixMilli(1700000000001)},
	}
}

func (r *registry) Client(id string) (naming.Client, bool) {
	for _, c := range r.Clients() {
		if c.ID == id {
			return c, true
		}
	}
	return naming.Client{}, false
}

func (r *registry) PublishedBy(id string) []naming.Published {
	return []naming.Published{{Service: naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}, Client: id, Instance: host("10.0.0.1")}}
}

func (r *registry) Publishers(svc naming.ServiceKey) []naming.Published {
	return []naming.Published{{Service: svc, Client: "10.0.0.1:80#true", Instance: host("10.0.0.1")}}
}

func (r *registry) Responsible(ip string, port int) string {
	return fmt.Sprintf("owner of %s:%d", ip, port)
}

func (r *registry) Namespaces() []naming.Namespace {
	return []naming.Namespace{{ID: "public", Name: "public", Description: "Default Namespace"}, {ID: "dev", Name: "Dev"}}
}

func (r *registry) Namespace(id string) (naming.Namespace, error) {
	for _, n := range r.Namespaces() {
		if n.ID == id {
			return n, nil
		}
	}
	return naming.Namespace{}, &naming.InvalidError{Fault: naming.FaultNamespaceUnknown, Field: "namespaceId", Text: "unknown"}
}

func (r *registry) CreateNamespace(_ context.Context, n naming.Namespace) error {
	return r.call("CreateNamespace %+v", n)
}

func (r *registry) UpdateNamespace(_ context.Context, n naming.Namespace) error {
	return r.call("UpdateNamespace %+v", n)
}

func (r *registry) DeleteNamespace(_ context.Context, id string) error {
	return r.call("DeleteNamespace %s", id)
}

func (r *registry) IDs() (current, worker uint64) { return 7, 0 }

func (r *registry) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.notReady
}

// Refusal knows the kinds of answers, not the codes, which are the server's.
func (r *registry) Refusal(err error) wire.Refusal {
	out := wire.Refusal{Status: 400, Code: 12345, Text: err.Error()}
	var invalid *naming.InvalidError
	switch {
	case !errors.As(err, &invalid):
		out.Status = 500
	case invalid.Fault == naming.FaultParam:
		out.Param = true
	case invalid.Fault == naming.FaultKind:
		out.Wrapped = "wrapped " + invalid.Text
	case invalid.Fault == naming.FaultResourceUnknown:
		out.Status = 404
	}
	return out
}

var _ Registry = (*registry)(nil)

// node is a front end that serves on the loopback.
type node struct {
	*Server
	registry *registry
	engine   *push.Engine
	metrics  *prometheus.Registry
}

// start returns a front end that serves until the end of the test.
func start(t *testing.T, adjust ...func(*push.Config)) *node {
	t.Helper()
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics here") })
	n := open(t, Config{ShutdownTimeout: wait, Version: "1.2.3", Metrics: metrics}, adjust...)
	require.NoError(t, n.Start())
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// open returns a front end on the loopback that is not started.
func open(t *testing.T, cfg Config, adjust ...func(*push.Config)) *node {
	t.Helper()
	times := push.DefaultConfig()
	for _, a := range adjust {
		a(&times)
	}
	n := &node{registry: newRegistry(), metrics: prometheus.NewRegistry()}
	var err error
	n.engine, err = push.New(times, n.registry, n.metrics)
	require.NoError(t, err)
	require.NoError(t, n.engine.Start())
	t.Cleanup(func() { require.NoError(t, n.engine.Close()) })
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	n.Server = New(cfg, l, socket, n.registry, n.engine, slog.New(slog.DiscardHandler))
	return n
}

// response is an answer as the client sees it.
type response struct {
	status int
	body   string
	header http.Header
}

// do sends "METHOD /path?query" with a form body, on a connection of its own.
func (n *node) do(t *testing.T, request string, header http.Header, body url.Values) response {
	t.Helper()
	method, target, _ := strings.Cut(request, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.listener.Addr().String()+target, bytes.NewBufferString(body.Encode()))
	require.NoError(t, err)
	if len(body) > 0 {
		req.Header.Set("Content-Type", form)
	}
	maps.Copy(req.Header, header)
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: wait,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return response{resp.StatusCode, string(b), resp.Header}
}

func host(ip string, change ...func(*naming.Instance)) *naming.Instance {
	i := naming.NewInstance(ip, 80)
	for _, c := range change {
		c(&i)
	}
	return &i
}
