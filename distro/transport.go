package distro

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/yamux"
)

const (
	// maxAccepted bounds the connections of other nodes, each of which has a few
	// goroutines; whoever reaches the port can open one.
	maxAccepted = 1024
	// streamBacklog is how many streams of one connection may wait to be taken.
	streamBacklog = 256
	// keepAlive and stalled find a connection that died in silence, or outlived a
	// cut of the network and now waits for a retransmission.
	keepAlive = 5 * time.Second
	stalled   = 5 * time.Second
	// halfClosed is how long a stream waits for the reader's end.
	halfClosed = time.Minute
)

// streams is the library's transport with its TCP connections multiplexed: each
// stream that the library dials is one of a single connection to that address.
// Packets are the library's own.
type streams struct {
	*memberlist.NetTransport
	dialTimeout time.Duration
	log         *log.Logger
	streamCh    chan net.Conn
	ctx         context.Context // ends in Shutdown
	cancel      context.CancelFunc
	wg          sync.WaitGroup

	mu       sync.Mutex
	dialed   map[string]*yamux.Session // by the address that was dialed
	dials    map[string]*dial          // under way
	accepted map[*yamux.Session]struct{}
	closed   bool
}

// dial is an attempt to connect that several callers wait for.
type dial struct {
	done    chan struct{}
	session *yamux.Session
	err     error
}

// listenStreams binds the address for TCP and UDP. A port of 0 takes one that is
// free for both.
func listenStreams(bind string, port int, dialTimeout time.Duration, logger *log.Logger) (*streams, error) {
	cfg := &memberlist.NetTransportConfig{BindAddrs: []string{bind}, BindPort: port, Logger: logger}
	attempts := 1
	if port == 0 {
		attempts = 10 // the port that is free for TCP may be taken for UDP
	}
	var packets *memberlist.NetTransport
	var err error
	for range attempts {
		if packets, err = memberlist.NewNetTransport(cfg); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen for gossip: %w", err)
	}
	t := &streams{
		NetTransport: packets,
		dialTimeout:  dialTimeout,
		log:          logger,
		streamCh:     make(chan net.Conn),
		dialed:       make(map[string]*yamux.Session),
		dials:        make(map[string]*dial),
		accepted:     make(map[*yamux.Session]struct{}),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Go(t.accept)
	return t, nil
}

func (t *streams) settings() *yamux.Config {
	return &yamux.Config{
		AcceptBacklog:          streamBacklog,
		EnableKeepAlive:        true,
		KeepAliveInterval:      keepAlive,
		ConnectionWriteTimeout: stalled,
		MaxStreamWindowSize:    256 << 10,
		StreamOpenTimeout:      2 * stalled,
		StreamCloseTimeout:     halfClosed,
		Logger:                 t.log,
	}
}

// StreamCh returns the channel of the streams that other nodes opened.
func (t *streams) StreamCh() <-chan net.Conn { return t.streamCh }

// DialTimeout opens a stream to the address.
func (t *streams) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout opens a stream to the address, over the connection that there
// is or a new one. The library sets no deadline for what it writes as a user
// message, so the time limit holds for the writing too, until another is set.
func (t *streams) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	deadline := time.Now().Add(timeout)
	for again := true; ; again = false {
		session, err := t.session(to.Addr, timeout)
		if err != nil {
			return nil, err
		}
		stream, err := session.OpenStream()
		if err == nil {
			return stream, stream.SetWriteDeadline(deadline)
		}
		// The connection broke a moment ago, or all its stream numbers are used up.
		_ = session.Close()
		if !again {
			return nil, fmt.Errorf("open stream to %s: %w", to.Addr, err)
		}
	}
}

