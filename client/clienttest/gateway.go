package clienttest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"rollcall/server/wire"
)

// gateway hands calls and streams on to a node, each transport over one of its own.
type gateway struct {
	backend func() string
	server  *grpc.Server
	delay   atomic.Int64 // of pushes, nanoseconds
	rewrite atomic.Pointer[func(typ string, body []byte) (string, []byte)]
	tls     *tls.Config // nil: plain text
	seq     atomic.Uint64

	mu      sync.Mutex
	conns   map[*gated]struct{}
	frozen  chan struct{} // nil: not frozen; closed by the thaw
	answers []*answers
	calls   map[string]int
	closed  bool
}

// answers are errors that calls are given.
type answers struct {
	typ         string // empty: any
	count, code int
}

// gated is a client's transport.
type gated struct {
	net.Conn
	gate    *gateway
	once    sync.Once
	closeCh chan struct{}
	calls   bool // gRPC, not HTTP

	mu      sync.Mutex
	node    *grpc.ClientConn // nil until the first call
	outCh   chan *wire.Payload
	refused error
}

const streamName = "/BiRequestStream/requestBiStream"

// maxMessage bounds what passes, in bytes.
const maxMessage = 256 << 20

func newGateway(backend func() string) *gateway {
	g := &gateway{backend: backend, conns: make(map[*gated]struct{}), calls: make(map[string]int)}
	g.server = grpc.NewServer(grpc.Creds(gateCredentials{g}), grpc.ForceServerCodecV2(wire.Codec{}),
		grpc.UnknownServiceHandler(g.handle), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage))
	return g
}

func (g *gateway) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.drop()
	g.server.Stop()
}

// add takes a transport under control.
func (g *gateway) add(raw net.Conn, calls bool) *gated {
	c := &gated{Conn: raw, gate: g, closeCh: make(chan struct{}), calls: calls, outCh: make(chan *wire.Payload, 16)}
	g.mu.Lock()
	g.conns[c] = struct{}{}
	g.mu.Unlock()
	return c
}

func (g *gateway) each(do func(*gated)) {
	g.mu.Lock()
	conns := make([]*gated, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// drop breaks all transports.
func (g *gateway) drop() {
	g.each(func(c *gated) {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, as of a process that was killed
		}
		_ = c.Close()
	})
}

func (g *gateway) freeze(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case on && g.frozen == nil:
		g.frozen = make(chan struct{})
	case !on && g.frozen != nil:
		close(g.frozen)
		g.frozen = nil
	}
}

func (g *gateway) move(port string) {
	target := ""
	if port != "" {
		target = `,"serverIp":"127.0.0.1","serverPort":"` + port + `"`
	}
	g.each(func(c *gated) {
		if !c.calls {
			return
		}
		body := fmt.Sprintf(`{"headers":{},"requestId":"%d"%s,"module":"internal"}`, g.seq.Add(1), target)
		select {
		case c.outCh <- &wire.Payload{Type: wire.TypeConnectReset, ClientIP: "127.0.0.1", Body: [][]byte{[]byte(body)}}:
		case <-c.closeCh:
		}
	})
}

func (g *gateway) answer(typ string, count, code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answers = slices.DeleteFunc(g.answers, func(a *answers) bool { return typ == "" || a.typ == typ })
	if count > 0 {
		g.answers = append(g.answers, &answers{typ, count, code})
	}
}

// called counts a call and returns the error that it is given; 0: none.
func (g *gateway) called(typ string) (code int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls[typ]++
	for _, a := range g.answers {
		if a.count > 0 && (a.typ == "" || a.typ == typ) {
			a.count--
			return a.code
		}
	}
	return 0
}

func (g *gateway) count(typ string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[typ]
}

func (g *gateway) connections() int {
	n := 0
	g.each(func(c *gated) {
		if c.calls {
			n++
		}
	})
	return n
}

// wait blocks while the gateway is frozen.
func (c *gated) wait() error {
	for {
		c.gate.mu.Lock()
		frozen := c.gate.frozen
		c.gate.mu.Unlock()
		if frozen == nil {
			return nil
		}
		select {
		case <-frozen:
		case <-c.closeCh:
			return net.ErrClosed
		}
	}
}

func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if w := c.wait(); w != nil {
		return 0, w
	}
	return n, err
}

func (c *gated) Write(b []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close closes both sides.
func (c *gated) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		close(c.closeCh)
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
		c.mu.Lock()
		node := c.node
		c.refused = net.ErrClosed
		c.mu.Unlock()
		if node != nil {
			_ = node.Close()
		}
	})
	return err
}

