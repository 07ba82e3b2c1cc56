package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rollcall/server/wire"
)

// webAgent is what the client calls itself over HTTP. Servers push over UDP to agents
// that they know alone, and none of them knows this client (http.md 7.1).
const webAgent = "Nacos-Go-Client:v2.0.0"

// idleWeb is how long an unused connection is kept: less than servers keep it, whose
// closing is a sign that something happened to them.
const idleWeb = 10 * time.Second

// web makes calls over HTTP.
type web struct {
	http *http.Client
}

// newWeb returns what makes calls; broken hears when a server has closed or reset a
// connection.
func newWeb(cfg Config, broken func()) *web {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &watchedConn{conn, broken}, nil
		},
		TLSHandshakeTimeout: cfg.ConnectTimeout,
		MaxIdleConnsPerHost: cfg.Calls,
		IdleConnTimeout:     idleWeb,
	}
	if cfg.TLS != nil {
		t.TLSClientConfig = cfg.TLS.Clone()
	}
	return &web{http: &http.Client{Transport: t, Timeout: cfg.CallTimeout}}
}

func (w *web) close() { w.http.CloseIdleConnections() }

// call makes one request to a path below the API's root and decodes the answer into
// into: a *string takes the text, nil nothing, anything else JSON. Parameters are a form
// where the method has a body. An answer other than 200 is a *ServerError.
func (w *web) call(ctx context.Context, s server, method, path string, q url.Values, token string, into any) error {
	host := s.address(0)
	if s.scheme == "https" { // the certificate is for the name
		host = net.JoinHostPort(s.host, strconv.Itoa(s.port))
	}
	if token != "" {
		q.Set("accessToken", token)
	}
	u := url.URL{Scheme: s.scheme, Host: host, Path: s.path + path}
	var body io.Reader
	if method == http.MethodPost || method == http.MethodPut {
		body = strings.NewReader(q.Encode())
	} else {
		u.RawQuery = q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", webAgent)
	if body != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := w.http.Do(r)
	if err != nil {
		return fmt.Errorf("ask %s: %w", s, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", s, err)
	}
	if answer.StatusCode != http.StatusOK {
		return refusalOf(s, method+" "+path, answer.StatusCode, text)
	}
	switch into := into.(type) {
	case nil:
	case *string:
		*into = string(text)
	case *[]byte:
		*into = text
	default:
		if err := wire.Unmarshal(text, into); err != nil {
			return fmt.Errorf("decode the answer of %s to %s %s: %w", s, method, path, err)
		}
	}
	return nil
}

// refusalOf reads an answer that is no success: of v2 and v3 a code with a message and
// what it is about, of v1 a text.
func refusalOf(s server, request string, status int, text []byte) *ServerError {
	e := &ServerError{Server: s.String(), Request: request, Code: status, Status: status}
	var result struct {
		Code    wire.Int `json:"code"`
		Message wire.Str `json:"message"`
		Data    wire.Str `json:"data"`
	}
	if wire.Unmarshal(text, &result) == nil && result.Code != 0 {
		e.Code, e.Message = int(result.Code), string(result.Message)
		if result.Data != "" {
			e.Message += ": " + string(result.Data)
		}
		return e
	}
	e.Message = strings.ToValidUTF8(strings.TrimSpace(string(clipTo(text, 512))), "")
	return e
}

// watchedConn tells when the other side has ended it.
type watchedConn struct {
	net.Conn
	broken func()
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
		c.broken()
	}
	return n, err
}

func clipTo(text []byte, n int) []byte { return text[:min(len(text), n)] }
