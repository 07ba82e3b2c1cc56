package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

// Registry is what the front end needs of the node; server.Registry documents it.
type Registry interface {
	Register(ctx context.Context, svc naming.ServiceKey, publisher string, instances ...*naming.Instance) error
	Deregister(ctx context.Context, svc naming.ServiceKey, publisher string, ephemeral bool, ip string, port int) error
	ChangeInstance(ctx context.Context, svc naming.ServiceKey, k naming.InstanceKey, c naming.Change) error
	ChangeMetadata(ctx context.Context, svc naming.ServiceKey, keys []naming.InstanceKey, set map[string]string, remove []string) ([]*naming.Instance, error)
	Instance(svc naming.ServiceKey, k naming.InstanceKey) (*naming.Instance, error)
	Beat(ctx context.Context, svc naming.ServiceKey, ip string, port int, full *naming.Instance) (naming.BeatAnswer, error)

	ServiceInfo(svc naming.ServiceKey, f naming.Filter) *naming.ServiceInfo
	Service(svc naming.ServiceKey) (naming.Service, bool)
	ServicePage(namespace, group string, no, size int64) (names []string, count int)
	CreateService(ctx context.Context, svc naming.ServiceKey, s naming.Settings) error
	UpdateService(ctx context.Context, svc naming.ServiceKey, s naming.Settings) error
	DeleteService(ctx context.Context, svc naming.ServiceKey) error

	AwaitConsistent(ctx context.Context) error
	Counts() naming.Counts
	Switches() naming.Switches
	ChangeSwitch(ctx context.Context, entry, value string) error
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
	Nodes           func() []naming.NodeState
	Backups         Backups
	// RemoveNode takes a dead node out of Raft, by its name or its id.
	RemoveNode func(ctx context.Context, node string) error
	Life       func() (Life, error)
	Version    string
}

// Server is the front end. Use [New].
type Server struct {
	cfg      Config
	registry Registry
	log      *slog.Logger
	listener net.Listener
	http     *http.Server
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
	s.http = &http.Server{
		Handler:           s.routes(),
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

// Close lets running requests finish, for a bounded time, and stops.
func (s *Server) Close() error {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.ShutdownTimeout)
		defer cancel()
		if err := s.http.Shutdown(ctx); err != nil {
			s.closeErr = errors.Join(fmt.Errorf("close HTTP server: %w", err), s.http.Close())
		}
		_ = s.listener.Close()
		s.udp.close()
		s.wg.Wait()
	})
	return s.closeErr
}

// request is one request with its parameters.
type request struct {
	*http.Request
	params
}

// methods are the handlers of one path.
type methods map[string]func(*request) answer

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	v1 := func(h func(*request) (answer, error)) func(*request) answer {
		return func(q *request) answer {
			a, err := answered(s, q, h)
			if err != nil {
				return s.refusedV1(err, q.URL.Path)
			}
			return a
		}
	}
	v2 := func(h func(*request) ([]byte, error)) func(*request) answer {
		return func(q *request) answer {
			data, err := answered(s, q, h)
			if err != nil {
				return s.refusedV2(err)
			}
			return jsonBody(result(wire.CodeSuccess, data))
		}
	}
	raw := func(h func(*request) (answer, error)) func(*request) answer { // v2 without its envelope
		return func(q *request) answer {
			a, err := answered(s, q, h)
			if err != nil {
				return s.refusedV2(err)
			}
			return a
		}
	}
	handle := func(pattern string, m methods) { mux.Handle(pattern, s.methods(m)) }

	handle("/nacos/v1/ns/instance", methods{
		"POST": v1(s.registerV1), "DELETE": v1(s.deregisterV1), "PUT": v1(s.updateV1),
		"PATCH": v1(s.patchV1), "GET": v1(s.detailV1),
	})
	handle("/nacos/v1/ns/instance/list", methods{"GET": v1(s.listV1)})
	handle("/nacos/v1/ns/instance/beat", methods{"PUT": v1(s.beatV1)})
	handle("/nacos/v1/ns/instance/statuses", methods{"GET": v1(s.statusesV1)})
	handle("/nacos/v1/ns/instance/metadata/batch", methods{"PUT": v1(s.setMetadataV1), "DELETE": v1(s.removeMetadataV1)})
	handle("/nacos/v1/ns/service", methods{
		"POST": v1(s.createServiceV1), "DELETE": v1(s.deleteServiceV1), "PUT": v1(s.updateServiceV1), "GET": v1(s.serviceV1),
	})
	handle("/nacos/v1/ns/service/list", methods{"GET": v1(s.serviceListV1)})
	handle("/nacos/v1/ns/service/subscribers", methods{"GET": v1(s.subscribersV1)})
	for _, operator := range [...]string{"operator", "ops"} {
		handle("/nacos/v1/ns/"+operator+"/metrics", methods{"GET": v1(s.metricsV1)})
		handle("/nacos/v1/ns/"+operator+"/switches", methods{"GET": v1(s.switchesV1), "PUT": v1(s.changeSwitchV1)})
		handle("/nacos/v2/ns/"+operator+"/metrics", methods{"GET": v2(s.metricsV2)})
		handle("/nacos/v2/ns/"+operator+"/switches", methods{"GET": v2(s.switchesV2), "PUT": v2(s.changeSwitchV2)})
	}

	handle("/nacos/v2/ns/instance", methods{
		"POST": v2(s.registerV2), "DELETE": v2(s.deregisterV2), "PUT": v2(s.updateV2),
		"PATCH": raw(s.patchV2), "GET": v2(s.detailV2),
	})
	handle("/nacos/v2/ns/instance/list", methods{"GET": v2(s.listV2)})
	handle("/nacos/v2/ns/instance/beat", methods{"PUT": raw(s.beatV2)})
	statuses := raw(s.statusesV2)
	handle("/nacos/v2/ns/instance/statuses/{key}", methods{"GET": statuses, "POST": statuses, "PUT": statuses, "DELETE": statuses})
	handle("/nacos/v2/ns/instance/metadata/batch", methods{"PUT": v2(s.setMetadataV2), "DELETE": v2(s.removeMetadataV2)})
	handle("/nacos/v2/ns/service", methods{
		"POST": v2(s.createServiceV2), "DELETE": v2(s.deleteServiceV2), "PUT": v2(s.updateServiceV2), "GET": v2(s.serviceV2),
	})
	handle("/nacos/v2/ns/service/list", methods{"GET": v2(s.serviceListV2)})

	handle("/nacos/v1/auth/login", methods{"POST": v1(s.login)})
	handle("/nacos/v1/auth/users/login", methods{"POST": v1(s.login)})

	mux.HandleFunc("GET /rollcall/v1/nodes", s.nodes)
	mux.HandleFunc("DELETE /rollcall/v1/nodes/{node}", s.removeNode)
	mux.HandleFunc("GET /rollcall/v1/snapshot", s.saveSnapshot)
	mux.HandleFunc("POST /rollcall/v1/snapshot", s.restoreSnapshot)
	mux.HandleFunc("POST /rollcall/v1/drain", s.live(func(l Life) error { return l.Drain(true) }))
	mux.HandleFunc("DELETE /rollcall/v1/drain", s.live(func(l Life) error { return l.Drain(false) }))
	mux.HandleFunc("POST /rollcall/v1/leave", s.live(Life.Leave))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { text("ok\n").write(w) })
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.cfg.Metrics)
	mux.HandleFunc("GET /nacos", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://"+r.Host+"/nacos/")
		answer{status: http.StatusFound}.write(w)
	})
	mux.HandleFunc("GET /nacos/{$}", s.page)
	mux.HandleFunc("GET /nacos/index.html", s.page)
	return s.guard(mux)
}

