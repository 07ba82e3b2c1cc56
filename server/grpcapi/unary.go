package grpcapi

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"rollcall/naming"
	"rollcall/server/wire"
)

// handler serves one type of request on a registered connection.
type handler func(ctx context.Context, c *conn, body []byte) *wire.Payload

// handler returns the handler of a type, nil if there is none.
func (s *Server) handler(typ string) handler {
	switch typ {
	case wire.TypeHealthCheck:
		return s.healthCheck
	case wire.TypeInstance:
		return s.instance
	case wire.TypePersistentInstance:
		return s.persistentInstance
	case wire.TypeBatchInstance:
		return s.batchInstance
	case wire.TypeServiceQuery:
		return s.serviceQuery
	case wire.TypeServiceList:
		return s.serviceList
	case wire.TypeSubscribeService:
		return s.subscribeService
	case wire.TypeFuzzyWatch:
		return s.fuzzyWatch
	}
	return nil
}

// unary serves Request/request: the checks of the connection level in the
// protocol's order (grpc.md 2.7), then the handler.
//
//nolint:revive // the library decides the order of the parameters
func (s *Server) unary(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	p := new(wire.Payload)
	if err := decode(p); err != nil {
		return nil, err
	}
	c, err := connOf(ctx)
	if err != nil {
		return nil, err
	}
	c.touch()
	if notReady := s.registry.Ready(); notReady != nil {
		return wire.ErrorAnswer(500, 300, "Server is starting,please try later."), nil //nolint:nilerr // answered in the protocol's words
	}
	if p.Type == wire.TypeServerCheck {
		return wire.ServerCheckAnswer(c.id), nil
	}
	h := s.handler(p.Type)
	if h == nil {
		return wire.ErrorAnswer(500, 302, "RequestHandler Not Found"), nil
	}
	if !c.isRegistered(ctx) {
		if p.Type == wire.TypeHealthCheck && c.abandoned() {
			return wire.ErrorAnswer(500, 500, "Connection is unregistered."), nil
		}
		return wire.Unregistered(), nil
	}
	return h(ctx, c, p.JSON()), nil
}

func (s *Server) healthCheck(_ context.Context, c *conn, body []byte) *wire.Payload {
	var request struct{}
	if answer := s.decode(c, body, &request); answer != nil {
		return answer
	}
	return wire.HealthCheckAnswer()
}

// decode reads a request; the answer is nil if that worked.
func (s *Server) decode(c *conn, body []byte, request any) *wire.Payload {
	if string(body) == "null" {
		return wire.ErrorAnswer(500, 502, "Invalid request")
	}
	if err := wire.Unmarshal(body, request); err != nil {
		s.log.Debug("unreadable request", "conn", c.id, "err", err)
		return wire.ErrorAnswer(500, 502, "errCode: 101, errMsg: Nacos deserialize failed.  ")
	}
	return nil
}

// refuse answers a request that the registry refused: a value that broke a
// parameter rule in the handler's own type, anything else at connection level.
// extra are the further fields of the own type, from the comma on.
func (s *Server) refuse(c *conn, typ string, err error, extra []byte) *wire.Payload {
	if errors.Is(err, errGone) {
		return wire.ErrorAnswer(-401, -401, "errCode: -401, errMsg: Client ["+c.id+"] connection already disconnect, can't register ephemeral instance. ")
	}
	r := s.registry.Refusal(err)
	switch {
	case r.Param:
		return wire.Failed(typ, "Param check invalid:"+r.Text, extra)
	case r.Wrapped != "":
		return wire.ErrorAnswer(r.Status, r.Status, r.Wrapped)
	case r.Status >= 500:
		s.log.Debug("request failed", "conn", c.id, "type", typ, "err", err)
		return wire.ErrorAnswer(500, 500, r.Text)
	}
	return wire.ErrorAnswer(400, 400, r.Text)
}

// blank answers a request whose service or group is blank; nil if neither is.
func blank(k naming.ServiceKey) *wire.Payload {
	for _, f := range [...]struct{ name, value string }{{"serviceName", k.Name}, {"groupName", k.Group}} {
		if isBlank(f.value) {
			return wire.ErrorAnswer(500, 400, "Param '"+f.name+"' is illegal, "+f.name+" is blank")
		}
	}
	return nil
}

func isBlank(s string) bool {
	for _, c := range []byte(s) {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return true
}
