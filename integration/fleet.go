package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Fleet is many clients of several nodes, which behave as the SDKs do when a node
// goes: they come back to another one and register and subscribe again. Subscribers
// look for one thing: an instance whose client lives must never vanish from a list
// in which it was.
type Fleet struct {
	// Redo is the longest that clients take to come back; set it before they start.
	Redo time.Duration

	nodes []*Node
	done  chan struct{}
	wg    sync.WaitGroup

	mu        sync.Mutex
	clients   map[string][]*grpcClient   // publishers, by service
	instances map[string]map[string]bool // by service: addresses whose clients live; true: acknowledged
	removals  []string
	empties   []string
	refused   []string // calls that failed at every node
	twice     []string // calls that failed at two nodes
	pushes    int
	added     int
	moves     int
}

// Times of the SDKs, the slower of two where they differ.
const (
	fleetCall   = 3 * time.Second // the longest that a call may take
	fleetCheck  = 5 * time.Second // an idle connection is checked each time
	fleetChecks = 3               // that fail before the client goes elsewhere
	fleetRedo   = 3 * time.Second // until a client is back
	fleetBeat   = 5 * time.Second
)

// StartFleet returns a fleet without clients. It ends with the test.
func StartFleet(tb testing.TB, nodes []*Node) *Fleet {
	tb.Helper()
	f := &Fleet{Redo: fleetRedo, nodes: nodes, done: make(chan struct{}), clients: make(map[string][]*grpcClient), instances: make(map[string]map[string]bool)}
	tb.Cleanup(f.Stop)
	return f
}

// Knows tells all clients which nodes there are from now on.
func (f *Fleet) Knows(nodes ...*Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes = slices.Clone(nodes)
}

func (f *Fleet) known() []*Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes
}

// Stop ends all clients as a crash does: nobody deregisters.
func (f *Fleet) Stop() {
	select {
	case <-f.done:
	default:
		close(f.done)
	}
	f.wg.Wait()
}

// Publish starts n clients over gRPC, each with one instance of the service; they
// begin at the nodes in turn.
func (f *Fleet) Publish(service string, n int, at ...*Node) {
	f.PublishAll([]string{service}, n, at...)
}

// PublishAll is Publish for clients that have an instance of each of the services.
func (f *Fleet) PublishAll(services []string, n int, at ...*Node) {
	for k := range n {
		ip := f.add(services...)
		client := &grpcClient{ip: ip, quit: make(chan struct{})}
		client.setUp = func(c *Conn) bool {
			for _, service := range services {
				if !f.register(c, service, ip) {
					return false
				}
			}
			return true
		}
		client.leave = func(c *Conn) {
			for _, service := range services {
				f.deregister(c, service, ip)
			}
		}
		f.mu.Lock()
		f.clients[services[0]] = append(f.clients[services[0]], client)
		f.mu.Unlock()
		f.wg.Go(func() { f.run(client, at[k%len(at)]) })
	}
}

// Leave lets n of the clients over gRPC deregister what they have and end; of those
// with several services give the first.
func (f *Fleet) Leave(service string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, client := range f.clients[service][:n] {
		close(client.quit)
	}
	f.clients[service] = f.clients[service][n:]
}

// Die lets n of the clients over gRPC end as a crash does.
func (f *Fleet) Die(service string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, client := range f.clients[service][:n] {
		client.leave = func(*Conn) {}
		for _, instances := range f.instances {
			delete(instances, client.ip+":80")
		}
		close(client.quit)
	}
	f.clients[service] = f.clients[service][n:]
}

// Beat starts n clients over HTTP; they talk to any node each time.
func (f *Fleet) Beat(service string, n int) {
	for range n {
		ip := f.add(service)
		f.wg.Go(func() { f.beat(service, ip) })
	}
}

