package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

// Registry is what the front end needs of the node; server.Registry documents it.
type Registry interface {
	Register(ctx context.Context, svc naming.ServiceKey, publisher string, instances ...*naming.Instance) error
	Deregister(ctx context.Context, svc naming.ServiceKey, publisher string, ephemeral bool, k naming.InstanceKey) error
	ChangeInstance(ctx context.Context, svc naming.ServiceKey, k naming.InstanceKey, c naming.Change) error
	ChangeMetadata(ctx context.Context, svc naming.ServiceKey, keys []naming.InstanceKey, set map[string]string, remove []string) ([]*naming.Instance, error)
	Instance(svc naming.ServiceKey, k naming.InstanceKey) (*naming.Instance, error)
	Beat(ctx context.Context, svc naming.ServiceKey, ip string, port int, full *naming.Instance) (naming.BeatAnswer, error)

	ServiceInfo(svc naming.ServiceKey, f naming.Filter) *naming.ServiceInfo
	Service(svc naming.ServiceKey) (naming.Service, bool)
	ServicePage(namespace, group, selector string, no, size int64) (names []string, count int, err error)
	CreateService(ctx context.Context, svc naming.ServiceKey, s naming.Settings) error
	UpdateService(ctx context.Context, svc naming.ServiceKey, s naming.Settings) error
	DeleteService(ctx context.Context, svc naming.ServiceKey) error

	AwaitConsistent(ctx context.Context) error

	UpdateCluster(ctx context.Context, svc naming.ServiceKey, cluster string, c naming.Cluster) error
	SetHealth(ctx context.Context, svc naming.ServiceKey, k naming.InstanceKey, healthy bool) error
	Search(q naming.Search) []naming.ServiceKey

	Clients() []naming.Client
	Client(id string) (naming.Client, bool)
	PublishedBy(id string) []naming.Published
	Publishers(svc naming.ServiceKey) []naming.Published
	Responsible(ip string, port int) string

	Namespaces() []naming.Namespace
	Namespace(id string) (naming.Namespace, error)
	CreateNamespace(ctx context.Context, n naming.Namespace) error
	UpdateNamespace(ctx context.Context, n naming.Namespace) error
	DeleteNamespace(ctx context.Context, id string) error

	IDs() (current, worker uint64)
	Counts() naming.Counts
	Switches() naming.Switches
	ChangeSwitch(ctx context.Context, entry, value string, here bool) error
	Ready() error
	Wanted() error
	Refusal(err error) wire.Refusal
}

// Backups saves and restores persistent data; the server documents it.
type Backups interface {
	Save(ctx context.Context, w io.Writer, stale bool) (naming.Backup, error)
	Restore(ctx context.Context, r io.Reader, dryRun bool) (naming.Backup, naming.BackupChange, error)
}

// Life is how a node of several goes; the server documents it.
type Life interface {
	Drain(on bool) error
	Leave() error
}

// Config of the front end.
type Config struct {
	ShutdownTimeout time.Duration // how long Close lets requests finish
	Metrics         http.Handler  // serves /metrics
	// MetricNames returns the sorted names of the metrics.
	MetricNames func() ([]string, error)
	Nodes       func() []naming.NodeState
	// Compare enters into Nodes' answer whether they agree about ephemeral instances.
	Compare func(context.Context, []naming.NodeState)
	Backups Backups
	// RemoveNode takes a dead node out of Raft, by its name or its id.
	RemoveNode func(ctx context.Context, node string) error
	Life       func() (Life, error)
	Version    string

	// SubscribersElsewhere returns who is subscribed to a service at other nodes, as far
	// as they answer; nil: there are none.
	SubscribersElsewhere func(ctx context.Context, svc naming.ServiceKey) []push.Subscription
	// Connections returns the gRPC connections of this node.
	Connections func() []naming.Connection
	// Reset asks the client of a gRPC connection to go to the server at ip and main
	// port, or with an empty ip to any other; false: there is no such connection.
	Reset func(id, ip string, port int) bool
	// Shed has a node, by its name, ask clients to go to the node at redirect
	// (host:port of HTTP) until no more than keep are left; it returns how many were
	// asked.
	Shed func(ctx context.Context, node string, keep int, redirect string) (int, error)
	// SetLogLevel sets the level of a log by the names of both.
	SetLogLevel func(name, level string) error
}

