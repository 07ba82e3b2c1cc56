package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"rollcall/consistency"
	"rollcall/distro"
	"rollcall/naming"
	"rollcall/push"
	"rollcall/raftstore"
	"rollcall/server/grpcapi"
	"rollcall/server/httpapi"
	"rollcall/server/wire"
)

// Node is one node of the registry. Use [New].
type Node struct {
	cfg      Config
	log      *slog.Logger
	registry *Registry
	http     net.Listener
	grpc     net.Listener
	parts    []part // in the order of their start
	life     *life  // nil on a node that is alone
	failedCh chan error

	mu     sync.Mutex
	closed bool
}

// part is something that is started and closed.
type part struct {
	name  string
	start func() error
	close func() error
}

// New opens every listener and the data folder of a node. Nothing runs yet; Close
// must be called also if Start never is. version is shown to operators.
func New(cfg Config, version string, log *slog.Logger) (n *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	cfg = cfg.withDerived()
	if cfg.Node == "" {
		if cfg.Node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("node is empty and the host has no name: %w", err)
		}
	}
	levels := new(logLevels)
	n = &Node{cfg: cfg, log: slog.New(levels.handler(log.Handler())).With("node", cfg.Node), failedCh: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
			n = nil
		}
	}()

	if n.http, err = listen(cfg.Bind, cfg.Port, "port"); err != nil {
		return n, err
	}
	n.add("http listener", nil, closeListener(n.http))
	socket, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", n.http.Addr().String())
	if err != nil {
		return n, fmt.Errorf("listen for UDP acknowledgements: %w; choose another --port", err)
	}
	n.add("udp socket", nil, func() error { return ignoreClosed(socket.Close()) })
	if n.grpc, err = listen(cfg.Bind, cfg.GRPCPort, "grpc-port"); err != nil {
		return n, err
	}
	n.add("grpc listener", nil, closeListener(n.grpc))

	raftConfig := raftstore.DefaultConfig()
	raftConfig.Dir = filepath.Join(cfg.DataDir, "raft")
	raftConfig.Node = cfg.Node
	raftConfig.Bind = net.JoinHostPort(cfg.Bind, strconv.Itoa(cfg.RaftPort))
	raftConfig.Logger = n.log
	if ip := net.ParseIP(cfg.Bind); ip.IsUnspecified() && cfg.RaftPort != 0 {
		raftConfig.Advertise = net.JoinHostPort(n.IP(), strconv.Itoa(cfg.RaftPort))
	}
	raftConfig.Expect = cfg.BootstrapExpect
	raftConfig.Failed = n.fail
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	raftConfig.Metrics = metrics
	if cfg.Pprof != "" {
		p, err := newProfiles(cfg.Pprof)
		if err != nil {
			return n, err
		}
		n.add("profiles", p.start, p.close)
	}
	link := new(link)
	if cfg.clustered() {
		link.configure(&raftConfig)
	}
	persistent, err := raftstore.New(raftConfig)
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			err = fmt.Errorf("%w; choose another --raft-port", err)
		}
		return n, err
	}
	n.add("raftstore", persistent.Start, persistent.Close)
	var durable consistency.Store = persistent
	if cfg.clustered() {
		if err := n.connect(link, persistent, version, metrics); err != nil {
			return n, err
		}
		durable = link.forwarding(persistent)
	}
	distroConfig := distro.DefaultConfig()
	distroConfig.Node, distroConfig.Logger, distroConfig.Metrics = cfg.Node, n.log, metrics
	distroConfig.Grace, distroConfig.GraceSilent = cfg.Grace, cfg.GraceSilent
	if cfg.clustered() {
		link.configureDistro(&distroConfig, persistent)
	}
	ephemeral, err := distro.New(distroConfig)
	if err != nil {
		return n, err
	}
	n.add("distro", ephemeral.Start, ephemeral.Close)

	n.registry = newRegistry(cfg, consistency.NewRouter(ephemeral, durable), n.log.With("component", "registry"), metrics)
	state := func(buckets bool) *wire.StateReply {
		return link.load(n.state(persistent.State(), ephemeral, buckets, version))
	}
	if cfg.clustered() {
		link.registry = n.registry
		if err := n.serveNodes(link, persistent, ephemeral, state); err != nil {
			return n, err
		}
		// After the front ends: a write that came to a node outside Raft would wait for
		// ever to be shown there.
		n.add("leave", nil, func() error { return n.life.end() })
	}
	engine, err := push.New(cfg.Push, n.registry, metrics)
	if err != nil {
		return n, err
	}
	n.add("push", engine.Start, engine.Close)
	link.engine = engine
	n.add("registry", n.registry.start, n.registry.close)

	clients := grpcapi.New(grpcapi.Config{
		IP: n.IP(), Idle: cfg.Idle, Detect: cfg.Detect, SetupWait: cfg.SetupWait, MoveTime: cfg.MoveLinger,
		Workers:        uint32(4 * runtime.GOMAXPROCS(0)),
		MaxConnections: cfg.MaxConnections, MaxConnectionsPerIP: cfg.MaxConnectionsPerIP,
		FuzzyPatterns: cfg.FuzzyPatterns, FuzzyMatches: cfg.FuzzyMatches,
	}, n.grpc, n.registry, engine, n.log, metrics)
	n.registry.notify = engine.Notify
	n.registry.watched = engine.Watched
	n.registry.pushes = engine.Enable
	n.registry.loadSwitches() // now that they reach the engine
	n.registry.subscriptions = engine.Subscriptions
	n.registry.connections = clients.Connections
	n.registry.consistent = persistent.WaitConsistent
	n.registry.staying = clients.Staying
	n.registry.connected = clients.Clients
	n.registry.populated = clients.Populated
	n.registry.owner = func(publisher string) string {
		if node, self := ephemeral.Owner(publisher); !self && link.members != nil {
			if m, ok := link.members.Get(node); ok {
				return net.JoinHostPort(m.IP, strconv.Itoa(m.HTTPPort))
			}
		}
		return net.JoinHostPort(n.IP(), strconv.Itoa(cfg.Port))
	}
	link.clients = clients
	n.add("grpc", clients.Start, clients.Close)
	archive := &backups{store: persistent, dir: cfg.DataDir}
	if cfg.clustered() {
		archive.send = link.peers.restoreOn
	}
	dead := &removal{remove: persistent.Remove}
	var elsewhere func(context.Context, naming.ServiceKey) []push.Subscription
	if cfg.clustered() {
		dead.send = link.peers.removeOn
		n.life = link.life(n, clients, persistent, ephemeral)
		elsewhere = link.subscribersElsewhere
	}
	metrics.MustRegister(newMonitor(n.registry, engine))
	web := httpapi.New(httpapi.Config{
		RemoveNode:           dead.run,
		Backups:              archive,
		Life:                 n.ofSeveral,
		ShutdownTimeout:      cfg.ShutdownTimeout / 2,
		Metrics:              promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}),
		MetricNames:          func() ([]string, error) { return metricNames(metrics) },
		Version:              version,
		Nodes:                func() []naming.NodeState { return n.nodes(link, persistent.State(), state(false)) },
		Compare:              func(ctx context.Context, nodes []naming.NodeState) { link.compare(ctx, nodes, state) },
		SubscribersElsewhere: elsewhere,
		Connections:          clients.ConnectionList,
		Reset:                clients.Reset,
		Shed: func(ctx context.Context, node string, keep int, redirect string) (int, error) {
			return link.shedOn(ctx, cfg.Node, node, keep, redirect)
		},
		SetLogLevel: levels.set,
	}, n.http, socket, n.registry, engine, n.log)
	n.add("http", web.Start, web.Close)
	if n.life != nil {
		n.add("hand-over", n.life.spread.start, n.life.handOver)
	}
	return n, nil
}

