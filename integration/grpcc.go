package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"rollcall/integration/wire"
)

const (
	unaryPath  = "/Request/request"
	streamPath = "/BiRequestStream/requestBiStream"
	callTime   = 20 * time.Second
)

// Fields is a JSON object to send.
type Fields map[string]any

// With returns a copy with more fields; names given twice take the later value.
func (f Fields) With(more Fields) Fields {
	all := Fields{}
	maps.Copy(all, f)
	maps.Copy(all, more)
	return all
}

// Reply is the answer to a unary call.
type Reply struct {
	Type       string `json:"-"`
	Body       string `json:"-"`
	ResultCode int    `json:"resultCode"`
	ErrorCode  int    `json:"errorCode"`
	Message    string `json:"message"`
	Success    bool   `json:"success"`

	ConnectionID string       `json:"connectionId"`
	ServiceInfo  *ServiceInfo `json:"serviceInfo"`
	Count        int          `json:"count"`
	ServiceNames []string     `json:"serviceNames"`

	// Raw holds every field as it came.
	Raw map[string]json.RawMessage `json:"-"`
}

// OK requires a success.
func (r Reply) OK(tb testing.TB) Reply {
	tb.Helper()
	require.Equal(tb, 200, r.ResultCode, "%s %s", r.Type, r.Body)
	require.Zero(tb, r.ErrorCode, "%s %s", r.Type, r.Body)
	require.True(tb, r.Success, "%s %s", r.Type, r.Body)
	return r
}

// Refused requires a failure with the error code.
func (r Reply) Refused(tb testing.TB, errorCode int) Reply {
	tb.Helper()
	require.NotEqual(tb, 200, r.ResultCode, "%s %s", r.Type, r.Body)
	require.Equal(tb, errorCode, r.ErrorCode, "%s %s", r.Type, r.Body)
	require.False(tb, r.Success, "%s %s", r.Type, r.Body)
	require.Contains(tb, r.Raw, "success", "%s %s", r.Type, r.Body)
	return r
}

// Message is what the server sent on the stream.
type Message struct {
	Type      string
	ClientIP  string
	Body      []byte
	RequestID string
	At        time.Time
}

// Info decodes the list that a push carries.
func (m Message) Info(tb testing.TB) ServiceInfo {
	tb.Helper()
	var body struct {
		ServiceInfo *ServiceInfo `json:"serviceInfo"`
	}
	require.NoError(tb, json.Unmarshal(m.Body, &body), "%s", m.Body)
	require.NotNil(tb, body.ServiceInfo, "%s", m.Body)
	return *body.ServiceInfo
}

// GRPCOption changes how a connection is made.
type GRPCOption func(*Conn)

// WithSetup replaces fields of the ConnectionSetupRequest.
func WithSetup(f Fields) GRPCOption {
	return func(c *Conn) { c.setup = c.setup.With(f) }
}

// WithoutAck leaves it to the test to answer pushes. The question whether the
// client is alive is still answered, or the server would close the connection.
func WithoutAck() GRPCOption {
	return func(c *Conn) { c.answer = nil }
}

// Silent answers nothing at all.
func Silent() GRPCOption {
	return func(c *Conn) { c.answer, c.alive = nil, nil }
}

// WithAnswer sets the body of the automatic answers; the requestId is added.
func WithAnswer(f Fields) GRPCOption {
	return func(c *Conn) { c.answer, c.alive = f, f }
}

// WithCallTime bounds the calls, those of the handshake among them; 20 s by default.
func WithCallTime(d time.Duration) GRPCOption {
	return func(c *Conn) { c.callTime = d }
}

// WithClientIP sets the address that the client says it has.
func WithClientIP(ip string) GRPCOption {
	return func(c *Conn) { c.clientIP = ip }
}

