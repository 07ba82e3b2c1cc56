package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

// conn is one connection of a client.
type conn struct {
	server *Server
	raw    net.Conn
	id     string
	opened time.Time
	// active is when the client last sent something, in nanoseconds since the
	// server's start.
	active atomic.Int64
	// streaming is set while a stream is open.
	streaming atomic.Bool
	// ready is closed when the setup has been read.
	ready chan struct{}

	mu         sync.Mutex
	registered bool
	peer       push.Peer                    // what the setup says of the client
	said       *wire.ConnectionSetupRequest // nil before the setup
	naming     bool                         // the setup says that it registers and subscribes
	subscriber *push.Subscriber             // nil before the setup, and unless naming
	services   map[naming.ServiceKey]int    // what the connection publishes in, with the number of publications, under way ones included
	fuzzy      *watch                       // nil: it watches nothing
	admitted   string                       // address that it counts for; empty: for none
	foreign    bool                         // not a client's: another server's
	asksMove   time.Time                    // when the client was asked to go to another node; zero: it was not
	closed     bool
	reason     string // why the server closes it; empty: it does not
	silence    *time.Timer
	asked      time.Duration // when the client was asked whether it is alive, on the clock of active; 0: it is not waited for

	wakeCh chan struct{}      // capacity 1: there are pushes
	outCh  chan *wire.Payload // other messages for the stream; bounded, dropped with the connection when full
	endCh  chan struct{}      // closed: end the stream
}

// outQueue bounds the messages other than pushes that wait for the stream.
const outQueue = 16

// young is how long after its transport was accepted a connection's stream may still
// be on its way: the library serves calls of one transport in any order.
const young = time.Second

// writeStall is how long one write may make no progress.
const writeStall = 30 * time.Second

// closeGrace is the time between the end of the stream and that of the transport:
// the client reads the end of its stream first.
const closeGrace = 100 * time.Millisecond

// pauseGap is how much later than planned a look must come to count as a pause of
// this process: an answer may wait to be read.
const pauseGap = time.Second

var errGone = errors.New("connection gone")

// touch notes that the client sent something.
func (c *conn) touch() { c.active.Store(int64(time.Since(c.server.start))) }

// register takes the setup.
func (c *conn) register(setup *wire.ConnectionSetupRequest, agent push.Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.registered || c.closed {
		return
	}
	c.registered, c.peer, c.said = true, agent, setup
	c.foreign = setup.Labels["source"] == "cluster"
	// A setup without a module is one of a client that knows no modules.
	module, named := setup.Labels["module"]
	if c.naming = !named || module == wire.ModuleNaming; c.naming {
		c.subscriber = c.server.engine.NewSubscriber(agent, c.server.engine.GRPC(), c.wake)
		c.services = make(map[naming.ServiceKey]int)
	}
	c.silence = time.AfterFunc(c.server.withOthers(c.server.cfg.Idle), c.checkSilence)
	close(c.ready)
	c.server.log.Debug("connection set up", "conn", c.id, "agent", agent.Agent, "app", agent.App, "module", module)
}

func (c *conn) wake() {
	select {
	case c.wakeCh <- struct{}{}:
	default:
	}
}

