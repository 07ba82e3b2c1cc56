package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/naming"
	"rollcall/server/wire"
)

// ownership says which node keeps the time of a client over HTTP: it alone takes it
// to be silent, and all changes of what it published go through it. The zero value
// is that of a node that is alone.
type ownership struct {
	// owner returns the node that owns a publisher, and whether it is this one.
	owner func(publisher string) (node string, self bool)
	// mayExpire tells whether this node may take clients to be silent now.
	mayExpire func() bool
	// led tells whether this node is in contact with a leader, so on the side of most
	// nodes.
	led func() bool
	// heardSince tells whether all nodes that are alive have answered a question that
	// was asked since.
	heardSince func(time.Time) bool
	// askAll has all nodes asked soon, for heardSince.
	askAll func()
	// await returns when this node shows what the mark stands for.
	await func(ctx context.Context, mark *wire.ChangeReply) error
	ask   func(ctx context.Context, node, method string, request, reply proto.Message) error
}

// ownerTimeout bounds a call to an owner. One that does not answer for so long is
// as good as gone: then the request is served here, and the owner hears of it with
// the datum.
const ownerTimeout = time.Second

// away returns the node that has to take a request of a publisher, if it is another
// one. A request that another node passed on is taken where it is.
func (o *ownership) away(ctx context.Context, publisher string) (string, bool) {
	if o.owner == nil || consistency.Forwarded(ctx) {
		return "", false
	}
	node, self := o.owner(publisher)
	return node, !self
}

func (o *ownership) mine(publisher string) bool {
	if o.owner == nil {
		return true
	}
	_, self := o.owner(publisher)
	return self
}

func (o *ownership) calm() bool { return o.mayExpire == nil || o.mayExpire() }

// cutOff tells whether this node is likely to be what is cut off from the others.
func (o *ownership) cutOff() bool { return !o.calm() && o.led != nil && !o.led() }

// heard tells whether no node has become silent since.
func (o *ownership) heard(since time.Time) bool { return o.heardSince == nil || o.heardSince(since) }

// hear has all nodes asked soon, for heard.
func (o *ownership) hear() {
	if o.askAll != nil {
		o.askAll()
	}
}

// changeReply is the answer of an owner to a change.
type changeReply interface {
	proto.Message
	GetChange() *wire.ChangeReply
}

// pass makes a call to an owner and waits until its change is to be seen here.
// done is false when this node has to serve the request itself.
func (o *ownership) pass(ctx context.Context, node, method string, request proto.Message, reply changeReply) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	err = o.ask(ctx, node, method, request, reply)
	if invalid := (*naming.InvalidError)(nil); errors.As(err, &invalid) {
		return true, err
	}
	if err != nil {
		return false, err
	}
	// The change is made. Should news of it be late, they still come.
	_ = o.await(ctx, reply.GetChange())
	return true, nil
}

func (o *ownership) register(ctx context.Context, node string, svc naming.ServiceKey, publisher string, i *naming.Instance) (done bool, err error) {
	return o.pass(ctx, node, "Register", &wire.RegisterRequest{
		Service: peerServiceKey(svc), Publisher: publisher, Instance: peerInstance(i),
	}, new(wire.OwnedReply))
}

func (o *ownership) deregister(ctx context.Context, node string, svc naming.ServiceKey, publisher string, k naming.InstanceKey) (done bool, err error) {
	return o.pass(ctx, node, "Deregister", &wire.DeregisterRequest{
		Service: peerServiceKey(svc), Publisher: publisher, Ip: k.IP, Port: int32(k.Port), Cluster: k.Cluster,
	}, new(wire.OwnedReply))
}

func (o *ownership) beat(ctx context.Context, node string, svc naming.ServiceKey, ip string, port int, full *naming.Instance) (answer naming.BeatAnswer, done bool, err error) {
	request := &wire.BeatRequest{Service: peerServiceKey(svc), Ip: ip, Port: int32(port)}
	if full != nil {
		request.Instance = peerInstance(full)
	}
	reply := new(wire.BeatReply)
	if done, err = o.pass(ctx, node, "Beat", request, reply); err != nil {
		return naming.BeatAnswer{}, done, err
	}
	return naming.BeatAnswer{Known: reply.GetKnown(), Interval: time.Duration(reply.GetIntervalMs()) * time.Millisecond}, true, nil
}

