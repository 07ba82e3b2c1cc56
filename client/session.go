package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"rollcall/naming"
	"rollcall/server/wire"
)

// agent is what the client calls itself to servers over gRPC.
const agent = "Rollcall-Go-Client:v1.0.0"

// maxAnswer bounds one message of a server, in bytes.
const maxAnswer = 256 << 20

// Names of the protocol's calls and of what comes on the stream (grpc.md 1.1, 2, 3).
const (
	callPath   = "/Request/request"
	streamPath = "/BiRequestStream/requestBiStream"

	answerSuffix = "Response"

	abilityPersistent = "supportPersistentInstanceByGrpc"
	abilityFuzzyWatch = "fuzzyWatch"
)

// setupWait is how long a server that does not acknowledge a setup is given to read it
// (grpc.md 2.2), and youngSession how long after it a call may still meet a server that
// has not.
const (
	setupWait    = 100 * time.Millisecond
	youngSession = 2 * time.Second
)

// session is one connection to one server: one transport, never dialled again. It ends
// when the transport does.
type session struct {
	*life
	cfg     Config
	log     *slog.Logger
	auth    *auth
	conn    *grpc.ClientConn
	stream  grpc.ClientStream
	ip      string // this end's address
	receive receiver

	abilities map[string]bool
	ackedCh   chan struct{}  // closed when abilities are there
	wg        sync.WaitGroup // the stream's reader
}

// receiver takes what comes on the stream. Its methods are called by the stream's
// reader, one after the other, and must not block.
type receiver interface {
	pushed(number uint64, body []byte) error
	watched(number uint64, typ string, body []byte) error
}

var errDialled = errors.New("a session dials once")

// dial connects to a server and sets the connection up. It blocks until that is done
// or ctx ends.
func dial(ctx context.Context, number uint64, to server, cfg Config, log *slog.Logger, a *auth, receive receiver) (*session, error) {
	s := &session{
		life: newLife(ctx, number, to), cfg: cfg, log: log.With("server", to.String()), auth: a, receive: receive,
		ackedCh: make(chan struct{}),
	}
	if err := s.open(ctx); err != nil {
		s.end(err)
		s.close()
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return s, nil
}

func (s *session) open(ctx context.Context) error {
	secure := insecure.NewCredentials()
	if s.cfg.TLS != nil {
		t := s.cfg.TLS.Clone()
		if t.ServerName == "" {
			t.ServerName = s.server.host
		}
		secure = credentials.NewTLS(t)
	}
	var dialled atomic.Bool
	conn, err := grpc.NewClient("passthrough:///"+s.server.address(s.cfg.GRPCOffset),
		grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if dialled.Swap(true) { // another transport would be another connection to the server
				return nil, errDialled
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithDisableHealthCheck(),
		grpc.WithIdleTimeout(0),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.Codec{}), grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(maxAnswer)))
	if err != nil {
		return err
	}
	s.conn = conn
	if err := s.check(ctx); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	defer stop()
	s.stream, err = conn.NewStream(s.ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamPath)
	if err != nil {
		return fmt.Errorf("open the stream: %w", err)
	}
	if err := s.send(wire.TypeConnectionSetup, map[string]any{
		"clientVersion": agent, "tenant": s.cfg.Namespace, "module": "internal",
		"labels":       map[string]string{"source": "sdk", "module": wire.ModuleNaming, "AppName": s.cfg.App},
		"abilityTable": map[string]bool{abilityFuzzyWatch: true},
	}); err != nil {
		return fmt.Errorf("set the connection up: %w", err)
	}
	s.wg.Go(s.read)
	return s.ready(ctx)
}

// check makes the first call, which names the connection.
func (s *session) check(ctx context.Context) error {
	var p peer.Peer
	answer, err := s.invoke(ctx, wire.TypeServerCheck, map[string]any{"module": "internal"}, grpc.Peer(&p))
	if err != nil {
		return err
	}
	var head struct {
		ConnectionID wire.Str  `json:"connectionId"`
		Negotiates   wire.Bool `json:"supportAbilityNegotiation"`
	}
	if err := wire.Unmarshal(answer.JSON(), &head); err != nil {
		return fmt.Errorf("decode the answer to %s: %w", wire.TypeServerCheck, err)
	}
	if s.id = string(head.ConnectionID); !head.Negotiates.Value {
		close(s.ackedCh) // and no abilities
	}
	if p.LocalAddr != nil {
		s.ip, _, _ = net.SplitHostPort(p.LocalAddr.String())
	}
	return nil
}

// ready blocks until the server has read the setup.
func (s *session) ready(ctx context.Context) error {
	select {
	case <-s.ackedCh:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-ctx.Done():
		return fmt.Errorf("the server has not acknowledged the setup: %w", context.Cause(ctx))
	}
	if s.abilities != nil {
		return nil
	}
	timer := time.NewTimer(setupWait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := s.health(ctx)
		if err == nil || !unknownConnection(err) {
			return err
		}
		timer.Reset(setupWait)
	}
}

// close closes the transport and waits for the reader.
func (s *session) close() {
	s.cancel(ErrClosed)
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.wg.Wait()
}

// health asks whether the connection is alive and known.
func (s *session) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HealthTimeout)
	defer cancel()
	_, err := s.invoke(ctx, wire.TypeHealthCheck, map[string]any{"module": "internal"})
	return err
}

// request is a call about a service, with the fields that all have.
type request map[string]any

func about(svc naming.ServiceKey, more request) request {
	r := request{"module": "naming", "namespace": svc.Namespace, "groupName": svc.Group, "serviceName": svc.Name}
	maps.Copy(r, more)
	return r
}

