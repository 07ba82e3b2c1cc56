package grpcapi

import (
	"maps"
	"net"
	"strconv"

	"rollcall/naming"
)

// ConnectionList returns the connections that are set up, in no particular order.
func (s *Server) ConnectionList() []naming.Connection {
	_, localPort, _ := net.SplitHostPort(s.listener.Addr().String())
	local, _ := strconv.Atoi(localPort)
	var out []naming.Connection
	for _, c := range s.all() {
		c.mu.Lock()
		if c.registered && !c.closed {
			ip, port, _ := net.SplitHostPort(c.raw.RemoteAddr().String())
			remote, _ := strconv.Atoi(port)
			x := naming.Connection{
				ID: c.id, ClientIP: c.peer.IP, RemoteIP: ip, RemotePort: remote, LocalPort: local,
				Version: c.peer.Agent, App: c.peer.App, Tenant: string(c.said.Tenant),
				Labels: make(map[string]string, len(c.said.Labels)), Created: c.opened, Active: c.lastActive(),
			}
			for k, v := range c.said.Labels {
				x.Labels[k] = string(v)
			}
			if c.said.AbilityTable != nil {
				x.Abilities = make(map[string]bool, len(c.said.AbilityTable))
				for k, v := range maps.All(c.said.AbilityTable) {
					x.Abilities[k] = v.Value
				}
			}
			out = append(out, x)
		}
		c.mu.Unlock()
	}
	return out
}

// Shed asks clients to go to the server at ip and main port until no more than keep
// would stay, and returns how many it asked.
func (s *Server) Shed(keep int, ip string, port int) int {
	return s.Move(s.Staying()-keep, func() (string, int) { return ip, port })
}
