package compat

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"rollcall/integration/wire"
)

// fake answers one scenario out of its own recording, in step with the player.
type fake struct {
	player *Player
	script Script
	// corrupt is the index of a step that is answered with one value changed.
	corrupt int

	udp      net.PacketConn
	previous []byte
	workers  sync.WaitGroup

	mu      sync.Mutex
	index   int
	wanted  Expected
	streams map[string]fakeStream
	conns   map[string]net.Conn // by remote port
}

type fakeStream struct {
	grpc.ServerStream
	end chan struct{}
}

// playFake plays the script against a fake; corrupt is -1 for a true one.
func playFake(t *testing.T, script Script, corrupt int) error {
	t.Helper()
	return playFakeWith(t, script, corrupt, func(*fake, int, Step) {})
}

// playFakeWith also lets the caller do something at the beginning of each step.
func playFakeWith(t *testing.T, script Script, corrupt int, also func(f *fake, i int, step Step)) error {
	t.Helper()
	target := Target{Host: "127.0.0.1", HTTPPort: 0}
	web, rpc := listenPair(t, &target)
	player := NewPlayer(target)
	player.pace = 0.01
	f := &fake{
		player: player, script: script, corrupt: corrupt,
		streams: map[string]fakeStream{}, conns: map[string]net.Conn{},
	}
	udp, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	require.NoError(t, err)
	f.udp = udp
	player.before = func(i int, step Step) {
		f.before(i, step)
		also(f, i, step)
	}

	httpServer := &http.Server{Handler: http.HandlerFunc(f.serveHTTP), ReadHeaderTimeout: 10 * time.Second}
	rpcServer := grpc.NewServer(grpc.ForceServerCodec(wire.Codec{}), grpc.UnknownServiceHandler(f.serveRPC), grpc.MaxRecvMsgSize(10<<20))
	f.workers.Go(func() { _ = httpServer.Serve(web) })
	f.workers.Go(func() { _ = rpcServer.Serve(recordingListener{rpc, f}) })
	err = player.Play(t.Context(), script)
	_ = httpServer.Close()
	rpcServer.Stop()
	_ = udp.Close()
	f.workers.Wait()
	return err
}

// listenPair takes a port and the one 1000 above it.
func listenPair(t *testing.T, target *Target) (web, rpc net.Listener) {
	t.Helper()
	for range 100 {
		web, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		target.HTTPPort = web.Addr().(*net.TCPAddr).Port
		rpc, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", target.grpc())
		if err == nil {
			return web, rpc
		}
		_ = web.Close()
	}
	t.Fatal("no two free ports")
	return nil, nil
}

// recordingListener remembers the accepted connections.
type recordingListener struct {
	net.Listener
	f *fake
}

func (l recordingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.f.mu.Lock()
		l.f.conns[strconv.Itoa(c.RemoteAddr().(*net.TCPAddr).Port)] = c
		l.f.mu.Unlock()
	}
	return c, err
}

// before does what the server does of itself in this step.
func (f *fake) before(i int, step Step) {
	f.mu.Lock()
	f.index = i
	for _, e := range f.script.expected(i, f.player.happened) {
		if !e.PassOver && !e.Optional {
			f.wanted = e
			break
		}
	}
	f.mu.Unlock()
	switch step.Kind {
	case "push":
		body := f.jsonBody()
		if f.wanted.Any {
			body = map[string]any{"requestId": "17"}
		}
		f.push(step.Conn, f.wanted.Types[0], body)
	case "closed":
		f.closeStream(step)
	case "udp":
		f.datagram(step)
	case "probe":
		f.probe(step)
	}
}

func (f *fake) step() (Step, Expected) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.script.Scenario.Steps[f.index], f.wanted
}

