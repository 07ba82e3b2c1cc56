package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A server knows subscribers by their address, so a socket may be told what was meant
// for the one that had its port before.
func TestUDP_PassesOverWhatItDidNotAskFor(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	former := ListenUDP(t, true)
	s := newService(t)
	former.Subscribe(t, n, s.Params())
	former.Next(t, soon)
	socket := &UDP{conn: former.conn, ack: true, asked: make(map[string]bool)}
	other := newService(t)
	socket.Subscribe(t, n, other.Params())
	socket.Next(t, soon)
	register(t, n, s.at("10.0.0.1", 1))
	socket.Quiet(t, secs(1))
	register(t, n, other.at("10.0.0.1", 1))
	require.Equal(t, "DEFAULT_GROUP@@"+other.Name, socket.Next(t, soon).Info.Name)
}
