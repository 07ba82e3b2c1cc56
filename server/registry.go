package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/consistency"
	"rollcall/naming"
)

// Registry is what the front ends call: one method for each thing that a client
// or an operator can want. Errors are *naming.InvalidError for a request that is
// wrong, and those of package consistency for one that cannot be served now. Safe
// for concurrent use.
type Registry struct {
	cfg    Config
	router *consistency.Router
	log    *slog.Logger
	views  *views
	beats  *beats
	nodes  *ownership
	timers *timers
	// renewals passes heartbeats on to other nodes; nil on a node that is alone.
	renewals *renewals
	// stopping is set when the node is about to stop: that it closes connections
	// says nothing about their clients.
	stopping atomic.Bool
	// draining is set while this node takes no new clients and has those that it has go
	// elsewhere. It serves them until they do.
	draining atomic.Bool
	moving   moving

	empty  emptyServices
	absent absentOverrides
	recent recentInstances
	// hooks are what the registry needs of the push engine and of the gRPC front
	// end; node.go sets them before Start.
	notify        func(naming.ServiceKey)
	watched       func(naming.ServiceKey) bool
	subscriptions func() int
	connections   func() int
	staying       func() int // connections whose client was not asked to go elsewhere
	// reached returns why this node cannot know yet what the others have; nil once it
	// can.
	reached func() error
	// elected returns why this node is not yet to be counted on by who stops others; nil
	// once it is.
	elected func() error
	// consistent waits until this node shows every persistent write that any node has
	// acknowledged. Writes that depend on what is there wait for it first: else one
	// through another node than the last might find nothing to change.
	consistent func(ctx context.Context) error
	connected  func() []naming.Client
	pushes     func(enabled bool)
	populated  func(naming.ServiceKey)       // told when a service gets its first instance, or loses its last
	owner      func(publisher string) string // address of the node that owns what it publishes

	started  time.Time
	switches atomic.Pointer[naming.Switches]
	local    localSwitches

	lingering lingering

	ids     atomic.Uint64 // of the snowflake generator
	cleanCh chan func(context.Context)
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

func newRegistry(cfg Config, router *consistency.Router, log *slog.Logger, reg prometheus.Registerer) *Registry {
	r := &Registry{
		cfg: cfg, router: router, log: log,
		notify: func(naming.ServiceKey) {}, watched: func(naming.ServiceKey) bool { return false },
		consistent:    func(context.Context) error { return nil },
		subscriptions: func() int { return 0 }, connections: func() int { return 0 }, staying: func() int { return 0 },
		reached:   func() error { return nil },
		elected:   func() error { return nil },
		connected: func() []naming.Client { return nil }, owner: func(string) string { return "" },
		pushes: func(bool) {}, populated: func(naming.ServiceKey) {}, started: time.Now(),
		cleanCh: make(chan func(context.Context), cleanQueue),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.ids.Store(uint64(time.Now().UnixMilli()) << 12)
	r.local.values = make(map[string]string)
	r.lingering.publishers = make(map[string]struct{})
	r.empty.since = make(map[naming.ServiceKey]time.Time)
	r.absent.since = make(map[overrideKey]time.Time)
	r.moving.services = make(map[naming.ServiceKey]map[string]*absence)
	r.recent.byKey = make(map[overrideKey]*naming.Instance)
	r.absent.planned = make(map[naming.ServiceKey]struct{})
	r.views = newViews(router.Service, func(k naming.ServiceKey) bool { return r.watched(k) }, cfg.CacheTime.Milliseconds())
	r.beats = newBeats(router, log)
	r.timers = newTimers(r.beats.paused)
	r.beats.timers = r.timers
	r.nodes = r.beats.nodes
	r.beats.enabled = func() bool { return r.Switches().HealthCheckEnabled }
	r.beats.expired = func(svc naming.ServiceKey, i *naming.Instance) { r.lost(svc, []*naming.Instance{i}, nil) }
	r.loadSwitches()
	router.Listen(r.changed)
	gauge := func(name, help string, of func(naming.Counts) int) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(of(r.Counts())) }))
	}
	gauge("rollcall_services", "Services, empty ones included.", func(c naming.Counts) int { return c.Services })
	gauge("rollcall_instances", "Published instances.", func(c naming.Counts) int { return c.Instances })
	gauge("rollcall_subscriptions", "Subscriptions of clients.", func(c naming.Counts) int { return c.Subscriptions })
	return r
}

