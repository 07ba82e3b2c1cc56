package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

// Registry is what the front end needs of the node; server.Registry documents it.
type Registry interface {
	Register(ctx context.Context, svc naming.ServiceKey, publisher string, instances ...*naming.Instance) error
	RegisterBatch(ctx context.Context, svc naming.ServiceKey, publisher string, instances []*naming.Instance) error
	Deregister(ctx context.Context, svc naming.ServiceKey, publisher string, ephemeral bool, k naming.InstanceKey) error
	ServiceInfo(svc naming.ServiceKey, f naming.Filter) *naming.ServiceInfo
	ServicePage(namespace, group, selector string, no, size int64) (names []string, count int, err error)
	ConnectionLost(publisher string, services []naming.ServiceKey, moved bool)
	Search(q naming.Search) []naming.ServiceKey
	Populated(svc naming.ServiceKey) bool
	Ready() error
	Refusal(err error) wire.Refusal
}

// Config of the front end.
type Config struct {
	IP        string        // the server's own address, as clients are told
	Idle      time.Duration // silence after which a client is asked
	Detect    time.Duration // time to answer
	SetupWait time.Duration // how long a call waits for a setup on its way
	MoveTime  time.Duration // how long a client that was asked to go elsewhere may take
	Workers   uint32        // goroutines that serve calls; 0: one for each call

	MaxConnections      int // connections of clients; 0: no limit
	MaxConnectionsPerIP int // of these with one address; 0: no limit
	FuzzyPatterns       int // patterns that are watched, each counted once
	FuzzyMatches        int // services that a pattern shows
}

// maxMessage is the largest request, in bytes (grpc.md 1.4).
const maxMessage = 10 << 20

// Server is the front end. Use [New].
type Server struct {
	cfg      Config
	registry Registry
	engine   *push.Engine
	log      *slog.Logger
	listener net.Listener
	grpc     *grpc.Server
	start    time.Time
	seq      atomic.Uint64 // of questions to clients
	ids      atomic.Int64  // the last connection id's time, milliseconds
	ejected  prometheus.Counter
	patterns patterns
	wg       sync.WaitGroup
	once     sync.Once

	mu       sync.Mutex
	conns    map[*conn]struct{}
	admits   map[string]int // admitted connections by the client's address
	admitted int
	closing  bool
}

// New returns a server on a listener, which it owns; it does not serve yet. The
// registerer gets its metrics; nil means none.
func New(cfg Config, l net.Listener, registry Registry, engine *push.Engine, log *slog.Logger, reg prometheus.Registerer) *Server {
	s := &Server{
		cfg: cfg, registry: registry, engine: engine, log: log.With("component", "grpc"),
		listener: l, start: time.Now(), conns: make(map[*conn]struct{}), admits: make(map[string]int),
		patterns: patterns{watchers: make(map[string]map[*conn]struct{})},
		ejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "rollcall_connections_ejected_total", Help: "gRPC connections that the server closed.",
		}),
	}
	if reg != nil {
		reg.MustRegister(s.ejected, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rollcall_connections", Help: "gRPC connections of clients.",
		}, func() float64 { return float64(s.Connections()) }))
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(transport{s}),
		grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.NumStreamWorkers(cfg.Workers),
		grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(unknownMethod),
		// Clients ping every 60 s; the library's default would refuse that.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}),
	)
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: "Request", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "request", Handler: s.unary}},
	}, s)
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: "BiRequestStream", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "requestBiStream", Handler: s.stream, ServerStreams: true, ClientStreams: true}},
	}, s)
	return s
}

// unknownMethod answers calls outside the protocol.
func unknownMethod(_ any, ss grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(ss)
	return status.Errorf(codes.Unimplemented, "Method not found: %s", strings.TrimPrefix(name, "/"))
}

// Start begins to serve.
func (s *Server) Start() error {
	s.wg.Go(func() {
		if err := s.grpc.Serve(s.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.log.Error("gRPC server ended", "err", err)
		}
	})
	return nil
}

// Close closes every connection and waits for what serves them.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closing = true
		s.mu.Unlock()
		s.grpc.Stop()
		_ = s.listener.Close()
	})
	s.wg.Wait()
	return nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Connections returns the number of transports.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// accept makes the connection of a new transport; nil when the server is closing.
func (s *Server) accept(raw net.Conn) *conn {
	ip, port, _ := net.SplitHostPort(raw.RemoteAddr().String())
	c := &conn{
		server: s, raw: raw, opened: time.Now(), ready: make(chan struct{}),
		id:     fmt.Sprintf("%d_%s_%s", s.nextID(), ip, port),
		wakeCh: make(chan struct{}, 1), outCh: make(chan *wire.Payload, outQueue), endCh: make(chan struct{}),
	}
	c.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil
	}
	s.conns[c] = struct{}{}
	return c
}

// nextID returns the time in milliseconds, raised where that would repeat one: an
// address that connects again must not get the id that it had.
func (s *Server) nextID() int64 {
	for {
		last := s.ids.Load()
		next := max(time.Now().UnixMilli(), last+1)
		if s.ids.CompareAndSwap(last, next) {
			return next
		}
	}
}

// forget follows the end of a connection that counted for an address.
func (s *Server) forget(c *conn, admitted string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if admitted != "" {
		s.admitted--
		if s.admits[admitted]--; s.admits[admitted] == 0 {
			delete(s.admits, admitted)
		}
	}
}

// admit counts a connection of a client that is set up, or closes it where there are
// too many. The client is told nothing, as the protocol has it: it tries the next
// server.
func (s *Server) admit(c *conn, setup *wire.ConnectionSetupRequest, ip string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.registered || c.closed || c.admitted != "" || setup.Labels["source"] == "cluster" {
		return true
	}
	s.mu.Lock()
	reason := ""
	switch {
	case s.cfg.MaxConnections > 0 && s.admitted >= s.cfg.MaxConnections:
		reason = fmt.Sprintf("there are %d connections, no more are allowed (max-connections)", s.admitted)
	case s.cfg.MaxConnectionsPerIP > 0 && s.admits[ip] >= s.cfg.MaxConnectionsPerIP:
		reason = fmt.Sprintf("%s has %d connections, no more are allowed (max-connections-per-ip)", ip, s.admits[ip])
	default:
		s.admitted++
		s.admits[ip]++
		c.admitted = ip
	}
	s.mu.Unlock()
	if reason != "" {
		c.closeLocked(reason)
		return false
	}
	return true
}