// upstream returns the transport to the node.
func (c *gated) upstream() (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node != nil || c.refused != nil {
		return c.node, c.refused
	}
	to := c.gate.backend()
	if to == "" {
		c.refused = errors.New("the node is stopped")
		return nil, c.refused
	}
	var dialled atomic.Bool
	c.node, c.refused = grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if dialled.Swap(true) {
				return nil, errors.New("one transport for each client's")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}),
		grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
	return c.node, c.refused
}

// handle serves any call.
func (g *gateway) handle(_ any, ss grpc.ServerStream) error {
	p, _ := peer.FromContext(ss.Context())
	info, ok := p.AuthInfo.(gateInfo)
	if !ok {
		return status.Error(codes.Internal, "a call without a transport")
	}
	node, err := info.conn.upstream()
	if err != nil {
		_ = info.conn.Close()
		return status.Error(codes.Unavailable, err.Error())
	}
	if method, _ := grpc.MethodFromServerStream(ss); method != streamName {
		return g.unary(ss, info.conn, node, method)
	}
	return g.stream(ss, info.conn, node)
}

func (g *gateway) unary(ss grpc.ServerStream, c *gated, node *grpc.ClientConn, method string) error {
	q, a := new(wire.Payload), new(wire.Payload)
	if err := ss.RecvMsg(q); err != nil {
		return err
	}
	if code := g.called(q.Type); code != 0 {
		return ss.SendMsg(wire.ErrorAnswer(code, code, "as the test has it"))
	}
	if err := node.Invoke(ss.Context(), method, q, a); err != nil {
		if status.Code(err) == codes.Unavailable {
			_ = c.Close()
		}
		return err
	}
	return ss.SendMsg(g.rewritten(a))
}

// rewritten returns what is sent in place of a message of the node.
func (g *gateway) rewritten(p *wire.Payload) *wire.Payload {
	if rewrite := g.rewrite.Load(); rewrite != nil {
		typ, body := (*rewrite)(p.Type, p.JSON())
		return &wire.Payload{Type: typ, ClientIP: p.ClientIP, Headers: p.Headers, Body: [][]byte{body}}
	}
	return p
}

func (g *gateway) stream(ss grpc.ServerStream, c *gated, node *grpc.ClientConn) error {
	defer func() { _ = c.Close() }()
	up, err := node.NewStream(ss.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamName)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer func() {
		_ = c.Close() // ends both
		wg.Wait()
	}()
	wg.Go(func() {
		for {
			p := new(wire.Payload)
			if ss.RecvMsg(p) != nil || up.SendMsg(p) != nil {
				_ = up.CloseSend()
				return
			}
		}
	})
	inCh := make(chan *wire.Payload)
	wg.Go(func() {
		defer close(inCh)
		for {
			p := new(wire.Payload)
			if up.RecvMsg(p) != nil {
				return
			}
			if d := time.Duration(g.delay.Load()); d > 0 && p.Type == wire.TypeNotifySubscriber {
				timer := time.NewTimer(d)
				select {
				case <-timer.C:
				case <-c.closeCh:
				}
				timer.Stop()
			}
			select {
			case inCh <- g.rewritten(p):
			case <-c.closeCh:
				return
			}
		}
	})
	for {
		var p *wire.Payload
		ok := true
		select {
		case p, ok = <-inCh:
		case p = <-c.outCh:
		case <-c.closeCh:
			return io.ErrUnexpectedEOF
		}
		if !ok {
			return status.Error(codes.Unavailable, "the node ended the connection")
		}
		if err := ss.SendMsg(p); err != nil {
			return err
		}
	}
}

// gateCredentials tie each call to its transport.
type gateCredentials struct{ gate *gateway }

type gateInfo struct{ conn *gated }

func (gateInfo) AuthType() string { return "insecure" }

func (g gateCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := g.gate.add(raw, true)
	if g.gate.tls == nil {
		return c, gateInfo{c}, nil
	}
	secure := tls.Server(c, g.gate.tls)
	if err := secure.HandshakeContext(context.Background()); err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return secure, gateInfo{c}, nil
}

func (g gateCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

func (g gateCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (g gateCredentials) Clone() credentials.TransportCredentials { return g }

func (g gateCredentials) OverrideServerName(string) error { return nil }

// listen wraps a listener of HTTP.
func (g *gateway) listen(l net.Listener) net.Listener { return &gatedListener{l, g} }

type gatedListener struct {
	net.Listener
	gate *gateway
}

func (l *gatedListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.gate.add(raw, false), nil
}
