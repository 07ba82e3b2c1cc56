//go:build unix

package server_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"

	"rollcall/server"
	"rollcall/server/wire"
)

// The benchmarks measure a node beside the bare limit of the library under it: a
// gRPC echo or a net/http handler that takes the same requests and gives back as
// many bytes. Node, bare server and clients share this process and its processors.
// Clients cost as little as can be: requests are encoded before, answers are not
// decoded. "ratio" is the node's rate divided by the bare one's, and for pushes and
// memory what the node takes divided by what the bare server takes.

// startNode starts a standalone node in a new folder and waits until it serves.
func startNode(b *testing.B, adjust func(*server.Config)) *server.Node {
	b.Helper()
	cfg := server.DefaultConfig()
	cfg.Node, cfg.DataDir, cfg.Bind, cfg.Port = "bench", b.TempDir(), "127.0.0.1", 0
	cfg.Idle = time.Hour // the clients here answer pushes and nothing else
	if adjust != nil {
		adjust(&cfg)
	}
	n, err := server.New(cfg, "bench", slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, n.Close()) })
	require.NoError(b, n.Start())
	require.Eventually(b, func() bool { return n.Ready() == nil }, time.Minute, 10*time.Millisecond)
	return n
}

// op is one call to a server; whoever makes it waits for the answer.
type op func() error

// compare measures the workers of the node and of the bare server, which take
// turns in both sub-benchmarks.
func compare(b *testing.B, node, bare []op) {
	b.Helper()
	b.Run("rollcall", func(b *testing.B) {
		took, other := inTurns(b, node, bare)
		reportRatio(b, took, other)
	})
	b.Run("bare", func(b *testing.B) {
		took, other := inTurns(b, bare, node)
		reportRatio(b, other, took)
	})
}

// cost is what calls took: time, and processor time of this process, which other
// processes on the machine change less.
type cost struct{ wall, cpu time.Duration }

func (c *cost) add(o cost) { c.wall, c.cpu = c.wall+o.wall, c.cpu+o.cpu }

func reportRatio(b *testing.B, node, bare cost) {
	b.Helper()
	b.ReportMetric(bare.wall.Seconds()/node.wall.Seconds(), "ratio")
	b.ReportMetric(bare.cpu.Seconds()/node.cpu.Seconds(), "cpu-ratio")
}

// turns is how often the two sides of a comparison take turns in one run.
const turns = 10

// inTurns runs b.N operations of each side, in turns and with the first place
// changing, and measures one of them. It returns what each took.
func inTurns(b *testing.B, measured, other []op) (costMeasured, costOther cost) {
	b.Helper()
	b.ReportAllocs()
	b.StopTimer()
	b.ResetTimer()
	measure := func(n int) {
		b.StartTimer()
		costMeasured.add(drive(b, measured, n))
		b.StopTimer()
	}
	done := 0
	for turn := range turns {
		n := b.N*(turn+1)/turns - done
		done += n
		if turn%2 == 0 {
			measure(n)
		}
		costOther.add(drive(b, other, n))
		if turn%2 == 1 {
			measure(n)
		}
	}
	b.ReportMetric(float64(b.N)/costMeasured.wall.Seconds(), "ops/s")
	return costMeasured, costOther
}

// drive makes n calls, each worker one after the other, and returns what that took.
func drive(b *testing.B, workers []op, n int) cost {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	begin, cpu := time.Now(), processorTime(b)
	for _, call := range workers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return cost{time.Since(begin), processorTime(b) - cpu}
}

// processorTime is what this process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rawCodec passes messages as the bytes that they are: []byte to send, *[]byte,
// whose array is used again, to receive.
type rawCodec struct{}

func (rawCodec) Name() string { return wire.Codec{}.Name() }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("marshal %T: want bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("unmarshal %T: want a pointer to bytes", v)
	}
	n := data.Len()
	if cap(*b) < n {
		*b = make([]byte, n)
	}
	*b = (*b)[:n]
	data.CopyTo(*b)
	return nil
}

const (
	unaryMethod  = "/Request/request"
	streamMethod = "/BiRequestStream/requestBiStream"
)

