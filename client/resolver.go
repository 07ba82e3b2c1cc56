package client

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/resolver"

	"rollcall/naming"
)

// Scheme is the one of targets that [Client.Resolver] resolves.
const Scheme = "rollcall"

// BalancerName is the name of [Balancer] in a service configuration.
const BalancerName = "rollcall_weighted"

// weightKey is the key of an instance's weight among an address's attributes.
type weightKey struct{}

// weight is that of one address, now. Attributes are part of what an address is to
// grpc-go, so they hold one pointer for as long as the address is told: another value
// would be another connection.
type weight struct {
	changes *atomic.Uint64 // raised at each change of a weight of the service
	bits    atomic.Uint64  // of the float64
}

// Weight returns the present weight of an address that a client has resolved; 1 for any
// other.
func Weight(a resolver.Address) float64 {
	if w, ok := a.Attributes.Value(weightKey{}).(*weight); ok {
		return math.Float64frombits(w.bits.Load())
	}
	return 1
}

// Resolver returns a resolver for grpc-go, for grpc.WithResolvers. Its targets are
// rollcall:///group/service, or rollcall:///service for DEFAULT_GROUP; ?cluster=a,b names
// clusters. Addresses are the instances that are healthy, enabled and of a weight above
// zero, and follow the registry's changes. While there is none, connections report
// [ErrNoInstance]. With [Balancer] calls are spread by weight, with round_robin evenly.
//
//	conn, err := grpc.NewClient("rollcall:///orders", grpc.WithResolvers(c.Resolver()), ...)
//
// A connection must be closed before the client.
func (c *Client) Resolver() resolver.Builder { return &resolverBuilder{c} }

type resolverBuilder struct{ client *Client }

func (b *resolverBuilder) Scheme() string { return Scheme }

// target reads the service and the clusters of a target.
func target(u url.URL) (svc naming.ServiceKey, clusters string, err error) {
	bad := func(rule string) (naming.ServiceKey, string, error) {
		return svc, "", fmt.Errorf("target is %q: %s; write %s:///group/service?cluster=name", u.String(), rule, Scheme)
	}
	path := strings.TrimPrefix(u.Path, "/")
	if u.Opaque != "" {
		path = u.Opaque
	}
	group, name, grouped := strings.Cut(path, "/")
	if !grouped {
		group, name = naming.DefaultGroup, path
	}
	switch {
	case u.Host != "":
		return bad("there is no host in it, the client knows the servers")
	case name == "":
		return bad("the service is missing")
	case strings.Contains(name, "/"):
		return bad("it has too many parts")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("its query cannot be read")
	}
	for key := range q {
		if key != "cluster" {
			return bad("cluster is the one parameter")
		}
	}
	return naming.ServiceKey{Group: group, Name: name}, strings.Join(q["cluster"], ","), nil
}

// Build is called by grpc-go. It does not block.
func (b *resolverBuilder) Build(t resolver.Target, conn resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	svc, clusters, err := target(t.URL)
	if err != nil {
		return nil, err
	}
	r := &serviceResolver{client: b.client, svc: svc, filter: naming.Filter{Clusters: clusters}, conn: conn}
	r.ctx, r.cancel = context.WithCancel(b.client.closing)
	if _, err := b.client.key(svc); err != nil {
		return nil, fmt.Errorf("target is %q: %w", t.URL.String(), err)
	}
	r.wg.Go(r.run)
	return r, nil
}

// serviceResolver tells one connection of the service's instances.
type serviceResolver struct {
	client *Client
	svc    naming.ServiceKey
	filter naming.Filter
	conn   resolver.ClientConn
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	// Used by run alone.
	weights map[string]*weight
	changes atomic.Uint64
}

// ResolveNow does nothing: changes come by themselves.
func (r *serviceResolver) ResolveNow(resolver.ResolveNowOptions) {}

// Close is called by grpc-go.
func (r *serviceResolver) Close() {
	r.cancel()
	r.wg.Wait()
}

func (r *serviceResolver) run() {
	sub, err := r.client.SubscribeChan(r.ctx, r.svc, r.filter)
	if err != nil {
		if r.ctx.Err() == nil {
			r.conn.ReportError(err)
		}
		return
	}
	defer sub.Close()
	for {
		select {
		case <-r.ctx.Done():
			return
		case change, open := <-sub.Changes():
			if !open {
				return
			}
			r.tell(change.Service)
		}
	}
}

func (r *serviceResolver) tell(s Service) {
	t := newTable(s.Instances)
	var endpoints []resolver.Endpoint
	weights, before := make(map[string]*weight, len(t.sums)), 0.0
	for n, i := range t.instances {
		address := net.JoinHostPort(i.IP, strconv.Itoa(i.Port))
		w := r.weights[address]
		if w == nil {
			w = &weight{changes: &r.changes}
		}
		weights[address] = w
		w.bits.Store(math.Float64bits(t.sums[n] - before))
		before = t.sums[n]
		a := resolver.Address{Addr: address, Attributes: attributes.New(weightKey{}, w)}
		endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
	}
	r.weights = weights
	r.changes.Add(1)
	if len(endpoints) == 0 {
		r.conn.ReportError(fmt.Errorf("%s: %w", r.svc.Grouped(), ErrNoInstance))
	}
	// An error means that the balancer wants to be told again, which the next change does.
	_ = r.conn.UpdateState(resolver.State{Endpoints: endpoints, Addresses: flat(endpoints)})
}

func flat(endpoints []resolver.Endpoint) []resolver.Address {
	out := make([]resolver.Address, 0, len(endpoints))
	for _, e := range endpoints {
		out = append(out, e.Addresses...)
	}
	return out
}

// Balancer returns a balancer for grpc-go that chooses by the instances' weights among
// those that are connected. The application registers it once, before it dials:
//
//	balancer.Register(client.Balancer())
//	grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"` + client.BalancerName + `":{}}]}`)
func Balancer() balancer.Builder {
	return base.NewBalancerBuilder(BalancerName, weightedPickers{}, base.Config{HealthCheck: true})
}

type weightedPickers struct{}

// Build is called by grpc-go whenever the connected instances have changed.
func (weightedPickers) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	p := new(weightedPicker)
	for conn, of := range info.ReadySCs {
		p.conns = append(p.conns, conn)
		p.addresses = append(p.addresses, of.Address)
		if w, ok := of.Address.Attributes.Value(weightKey{}).(*weight); ok {
			p.changes = w.changes
		}
	}
	p.sums.Store(p.sum())
	return p
}

type weightedPicker struct {
	conns     []balancer.SubConn
	addresses []resolver.Address
	changes   *atomic.Uint64 // nil: the weights never change
	sums      atomic.Pointer[weightSums]
}

// weightSums are the sums of weights up to each connection, as of a number of changes.
type weightSums struct {
	at   uint64
	sums []float64
}

func (p *weightedPicker) sum() *weightSums {
	s := new(weightSums)
	if p.changes != nil {
		s.at = p.changes.Load()
	}
	sum := 0.0
	for _, a := range p.addresses {
		sum += Weight(a)
		s.sums = append(s.sums, sum)
	}
	return s
}

// Pick is called by grpc-go for each call.
func (p *weightedPicker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	s := p.sums.Load()
	if p.changes != nil && s.at != p.changes.Load() {
		s = p.sum()
		p.sums.Store(s)
	}
	return balancer.PickResult{SubConn: p.conns[above(s.sums, rand.Float64()*s.sums[len(s.sums)-1])]}, nil
}