// renewals carries heartbeats that this node has answered to the owners of their
// clients, many in one message.
type renewals struct {
	*ownership
	heard  func(beatKey, time.Duration) // takes one that has become this node's
	wakeCh chan struct{}                // told when something is pending

	mu      sync.Mutex
	pending map[beatKey]time.Time
	busy    map[string]bool // owners with a message under way
}

const (
	renewEvery = 100 * time.Millisecond
	renewMost  = 5000 // in one message
)

func newRenewals(o *ownership, heard func(beatKey, time.Duration)) *renewals {
	return &renewals{ownership: o, heard: heard, wakeCh: make(chan struct{}, 1), pending: make(map[beatKey]time.Time), busy: make(map[string]bool)}
}

// add notes a heartbeat of now. It does not block.
func (r *renewals) add(k beatKey) {
	r.mu.Lock()
	r.pending[k] = time.Now()
	r.mu.Unlock()
	r.wake()
}

// wake has what is pending sent. It does not block.
func (r *renewals) wake() {
	select {
	case r.wakeCh <- struct{}{}:
	default:
	}
}

// run sends what has come together for renewEvery, until ctx ends; then it waits for
// the messages that are under way.
func (r *renewals) run(ctx context.Context) {
	var sends sync.WaitGroup
	defer sends.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wakeCh:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewEvery):
		}
		for node, keys := range r.take() {
			sends.Go(func() { r.send(ctx, node, keys) })
		}
	}
}

// take returns what is to be sent, by owner. An owner with a message under way
// gets the rest later; what has become this node's own counts here.
func (r *renewals) take() map[string]map[beatKey]time.Time {
	out := make(map[string]map[beatKey]time.Time)
	own := make(map[beatKey]time.Time)
	r.mu.Lock()
	for k, at := range r.pending {
		node, self := r.owner(k.publisher)
		switch {
		case self:
			own[k] = at
		case r.busy[node] || len(out[node]) >= renewMost:
			continue
		case out[node] == nil:
			out[node] = map[beatKey]time.Time{k: at}
		default:
			out[node][k] = at
		}
		delete(r.pending, k)
	}
	for node := range out {
		r.busy[node] = true
	}
	r.mu.Unlock()
	for k, at := range own {
		r.heard(k, time.Since(at))
	}
	return out
}

// send sends one message. What could not be sent waits for the next round.
func (r *renewals) send(ctx context.Context, node string, keys map[beatKey]time.Time) {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	request := &wire.RenewRequest{Renewals: make([]*wire.Renewal, 0, len(keys))}
	for k, at := range keys {
		request.Renewals = append(request.Renewals, &wire.Renewal{
			Service: peerServiceKey(k.service), Publisher: k.publisher, AgoMs: time.Since(at).Milliseconds(),
		})
	}
	err := r.ask(ctx, node, "Renew", request, new(wire.RenewReply))
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.busy, node)
	if err != nil {
		for k, at := range keys {
			if _, later := r.pending[k]; !later {
				r.pending[k] = at
			}
		}
	}
	if len(r.pending) > 0 {
		r.wake()
	}
}

func peerServiceKey(k naming.ServiceKey) *wire.PeerService {
	return &wire.PeerService{Namespace: k.Namespace, Group: k.Group, Name: k.Name}
}

func serviceKeyOf(s *wire.PeerService) naming.ServiceKey {
	return naming.ServiceKey{Namespace: s.GetNamespace(), Group: s.GetGroup(), Name: s.GetName()}
}

func peerInstance(i *naming.Instance) *wire.PeerInstance {
	return &wire.PeerInstance{
		Id: i.ID, Ip: i.IP, Port: int32(i.Port), Cluster: i.Cluster, Weight: i.Weight,
		Healthy: i.Healthy, Enabled: i.Enabled, Ephemeral: i.Ephemeral, Metadata: i.Metadata,
	}
}

func instanceOf(i *wire.PeerInstance) *naming.Instance {
	if i == nil {
		return nil
	}
	return &naming.Instance{
		ID: i.GetId(), IP: i.GetIp(), Port: int(i.GetPort()), Cluster: i.GetCluster(), Weight: i.GetWeight(),
		Healthy: i.GetHealthy(), Enabled: i.GetEnabled(), Ephemeral: i.GetEphemeral(), Metadata: i.GetMetadata(),
	}
}
