package raftstore

import (
	"context"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// streams listens and dials for Raft's network transport. The library's own
// stream layer can advertise nothing but an IP address.
type streams struct {
	net.Listener
	advertise advertised
}

type advertised string

func (a advertised) Network() string { return "tcp" }
func (a advertised) String() string  { return string(a) }

// listen binds the address. An empty advertise stands for what was bound.
func listen(bind, advertise string) (*streams, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", bind)
	if err != nil {
		return nil, err
	}
	if advertise == "" {
		advertise = l.Addr().String()
	}
	return &streams{Listener: l, advertise: advertised(advertise)}, nil
}

// Addr returns the advertised address.
func (s *streams) Addr() net.Addr { return s.advertise }

// Dial connects to another node.
func (s *streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return (&net.Dialer{}).DialContext(ctx, "tcp", string(to))
}