// Conn is one connection of a client, that is: one TCP connection. It never
// dials a second time.
type Conn struct {
	ID string // the connectionId of the server check

	addr     string
	clientIP string
	setup    Fields
	answer   Fields // to pushes and the like; nil: none
	alive    Fields // to ClientDetectionRequest; nil: none
	callTime time.Duration

	cc     *grpc.ClientConn
	stream grpc.ClientStream
	sendMu sync.Mutex // guards sending on the stream
	ended  chan struct{}
	cancel context.CancelFunc

	mu       sync.Mutex
	raw      *net.TCPConn
	messages []Message
	arrived  chan struct{} // a token when messages grew
	endErr   error
}

// Dial opens a transport and sends nothing.
func Dial(tb testing.TB, addr string, options ...GRPCOption) *Conn {
	tb.Helper()
	c, err := TryDial(addr, options...)
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// TryDial is Dial for callers without a test; they call Close.
func TryDial(addr string, options ...GRPCOption) (*Conn, error) {
	c := &Conn{
		addr:     addr,
		clientIP: "127.0.0.1",
		setup: Fields{
			"clientVersion": "Nacos-Java-Client:v2.2.0",
			"labels":        Fields{"source": "sdk", "module": "naming", "AppName": "integration"},
			"module":        "internal",
		},
		answer:  Fields{"resultCode": 200, "errorCode": 0, "success": true},
		alive:   Fields{"resultCode": 200, "errorCode": 0, "success": true},
		ended:   make(chan struct{}),
		arrived: make(chan struct{}, 1),

		callTime: callTime,
	}
	for _, o := range options {
		o(c)
	}
	cc, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(wire.Codec{}), grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithContextDialer(c.dialOnce),
		grpc.WithIdleTimeout(0))
	if err != nil {
		return nil, err
	}
	c.cc = cc
	return c, nil
}

// Connect does what an SDK does at its start: server check, stream, setup, and
// waiting until the server knows the connection.
func Connect(tb testing.TB, addr string, options ...GRPCOption) *Conn {
	tb.Helper()
	c, err := TryConnect(addr, options...)
	require.NoError(tb, err)
	tb.Cleanup(c.Close)
	return c
}

// TryConnect is Connect for callers without a test; they call Close.
func TryConnect(addr string, options ...GRPCOption) (*Conn, error) {
	c, err := TryDial(addr, options...)
	if err != nil {
		return nil, err
	}
	if err := c.handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) handshake() error {
	check, err := c.TryCall("ServerCheckRequest", Fields{"headers": Fields{}, "module": "internal"})
	if err != nil {
		return err
	}
	if check.ErrorCode != 0 {
		return fmt.Errorf("server check: %s", check.Body)
	}
	c.ID = check.ConnectionID
	if err := c.openStream(); err != nil {
		return err
	}
	if err := c.TrySend("ConnectionSetupRequest", c.setup); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.callTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		health, err := c.TryCall("HealthCheckRequest", Fields{"headers": Fields{}, "module": "internal"})
		if err != nil {
			return err
		}
		if health.ErrorCode == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the connection was not registered: %s", health.Body)
		case <-tick.C:
		}
	}
}

