package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

// leading is what nodes ask of each other's persistent store.
type leading interface {
	Write(ctx context.Context, encoded []byte) error
	ReadIndex(ctx context.Context) (uint64, error)
	Stats() (term, lastIndex uint64, sinceContact time.Duration)
	Remove(ctx context.Context, node string) error
	Restore(ctx context.Context, r io.Reader) (naming.Backup, naming.BackupChange, error)
}

// peerService answers other nodes.
type peerService struct {
	listener net.Listener
	grpc     *grpc.Server
	store    leading
	registry *Registry
	mark     func() *wire.ChangeReply // the changes of this node's ephemeral store so far
	state    func(buckets bool) *wire.StateReply
	shed     func(keep int, redirect string) (int, error)
	// subscribersHere returns who is subscribed to a service on this node.
	subscribersHere func(naming.ServiceKey) []push.Subscription

	log *slog.Logger
	wg  sync.WaitGroup
}

const peerServiceName = "rollcall.peer.v1.Peer"

func newPeerService(l net.Listener, store leading, registry *Registry, mark func() *wire.ChangeReply, state func(buckets bool) *wire.StateReply, log *slog.Logger) *peerService {
	s := &peerService{
		listener: l, store: store, registry: registry, mark: mark, state: state,
		log: log.With("component", "peer"), grpc: grpc.NewServer(grpc.WaitForHandlers(true), grpc.StaticStreamWindowSize(peerWindow), grpc.StaticConnWindowSize(peerWindow)),
	}
	s.grpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: peerServiceName, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			peerMethod("Write", s.write), peerMethod("Writes", s.writes),
			peerMethod("ReadIndex", s.readIndex),
			peerMethod("Stats", s.stats), peerMethod("State", s.stateOf),
			peerMethod("Register", s.register), peerMethod("Deregister", s.deregister),
			peerMethod("Beat", s.beat), peerMethod("Renew", s.renew),
			peerMethod("Remove", s.remove),
			peerMethod("Reload", s.reload), peerMethod("Subscribers", s.subscribers),
		},
		Streams: []grpc.StreamDesc{{StreamName: "Restore", ClientStreams: true, Handler: s.restore}},
	}, s)
	return s
}

// peerMethod makes a unary method of a function.
func peerMethod[Q any, P interface {
	*Q
	proto.Message
}](name string, serve func(context.Context, P) (proto.Message, error),
) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		request := P(new(Q))
		if err := decode(request); err != nil {
			return nil, err
		}
		reply, err := serve(ctx, request)
		if err != nil {
			return nil, peerStatus(err)
		}
		return reply, nil
	}}
}

// reload sends clients to another node.
func (s *peerService) reload(_ context.Context, q *wire.ReloadRequest) (proto.Message, error) {
	asked, err := s.shed(int(q.GetKeep()), q.GetRedirect())
	return &wire.ReloadReply{Asked: int32(asked)}, err
}

func (s *peerService) start() error {
	s.wg.Go(func() {
		if err := s.grpc.Serve(s.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.log.Error("service for other nodes ended", "err", err)
		}
	})
	return nil
}

func (s *peerService) close() error {
	s.grpc.Stop()
	s.wg.Wait()
	return nil
}

func (s *peerService) write(ctx context.Context, q *wire.WriteRequest) (proto.Message, error) {
	ctx, request := consistency.WithRequest(ctx, q.GetRequest())
	if err := s.store.Write(ctx, q.GetOperation()); err != nil {
		return nil, err
	}
	return &wire.WriteReply{Index: request.Index()}, nil
}

// writes makes several writes at once, so that they can share a log entry.
func (s *peerService) writes(ctx context.Context, q *wire.WritesRequest) (proto.Message, error) {
	reply := &wire.WritesReply{Writes: make([]*wire.WriteReply, len(q.GetWrites()))}
	var each sync.WaitGroup
	for n, w := range q.GetWrites() {
		each.Go(func() {
			ctx, request := consistency.WithRequest(ctx, w.GetRequest())
			reply.Writes[n] = &wire.WriteReply{}
			if err := s.store.Write(ctx, w.GetOperation()); err != nil {
				reply.Writes[n].Fault = faultOf(err)
				return
			}
			reply.Writes[n].Index = request.Index()
		})
	}
	each.Wait()
	return reply, nil
}

