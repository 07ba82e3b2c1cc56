//go:build unix

package grpcapi

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// countedPool counts the buffers that are out.
type countedPool struct{ out int }

func (p *countedPool) Get(n int) *[]byte {
	p.out++
	b := make([]byte, n)
	return &b
}

func (p *countedPool) Put(*[]byte) { p.out-- }

// pair returns both ends of a TCP connection, the server's one as the library sees it.
func pair(t *testing.T) (*readyConn, net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	raw, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	c, ok := whenReady(&trackedConn{Conn: raw}).(*readyConn)
	require.True(t, ok)
	return c, client
}

func TestReadyConn_ReadsWhatComes(t *testing.T) {
	c, client := pair(t)
	pool := new(countedPool)
	_, err := client.Write([]byte("hello"))
	require.NoError(t, err)
	b, n, err := c.ReadOnReady(3, pool)
	require.NoError(t, err)
	require.Equal(t, "hel", string((*b)[:n]))
	require.Equal(t, 1, pool.out)
	b, n, err = c.ReadOnReady(100, pool)
	require.NoError(t, err)
	require.Equal(t, "lo", string((*b)[:n]))
	require.NoError(t, client.Close())
	b, n, err = c.ReadOnReady(100, pool)
	require.ErrorIs(t, err, io.EOF)
	require.Nil(t, b)
	require.Zero(t, n)
	require.Equal(t, 2, pool.out, "what was handed over")
}

func TestReadyConn_HoldsNothingWhileItWaits(t *testing.T) {
	c, _ := pair(t)
	pool := new(countedPool)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	b, _, err := c.ReadOnReady(100, pool)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Nil(t, b)
	require.Zero(t, pool.out)
}

func TestReadyConn_ClosedWhileItWaits(t *testing.T) {
	c, _ := pair(t)
	pool := new(countedPool)
	errCh := make(chan error)
	go func() {
		_, _, err := c.ReadOnReady(100, pool)
		errCh <- err
	}()
	require.NoError(t, c.Conn.Close())
	require.ErrorIs(t, <-errCh, net.ErrClosed)
	require.Zero(t, pool.out)
	_, _, err := c.ReadOnReady(100, pool)
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestReadyConn_ResetByTheClient(t *testing.T) {
	c, client := pair(t)
	pool := new(countedPool)
	require.NoError(t, client.(*net.TCPConn).SetLinger(0))
	require.NoError(t, client.Close())
	_, n, err := c.ReadOnReady(100, pool)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Zero(t, n)
	require.Zero(t, pool.out)
}

func TestReadyConn_OnlyForTCP(t *testing.T) {
	server, client := net.Pipe()
	defer func() { require.NoError(t, server.Close()); require.NoError(t, client.Close()) }()
	tracked := &trackedConn{Conn: server}
	require.Same(t, tracked, whenReady(tracked))
}