// call makes a call with the user's token, once more after a new login if the server
// refuses the token.
func (s *session) call(ctx context.Context, typ string, body request) ([]byte, error) {
	answer, err := s.invoke(ctx, typ, body)
	var refusal *ServerError
	if errors.As(err, &refusal) && refusal.Code == codeForbidden && s.auth.again(ctx, s.server) == nil {
		answer, err = s.invoke(ctx, typ, body)
	}
	if err != nil {
		return nil, err
	}
	return answer.JSON(), nil
}

// invoke makes one call and returns the answer if it is a success. A failure that the
// server tells is a *ServerError.
func (s *session) invoke(ctx context.Context, typ string, body any, options ...grpc.CallOption) (*wire.Payload, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", typ, err)
	}
	q := &wire.Payload{Type: typ, ClientIP: s.ip, Headers: s.headers(typ), Body: [][]byte{b}}
	answer := new(wire.Payload)
	if err := s.conn.Invoke(ctx, callPath, q, answer, options...); err != nil {
		return nil, s.lost(typ, err)
	}
	s.answered()
	head, err := decodeHead(answer.JSON())
	if err != nil {
		return nil, fmt.Errorf("decode the answer to %s: %w", typ, err)
	}
	if head.resultCode == 200 && answer.Type == answerTo(typ) {
		return answer, nil
	}
	if head.resultCode == 200 {
		return nil, fmt.Errorf("%s was answered with %q, not with %s", typ, answer.Type, answerTo(typ))
	}
	return nil, &ServerError{Server: s.server.String(), Request: typ, Code: head.code(), Message: head.text}
}

// lost words the failure of a call, and ends the session if its transport is gone.
func (s *session) lost(typ string, err error) error {
	if status.Code(err) == codes.Unavailable {
		s.end(fmt.Errorf("the connection broke: %w", err))
	}
	return fmt.Errorf("%s: %w", typ, err)
}

// answerTo returns the type of the answer to a type of request.
func answerTo(typ string) string {
	switch typ {
	case wire.TypeServiceQuery:
		return wire.TypeQueryAnswer
	case wire.TypePersistentInstance:
		return wire.TypeInstanceAnswer
	}
	return strings.TrimSuffix(typ, "Request") + answerSuffix
}

func (s *session) headers(typ string) map[string]string {
	switch typ {
	case wire.TypeServerCheck, wire.TypeHealthCheck, wire.TypeConnectionSetup:
		return nil
	}
	h := map[string]string{"app": s.cfg.App}
	if token := s.auth.token(); token != "" {
		h["accessToken"] = token
	}
	return h
}

// send sends on the stream. Before the reader has started the opener calls it, then
// the reader alone.
func (s *session) send(typ string, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode %s: %w", typ, err)
	}
	return s.stream.SendMsg(&wire.Payload{Type: typ, ClientIP: s.ip, Body: [][]byte{b}})
}

// read takes what the server sends until the stream ends, and with it the session.
func (s *session) read() {
	for {
		p := new(wire.Payload)
		if err := s.stream.RecvMsg(p); err != nil {
			s.end(fmt.Errorf("the server ended the connection: %w", err))
			return
		}
		s.answered()
		ack, err := s.take(p)
		if err != nil {
			s.log.Warn("unreadable message of the server", "type", p.Type, "err", err)
		}
		if ack == "" {
			continue
		}
		var head struct {
			RequestID wire.Str `json:"requestId"`
		}
		if json.Unmarshal(p.JSON(), &head) != nil || head.RequestID == "" {
			continue // nothing that could be acknowledged
		}
		if err := s.send(ack, map[string]any{"resultCode": 200, "errorCode": 0, "requestId": head.RequestID, "success": true}); err != nil {
			s.end(fmt.Errorf("the server ended the connection: %w", err))
			return
		}
	}
}

// take handles one message and returns the type of its acknowledgement, none if it has
// none. What cannot be read is acknowledged too: the server would send the same again.
func (s *session) take(p *wire.Payload) (ack string, err error) {
	switch p.Type {
	case wire.TypeNotifySubscriber:
		return "NotifySubscriberResponse", s.receive.pushed(s.number, p.JSON())
	case wire.TypeClientDetection:
		return "ClientDetectionResponse", nil
	case wire.TypeConnectReset:
		return "ConnectResetResponse", s.reset(p.JSON())
	case wire.TypeSetupAck:
		return "", s.acked(p.JSON())
	}
	if p.Type == typeFuzzySync || p.Type == typeFuzzyChange {
		return typeFuzzyAck, s.receive.watched(s.number, p.Type, p.JSON())
	}
	s.log.Debug("message of an unknown type", "type", p.Type)
	return "", nil
}

func (s *session) acked(body []byte) error {
	var ack struct {
		Abilities map[string]wire.Bool `json:"abilityTable"`
	}
	err := wire.Unmarshal(body, &ack)
	select {
	case <-s.ackedCh: // again, or not asked for
		return err
	default:
	}
	s.abilities = make(map[string]bool, len(ack.Abilities))
	for name, has := range ack.Abilities {
		s.abilities[name] = has.Value
	}
	close(s.ackedCh)
	return err
}

func (s *session) reset(body []byte) error {
	var ask struct {
		IP   wire.Str `json:"serverIp"`
		Port wire.Int `json:"serverPort"`
	}
	if err := wire.Unmarshal(body, &ask); err != nil {
		return err
	}
	select {
	case s.resetCh <- resetRequest{string(ask.IP), int(ask.Port)}:
	default: // one is waiting already
	}
	return nil
}