// Subscribe starts n subscribers of the services over gRPC; they begin at the nodes
// in turn.
func (f *Fleet) Subscribe(n int, services []string, at ...*Node) {
	for k := range n {
		node := at[k%len(at)]
		f.wg.Go(func() {
			s := &watcher{fleet: f, seen: make(map[string][]string)}
			f.run(&grpcClient{setUp: func(c *Conn) bool { return s.subscribe(c, services) }, message: s.message}, node)
		})
	}
}

// add notes an instance that is about to be registered.
func (f *Fleet) add(services ...string) (ip string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.added++
	ip = fmt.Sprintf("10.0.%d.%d", f.added>>8, f.added&255)
	for _, service := range services {
		if f.instances[service] == nil {
			f.instances[service] = make(map[string]bool)
		}
		f.instances[service][ip+":80"] = false
	}
	return ip
}

// grpcClient is one client over gRPC.
type grpcClient struct {
	setUp   func(*Conn) bool     // at each connection
	message func(*Conn, Message) // what the server sends
	leave   func(*Conn)          // when quit is closed
	quit    chan struct{}
	ip      string // of its instance
}

// run keeps a client connected until it or the fleet ends.
func (f *Fleet) run(client *grpcClient, node *Node) {
	for {
		if c, err := TryConnect(node.GRPCAddr(), WithCallTime(fleetCall)); err == nil {
			to := f.other(node)
			ended := false
			if client.setUp(c) {
				to, ended = f.stay(c, node, client)
			}
			c.Close()
			if ended {
				return
			}
			node = to
			f.mu.Lock()
			f.moves++
			f.mu.Unlock()
		} else {
			node = f.other(node)
		}
		select {
		case <-f.done:
			return
		case <-client.quit:
			return
		case <-time.After(rand.N(f.Redo)):
		}
	}
}

// stay returns the node to go to once the connection is of no use any more, or that
// the client has ended.
func (f *Fleet) stay(c *Conn, node *Node, client *grpcClient) (to *Node, ended bool) {
	check := time.NewTicker(fleetCheck)
	defer check.Stop()
	failed := 0
	for {
		select {
		case <-f.done:
			return node, true
		case <-client.quit:
			client.leave(c)
			return node, true
		case <-c.Ended():
			return f.other(node), false
		case <-check.C:
			failed = 0
			for failed < fleetChecks {
				if r, err := c.TryCall("HealthCheckRequest", Fields{"module": "internal"}); err == nil && r.ErrorCode == 0 {
					break
				}
				failed++
			}
			if failed == fleetChecks {
				return f.other(node), false
			}
		case <-c.arrived:
			for {
				m, ok := c.next(0)
				if !ok {
					break
				}
				if m.Type == "ConnectResetRequest" {
					return f.named(m, node), false
				}
				if client.message != nil {
					client.message(c, m)
				}
			}
		}
	}
}

// other returns any other node.
func (f *Fleet) other(node *Node) *Node {
	nodes := f.known()
	if len(nodes) == 1 {
		return node
	}
	at := slices.Index(nodes, node)
	return nodes[(at+1+rand.IntN(len(nodes)-1))%len(nodes)]
}

// named returns the node that a ConnectResetRequest names, else any other one.
func (f *Fleet) named(m Message, node *Node) *Node {
	var to struct {
		IP   string `json:"serverIp"`
		Port string `json:"serverPort"`
	}
	_ = json.Unmarshal(m.Body, &to)
	for _, n := range f.known() {
		if n.host == to.IP && strconv.Itoa(n.HTTPPort()) == to.Port {
			return n
		}
	}
	return f.other(node)
}

// pause waits; false when the fleet ended meanwhile.
func (f *Fleet) pause(d time.Duration) bool {
	select {
	case <-f.done:
		return false
	case <-time.After(d):
		return true
	}
}

func (f *Fleet) register(c *Conn, service, ip string) bool {
	r, err := c.TryRegister(Service{Name: service}, Instance(ip, 80))
	if err != nil || r.ErrorCode != 0 {
		return false
	}
	f.acknowledged(service, ip)
	return true
}