// session returns the connection to the address, dialing if there is none.
func (t *streams) session(addr string, timeout time.Duration) (*yamux.Session, error) {
	timeout = min(timeout, t.dialTimeout)
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, net.ErrClosed
	}
	if s := t.dialed[addr]; s != nil && !s.IsClosed() {
		t.mu.Unlock()
		return s, nil
	}
	if d := t.dials[addr]; d != nil {
		t.mu.Unlock()
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-d.done:
			return d.session, d.err
		case <-timer.C:
			return nil, fmt.Errorf("dial %s: %w", addr, context.DeadlineExceeded)
		}
	}
	d := &dial{done: make(chan struct{})}
	t.dials[addr] = d
	t.mu.Unlock()

	d.session, d.err = t.connect(addr, timeout)

	t.mu.Lock()
	delete(t.dials, addr)
	if d.err == nil {
		if t.closed {
			d.err = net.ErrClosed
		} else {
			t.dialed[addr] = d.session
			t.wg.Go(func() { t.forget(addr, d.session) })
		}
	}
	t.mu.Unlock()
	if d.err != nil && d.session != nil {
		_ = d.session.Close()
	}
	close(d.done)
	return d.session, d.err
}

// connect is where TLS would wrap the connection, as serve is for the other side.
func (t *streams) connect(addr string, timeout time.Duration) (*yamux.Session, error) {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	session, err := yamux.Client(conn, t.settings())
	if err != nil {
		_ = conn.Close()
	}
	return session, err
}

// forget drops a connection from the table once it is closed.
func (t *streams) forget(addr string, session *yamux.Session) {
	<-session.CloseChan()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dialed[addr] == session {
		delete(t.dialed, addr)
	}
}

// drop closes the connection to the address, so that the next stream dials.
func (t *streams) drop(addr string) {
	t.mu.Lock()
	session := t.dialed[addr]
	t.mu.Unlock()
	if session != nil {
		_ = session.Close()
	}
}

// accept takes the connections of other nodes.
func (t *streams) accept() {
	for {
		select {
		case conn := <-t.NetTransport.StreamCh():
			t.serve(conn)
		case <-t.ctx.Done():
			return
		}
	}
}

// serve starts to take the streams of a connection.
func (t *streams) serve(conn net.Conn) {
	session, err := yamux.Server(conn, t.settings())
	if err != nil {
		t.log.Printf("[ERR] members: serve connection of %s: %v", conn.RemoteAddr(), err)
		_ = conn.Close()
		return
	}
	t.mu.Lock()
	full, closed := len(t.accepted) >= maxAccepted, t.closed
	if !full && !closed {
		t.accepted[session] = struct{}{}
		t.wg.Go(func() { t.take(session) })
	}
	t.mu.Unlock()
	if full || closed {
		_ = session.Close()
	}
	if full {
		t.log.Printf("[WARN] members: connection of %s refused: there are %d already", conn.RemoteAddr(), maxAccepted)
	}
}

// take hands the streams of one connection to the library.
func (t *streams) take(session *yamux.Session) {
	defer func() {
		_ = session.Close()
		t.mu.Lock()
		delete(t.accepted, session)
		t.mu.Unlock()
	}()
	for {
		stream, err := session.AcceptStreamWithContext(t.ctx)
		if err != nil {
			return
		}
		select {
		case t.streamCh <- stream:
		case <-t.ctx.Done():
			_ = stream.Close()
			return
		}
	}
}

// Shutdown closes the sockets and every connection, and returns when its
// goroutines ended.
func (t *streams) Shutdown() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	sessions := make([]*yamux.Session, 0, len(t.dialed)+len(t.accepted))
	for _, s := range t.dialed {
		sessions = append(sessions, s)
	}
	for s := range t.accepted {
		sessions = append(sessions, s)
	}
	t.mu.Unlock()
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.Close())
	}
	// The library's goroutines may be about to hand over one more connection or
	// packet, and wait for whoever takes it.
	done := make(chan struct{})
	t.wg.Go(func() {
		defer close(done)
		errs = append(errs, t.NetTransport.Shutdown())
	})
	for waiting := true; waiting; {
		select {
		case conn := <-t.NetTransport.StreamCh():
			_ = conn.Close()
		case <-t.PacketCh():
		case <-done:
			waiting = false
		}
	}
	t.cancel()
	t.wg.Wait()
	return errors.Join(errs...)
}