// encode returns a message as clients send it.
func encode(b *testing.B, typ, body string) []byte {
	b.Helper()
	p := &wire.Payload{Type: typ, ClientIP: "10.0.0.7", Headers: map[string]string{"app": "unknown"}, Body: [][]byte{[]byte(body)}}
	data, err := wire.Codec{}.Marshal(p)
	require.NoError(b, err)
	return data.Materialize()
}

// dial opens gRPC connections, which close with the benchmark.
func dial(b *testing.B, address string, n int) []*grpc.ClientConn {
	b.Helper()
	conns := make([]*grpc.ClientConn, n)
	for k := range conns {
		conn, err := grpc.NewClient("passthrough:///"+address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
		require.NoError(b, err)
		conns[k] = conn
	}
	b.Cleanup(func() { hangUp(conns) })
	return conns
}

func hangUp(conns []*grpc.ClientConn) {
	_ = each(len(conns), func(k int) error { return conns[k].Close() })
}

// each calls fn with 0 to n-1, some at a time, and returns an error if there was one.
func each(n int, fn func(k int) error) error {
	var next atomic.Int64
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for k := int(next.Add(1)) - 1; k < n; k = int(next.Add(1)) - 1 {
				if err := fn(k); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// session is a connection and its stream as SDKs hold them.
type session struct {
	conn   *grpc.ClientConn
	stream grpc.ClientStream
}

const setupBody = `{"headers":{},"clientVersion":"Nacos-Go-Client:v2.2.5","tenant":"public","labels":{"source":"sdk","module":"naming"},"abilityTable":{},"module":"internal"}`

// open makes the connection known to the server, which acknowledges its setup.
func open(ctx context.Context, conn *grpc.ClientConn, check, setup []byte) (*session, error) {
	var answer []byte
	if err := conn.Invoke(ctx, unaryMethod, check, &answer); err != nil {
		return nil, err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(setup); err != nil {
		return nil, err
	}
	return &session{conn, stream}, stream.RecvMsg(&answer)
}

// openAll opens n sessions, which close with the benchmark.
func openAll(b *testing.B, address string, n int) []*session {
	b.Helper()
	conns := dial(b, address, n)
	check := encode(b, wire.TypeServerCheck, `{"headers":{},"module":"internal"}`)
	setup := encode(b, wire.TypeConnectionSetup, setupBody)
	sessions := make([]*session, n)
	require.NoError(b, each(n, func(k int) (err error) {
		sessions[k], err = open(b.Context(), conns[k], check, setup)
		return err
	}))
	return sessions
}

// bareServer is the gRPC library alone, with the options of the node: calls are
// answered with prepared bytes, streams get what is broadcast.
type bareServer struct {
	address string
	answer  []byte

	mu      sync.Mutex
	streams []chan []byte
}

// startBare starts a bare server; answer is what it answers calls with.
func startBare(b *testing.B, answer []byte) *bareServer {
	b.Helper()
	s := &bareServer{answer: answer}
	g := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(10<<20),
		grpc.NumStreamWorkers(streamWorkers()),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * time.Hour, Timeout: 20 * time.Second}),
	)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "Request", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "request",
			Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				var request []byte
				return s.answer, decode(&request)
			},
		}},
	}, s)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "BiRequestStream", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "requestBiStream", Handler: s.stream, ServerStreams: true, ClientStreams: true}},
	}, s)
	l := listenLoopback(b)
	s.address = l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	b.Cleanup(func() {
		g.Stop()
		wg.Wait()
	})
	return s
}

func listenLoopback(b *testing.B) net.Listener {
	b.Helper()
	l, err := new(net.ListenConfig).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	return l
}

// stream answers the first message, and then writes what is broadcast.
func (s *bareServer) stream(_ any, ss grpc.ServerStream) error {
	var setup []byte
	if err := ss.RecvMsg(&setup); err != nil {
		return err
	}
	messages := make(chan []byte, 1)
	s.mu.Lock()
	s.streams = append(s.streams, messages)
	s.mu.Unlock()
	message := setup
	for {
		if err := ss.SendMsg(message); err != nil {
			return err
		}
		select {
		case message = <-messages:
		case <-ss.Context().Done():
			return nil
		}
	}
}

// broadcast sends one message to every stream.
func (s *bareServer) broadcast(message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, messages := range s.streams {
		messages <- message
	}
}