// answered calls a handler. A read with consistent=true waits first until this node
// shows all that was acknowledged before.
func answered[A any](s *Server, q *request, h func(*request) (A, error)) (A, error) {
	if text := q.params["consistent"]; text != "" && (q.Method == http.MethodGet || q.Method == http.MethodHead) {
		consistent, err := trueOrFalse("consistent", text)
		if err == nil && consistent {
			err = s.registry.AwaitConsistent(q.Context())
		}
		if err != nil {
			return *new(A), err
		}
	}
	return h(q)
}

// trueOrFalse reads the value of a parameter of our own.
func trueOrFalse(name, text string) (bool, error) {
	switch text {
	case "true", "false":
		return text == "true", nil
	}
	return false, &naming.InvalidError{Fault: naming.FaultValue, Field: name, Text: name + " is " + strconv.Quote(text) + ": it must be true or false"}
}

// methods serves one path: the right handler, or the answer that the path exists
// and which methods it has.
func (s *Server) methods(m methods) http.Handler {
	if h := m["GET"]; h != nil {
		m["HEAD"] = h
	}
	var names []string
	for _, name := range [...]string{"PATCH", "POST", "DELETE", "PUT", "GET", "HEAD"} {
		if m[name] != nil {
			names = append(names, name)
		}
	}
	allow := strings.Join(append(names, "OPTIONS"), ",")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := m[r.Method]
		switch {
		case h == nil && r.Method == http.MethodOptions && strings.HasPrefix(r.URL.Path, "/nacos/v2/"):
			w.Header().Set("Allow", allow)
			answer{status: http.StatusOK}.write(w)
			return
		case h == nil:
			w.Header().Set("Allow", allow)
			(&filterError{http.StatusMethodNotAllowed, "Method '" + r.Method + "' is not supported."}).answer(r.URL.Path).write(w)
			return
		}
		h(&request{r, parse(r)}).write(w)
	})
}

// guard answers what no handler should see: odd and unknown paths, and everything
// under /nacos while the node is not ready.
func (s *Server) guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol := strings.HasPrefix(r.URL.Path, "/nacos")
		if protocol && s.registry.Ready() != nil {
			answer{status: http.StatusServiceUnavailable, body: []byte("server is STARTINGnow, please try again later!")}.write(w)
			return
		}
		if cleaned := path.Clean(r.URL.Path); cleaned == r.URL.Path || cleaned+"/" == r.URL.Path {
			switch h, pattern := mux.Handler(r); {
			case strings.Contains(pattern, "{"): // the path holds a value, which only the mux takes out
				mux.ServeHTTP(w, r)
				return
			case pattern != "":
				h.ServeHTTP(w, r)
				return
			}
		}
		if protocol {
			(&filterError{http.StatusNotFound, "No message available"}).answer(r.URL.Path).write(w)
			return
		}
		answer{http.StatusNotFound, "text/html;charset=utf-8", []byte("<!doctype html><title>404</title>Not found. Rollcall serves the naming API under /nacos, and /livez, /readyz and /metrics.\n")}.write(w)
	})
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

// nodes tells what this node knows of all nodes.
func (s *Server) nodes(w http.ResponseWriter, _ *http.Request) {
	b, err := json.Marshal(struct {
		Nodes []naming.NodeState `json:"nodes"`
	}{s.cfg.Nodes()})
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
