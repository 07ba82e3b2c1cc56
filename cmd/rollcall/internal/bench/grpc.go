package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"rollcall/server/wire"
)

const (
	unaryMethod  = "/Request/request"
	streamMethod = "/BiRequestStream/requestBiStream"
	portOffset   = 1000
	setupTime    = 10 * time.Second
)

// conn is one client over gRPC.
type conn struct {
	cc     *grpc.ClientConn
	stream grpc.ClientStream
	cancel context.CancelFunc
}

// dial opens a connection of its own.
func dial(server string, offset int) (*grpc.ClientConn, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, fmt.Errorf("server %q: %w; give host:port", server, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("server %q: the port is no number", server)
	}
	return grpc.NewClient("passthrough:///"+net.JoinHostPort(host, strconv.Itoa(n+offset)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(256<<20)))
}

// connect does what an SDK does at its start: server check, stream, setup.
func connect(ctx context.Context, server string) (*conn, error) {
	cc, err := dial(server, portOffset)
	if err != nil {
		return nil, err
	}
	c := &conn{cc: cc, cancel: func() {}}
	if err := c.setUp(ctx); err != nil {
		c.close()
		return nil, fmt.Errorf("connect to %s: %w", server, err)
	}
	return c, nil
}

func (c *conn) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	if _, err := c.call(ctx, payload("ServerCheckRequest", `{"headers":{},"module":"internal"}`)); err != nil {
		return err
	}
	var streamCtx context.Context
	streamCtx, c.cancel = context.WithCancel(context.Background())
	var err error
	if c.stream, err = c.cc.NewStream(streamCtx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamMethod); err != nil {
		return err
	}
	setup := `{"headers":{},"clientVersion":"Nacos-Java-Client:v2.2.0","labels":{"source":"sdk","module":"naming","AppName":"bench"},"module":"internal"}`
	if err := c.stream.SendMsg(payload("ConnectionSetupRequest", setup)); err != nil {
		return err
	}
	for { // a server takes the setup in its own time
		p, err := c.call(ctx, payload("HealthCheckRequest", `{"headers":{},"module":"internal"}`))
		if err == nil && refusal(p) == nil {
			return nil
		}
		if !pause(ctx, 5*time.Millisecond) {
			return errors.Join(err, ctx.Err())
		}
	}
}

func (c *conn) close() {
	c.cancel()
	_ = c.cc.Close()
}

func (c *conn) call(ctx context.Context, request *wire.Payload) (*wire.Payload, error) {
	answer := new(wire.Payload)
	return answer, c.cc.Invoke(ctx, unaryMethod, request, answer)
}

// listen reads what the server sends, and answers it, until the stream ends. pushed gets
// each push.
func (c *conn) listen(pushed func(body []byte)) {
	for {
		p := new(wire.Payload)
		if err := c.stream.RecvMsg(p); err != nil {
			return
		}
		if p.Type == "NotifySubscriberRequest" {
			pushed(p.JSON())
		}
		// The rest of a push is left alone: reading thousands of them would take longer
		// than it takes the server to send them.
		if id := gjson.GetBytes(p.JSON(), "requestId").Str; id != "" {
			typ := "ClientDetectionResponse"
			if p.Type == "NotifySubscriberRequest" {
				typ = "NotifySubscriberResponse"
			}
			_ = c.stream.SendMsg(payload(typ, `{"resultCode":200,"errorCode":0,"success":true,"requestId":"`+id+`"}`))
		}
	}
}

func payload(typ, body string) *wire.Payload {
	return &wire.Payload{Type: typ, ClientIP: "127.0.0.1", Body: [][]byte{[]byte(body)}}
}

// refusal returns what an answer says went wrong; nil: nothing.
func refusal(p *wire.Payload) error {
	var answer struct {
		ResultCode int    `json:"resultCode"`
		ErrorCode  int    `json:"errorCode"`
		Message    string `json:"message"`
	}
	if err := json.Unmarshal(p.JSON(), &answer); err != nil {
		return fmt.Errorf("answer %.100q: %w", p.JSON(), err)
	}
	if answer.ResultCode != 200 {
		return fmt.Errorf("%s: result %d, error %d: %s", p.Type, answer.ResultCode, answer.ErrorCode, answer.Message)
	}
	return nil
}