// jsonBody is a body of the current step, changed if this is the step to be.
func (f *fake) jsonBody() any {
	f.mu.Lock()
	defer f.mu.Unlock()
	body := f.player.names.sampleJSON(f.wanted.JSON)
	if f.index == f.corrupt {
		body, _ = corruptOne(f.wanted.JSON, body)
	}
	return body
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

func (f *fake) serveHTTP(w http.ResponseWriter, _ *http.Request) {
	step, e := f.step()
	if step.Kind != "http" {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	for name, value := range e.Headers {
		w.Header().Set(name, f.player.names.sample(value))
	}
	body := []byte("any")
	switch {
	case e.Refusal && e.Code != 0:
		body = encode(map[string]any{"code": e.Code, "message": "refused " + strings.Join(e.Names, " ")})
	case e.Refusal:
		body = []byte("refused: " + strings.Join(e.Names, " "))
	case e.Lines != nil:
		body = []byte(f.player.names.sample(strings.Join(e.Lines, "\n")))
	case e.HasJSON && !e.Any:
		body = encode(f.jsonBody())
	case !e.Any:
		body = []byte(f.player.names.sample(e.Text))
		if f.index == f.corrupt {
			body = append(body, "x"...)
		}
	}
	if e.Refusal && e.Statuses[0] == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", "GET")
	}
	if e.ContentType != nil {
		w.Header()["Content-Type"] = nil
		if *e.ContentType != "" {
			w.Header().Set("Content-Type", *e.ContentType)
		}
	}
	w.WriteHeader(e.Statuses[0])
	_, _ = w.Write(body)
}

func (f *fake) serveRPC(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	step, e := f.step()
	if step.Kind == "call" {
		return f.refuse(stream, step)
	}
	if method == streamMethod {
		return f.serveStream(stream)
	}
	request := new(wire.Payload)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	reply := new(wire.Payload)
	switch {
	case step.Kind == "connect" && request.Type == "ServerCheckRequest":
		reply.Type, reply.Body = "ServerCheckResponse", encode(map[string]any{"connectionId": "1_127.0.0.1_" + randomHex(4), "success": true})
	case step.Kind == "connect":
		reply.Type, reply.Body = "HealthCheckResponse", encode(map[string]any{"success": true})
	case e.GRPC != "":
		return status.Error(codeOf(e.GRPC), f.player.names.sample(e.Message))
	case e.Refusal:
		reply.Type = e.Types[0]
		reply.Body = encode(map[string]any{"resultCode": 500, "errorCode": e.Code, "message": "refused " + strings.Join(e.Names, " "), "success": false})
	default:
		reply.Type, reply.Body = e.Types[0], encode(f.jsonBody())
	}
	return stream.SendMsg(reply)
}

// refuse reads the call, so that one which is too large fails on the way.
func (f *fake) refuse(stream grpc.ServerStream, step Step) error {
	if err := stream.RecvMsg(new(wire.Payload)); err != nil {
		return err
	}
	return status.Error(codeOf(step.Status.Code), step.Status.Message)
}

func codeOf(name string) codes.Code {
	for c := codes.OK; c <= codes.Unauthenticated; c++ {
		if c.String() == name {
			return c
		}
	}
	return codes.Unknown
}

// connOf returns the name of the connection that a call came over. The step does not
// tell: a stream may reach the server when the player is at a later one.
func (f *fake) connOf(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	port := strconv.Itoa(from.Addr.(*net.TCPAddr).Port)
	for _, step := range f.script.Scenario.Steps {
		if of, ok := f.player.names.Value("tcpPort:" + step.Conn); ok && of == port {
			return step.Conn
		}
	}
	return ""
}

func (f *fake) serveStream(stream grpc.ServerStream) error {
	conn := f.connOf(stream.Context())
	end := make(chan struct{})
	f.mu.Lock()
	f.streams[conn] = fakeStream{stream, end}
	f.mu.Unlock()
	over := make(chan struct{})
	f.workers.Go(func() {
		defer close(over)
		for stream.RecvMsg(new(wire.Payload)) == nil {
			continue
		}
	})
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	select {
	case <-end:
	case <-over:
	}
	return nil
}

func (f *fake) push(conn, kind string, body any) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		f.mu.Lock()
		stream, ok := f.streams[conn]
		f.mu.Unlock()
		if ok {
			_ = stream.SendMsg(&wire.Payload{Type: kind, Body: encode(body)})
			return
		}
		if time.Now().After(deadline) {
			return // the player will miss it and say so
		}
		_ = f.player.wait(context.Background(), time.Millisecond)
	}
}

func (f *fake) closeStream(step Step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stream, ok := f.streams[step.Conn]
	if !ok {
		return
	}
	delete(f.streams, step.Conn)
	close(stream.end)
	if !step.TransportClosed {
		return
	}
	if port, ok := f.player.names.Value("tcpPort:" + step.Conn); ok {
		_ = f.conns[port].Close()
	}
}

func (f *fake) datagram(step Step) {
	if !step.SameAsPrevious {
		outer, _ := f.player.names.sampleJSON(f.wanted.UDP).(map[string]any)
		outer["data"] = string(encode(f.jsonBody()))
		text := encode(outer)
		if len(text) >= gzipFrom {
			var packed bytes.Buffer
			w := gzip.NewWriter(&packed)
			_, _ = w.Write(text)
			_ = w.Close()
			text = packed.Bytes()
		}
		f.previous = text
	}
	port, _ := f.player.names.Value("udpPort:" + step.Socket)
	to, err := net.ResolveUDPAddr("udp4", "127.0.0.1:"+port)
	if err != nil {
		return
	}
	_, _ = f.udp.WriteTo(f.previous, to)
}

