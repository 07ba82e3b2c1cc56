package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"rollcall/naming"
	"rollcall/server/wire"
)

// grpcOffset is the distance of the gRPC port from the main port (grpc.md 1.3).
const grpcOffset = 1000

// healthEvery is how often an idle connection tells the server that it is alive.
const healthEvery = 5 * time.Second

// Watch subscribes to a service over gRPC and calls fn with its state now and
// after each change, in order, until ctx ends or the connection breaks; then it
// returns the reason.
func (c *Client) Watch(ctx context.Context, svc naming.ServiceKey, clusters string, fn func(Service)) error {
	host, port, err := net.SplitHostPort(c.base.Host)
	if err != nil {
		return fmt.Errorf("server is %q: a watch needs host:port", c.base.Host)
	}
	main, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("server is %q: its port must be a number", c.base.Host)
	}
	target := net.JoinHostPort(host, strconv.Itoa(main+grpcOffset))
	conn, err := grpc.NewClient("passthrough:///"+target,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", target, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		_ = conn.Close()
	}()
	w := &watch{conn: conn, agent: c.agent}
	return w.run(ctx, svc, clusters, fn)
}

type watch struct {
	conn   *grpc.ClientConn
	agent  string
	stream grpc.ClientStream
}

func (w *watch) run(ctx context.Context, svc naming.ServiceKey, clusters string, fn func(Service)) error {
	if _, err := w.ask(ctx, wire.TypeServerCheck, struct{}{}); err != nil {
		return err
	}
	var err error
	w.stream, err = w.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/BiRequestStream/requestBiStream")
	if err != nil {
		return err
	}
	err = w.send(wire.TypeConnectionSetup, map[string]any{
		"clientVersion": w.agent, "labels": map[string]string{"source": "sdk", "module": wire.ModuleNaming},
	})
	if err != nil {
		return err
	}
	request := map[string]any{
		"namespace": svc.Namespace, "groupName": svc.Group, "serviceName": svc.Name,
		"clusters": clusters, "subscribe": true,
	}
	answer, err := w.ask(ctx, wire.TypeSubscribeService, request)
	if err != nil {
		return err
	}
	var first struct {
		ServiceInfo Service `json:"serviceInfo"`
	}
	if err := json.Unmarshal(answer, &first); err != nil {
		return fmt.Errorf("decode the subscription's answer: %w", err)
	}
	fn(first.ServiceInfo)

	doneCh := make(chan struct{})
	go func() {
		defer close(doneCh)
		w.keepAlive(ctx)
	}()
	err = w.receive(first.ServiceInfo.LastRefTimeMs, fn)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	_ = w.conn.Close()
	<-doneCh
	return err
}

// receive takes pushes and answers the server's questions until the stream ends.
func (w *watch) receive(lastMs int64, fn func(Service)) error {
	for {
		p := new(wire.Payload)
		if err := w.stream.RecvMsg(p); err != nil {
			return fmt.Errorf("the server ended the connection: %w", err)
		}
		var message struct {
			RequestID   string  `json:"requestId"`
			ServiceInfo Service `json:"serviceInfo"`
		}
		if err := json.Unmarshal(p.JSON(), &message); err != nil {
			return fmt.Errorf("decode %s: %w", p.Type, err)
		}
		var answer string
		switch p.Type {
		case wire.TypeNotifySubscriber:
			answer = "NotifySubscriberResponse"
			if message.ServiceInfo.LastRefTimeMs > lastMs {
				lastMs = message.ServiceInfo.LastRefTimeMs
				fn(message.ServiceInfo)
			}
		case wire.TypeClientDetection:
			answer = "ClientDetectionResponse"
		case wire.TypeConnectReset:
			answer = "ConnectResetResponse"
		default:
			continue
		}
		err := w.send(answer, map[string]any{"resultCode": 200, "errorCode": 0, "requestId": message.RequestID, "success": true})
		if err != nil {
			return err
		}
	}
}

// keepAlive tells the server every few seconds that the client is there, until the
// stream ends; a call that fails shows on the stream too.
func (w *watch) keepAlive(ctx context.Context) {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.stream.Context().Done():
			return
		case <-ticker.C:
			if _, err := w.ask(ctx, wire.TypeHealthCheck, struct{}{}); err != nil {
				return
			}
		}
	}
}

func (w *watch) send(typ string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return w.stream.SendMsg(&wire.Payload{Type: typ, Body: [][]byte{b}})
}

// ask makes one call; an answer that is no success is an error.
func (w *watch) ask(ctx context.Context, typ string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	answer := new(wire.Payload)
	if err := w.conn.Invoke(ctx, "/Request/request", &wire.Payload{Type: typ, Body: [][]byte{b}}, answer); err != nil {
		return nil, fmt.Errorf("%s: %w", typ, err)
	}
	var result struct {
		ResultCode int    `json:"resultCode"`
		Message    string `json:"message"`
	}
	if err := json.Unmarshal(answer.JSON(), &result); err != nil {
		return nil, fmt.Errorf("decode the answer to %s: %w", typ, err)
	}
	if result.ResultCode != 200 {
		return nil, fmt.Errorf("%s: the server answered %d: %s", typ, result.ResultCode, result.Message)
	}
	return answer.JSON(), nil
}