// Server is the front end. Use [New].
type Server struct {
	cfg      Config
	registry Registry
	log      *slog.Logger
	listener net.Listener
	http     *http.Server
	abort    context.CancelFunc // ends the contexts of all requests
	udp      *udp
	wg       sync.WaitGroup
	once     sync.Once
	closeErr error
}

// New returns a server on a listener and a UDP socket, which it owns; it does not
// serve yet.
func New(cfg Config, l net.Listener, socket net.PacketConn, registry Registry, engine *push.Engine, log *slog.Logger) *Server {
	s := &Server{cfg: cfg, registry: registry, log: log.With("component", "http"), listener: l}
	s.udp = newUDP(socket, engine, log.With("component", "udp"))
	var requests context.Context
	requests, s.abort = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s.routes(),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second, // a body that never comes holds nothing for ever
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s
}

// Start begins to serve.
func (s *Server) Start() error {
	s.udp.start()
	s.wg.Go(func() {
		if err := s.http.Serve(s.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("HTTP server ended", "err", err)
		}
	})
	return nil
}

// abortTime is how long requests whose time is over may take to say so.
const abortTime = time.Second

// Close lets running requests finish, for a bounded time, then has them give up what
// they wait for, such as another node's answer, and stops.
func (s *Server) Close() error {
	s.once.Do(func() {
		err := s.shutdown(s.cfg.ShutdownTimeout)
		s.abort()
		if err != nil {
			err = s.shutdown(abortTime)
		}
		if err != nil {
			s.log.Warn("requests were cut off", "err", err)
			s.closeErr = s.http.Close()
		}
		_ = s.listener.Close()
		s.udp.close()
		s.wg.Wait()
	})
	return s.closeErr
}

func (s *Server) shutdown(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.http.Shutdown(ctx)
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if err := s.registry.Wanted(); err != nil {
		answer{http.StatusServiceUnavailable, plainText, []byte(err.Error() + "\n")}.write(w)
		return
	}
	text("ok\n").write(w)
}

// live serves a request of an operator about the life of this node. The answer comes
// before what it begins is done.
func (s *Server) live(begin func(Life) error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		l, err := s.cfg.Life()
		if err == nil {
			err = begin(l)
		}
		if err != nil {
			answer{http.StatusConflict, plainText, []byte(err.Error() + "\n")}.write(w)
			return
		}
		text("ok\n").write(w)
	}
}

// nodes tells what this node knows of all nodes, and whether they agree.
func (s *Server) nodes(w http.ResponseWriter, r *http.Request) {
	nodes := s.cfg.Nodes()
	s.cfg.Compare(r.Context(), nodes)
	b, err := json.Marshal(struct {
		Nodes []naming.NodeState `json:"nodes"`
	}{nodes})
	if err != nil {
		answer{http.StatusInternalServerError, plainText, []byte(err.Error())}.write(w)
		return
	}
	jsonBody(b).write(w)
}

// removeNode takes a dead node out of Raft.
func (s *Server) removeNode(w http.ResponseWriter, r *http.Request) {
	if err := s.cfg.RemoveNode(r.Context(), r.PathValue("node")); err != nil {
		s.refusedPlain(err).write(w)
		return
	}
	text("ok\n").write(w)
}

func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	answer{http.StatusOK, "text/html;charset=UTF-8", []byte("<!doctype html><title>Rollcall</title><h1>Rollcall " + s.cfg.Version + "</h1><p>A service registry for Nacos clients. State: <a href=\"/readyz\">/readyz</a>, <a href=\"/metrics\">/metrics</a>, <a href=\"/nacos/v1/ns/operator/metrics?onlyStatus=false\">counts</a>.</p>\n")}.write(w)
}
