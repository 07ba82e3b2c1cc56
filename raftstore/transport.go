package raftstore

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// streams listens and dials for Raft's network transport. The library's own
// stream layer can advertise nothing but an IP address, and leaves connections
// open when it is closed.
type streams struct {
	net.Listener
	advertise advertised

	mu     sync.Mutex
	open   map[*stream]struct{}
	closed bool
}

type advertised string

func (a advertised) Network() string { return "tcp" }
func (a advertised) String() string  { return string(a) }

// stream is one connection of streams.
type stream struct {
	net.Conn
	owner *streams
}

// listen binds the address. An empty advertise stands for what was bound.
func listen(bind, advertise string) (*streams, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", bind)
	if err != nil {
		return nil, err
	}
	if advertise == "" {
		advertise = l.Addr().String()
	}
	return &streams{Listener: l, advertise: advertised(advertise), open: make(map[*stream]struct{})}, nil
}

// Addr returns the advertised address.
func (s *streams) Addr() net.Addr { return s.advertise }

// Accept waits for another node to connect.
func (s *streams) Accept() (net.Conn, error) { return s.track(s.Listener.Accept()) }

// Dial connects to another node.
func (s *streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.track((&net.Dialer{}).DialContext(ctx, "tcp", string(to)))
}

func (s *streams) track(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed := s.closed
	tracked := &stream{c, s}
	if !closed {
		s.open[tracked] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return tracked, nil
}

// Close stops listening and closes every connection.
func (s *streams) Close() error {
	s.mu.Lock()
	s.closed = true
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
	return s.Listener.Close()
}

// Close closes the connection.
func (c *stream) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
