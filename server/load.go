package server

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"

	"rollcall/server/httpapi"
	"rollcall/server/wire"
)

// load adds to a state how busy this node is.
func (l *link) load(s *wire.StateReply) *wire.StateReply {
	s.Load, _ = httpapi.Machine()
	s.Cpu = min(s.Load/float64(runtime.NumCPU()), 1)
	return s
}

// shed sends clients of this node to the node at host:port of HTTP.
func (l *link) shed(keep int, redirect string) (int, error) {
	host, text, err := net.SplitHostPort(redirect)
	if err != nil {
		return 0, fmt.Errorf("send clients to %q: %w", redirect, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("send clients to %q: %w", redirect, err)
	}
	if l.clients == nil { // the node is about to start
		return 0, nil
	}
	return l.clients.Shed(keep, host, port), nil
}

// shedOn has a node send clients away, this one or another.
func (l *link) shedOn(ctx context.Context, self, node string, keep int, redirect string) (int, error) {
	if node == self {
		return l.shed(keep, redirect)
	}
	reply := new(wire.ReloadReply)
	err := l.peers.ask(ctx, node, "Reload", &wire.ReloadRequest{Keep: int32(keep), Redirect: redirect}, reply)
	return int(reply.GetAsked()), err
}
