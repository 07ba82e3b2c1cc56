package grpcapi

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"rollcall/push"
	"rollcall/server/wire"
)

// The tests in bubbles use connections in memory; here are the system's.
func TestServer_OverTCP(t *testing.T) {
	const wait = 20 * time.Second
	registry := newRegistry()
	engine, err := push.New(push.DefaultConfig(), registry, nil)
	require.NoError(t, err)
	require.NoError(t, engine.Start())
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := New(Config{IP: "127.0.0.1", Idle: time.Second, Detect: 300 * ms, SetupWait: wait}, l, registry, engine, slog.New(slog.DiscardHandler), nil)
	require.Equal(t, l.Addr(), s.Addr())
	require.NoError(t, s.Start())
	t.Cleanup(func() { require.NoError(t, s.Close()) })

	raws := make(chan net.Conn, 2)
	dial := func() *client {
		conn, err := grpc.NewClient(
			"passthrough:///"+l.Addr().String(),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err == nil {
					raws <- raw
				}
				return raw, err
			}),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{})),
		)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		c := &client{ClientConn: conn}
		c.open(t)
		c.say(t, wire.TypeConnectionSetup, namingSetup)
		require.Equal(t, healthy, c.call(t, wire.TypeHealthCheck, "{}"))
		c.call(t, wire.TypeInstance, named("a")+registerA)
		require.Len(t, registry.told(), 1)
		return c
	}

	killed := dial()
	id := killed.id(t)
	raw := <-raws
	require.Contains(t, id, fmt.Sprintf("_127.0.0.1_%d", raw.LocalAddr().(*net.TCPAddr).Port))
	require.NoError(t, raw.(*net.TCPConn).SetLinger(0)) // the close is a reset, as of a process that was killed
	require.NoError(t, raw.Close())
	require.Eventually(t, func() bool { return s.Connections() == 0 }, wait, time.Millisecond)
	require.Equal(t, []string{"ConnectionLost " + id + " [public##g@@a]"}, registry.told())

	silent := dial()
	require.NoError(t, silent.ended())
	require.Eventually(t, func() bool { return s.Connections() == 0 }, wait, time.Millisecond, "a silent client is asked, then closed")
	require.Len(t, registry.told(), 1)
	require.Eventually(t, func() bool { return silent.ended() != nil }, wait, time.Millisecond)
	messages := silent.messages()
	require.NotEmpty(t, messages)
	require.Equal(t, wire.TypeClientDetection, messages[0].Type)
}

func TestServer_CloseWithoutStart(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := New(Config{Workers: 4}, l, newRegistry(), nil, slog.New(slog.DiscardHandler), nil)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestTransport_IsAServersOnly(t *testing.T) {
	_, _, err := transport{}.ClientHandshake(t.Context(), "", nil)
	require.Error(t, err)
	require.Equal(t, transport{}, transport{}.Clone())
	require.NoError(t, transport{}.OverrideServerName("x"))
	require.Equal(t, "insecure", transport{}.Info().SecurityProtocol)
	require.Equal(t, "insecure", authInfo{}.AuthType())
	_, err = connOf(t.Context())
	require.Error(t, err)
}