func (s *peerService) readIndex(ctx context.Context, _ *wire.ReadIndexRequest) (proto.Message, error) {
	index, err := s.store.ReadIndex(ctx)
	return &wire.ReadIndexReply{Index: index}, err
}

func (s *peerService) stats(context.Context, *wire.StatsRequest) (proto.Message, error) {
	term, last, contact := s.store.Stats()
	return &wire.StatsReply{Term: term, LastIndex: last, ContactMs: contact.Milliseconds()}, nil
}

// The following serve requests of clients over HTTP that this node owns, as the
// nodes that they came to see it.

func (s *peerService) register(ctx context.Context, q *wire.RegisterRequest) (proto.Message, error) {
	i := instanceOf(q.GetInstance())
	if i == nil {
		return nil, errors.New("register without an instance")
	}
	if err := s.registry.Register(consistency.WithForwarded(ctx), serviceKeyOf(q.GetService()), q.GetPublisher(), i); err != nil {
		return nil, err
	}
	return &wire.OwnedReply{Change: s.mark()}, nil
}

func (s *peerService) deregister(ctx context.Context, q *wire.DeregisterRequest) (proto.Message, error) {
	k := naming.InstanceKey{Cluster: q.GetCluster(), IP: q.GetIp(), Port: int(q.GetPort())}
	err := s.registry.Deregister(consistency.WithForwarded(ctx), serviceKeyOf(q.GetService()), q.GetPublisher(), true, k)
	if err != nil {
		return nil, err
	}
	return &wire.OwnedReply{Change: s.mark()}, nil
}

func (s *peerService) beat(ctx context.Context, q *wire.BeatRequest) (proto.Message, error) {
	answer, err := s.registry.Beat(consistency.WithForwarded(ctx), serviceKeyOf(q.GetService()), q.GetIp(), int(q.GetPort()), instanceOf(q.GetInstance()))
	if err != nil {
		return nil, err
	}
	return &wire.BeatReply{Change: s.mark(), Known: answer.Known, IntervalMs: answer.Interval.Milliseconds()}, nil
}

func (s *peerService) renew(_ context.Context, q *wire.RenewRequest) (proto.Message, error) {
	for _, x := range q.GetRenewals() {
		s.registry.beats.renew(beatKey{serviceKeyOf(x.GetService()), x.GetPublisher()}, time.Duration(x.GetAgoMs())*time.Millisecond)
	}
	return &wire.RenewReply{}, nil
}

func (s *peerService) stateOf(_ context.Context, q *wire.StateRequest) (proto.Message, error) {
	return s.state(q.GetBuckets()), nil
}

// peerErrors pairs the errors that nodes tell each other with their codes.
func peerErrors() []struct {
	err  error
	code codes.Code
} {
	return []struct {
		err  error
		code codes.Code
	}{
		{consistency.ErrUnknownOutcome, codes.Aborted},
		{consistency.ErrNoLeader, codes.FailedPrecondition},
		{consistency.ErrReadOnly, codes.ResourceExhausted},
		{consistency.ErrNotReady, codes.OutOfRange},
		{consistency.ErrClosed, codes.Unavailable},
	}
}

