package client

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed is returned by calls on a client that was closed.
	ErrClosed = errors.New("the client is closed")
	// ErrNotConnected is returned by calls that need a server while none is reached.
	ErrNotConnected = errors.New("no server is reached")
	// ErrNoInstance is returned by Select for a service without an instance that is
	// healthy, enabled and has a weight above zero.
	ErrNoInstance = errors.New("no instance can be selected")
	// ErrUnsupported is returned for an operation that the server does not offer.
	ErrUnsupported = errors.New("the server does not offer this")
)

// ServerError is a server's answer that says no.
type ServerError struct {
	Server  string // host:port that answered
	Request string // what was asked, in the protocol's words
	Code    int    // the protocol's error code; the HTTP status where there is none
	Status  int    // the HTTP status; 0 over gRPC
	Message string // as the server words it
}

// Error names server, request, code and message.
func (e *ServerError) Error() string {
	return fmt.Sprintf("%s refused %s: %d %s", e.Server, e.Request, e.Code, e.Message)
}

// Codes of answers that concern the connection or the server's state, not what was
// asked (grpc.md 2.7).
const (
	codeStarting     = 300
	codeUnregistered = 301
	codeNoHandler    = 302
	codeForbidden    = 403
	codeBusy         = 503
	codeGone         = -401
)

// final tells whether repeating the request on the same connection is pointless.
// What is neither an answer nor of a known code may work later.
func final(err error) bool {
	var refusal *ServerError
	if !errors.As(err, &refusal) {
		return errors.Is(err, ErrUnsupported)
	}
	switch refusal.Code {
	case codeStarting, codeUnregistered, codeGone, codeBusy:
		return false
	}
	return (refusal.Code < 500 || refusal.Code > 599) && refusal.Status < 500
}

// unknownConnection tells whether the server does not know the connection.
func unknownConnection(err error) bool {
	var refusal *ServerError
	return errors.As(err, &refusal) && refusal.Code == codeUnregistered
}

// answered tells whether the error is a server's answer.
func answered(err error) bool {
	var refusal *ServerError
	return errors.As(err, &refusal)
}