// isRegistered tells whether the setup was read, waiting a moment for one that is
// on its way: the client does not wait for it either.
func (c *conn) isRegistered(ctx context.Context) bool {
	select {
	case <-c.ready:
		return true
	default:
	}
	if c.abandoned() || c.server.cfg.SetupWait <= 0 {
		return false
	}
	timer := time.NewTimer(c.server.cfg.SetupWait)
	defer timer.Stop()
	select {
	case <-c.ready:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// abandoned tells that no setup is to be expected: the transport is not young and has
// no stream. The Python SDK's library reconnects a broken transport without its stream
// and goes on asking for its health there; the SDK dials again for any error but the
// one that tells it to send its setup, for which it has no stream.
func (c *conn) abandoned() bool {
	return !c.streaming.Load() && time.Since(c.opened) > young
}

// track notes that the connection publishes in a service, before it does.
func (c *conn) track(svc naming.ServiceKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.naming {
		return errGone
	}
	c.services[svc]++
	return nil
}

// untrack follows a publication that was refused, and so changed nothing.
func (c *conn) untrack(svc naming.ServiceKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.services[svc]--; c.services[svc] <= 0 {
		delete(c.services, svc)
	}
}

// settled follows a publication: one that ended after the connection did is
// cleaned up like the others.
func (c *conn) settled(svc naming.ServiceKey) error {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		c.server.registry.ConnectionLost(c.id, []naming.ServiceKey{svc}, false)
		return errGone
	}
	return nil
}

// subscribed returns the connection's subscriber.
func (c *conn) subscribed() (*push.Subscriber, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.subscriber == nil {
		return nil, errGone
	}
	return c.subscriber, nil
}

// silenceStep is the time between two looks at connections that may be silent.
const silenceStep = 250 * time.Millisecond

// withOthers returns the time until the last such look within d: what a silent connection
// costs is waking up for it, which many share.
func (s *Server) withOthers(d time.Duration) time.Duration {
	if early := (time.Since(s.start) + d) % silenceStep; early < d {
		d -= early
	}
	return d
}

// checkSilence runs on the connection's timer.
func (c *conn) checkSilence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	now := time.Since(c.server.start)
	active := time.Duration(c.active.Load())
	idle := now - active
	switch {
	case c.asked > active && now-c.asked < c.server.cfg.Detect+pauseGap: // and the time to answer is over
		c.closeLocked(fmt.Sprintf("no answer within %v", c.server.cfg.Detect))
	case idle <= c.server.cfg.Idle-silenceStep:
		c.asked = 0
		c.silence.Reset(c.server.withOthers(c.server.cfg.Idle - idle))
	default:
		c.asked = now
		c.sendLocked(wire.ClientDetection(c.server.cfg.IP, c.server.seq.Add(1)))
		c.silence.Reset(c.server.cfg.Detect)
	}
}

// sendLocked queues a message for the stream.
func (c *conn) sendLocked(p *wire.Payload) {
	select {
	case c.outCh <- p:
	default:
		c.closeLocked("it does not read its stream")
	}
}

// closeLocked ends the connection: the stream first, the transport after it.
func (c *conn) closeLocked(reason string) {
	if c.reason != "" {
		return
	}
	c.reason = reason
	c.server.log.Info("connection closed by the server", "conn", c.id, "reason", reason)
	c.server.ejected.Inc()
	close(c.endCh)
	time.AfterFunc(closeGrace, func() { _ = c.raw.Close() })
}

// ended follows the end of the transport.
func (c *conn) ended() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	if c.silence != nil {
		c.silence.Stop()
	}
	subscriber, fuzzy, moved, admitted := c.subscriber, c.fuzzy, c.movingLocked(), c.admitted
	services := make([]naming.ServiceKey, 0, len(c.services))
	for svc := range c.services {
		services = append(services, svc)
	}
	c.mu.Unlock()
	if subscriber != nil {
		subscriber.Close()
	}
	if fuzzy != nil {
		fuzzy.close()
	}
	c.server.forget(c, admitted)
	c.server.log.Debug("connection ended", "conn", c.id, "services", len(services))
	c.server.registry.ConnectionLost(c.id, services, moved)
}

// stream serves BiRequestStream/requestBiStream. The goroutine that the library
// calls it on is the stream's writer.
func (s *Server) stream(_ any, ss grpc.ServerStream) error {
	c, err := connOf(ss.Context())
	if err != nil {
		return err
	}
	if !c.streaming.CompareAndSwap(false, true) {
		return nil // a second stream of one transport ends at once; the first one goes on
	}
	defer c.streaming.Store(false)
	readCh := make(chan struct{})
	s.wg.Go(func() {
		defer close(readCh)
		c.read(ss)
	})
	for {
		select {
		case <-readCh: // the client ended its half
			return nil
		case <-c.endCh: // an error: a client that reads an orderly end may wait for ever
			return status.Error(codes.Unavailable, "connection closed by the server")
		case p := <-c.outCh:
			if err := c.write(ss, p); err != nil {
				return err
			}
		case <-c.wakeCh:
			if err := c.writePushes(ss); err != nil {
				return err
			}
			if err := c.writeNotices(ss); err != nil {
				return err
			}
		}
	}
}

func (c *conn) writePushes(ss grpc.ServerStream) error {
	c.mu.Lock()
	subscriber := c.subscriber
	c.mu.Unlock()
	if subscriber == nil {
		return nil
	}
	for {
		p, ok := subscriber.Next()
		if !ok {
			return nil
		}
		if err := c.write(ss, wire.NotifySubscriber(c.server.cfg.IP, p.Seq, p.Info)); err != nil {
			return err
		}
	}
}