func (f *fake) probe(step Step) {
	names := f.player.names
	request, err := http.NewRequestWithContext(context.Background(), step.Method, "http://"+names.sample(step.Host), nil)
	if err != nil {
		return
	}
	request.URL.Opaque = names.sample(step.Path)
	for name, value := range step.Headers {
		if name != "Connection" {
			request.Header.Set(name, value)
		}
	}
	f.workers.Go(func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
	})
}

// corruptOne changes one value of a body that a client would see. It reports
// whether there was one.
func corruptOne(want, body any) (any, bool) {
	for _, c := range changes(want, body) {
		if c.kind == "number" || c.kind == "text" {
			return c.apply(), true
		}
	}
	return body, false
}

func scriptsOf(t *testing.T, g golden) []Script {
	t.Helper()
	var scripts []Script
	for _, r := range g.recordings {
		for _, scenario := range r.Scenarios {
			if g.playedAs(r.Version, r.Group, scenario) != "" {
				continue
			}
			script, err := NewScript(g.recordings, g.readings, r.Group, r.Version, scenario)
			require.NoError(t, err)
			scripts = append(scripts, script)
		}
	}
	return scripts
}

// A server that answers as recorded (or as read, where the recording is not to
// be followed) passes every scenario.
func TestPlayer_TrueFakePasses(t *testing.T) {
	for _, script := range scriptsOf(t, loadGolden(t)) {
		t.Run(script.Name(), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, playFake(t, script, -1))
		})
	}
}

// A server that gets one value of one answer wrong fails, at that step.
func TestPlayer_CorruptFakeFails(t *testing.T) {
	for _, script := range scriptsOf(t, loadGolden(t)) {
		i := lastCorruptible(script)
		if i < 0 {
			continue
		}
		t.Run(script.Name(), func(t *testing.T) {
			t.Parallel()
			err := playFake(t, script, i)
			var failure *StepError
			require.ErrorAs(t, err, &failure)
			require.Equal(t, i, failure.Index, "%v", err)
			require.Contains(t, err.Error(), fmt.Sprintf("step %d of", i+1))
			require.Contains(t, err.Error(), script.Name())
		})
	}
}

// lastCorruptible finds a step whose JSON body is judged and, being wrong, does
// not make the player wait for a better one.
func lastCorruptible(script Script) int {
	for i, step := range slices.Backward(script.Scenario.Steps) {
		if step.Retry || step.Skipped > 0 || step.Times > 0 || step.SameAsPrevious {
			continue
		}
		expected := script.expected(i, nil)
		if len(expected) == 0 || expected[0].Any || expected[0].Refusal || expected[0].GRPC != "" || !expected[0].HasJSON {
			continue
		}
		names := NewNames(nil)
		if _, ok := corruptOne(expected[0].JSON, names.sampleJSON(expected[0].JSON)); !ok {
			continue
		}
		if oneIsOpen(expected) {
			continue
		}
		return i
	}
	return -1
}

func oneIsOpen(expected []Expected) bool {
	for _, e := range expected {
		if e.Any || e.Refusal || e.Optional || e.PassOver || e.GRPC != "" {
			return true
		}
	}
	return false
}

// A message where silence was recorded fails.
func TestPlayer_MessageDuringSilence_Fails(t *testing.T) {
	g := loadGolden(t)
	scenario, ok := find(g.recordings, "grpc-subscribe", "2.5.1", "grpc-unsubscribe")
	require.True(t, ok)
	silent := slices.IndexFunc(scenario.Steps, func(s Step) bool { return s.Kind == "silence" })
	require.GreaterOrEqual(t, silent, 0)
	scenario.Steps[silent].Ms = 100_000 // at the fake's pace one second
	script, err := NewScript(g.recordings, g.readings, "grpc-subscribe", "2.5.1", scenario)
	require.NoError(t, err)
	err = playFakeWith(t, script, -1, func(f *fake, i int, step Step) {
		if i == silent {
			f.push(step.Conn, "NotifySubscriberRequest", map[string]any{"requestId": "1"})
		}
	})
	var failure *StepError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, silent, failure.Index)
	require.ErrorContains(t, err, "a message where there was silence")
}