// AwaitConsistent waits until this node shows every persistent write that was
// acknowledged before the call, by any node. It asks the leader; without one it
// returns ErrNoLeader within seconds.
func (r *Registry) AwaitConsistent(ctx context.Context) error { return r.consistent(ctx) }

// start begins to expire and to clean.
func (r *Registry) start() error {
	for _, k := range r.router.Services("") { // what the disk brought
		r.settle(k)
	}
	r.wg.Go(func() { r.timers.run(r.ctx.Done()) })
	r.wg.Go(r.clean)
	if r.renewals != nil {
		r.beats.watch(time.Now())
		r.wg.Go(func() { r.renewals.run(r.ctx) })
	}
	return nil
}

func (r *Registry) close() error {
	r.cancel()
	r.wg.Wait()
	return nil
}

// changed hears of every change, after it.
func (r *Registry) changed(c consistency.ServiceChanged) {
	switch {
	case c.Service == (naming.ServiceKey{}):
		r.loadSwitches()
		return
	case c.Service.Name == "": // a namespace, which is read where it is asked for
		return
	}
	r.views.changed(c.Service)
	r.settle(c.Service)
	r.notify(c.Service)
}

// Idle tells that nobody subscribes to the service any more; see push.Source.
func (r *Registry) Idle(k naming.ServiceKey) {
	if st, _ := r.router.Stat(k); !st.Exists {
		r.views.drop(k)
	}
}

// Ready returns nil once the node may serve, else the reason why not.
func (r *Registry) Ready() error { return errors.Join(r.router.Ready(), r.reached()) }

// Wanted returns nil if clients should come to this node, else the reason why not. A
// node that is drained, or waits for its vote, serves whoever is there all the same.
func (r *Registry) Wanted() error {
	if r.draining.Load() || r.stopping.Load() {
		return errDraining
	}
	if err := r.Ready(); err != nil {
		return err
	}
	return r.elected()
}

var errDraining = errors.New("draining: this node takes no new clients")

// Register makes instances all that a publisher has in a service; several are a
// batch. They must be of one kind. For a publisher that is an ip:port, ephemeral
// instances must beat from now on.
func (r *Registry) Register(ctx context.Context, svc naming.ServiceKey, publisher string, instances ...*naming.Instance) error {
	if len(instances) == 0 {
		return errors.New("register without an instance")
	}
	batch := len(instances) > 1
	return r.publish(ctx, svc, publisher, instances[0].Ephemeral, batch, instances)
}

// RegisterBatch is Register for ephemeral instances, of which there may be none.
func (r *Registry) RegisterBatch(ctx context.Context, svc naming.ServiceKey, publisher string, instances []*naming.Instance) error {
	return r.publish(ctx, svc, publisher, true, true, instances)
}

func (r *Registry) publish(ctx context.Context, svc naming.ServiceKey, publisher string, ephemeral, batch bool, instances []*naming.Instance) error {
	if err := naming.CheckKey(svc); err != nil {
		return err
	}
	published := make([]*naming.Instance, len(instances))
	for n, i := range instances {
		if err := naming.CheckInstance(i, r.cfg.MetadataLimit); err != nil {
			if batch {
				return elementError(n, err)
			}
			return err
		}
		published[n] = r.identified(svc, i)
	}
	beats := ephemeral && !batch && publisher == published[0].Key().Address()
	if beats {
		if node, other := r.nodes.away(ctx, publisher); other {
			done, err := r.nodes.register(ctx, node, svc, publisher, published[0])
			if done {
				return err
			}
			r.log.Debug("registration taken for another node", "peer", node, "instance", publisher, "err", err)
		}
		ctx = consistency.WithForwarded(ctx)
	}
	st, kind := r.router.Stat(svc)
	if err := checkKind(svc, kind, ephemeral, batch); err != nil {
		return err
	}
	if st.Exists { // what is kept of a client shares what all have
		svc = st.Key
		for n, i := range published {
			if maps.Equal(i.Metadata, st.Metadata) {
				published[n] = i.With(func(c *naming.Instance) { c.Metadata = st.Metadata })
			}
		}
	}
	before := r.router.Store(ephemeral).Published(svc, publisher)
	var err error
	if beats {
		err = r.beats.register(ctx, beatKey{svc, publisher}, published[0])
	} else {
		err = r.router.Publish(ctx, ephemeral, consistency.Publication{Service: svc, Publisher: publisher, Instances: published})
	}
	if err == nil {
		r.lost(svc, before, published)
	}
	return err
}

