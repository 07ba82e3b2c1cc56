package grpcapi

import (
	"strconv"
	"time"

	"rollcall/server/wire"
)

// Present returns how many clients are connected.
func (s *Server) Present() int { return s.count((*conn).presentLocked) }

// Staying returns how many clients are connected and were not asked lately to go
// elsewhere.
func (s *Server) Staying() int {
	return s.count(func(c *conn) bool { return c.presentLocked() && !c.movingLocked() })
}

func (s *Server) count(is func(*conn) bool) int {
	n := 0
	for _, c := range s.all() {
		c.mu.Lock()
		if is(c) {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// Reset asks the client of a connection to go to the server at ip and main port, or
// with an empty ip to any other, also when it was asked before: it may not have heard.
// False: there is no such client. What it has registered stays until it is back, see Registry.ConnectionLost.
func (s *Server) Reset(id, ip string, port int) bool {
	for _, c := range s.all() {
		if c.id == id {
			return c.reset(ip, port, true)
		}
	}
	return false
}

// Move asks up to n clients to go elsewhere, each to the server that the next call of
// to returns, and returns how many it asked. Who was asked before and stayed is not
// asked again. It does not block.
func (s *Server) Move(n int, to func() (ip string, port int)) int {
	asked := 0
	for _, c := range s.all() {
		if asked >= n {
			break
		}
		c.mu.Lock()
		unasked := c.presentLocked() && c.asksMove.IsZero()
		c.mu.Unlock()
		if !unasked {
			continue
		}
		if ip, port := to(); c.reset(ip, port, false) {
			asked++
		}
	}
	return asked
}

// Expel closes the connections of clients that were asked to go so long ago and have
// not gone: some SDKs do not know the request. It returns how many there were.
func (s *Server) Expel(ago time.Duration) int {
	n := 0
	for _, c := range s.all() {
		c.mu.Lock()
		if !c.asksMove.IsZero() && time.Since(c.asksMove) >= ago && !c.closed && c.reason == "" {
			c.asksMove = time.Now() // its end follows now
			c.closeLocked("it was asked to go to another node and has not gone")
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// all returns every connection, set up or not.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}

// presentLocked tells whether the connection is that of a client. Servers of other
// products, which say that they are of a cluster, are none.
func (c *conn) presentLocked() bool {
	return c.registered && !c.closed && c.reason == "" && !c.foreign
}

// movingLocked tells whether the client was asked to go so lately that the end of its
// connection means that it does.
func (c *conn) movingLocked() bool {
	return !c.asksMove.IsZero() && time.Since(c.asksMove) < c.server.cfg.MoveTime
}

// reset asks the client to go; false: it is gone, or going and not to be asked again.
func (c *conn) reset(ip string, port int, again bool) bool {
	text := ""
	if ip != "" {
		text = strconv.Itoa(port)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.presentLocked() || c.movingLocked() && !again {
		return false
	}
	c.asksMove = time.Now()
	c.sendLocked(wire.ConnectReset(c.server.cfg.IP, c.server.seq.Add(1), c.id, ip, text))
	return true
}