// Left returns a channel that is closed when an operator told the node to leave for
// good: the process should close the node and end.
func (n *Node) Left() <-chan struct{} {
	if n.life == nil {
		return nil
	}
	return n.life.leaveCh
}

func (n *Node) add(name string, start, stop func() error) {
	n.parts = append(n.parts, part{name, start, stop})
}

// InspectBackup reads a whole backup, verifies it and says what is in it. The error
// is a *naming.InvalidError for what is no backup that this program can use.
func InspectBackup(r io.Reader) (naming.Backup, error) { return raftstore.Inspect(r) }

// Start starts every part in order. After an error, Close stops those that run.
func (n *Node) Start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.parts {
		if p.start != nil {
			if err := p.start(); err != nil {
				return fmt.Errorf("start %s: %w", p.name, err)
			}
		}
	}
	n.log.Info("node started", "http", n.http.Addr().String(), "grpc", n.grpc.Addr().String(), "data", n.cfg.DataDir)
	return nil
}

// Close stops every part, the last first, and returns all their errors.
func (n *Node) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	if n.registry != nil {
		n.registry.stopping.Store(true)
	}
	if n.life != nil && n.cfg.LeaveOnStop {
		n.life.leaving.Store(true)
	}
	var errs []error
	for _, p := range slices.Backward(n.parts) {
		if err := p.close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// Failed returns a channel that gets a value when the node can not go on, such as
// when the leader writes what this program is too old for: the process should close
// the node and end.
func (n *Node) Failed() <-chan error { return n.failedCh }

func (n *Node) fail(err error) {
	select {
	case n.failedCh <- err:
	default:
	}
}

// Ready returns nil once the node serves, else the reason why not.
func (n *Node) Ready() error { return n.registry.Ready() }

// HTTPAddr is where the node listens for HTTP and, over UDP, for acknowledgements.
func (n *Node) HTTPAddr() string { return n.http.Addr().String() }

// GRPCAddr is where the node listens for gRPC clients.
func (n *Node) GRPCAddr() string { return n.grpc.Addr().String() }

// IP is the node's own address, as it tells it to clients: the advertised one, the
// one it is bound to, or the first of the host.
func (n *Node) IP() string {
	if n.cfg.Advertise != "" {
		return n.cfg.Advertise
	}
	if !net.ParseIP(n.cfg.Bind).IsUnspecified() {
		return n.cfg.Bind
	}
	addresses, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addresses {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
				return ip.IP.String()
			}
		}
	}
	return "127.0.0.1"
}

func listen(bind string, port int, name string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort(bind, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on %s %d: %w; choose another --%s", name, port, err, name)
	}
	return l, nil
}

func closeListener(l net.Listener) func() error {
	return func() error { return ignoreClosed(l.Close()) }
}

// ignoreClosed passes over what a part has closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