func (c *Conn) dialOnce(ctx context.Context, addr string) (net.Conn, error) {
	c.mu.Lock()
	used := c.raw != nil
	c.mu.Unlock()
	if used {
		return nil, errors.New("the connection is gone")
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = conn.(*net.TCPConn)
	return conn, nil
}

// OpenStream opens the stream without sending a setup.
func (c *Conn) OpenStream(tb testing.TB) {
	tb.Helper()
	require.NoError(tb, c.openStream())
}

func (c *Conn) openStream() error {
	ctx, cancel := context.WithCancel(context.Background())
	desc := &grpc.StreamDesc{StreamName: "requestBiStream", ServerStreams: true, ClientStreams: true}
	stream, err := c.cc.NewStream(ctx, desc, streamPath)
	if err != nil {
		cancel()
		return err
	}
	c.stream, c.cancel = stream, cancel
	go c.read(stream)
	return nil
}

func (c *Conn) read(stream grpc.ClientStream) {
	defer close(c.ended)
	for {
		var p wire.Payload
		err := stream.RecvMsg(&p)
		if err != nil {
			c.mu.Lock()
			c.endErr = err
			c.mu.Unlock()
			return
		}
		var head struct {
			RequestID string `json:"requestId"`
		}
		_ = json.Unmarshal(p.Body, &head)
		m := Message{Type: p.Type, ClientIP: p.ClientIP, Body: p.Body, RequestID: head.RequestID, At: time.Now()}
		answer := c.answer
		if m.Type == "ClientDetectionRequest" {
			answer = c.alive
		}
		if answer != nil {
			_ = c.respond(m, answer)
		}
		c.mu.Lock()
		c.messages = append(c.messages, m)
		c.mu.Unlock()
		select {
		case c.arrived <- struct{}{}:
		default:
		}
	}
}

// Answer answers a message of the server; body is completed by its requestId.
func (c *Conn) Answer(tb testing.TB, m Message, body Fields) {
	tb.Helper()
	require.NoError(tb, c.respond(m, body))
}

func (c *Conn) respond(m Message, body Fields) error {
	types := map[string]string{
		"NotifySubscriberRequest":             "NotifySubscriberResponse",
		"ClientDetectionRequest":              "ClientDetectionResponse",
		"ConnectResetRequest":                 "ConnectResetResponse",
		"NamingFuzzyWatchSyncRequest":         "NamingFuzzyWatchChangeNotifyResponse",
		"NamingFuzzyWatchChangeNotifyRequest": "NamingFuzzyWatchChangeNotifyResponse",
	}
	kind, ok := types[m.Type]
	if !ok {
		return nil // SetupAckRequest and unknown ones are not answered
	}
	return c.TrySend(kind, Fields{"requestId": m.RequestID}.With(body))
}

// Send puts a message on the stream.
func (c *Conn) Send(tb testing.TB, kind string, body any) {
	tb.Helper()
	require.NoError(tb, c.TrySend(kind, body))
}

// TrySend is Send without a test.
func (c *Conn) TrySend(kind string, body any) error {
	data, err := toJSON(body)
	if err != nil {
		return err
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	return c.stream.SendMsg(&wire.Payload{Type: kind, ClientIP: c.clientIP, Body: data})
}

// Call makes a unary call; it requires an answer, not a success. A body of type
// string or []byte is sent as it stands.
func (c *Conn) Call(tb testing.TB, kind string, body any) Reply {
	tb.Helper()
	reply, err := c.TryCall(kind, body)
	require.NoError(tb, err, kind)
	return reply
}

// TryCall is Call for callers that expect failures of the transport.
func (c *Conn) TryCall(kind string, body any) (Reply, error) {
	data, err := toJSON(body)
	if err != nil {
		return Reply{}, err
	}
	return c.Invoke(&wire.Payload{Type: kind, ClientIP: c.clientIP, Body: data})
}

// Invoke makes a unary call with any payload: a *wire.Payload, or []byte that is sent
// as the message's bytes.
func (c *Conn) Invoke(message any) (Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.callTime)
	defer cancel()
	var p wire.Payload
	if err := c.cc.Invoke(ctx, unaryPath, message, &p); err != nil {
		return Reply{}, err
	}
	var reply Reply
	if err := json.Unmarshal(p.Body, &reply); err != nil {
		return Reply{}, fmt.Errorf("decode %s %q: %w", p.Type, p.Body, err)
	}
	if err := json.Unmarshal(p.Body, &reply.Raw); err != nil {
		return Reply{}, err
	}
	reply.Type, reply.Body = p.Type, string(p.Body)
	return reply, nil
}

// Next returns the next message of the server, in order.
func (c *Conn) Next(tb testing.TB, timeout time.Duration) Message {
	tb.Helper()
	m, ok := c.next(timeout)
	require.True(tb, ok, "no message within %s (stream: %v)", timeout, c.streamErr())
	return m
}

func (c *Conn) next(timeout time.Duration) (Message, bool) {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	ended := c.ended
	for {
		c.mu.Lock()
		if len(c.messages) > 0 {
			m := c.messages[0]
			c.messages = c.messages[1:]
			c.mu.Unlock()
			return m, true
		}
		c.mu.Unlock()
		select {
		case <-c.arrived:
		case <-ended:
			ended = nil // look once more for what came before the end, then wait out
			select {
			case c.arrived <- struct{}{}:
			default:
			}
		case <-deadline.C:
			return Message{}, false
		}
	}
}

// NextPush returns the next push and skips other messages.
func (c *Conn) NextPush(tb testing.TB, timeout time.Duration) ServiceInfo {
	tb.Helper()
	info, _ := c.NextPushMessage(tb, timeout)
	return info
}

// NextPushMessage is NextPush that also returns the message around the list.
func (c *Conn) NextPushMessage(tb testing.TB, timeout time.Duration) (ServiceInfo, Message) {
	tb.Helper()
	deadline := time.Now().Add(timeout)
	for {
		m := c.Next(tb, time.Until(deadline))
		if m.Type == "NotifySubscriberRequest" {
			return m.Info(tb), m
		}
	}
}

// PushUntil reads pushes until one satisfies the condition, and returns it.
func (c *Conn) PushUntil(tb testing.TB, timeout time.Duration, want func(ServiceInfo) bool) ServiceInfo {
	tb.Helper()
	deadline := time.Now().Add(timeout)
	var last ServiceInfo
	for {
		m, ok := c.next(time.Until(deadline))
		if !ok {
			require.Fail(tb, "no such push", "within %s; the last one had %v (stream: %v)", timeout, last.Addrs(), c.streamErr())
		}
		if m.Type != "NotifySubscriberRequest" {
			continue
		}
		last = m.Info(tb)
		if want(last) {
			return last
		}
	}
}

// Quiet requires that no push arrives for the time given.
func (c *Conn) Quiet(tb testing.TB, d time.Duration) {
	tb.Helper()
	deadline := time.Now().Add(d)
	for {
		m, ok := c.next(time.Until(deadline))
		if !ok {
			return
		}
		require.NotEqual(tb, "NotifySubscriberRequest", m.Type, "an unexpected push: %s", m.Body)
	}
}

// Collect returns the pushes of the time given.
func (c *Conn) Collect(tb testing.TB, d time.Duration) []ServiceInfo {
	tb.Helper()
	deadline := time.Now().Add(d)
	var all []ServiceInfo
	for {
		m, ok := c.next(time.Until(deadline))
		if !ok {
			return all
		}
		if m.Type == "NotifySubscriberRequest" {
			all = append(all, m.Info(tb))
		}
	}
}

// AwaitEnd requires that the server ends the stream within the timeout.
func (c *Conn) AwaitEnd(tb testing.TB, timeout time.Duration) {
	tb.Helper()
	select {
	case <-c.ended:
	case <-time.After(timeout):
		require.Fail(tb, "the server did not end the stream", "within %s", timeout)
	}
}

// Alive tells whether the stream has not ended.
func (c *Conn) Alive() bool {
	select {
	case <-c.ended:
		return false
	default:
		return true
	}
}

// Ended is closed when the stream has ended.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

func (c *Conn) streamErr() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(c.endErr, io.EOF) {
		return errors.New("ended by the server with status OK")
	}
	return c.endErr
}

// Close closes the connection as a client does that ends.
func (c *Conn) Close() {
	if c.cancel != nil {
		c.cancel()
	}
	_ = c.cc.Close()
	if c.stream != nil {
		<-c.ended
	}
}

// Abort resets the TCP connection, as the kernel of a client does that was killed
// with unread data.
func (c *Conn) Abort(tb testing.TB) {
	tb.Helper()
	c.mu.Lock()
	raw := c.raw
	c.mu.Unlock()
	require.NotNil(tb, raw)
	require.NoError(tb, raw.SetLinger(0))
	require.NoError(tb, raw.Close())
}

func toJSON(body any) ([]byte, error) {
	switch b := body.(type) {
	case string:
		return []byte(b), nil
	case []byte:
		return b, nil
	}
	return json.Marshal(body)
}