// writeNotices sends what a fuzzy watch has to tell.
func (c *conn) writeNotices(ss grpc.ServerStream) error {
	c.mu.Lock()
	w := c.fuzzy
	c.mu.Unlock()
	if w == nil {
		return nil
	}
	for p := w.next(); p != nil; p = w.next() {
		if err := c.write(ss, p); err != nil {
			return err
		}
	}
	return nil
}

// write sends one message; it blocks while the client does not read, for a
// bounded time.
func (c *conn) write(ss grpc.ServerStream, p *wire.Payload) error {
	stalled := time.AfterFunc(writeStall, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closeLocked(fmt.Sprintf("it has not read its stream for %v", writeStall))
	})
	defer stalled.Stop()
	return ss.SendMsg(p)
}

// read takes what the client sends on the stream until it ends.
func (c *conn) read(ss grpc.ServerStream) {
	for {
		p := new(wire.Payload)
		if err := ss.RecvMsg(p); err != nil {
			return
		}
		c.touch()
		if p.Type == wire.TypeConnectionSetup {
			c.aside(func() { c.setup(p) })
			continue
		}
		var ack wire.Ack
		if err := wire.Unmarshal(p.JSON(), &ack); err != nil {
			c.server.log.Debug("unreadable message on the stream", "conn", c.id, "type", p.Type, "err", err)
			continue
		}
		c.acked(ack.Seq(), ack.OK())
	}
}

// aside runs fn on a goroutine of its own and waits for it: a stack that grew for what
// is done once would stay with the reader as long as the connection does, 4 KB for each.
func (c *conn) aside(fn func()) {
	done := make(chan struct{})
	c.server.wg.Go(func() {
		defer close(done)
		fn()
	})
	<-done
}

// acked takes the answer to what the server sent.
func (c *conn) acked(seq uint64, ok bool) {
	c.mu.Lock()
	subscriber, fuzzy := c.subscriber, c.fuzzy
	c.mu.Unlock()
	if seq == 0 || fuzzy != nil && fuzzy.ack(seq, ok) || subscriber == nil {
		return
	}
	subscriber.Ack(seq, ok)
}

func (c *conn) setup(p *wire.Payload) {
	var setup wire.ConnectionSetupRequest
	if err := wire.Unmarshal(p.JSON(), &setup); err != nil {
		c.server.log.Debug("unreadable connection setup", "conn", c.id, "err", err)
		return
	}
	ip := p.ClientIP
	if ip == "" {
		ip, _, _ = net.SplitHostPort(c.raw.RemoteAddr().String())
	}
	if !c.server.admit(c, &setup, ip) {
		return
	}
	c.register(&setup, push.Peer{ID: c.id, IP: ip, Agent: string(setup.ClientVersion), App: string(setup.Labels["AppName"])})
	if setup.AbilityTable != nil {
		c.mu.Lock()
		_, fuzzyWatch := setup.AbilityTable["fuzzyWatch"]
		c.sendLocked(wire.SetupAck(c.server.cfg.IP, fuzzyWatch))
		c.mu.Unlock()
	}
}

// transport ties each connection to its transport. It is the server's transport
// credentials: plain text.
type transport struct{ server *Server }

func (t transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := t.server.accept(raw)
	if c == nil {
		return nil, nil, errors.New("the server is closing")
	}
	return whenReady(&trackedConn{Conn: raw, conn: c}), authInfo{c}, nil
}

func (t transport) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

func (t transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

func (t transport) Clone() credentials.TransportCredentials { return t }

func (t transport) OverrideServerName(string) error { return nil }

// authInfo carries the connection to its calls.
type authInfo struct{ conn *conn }

func (authInfo) AuthType() string { return "insecure" }

func connOf(ctx context.Context) (*conn, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(authInfo); ok {
			return info.conn, nil
		}
	}
	return nil, errors.New("a call without a connection")
}

// trackedConn tells when the library has closed the transport.
type trackedConn struct {
	net.Conn
	conn *conn
	once sync.Once
}

func (t *trackedConn) Close() error {
	err := t.Conn.Close()
	t.once.Do(t.conn.ended)
	return err
}
