package distro

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/yamux"
	"github.com/stretchr/testify/require"
)

func errorsIsDeadline(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// library returns a node as the library has it.
func library(name string, meta []byte) *memberlist.Node {
	return &memberlist.Node{Name: name, Addr: net.IPv4(10, 0, 0, 2), Port: 7847, Meta: meta}
}

// stuck returns a member that accepts a connection and reads nothing of it or, if
// it reads, nothing of its streams.
func stuck(t *testing.T, name string, reads bool) Member {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			if reads {
				settings := yamux.DefaultConfig()
				settings.LogOutput = io.Discard
				session, err := yamux.Server(conn, settings)
				if err != nil {
					return
				}
				defer func() { _ = session.Close() }()
			}
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	addr, _ := l.Addr().(*net.TCPAddr)
	return Member{Name: name, Boot: 1, IP: addr.IP.String(), GossipPort: addr.Port, Alive: true}
}

func listening(t *testing.T) *streams {
	t.Helper()
	s, err := listenStreams("127.0.0.1", 0, soon, log.New(io.Discard, "", 0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
	return s
}

func addressOf(t *testing.T, s *streams) string {
	t.Helper()
	ip, port, err := s.FinalAdvertiseAddr("", 0)
	require.NoError(t, err)
	return Member{IP: ip.String(), GossipPort: port}.gossip()
}

// connections counts those to and from other nodes.
func connections(s *streams) (dialed, accepted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dialed) + len(s.dials), len(s.accepted)
}

func TestStreams_ShareOneConnection(t *testing.T) {
	t.Parallel()
	a, b := listening(t), listening(t)
	for range 3 {
		out, err := a.DialTimeout(addressOf(t, b), soon)
		require.NoError(t, err)
		_, err = out.Write([]byte("hello"))
		require.NoError(t, err)
		require.NoError(t, out.Close())
		in := <-b.StreamCh()
		got, err := io.ReadAll(in)
		require.NoError(t, err)
		require.Equal(t, "hello", string(got))
		require.NoError(t, in.Close())
	}
	dialed, _ := connections(a)
	_, accepted := connections(b)
	require.Equal(t, [2]int{1, 1}, [2]int{dialed, accepted})
}

func TestStreams_DialAgainAfterTheConnectionBroke(t *testing.T) {
	t.Parallel()
	a, b := listening(t), listening(t)
	_, err := a.DialTimeout(addressOf(t, b), soon)
	require.NoError(t, err)
	before, err := a.session(addressOf(t, b), soon)
	require.NoError(t, err)
	a.drop(addressOf(t, b))
	out, err := a.DialTimeout(addressOf(t, b), soon)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	after, err := a.session(addressOf(t, b), soon)
	require.NoError(t, err)
	require.NotSame(t, before, after)

	require.NoError(t, b.Shutdown())
	require.Eventually(t, after.IsClosed, soon, time.Millisecond)
	_, err = a.DialTimeout("127.0.0.1:1", time.Second)
	require.Error(t, err)
	require.Eventually(t, func() bool {
		dialed, _ := connections(a)
		return dialed == 0
	}, soon, time.Millisecond)
}

func TestStreams_WriteHasADeadline(t *testing.T) {
	t.Parallel()
	a := listening(t)
	to := stuck(t, "n2", true).gossip()
	_, err := a.session(to, soon)
	require.NoError(t, err)
	out, err := a.DialTimeout(to, 100*time.Millisecond)
	require.NoError(t, err)
	_, err = out.Write(make([]byte, 1<<20))
	require.ErrorIs(t, err, yamux.ErrTimeout)
}

// What speaks another protocol is shown out.
func TestStreams_Stranger(t *testing.T) {
	t.Parallel()
	b := listening(t)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addressOf(t, b))
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, conn)
	if err != nil {
		require.ErrorContains(t, err, "reset")
	}
	require.NoError(t, conn.Close())
}

func TestStreams_ShutdownEndsWhatWaits(t *testing.T) {
	t.Parallel()
	a, b := listening(t), listening(t)
	in, err := a.DialTimeout(addressOf(t, b), soon)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := in.Read(make([]byte, 1))
		ended <- err
	}()
	require.NoError(t, a.Shutdown())
	require.Error(t, <-ended)
	_, err = a.DialTimeout(addressOf(t, b), soon)
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestListenStreams_PortTaken(t *testing.T) {
	t.Parallel()
	a := listening(t)
	_, err := listenStreams("127.0.0.1", a.GetAutoBindPort(), time.Second, log.New(io.Discard, "", 0))
	require.ErrorContains(t, err, "address already in use")
}
