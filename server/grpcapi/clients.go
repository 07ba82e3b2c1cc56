package grpcapi

import (
	"net"
	"strconv"
	"time"

	"rollcall/naming"
)

// Clients returns the clients whose connection is set up for naming, in no particular
// order.
func (s *Server) Clients() []naming.Client {
	var out []naming.Client
	for _, c := range s.all() {
		c.mu.Lock()
		if c.naming && !c.closed {
			_, port, _ := net.SplitHostPort(c.raw.RemoteAddr().String())
			number, _ := strconv.Atoi(port) // of an address of the library's
			out = append(out, naming.Client{
				ID: c.id, Ephemeral: true, Connection: true, Updated: c.lastActive(),
				App: c.peer.App, Agent: c.peer.Agent, IP: c.peer.IP, Port: number,
			})
		}
		c.mu.Unlock()
	}
	return out
}

// lastActive returns when the client last sent something.
func (c *conn) lastActive() time.Time {
	return c.server.start.Add(time.Duration(c.active.Load()))
}