// deregister makes as many tries as the SDKs do: one.
func (f *Fleet) deregister(c *Conn, service, ip string) {
	f.mu.Lock()
	delete(f.instances[service], ip+":80")
	f.mu.Unlock()
	_, _ = c.TryCall("InstanceRequest", Service{Name: service}.fields().With(Fields{"type": "deregisterInstance", "instance": Instance(ip, 80)}))
}

func (f *Fleet) acknowledged(service, ip string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.instances[service][ip+":80"] = true
}

// beat is a client over HTTP.
func (f *Fleet) beat(service, ip string) {
	web := &http.Client{Timeout: fleetCall}
	defer web.CloseIdleConnections()
	p := url.Values{"serviceName": {service}, "ip": {ip}, "port": {"80"}}
	registered := false
	for first := true; ; first = false {
		if first && !f.pause(rand.N(fleetBeat/5)) {
			return
		}
		if !registered {
			if _, ok := f.call(web, http.MethodPost, "/nacos/v1/ns/instance", p); ok {
				registered = true
				f.acknowledged(service, ip)
			}
		} else if body, ok := f.call(web, http.MethodPut, "/nacos/v1/ns/instance/beat", p); ok && strings.Contains(body, "20404") {
			registered = false
			continue
		}
		if !f.pause(fleetBeat) {
			return
		}
	}
}

// call makes a call to a node, and where that fails to the others, as the SDKs do.
func (f *Fleet) call(web *http.Client, method, path string, p url.Values) (body string, ok bool) {
	var failed []string
	nodes := f.known()
	for _, k := range rand.Perm(len(nodes)) {
		body, err := try(web, method, "http://"+nodes[k].Addr()+path+"?"+p.Encode())
		if err == nil {
			return body, true
		}
		if failed = append(failed, err.Error()); len(failed) == 2 {
			f.mu.Lock()
			f.twice = append(f.twice, strings.Join(failed, "; "))
			f.mu.Unlock()
		}
	}
	select {
	case <-f.done:
	default:
		f.mu.Lock()
		f.refused = append(f.refused, strings.Join(failed, "; "))
		f.mu.Unlock()
	}
	return "", false
}

func try(web *http.Client, method, address string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), fleetCall)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, method, address, http.NoBody)
	if err != nil {
		return "", err
	}
	r, err := web.Do(q)
	if err != nil {
		return "", err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", address, r.StatusCode, body)
	}
	return string(body), err
}

// watcher is a subscriber that looks at the lists of its services.
type watcher struct {
	fleet *Fleet
	seen  map[string][]string // by service: the last list
}

// shortInfo is what a subscriber looks at of a list.
type shortInfo struct {
	Name  string `json:"name"`
	Hosts []struct {
		IP string `json:"ip"`
	} `json:"hosts"`
}

func (s *watcher) subscribe(c *Conn, services []string) bool {
	for _, service := range services {
		body := Service{Name: service}.fields().With(Fields{"subscribe": true, "clusters": ""})
		r, err := c.TryCall("SubscribeServiceRequest", body)
		if err != nil || r.ErrorCode != 0 {
			return false
		}
		var list struct {
			ServiceInfo shortInfo `json:"serviceInfo"`
		}
		if err := json.Unmarshal([]byte(r.Body), &list); err != nil {
			return false
		}
		s.look(c, service, list.ServiceInfo)
	}
	return true
}

func (s *watcher) message(c *Conn, m Message) {
	if m.Type != "NotifySubscriberRequest" {
		return
	}
	var push struct {
		ServiceInfo shortInfo `json:"serviceInfo"`
	}
	if err := json.Unmarshal(m.Body, &push); err == nil {
		s.look(c, push.ServiceInfo.Name, push.ServiceInfo)
	}
}