// elementError names the element of a batch that was refused.
func elementError(n int, err error) error {
	var invalid *naming.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	return &naming.InvalidError{Fault: invalid.Fault, Field: invalid.Field, Text: fmt.Sprintf("%s (instances[%d])", invalid.Text, n)}
}

// identified gives an instance that asks for one a generated id.
func (r *Registry) identified(svc naming.ServiceKey, i *naming.Instance) *naming.Instance {
	if i.ID != "" || i.Metadata[naming.MetaIDGenerator] != "snowflake" {
		return i
	}
	id := strconv.FormatUint(r.ids.Add(1), 10)
	return i.With(func(c *naming.Instance) { c.ID = id + "#" + i.Cluster + "#" + svc.Grouped() })
}

// checkKind refuses instances of a kind that the service does not take.
func checkKind(svc naming.ServiceKey, kind naming.Kind, ephemeral, batch bool) error {
	if kind == naming.KindNone || kind == naming.KindOf(ephemeral) {
		return nil
	}
	has, wants := "persistent", "ephemeral"
	if !ephemeral {
		has, wants = wants, has
	}
	verb := "register"
	if batch {
		verb = "batch register"
	}
	return &naming.InvalidError{Fault: naming.FaultKind, Field: "ephemeral", Text: fmt.Sprintf("Current service %s is %s service, can't %s %s instance.", svc.Grouped(), has, verb, wants)}
}

