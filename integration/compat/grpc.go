package compat

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"rollcall/integration/wire"
)

const (
	requestMethod = "/Request/request"
	streamMethod  = "/BiRequestStream/requestBiStream"
	// clientIP is what the recorded clients said of themselves.
	clientIP = "10.0.9.9"
)

// conn is one transport with at most one stream.
type conn struct {
	cc     *grpc.ClientConn
	cancel context.CancelFunc
	ctx    context.Context // what close cancels

	stream   grpc.ClientStream
	messages chan *wire.Payload
	ended    chan struct{} // closed when the stream is over
	endErr   error         // set before ended is closed
	readers  sync.WaitGroup

	mu        sync.Mutex
	transport *watchedConn
}

// watchedConn tells when the other side closed the TCP connection.
type watchedConn struct {
	net.Conn
	once sync.Once
	over chan struct{}
}

func (w *watchedConn) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.once.Do(func() { close(w.over) })
	}
	return n, err
}

func (c *conn) current() *watchedConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transport
}

func (c *conn) close() {
	if c.cancel != nil {
		c.cancel()
	}
	_ = c.cc.Close()
	c.readers.Wait()
}

// open makes a connection whose transport is dialled at the first call.
func (p *Player) open(name string) error {
	if _, ok := p.conns[name]; ok {
		return fmt.Errorf("connection %s is open already", name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &conn{ctx: ctx, cancel: cancel}
	cc, err := grpc.NewClient("passthrough:///"+p.target.grpc(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second},
			MinConnectTimeout: 10 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(wire.Codec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dialled, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			watched := &watchedConn{Conn: dialled, over: make(chan struct{})}
			c.mu.Lock()
			c.transport = watched
			c.mu.Unlock()
			if local, ok := dialled.LocalAddr().(*net.TCPAddr); ok {
				p.names.Bind("tcpPort:"+name, strconv.Itoa(local.Port))
			}
			return watched, nil
		}))
	if err != nil {
		cancel()
		return err
	}
	c.cc = cc
	p.conns[name] = c
	return nil
}

func (p *Player) conn(name string) (*conn, error) {
	if c, ok := p.conns[name]; ok {
		return c, nil
	}
	return nil, fmt.Errorf("connection %s is not open", name)
}

// stream opens the stream of a connection and reads it in the background.
func (p *Player) stream(name string) error {
	c, err := p.conn(name)
	if err != nil {
		return err
	}
	stream, err := c.cc.NewStream(c.ctx, &grpc.StreamDesc{StreamName: "requestBiStream", ServerStreams: true, ClientStreams: true}, streamMethod)
	if err != nil {
		return err
	}
	c.stream, c.messages, c.ended = stream, make(chan *wire.Payload, 4096), make(chan struct{})
	c.readers.Go(func() {
		for {
			message := new(wire.Payload)
			if err := stream.RecvMsg(message); err != nil {
				c.endErr = err
				close(c.ended)
				return
			}
			select {
			case c.messages <- message:
			case <-c.ctx.Done():
			}
		}
	})
	return nil
}

// connect does what an SDK does before it is ready.
func (p *Player) connect(ctx context.Context, step Step) error {
	if err := p.open(step.Conn); err != nil {
		return err
	}
	internal := map[string]any{"headers": map[string]any{}, "module": "internal"}
	check, err := p.request(ctx, step.Conn, "ServerCheckRequest", nil, internal)
	if err != nil {
		return fmt.Errorf("server check: %w", err)
	}
	object, _ := check.json.(map[string]any)
	id, _ := object["connectionId"].(string)
	if check.typ != "ServerCheckResponse" || id == "" {
		return fmt.Errorf("server check: %s", check.describeRPC())
	}
	p.names.Bind("connectionId:"+step.Conn, id)
	if err := p.stream(step.Conn); err != nil {
		return fmt.Errorf("open the stream: %w", err)
	}
	if err := p.sendMessage(step.Conn, "ConnectionSetupRequest", step.ClientIP, step.Setup); err != nil {
		return fmt.Errorf("send the setup: %w", err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		health, err := p.request(ctx, step.Conn, "HealthCheckRequest", nil, internal)
		if err != nil {
			return fmt.Errorf("health check: %w", err)
		}
		if object, ok := health.json.(map[string]any); ok && health.typ == "HealthCheckResponse" && object["success"] == true {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("health check after the setup: %s", health.describeRPC())
		}
		if err := p.wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func (p *Player) endStream(name string) error {
	c, err := p.conn(name)
	if err != nil {
		return err
	}
	if c.stream == nil {
		return fmt.Errorf("connection %s has no stream", name)
	}
	return c.stream.CloseSend()
}

// drop closes the transport without a word, as a client that is killed does.
func (p *Player) drop(name string) error {
	c, err := p.conn(name)
	if err != nil {
		return err
	}
	if transport := c.current(); transport != nil {
		_ = transport.Close()
	}
	c.close()
	delete(p.conns, name)
	return nil
}

// body is what a message carries: text as it stands, anything else as JSON.
func (p *Player) body(v any) ([]byte, error) {
	if text, ok := v.(string); ok {
		filled, err := p.names.Fill(text)
		return []byte(filled), err
	}
	filled, err := p.names.FillJSON(v)
	if err != nil {
		return nil, err
	}
	return json.Marshal(filled)
}

func (p *Player) send(step Step) error {
	return p.sendMessage(step.Conn, step.Type, clientIP, step.Body)
}

func (p *Player) sendMessage(name, kind, ip string, body any) error {
	c, err := p.conn(name)
	if err != nil {
		return err
	}
	if c.stream == nil {
		return fmt.Errorf("connection %s has no stream", name)
	}
	text, err := p.body(body)
	if err != nil {
		return err
	}
	return c.stream.SendMsg(&wire.Payload{Type: kind, ClientIP: ip, Body: text})
}

// unary makes the call of a `grpc` step.
func (p *Player) unary(ctx context.Context, step Step, failure *StepError) (answer, error) {
	text, err := p.body(step.Body)
	if err != nil {
		return answer{}, err
	}
	failure.Request = shorten(step.Type+" "+string(text), 1000)
	got, err := p.request(ctx, step.Conn, step.Type, step.Headers, step.Body)
	if err != nil {
		return answer{}, err
	}
	failure.Got = got.describeRPC()
	return got, nil
}

// describeRPC is a gRPC answer in one line.
func (a answer) describeRPC() string {
	if a.code != "" {
		return "status " + a.code + " " + a.message
	}
	return a.typ + " " + string(encodeJSON(a.json))
}

func encodeJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return []byte(shorten(string(text), 2000))
}

// request makes one unary call. A call that fails with a status is an answer.
func (p *Player) request(ctx context.Context, name, kind string, headers map[string]string, body any) (answer, error) {
	text, err := p.body(body)
	if err != nil {
		return answer{}, err
	}
	if headers, err = p.names.FillMap(headers); err != nil {
		return answer{}, err
	}
	reply := new(wire.Payload)
	got, err := p.invoke(ctx, name, requestMethod, &wire.Payload{Type: kind, Headers: headers, ClientIP: clientIP, Body: text}, reply)
	if err != nil || got.code != "" {
		return got, err
	}
	return payloadAnswer(reply)
}

func (p *Player) invoke(ctx context.Context, name, method string, request, reply *wire.Payload) (answer, error) {
	c, err := p.conn(name)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := c.cc.Invoke(ctx, method, request, reply); err != nil {
		s, ok := status.FromError(err)
		if !ok {
			return answer{}, err
		}
		return answer{code: s.Code().String(), message: s.Message()}, nil
	}
	return answer{}, nil
}

func payloadAnswer(message *wire.Payload) (answer, error) {
	v, err := parseJSON(message.Body)
	if err != nil {
		return answer{}, fmt.Errorf("%s with a body that is no JSON: %w: %s", message.Type, err, shorten(string(message.Body), 400))
	}
	return answer{typ: message.Type, json: v, hasJSON: true}, nil
}

// call makes a call of another method, or a large one.
func (p *Player) call(ctx context.Context, step Step, failure *StepError) (answer, error) {
	request := &wire.Payload{Type: "ServerCheckRequest", ClientIP: clientIP}
	if step.BodyBytes > 0 {
		request.Body = make([]byte, step.BodyBytes)
		for i := range request.Body {
			request.Body[i] = ' '
		}
	}
	failure.Request = fmt.Sprintf("%s with %d bytes", step.Path, step.BodyBytes)
	got, err := p.invoke(ctx, step.Conn, step.Path, request, new(wire.Payload))
	failure.Got = "status " + orNone(got.code) + " " + got.message
	return got, err
}