func (s *watcher) look(c *Conn, service string, info shortInfo) {
	list := make([]string, 0, len(info.Hosts))
	has := make(map[string]bool, len(info.Hosts))
	for _, h := range info.Hosts {
		list = append(list, h.IP)
		has[h.IP] = true
	}
	f := s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pushes++
	before := s.seen[service]
	s.seen[service] = list
	alive := 0
	for _, ip := range before {
		if _, lives := f.instances[service][ip+":80"]; lives {
			if alive++; !has[ip] {
				f.removals = append(f.removals, fmt.Sprintf("%s %s at %s %s", service, ip, c.addr, time.Now().Format("05.000")))
			}
		}
	}
	if len(list) == 0 && alive > 0 {
		f.empties = append(f.empties, service+" at "+c.addr)
	}
}

// Seen returns how many lists the subscribers looked at, and how often a client
// came back.
func (f *Fleet) Seen() (lists, moves int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pushes, f.moves
}

// Complete requires that within the time every node lists what is published, and
// nothing else.
func (f *Fleet) Complete(tb testing.TB, within time.Duration, nodes ...*Node) {
	tb.Helper()
	var wrong string
	require.Eventually(tb, func() bool {
		wrong = f.wrong(nodes)
		return wrong == ""
	}, within, 50*time.Millisecond, "lists are not what is published: %v", said{&wrong})
}

// said is a text that is not there yet when it is to be printed in case of a failure.
type said struct{ text *string }

// String implements fmt.Stringer.
func (s said) String() string { return *s.text }

// Holds requires that for the time given every node lists what is published, and
// nothing else, at each look.
func (f *Fleet) Holds(tb testing.TB, d time.Duration, nodes ...*Node) {
	tb.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		require.Empty(tb, f.wrong(nodes))
		if !f.pause(200 * time.Millisecond) {
			return
		}
	}
}

// Watched waits until the subscribers have looked at so many lists.
func (f *Fleet) Watched(tb testing.TB, n int) {
	tb.Helper()
	require.Eventually(tb, func() bool { lists, _ := f.Seen(); return lists >= n }, 2*time.Minute, 20*time.Millisecond)
}

// wrong says where a list is not what is published; empty: nowhere.
func (f *Fleet) wrong(nodes []*Node) string {
	f.mu.Lock()
	want := make(map[string][]string)
	for service, instances := range f.instances {
		want[service] = nil
		for address := range instances {
			want[service] = append(want[service], address)
		}
	}
	f.mu.Unlock()
	for service, addresses := range want {
		slices.Sort(addresses)
		for _, node := range nodes {
			r, err := node.TryRaw(http.MethodGet, "/nacos/v1/ns/instance/list", "serviceName="+service, "")
			if err != nil {
				return err.Error()
			}
			var info ServiceInfo
			if err := json.Unmarshal([]byte(r.Body), &info); err != nil {
				return err.Error()
			}
			if !slices.Equal(info.Addrs(), addresses) {
				return fmt.Sprintf("%s at %s: %d listed, %d published", service, node.Addr(), len(info.Hosts), len(addresses))
			}
			for _, h := range info.Hosts {
				if !h.Healthy {
					return fmt.Sprintf("%s at %s: %s is unhealthy", service, node.Addr(), h.Addr())
				}
			}
		}
	}
	return ""
}

// RetriedOnce requires that no call of a client over HTTP failed at two nodes.
func (f *Fleet) RetriedOnce(tb testing.TB) {
	tb.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(tb, f.twice[:min(len(f.twice), 10)], "%d calls failed at two nodes", len(f.twice))
}

// Unharmed requires that no subscriber saw a living instance vanish, and that no
// call failed at every node.
func (f *Fleet) Unharmed(tb testing.TB) {
	tb.Helper()
	lists, moves := f.Seen()
	f.mu.Lock()
	defer f.mu.Unlock()
	tb.Logf("%d lists looked at, clients moved %d times", lists, moves)
	some := func(all []string) []string { return all[:min(len(all), 10)] }
	require.Empty(tb, some(f.removals), "%d instances vanished that live", len(f.removals))
	require.Empty(tb, some(f.empties), "%d empty lists", len(f.empties))
	require.Empty(tb, some(f.refused), "%d calls failed at every node", len(f.refused))
}