// connectAll opens connections, spread over the servers, 32 at a time.
func connectAll(ctx context.Context, servers []string, n int) ([]*conn, error) {
	conns := make([]*conn, n)
	errs := make([]error, n)
	slots := make(chan struct{}, 32)
	var wg sync.WaitGroup
	for k := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			conns[k], errs[k] = connect(ctx, servers[k%len(servers)])
		})
	}
	wg.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		closeAll(conns)
		return nil, fmt.Errorf("%d of %d connections failed, one of them: %w", len(failed), n, failed[0])
	}
	return conns, nil
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		if c != nil {
			c.close()
		}
	}
}

// instanceJSON is an instance as the Java SDK sends it.
func instanceJSON(n, version int) string {
	return fmt.Sprintf(`{"ip":"10.%d.%d.%d","port":8080,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"v":"%d"}}`,
		n>>16&255, n>>8&255, n&255, version)
}

func instanceRequest(typ, service string, n, version int) *wire.Payload {
	return payload("InstanceRequest", fmt.Sprintf(
		`{"headers":{},"namespace":"public","serviceName":%q,"groupName":"DEFAULT_GROUP","type":%q,"instance":%s,"module":"naming"}`,
		service, typ, instanceJSON(n, version)))
}

func persistentRequest(service string, n, version int) *wire.Payload {
	return payload("PersistentInstanceRequest", fmt.Sprintf(
		`{"headers":{},"namespace":"public","serviceName":%q,"groupName":"DEFAULT_GROUP","type":"registerInstance","instance":%s,"module":"naming"}`,
		service, instanceJSON(n, version)))
}

// batchRequest registers n instances, numbered from first.
func batchRequest(service string, first, n, version int) *wire.Payload {
	b := fmt.Appendf(nil, `{"headers":{},"namespace":"public","serviceName":%q,"groupName":"DEFAULT_GROUP","type":"batchRegisterInstance","instances":[`, service)
	for k := range n {
		if k > 0 {
			b = append(b, ',')
		}
		b = append(b, instanceJSON(first+k, version)...)
	}
	return payload("BatchInstanceRequest", string(b)+`],"module":"naming"}`)
}

func subscribeRequest(service string, on bool) *wire.Payload {
	return payload("SubscribeServiceRequest", fmt.Sprintf(
		`{"headers":{},"namespace":"public","serviceName":%q,"groupName":"DEFAULT_GROUP","subscribe":%t,"clusters":"","module":"naming"}`, service, on))
}

// grpcLoad is a load of calls over gRPC: next returns the calls of one connection, by
// the number of the call.
func grpcLoad(ctx context.Context, cfg Config, next func(c int) func(n int) *wire.Payload) (*load, error) {
	conns, err := connectAll(ctx, cfg.Servers, cfg.Connections)
	if err != nil {
		return nil, err
	}
	l := &load{kind: bareGRPC, close: func() { closeAll(conns) }}
	for k, c := range conns {
		requests := next(k)
		var mu sync.Mutex
		n := 0
		for range cfg.Workers {
			l.add(func(ctx context.Context) error {
				mu.Lock()
				request := requests(n)
				n++
				mu.Unlock()
				answer, err := c.call(ctx, request)
				if err != nil {
					return err
				}
				return quickRefusal(answer)
			})
		}
	}
	answer, err := conns[0].call(ctx, next(0)(0))
	if err == nil {
		err = refusal(answer)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	l.answer = answer.JSON()
	return l, nil
}

// quickRefusal looks whether an answer is a success; servers write that first.
func quickRefusal(p *wire.Payload) error {
	const ok = `"resultCode":200`
	if b := p.JSON(); len(b) > len(ok)+1 && string(b[1:1+len(ok)]) == ok {
		return nil
	}
	return refusal(p)
}