// peerStatus gives an error the code by which the other node knows it.
func peerStatus(err error) error {
	if _, ok := errors.AsType[*consistency.RedirectError](err); ok { // the other node finds out by itself who leads
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if invalid, ok := errors.AsType[*naming.InvalidError](err); ok {
		st, detailErr := status.New(codes.InvalidArgument, invalid.Text).WithDetails(&wire.Invalid{
			Fault: int32(invalid.Fault), Field: readable(invalid.Field), Text: readable(invalid.Text),
		})
		if detailErr != nil {
			return detailErr
		}
		return st.Err()
	}
	for _, e := range peerErrors() {
		if errors.Is(err, e.err) {
			return status.Error(e.code, err.Error())
		}
	}
	return err
}

// readable makes a text one that a message can carry.
func readable(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// faultOf is peerStatus for one of several errors.
func faultOf(err error) *wire.Fault {
	st := status.Convert(peerStatus(err))
	f := &wire.Fault{Code: int32(st.Code()), Text: readable(st.Message())}
	for _, detail := range st.Details() {
		f.Invalid, _ = detail.(*wire.Invalid)
	}
	return f
}

// faultError is the reverse of faultOf.
func faultError(f *wire.Fault) error {
	st := status.New(codes.Code(f.GetCode()), f.GetText())
	if f.GetInvalid() != nil {
		if detailed, err := st.WithDetails(f.GetInvalid()); err == nil {
			return detailed.Err()
		}
	}
	return st.Err()
}

// peerError is the reverse of peerStatus.
func peerError(node string, err error) error {
	code := status.Code(err)
	for _, detail := range status.Convert(err).Details() {
		if x, ok := detail.(*wire.Invalid); ok {
			return &naming.InvalidError{Fault: naming.Fault(x.GetFault()), Field: x.GetField(), Text: x.GetText()}
		}
	}
	for _, e := range peerErrors() {
		if code == e.code {
			return fmt.Errorf("%w: node %s: %s", e.err, node, strings.TrimPrefix(status.Convert(err).Message(), e.err.Error()+": "))
		}
	}
	return fmt.Errorf("node %s: %w", node, err)
}

// peers asks other nodes. Safe for concurrent use.
type peers struct {
	// address returns where a node answers others, by its name; false if it is
	// unknown.
	address func(node string) (string, bool)

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn // by address
}

func newPeers(address func(string) (string, bool)) *peers {
	return &peers{address: address, conns: make(map[string]*grpc.ClientConn)}
}

func (p *peers) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.conns {
		errs = append(errs, c.Close())
	}
	p.conns = nil
	return errors.Join(errs...)
}

// conn returns the connection to an address, made if there is none yet. It dials
// when it is used.
func (p *peers) conn(address string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[address]; c != nil {
		return c, nil
	}
	if p.conns == nil {
		return nil, consistency.ErrClosed
	}
	c, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(peerWindow), grpc.WithStaticConnWindowSize(peerWindow),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: redialTimeout}))
	if err != nil {
		return nil, err
	}
	p.conns[address] = c
	return c, nil
}

// redial is how often a node that cannot be reached is dialed. The library's default
// waits longer and longer, up to two minutes, and so would the first write to a leader
// that has come back.
//
//nolint:gochecknoglobals // a constant
var redial = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 500 * time.Millisecond}

// peerWindow is how many bytes a node takes of a stream before they are read. The library
// would find a window out by a ping behind each message, also when nothing happens.
const peerWindow = 4 << 20

const redialTimeout = 3 * time.Second // of one try

// errUnsent means that a call has not left this node.
var errUnsent = errors.New("the node cannot be reached")

// ask makes one call to a node.
func (p *peers) ask(ctx context.Context, node, method string, request, reply proto.Message) error {
	address, ok := p.address(node)
	if !ok {
		return fmt.Errorf("%w: node %s is unknown here", consistency.ErrNoLeader, node)
	}
	c, err := p.conn(address)
	if err != nil {
		return err
	}
	var reached peer.Peer
	err = c.Invoke(ctx, "/"+peerServiceName+"/"+method, request, reply, grpc.Peer(&reached))
	switch {
	case err == nil:
		return nil
	case reached.Addr == nil:
		return fmt.Errorf("%w: node %s: %s", errUnsent, node, status.Convert(err).Message())
	}
	return peerError(node, err)
}