// Deregister withdraws what a publisher has in a service. Of a batch only the
// member at the key's ip and port goes; a single instance goes whatever its address.
// What is in another cluster than the key's stays, unless the key names none. Nothing
// there is no error.
func (r *Registry) Deregister(ctx context.Context, svc naming.ServiceKey, publisher string, ephemeral bool, k naming.InstanceKey) error {
	if err := naming.CheckKey(svc); err != nil {
		return err
	}
	if ephemeral {
		if node, other := r.nodes.away(ctx, publisher); other {
			done, err := r.nodes.deregister(ctx, node, svc, publisher, k)
			if done {
				return err
			}
			r.log.Debug("deregistration taken for another node", "peer", node, "instance", publisher, "err", err)
		}
		ctx = consistency.WithForwarded(ctx)
	} else if err := r.consistent(ctx); err != nil { // what other nodes took a moment ago is withdrawn, too
		return err
	}
	var kept, gone []*naming.Instance
	published := r.router.Store(ephemeral).Published(svc, publisher)
	for _, i := range published {
		if len(published) > 1 && (i.IP != k.IP || i.Port != k.Port) || k.Cluster != "" && i.Cluster != k.Cluster {
			kept = append(kept, i)
		} else {
			gone = append(gone, i)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	err := r.beats.withdraw(beatKey{svc, publisher}, func() error {
		return r.router.Publish(ctx, ephemeral, consistency.Publication{Service: svc, Publisher: publisher, Instances: kept})
	})
	if err != nil {
		return err
	}
	r.recent.forget(svc, gone)
	if ephemeral {
		r.endLinger(ctx, svc, gone)
	}
	if !r.cfg.KeepOverrides {
		r.dropOverrides(ctx, svc, gone)
	}
	return nil
}

// dropOverrides removes the overrides of instances that were deregistered on
// purpose: a new process on the old address must not inherit them. Where that
// cannot be written now they expire by themselves.
func (r *Registry) dropOverrides(ctx context.Context, svc naming.ServiceKey, gone []*naming.Instance) {
	if st, _ := r.router.Stat(svc); st.Overrides == 0 {
		return
	}
	s, _ := r.router.Service(svc)
	for _, i := range gone {
		if s.Overrides[i.Key()] == nil || s.Find(i.Key()) != nil { // another publisher has it still
			continue
		}
		key := consistency.Key{Service: svc, Kind: consistency.KindOverride, Instance: i.Key()}
		if err := r.router.DeletePersistent(ctx, key); err != nil {
			r.log.Warn("override stays until it expires", "service", svc.String(), "instance", i.Key().Address(), "err", err)
		}
	}
}

// ConnectionLost removes what a publisher had in the services, after the linger:
// a client that reconnects registers anew within that time, and subscribers see
// nothing. One that was asked to move, or whose node is drained, gets more time, and
// all do while a node is silent. It does not block.
func (r *Registry) ConnectionLost(publisher string, services []naming.ServiceKey, moved bool) {
	if len(services) == 0 {
		return
	}
	if moved || r.draining.Load() || r.stopping.Load() {
		r.moving.add(r, publisher, services)
		return
	}
	r.lingering.set(publisher, true)
	lost := time.Now()
	r.nodes.hear()
	r.timers.at(lost.Add(r.cfg.Linger), taskFunc(func(now time.Time) { r.lingerOver(publisher, services, lost, now) }))
}

// lingerOver decides about the instances of a connection that was lost. It waits a little
// for nodes that have said nothing since: a cut is noticed after a moment, and the client
// may have gone where this node hears nothing from.
func (r *Registry) lingerOver(publisher string, services []naming.ServiceKey, lost, now time.Time) {
	if !r.stopping.Load() && now.Before(lost.Add(r.cfg.Linger+rosterFresh)) && !r.nodes.heard(lost) {
		r.timers.at(now.Add(movingEvery), taskFunc(func(now time.Time) { r.lingerOver(publisher, services, lost, now) }))
		return
	}
	r.lingering.set(publisher, false)
	switch {
	case r.stopping.Load():
		return
	case r.nodes.cutOff():
		r.moving.add(r, publisher, services)
		return
	}
	for _, svc := range services {
		r.withdraw(svc, publisher, r.router.Store(true).Published(svc, publisher))
	}
}

// ServiceInfo returns what a client sees of a service through a filter; an
// unknown service has no hosts. It implements push.Source.
func (r *Registry) ServiceInfo(svc naming.ServiceKey, f naming.Filter) *naming.ServiceInfo {
	return r.views.get(svc, f)
}

// Service returns a service with everything that is known of it.
func (r *Registry) Service(svc naming.ServiceKey) (naming.Service, bool) {
	s, ok := r.router.Service(svc)
	return s, ok || r.empty.has(svc)
}

// Instance returns one instance as operators see it. Without one of that cluster,
// ip and port the error is of FaultResourceUnknown.
func (r *Registry) Instance(svc naming.ServiceKey, k naming.InstanceKey) (*naming.Instance, error) {
	if err := naming.CheckKey(svc); err != nil {
		return nil, err
	}
	s, _ := r.router.Service(svc)
	if i := s.Find(k); i != nil {
		return i, nil
	}
	text := "no matched ip found!"
	if len(s.Instances) == 0 {
		text = "no ips found for cluster " + k.Cluster + " in service " + svc.Grouped()
	}
	return nil, &naming.InvalidError{Fault: naming.FaultResourceUnknown, Field: "ip", Text: text}
}

// Counts returns numbers for operators; it looks at every service.
func (r *Registry) Counts() naming.Counts {
	c := naming.Counts{EphemeralPublishers: r.beats.clients(), Connections: r.connections(), Subscriptions: r.subscriptions()}
	publishers := make(map[string]struct{})
	for _, k := range r.serviceKeys("") {
		st, kind := r.router.Stat(k)
		c.Services++
		c.Instances += st.Instances
		if kind == naming.KindPersistent && st.Instances > 0 {
			s, _ := r.router.Service(k)
			for _, i := range s.Instances {
				publishers[i.Key().Address()] = struct{}{}
			}
		}
	}
	c.PersistentPublishers = len(publishers)
	return c
}

// IDs returns the last number that the generator of instance ids gave out, and which
// generator it is: there is one on each node.
func (r *Registry) IDs() (current, worker uint64) { return r.ids.Load(), 0 }
