package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"rollcall/naming"
)

// Transport returns a RoundTripper whose requests go to the instances of services: in
// http://orders/path the host is a service of DEFAULT_GROUP, in http://orders.group/path,
// with a dot, one of a group. Each request goes to an instance that Select chooses; the
// Host header and the URL that the caller sees stay. inner makes the requests,
// http.DefaultTransport's like if it is nil. A host with a port, or an IP address, is no
// service and goes to inner as it is.
//
// A request that could not be sent at all, since no connection could be made, is tried
// at one more instance, if its body can be sent again. The first request to a service
// subscribes to it and blocks for its list. [ErrNoInstance] means that there is nothing
// to send it to.
func (c *Client) Transport(inner http.RoundTripper) http.RoundTripper {
	if inner == nil {
		t := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: idleWeb}
		context.AfterFunc(c.closing, t.CloseIdleConnections)
		inner = t
	}
	return &roundTripper{client: c, inner: inner}
}

type roundTripper struct {
	client *Client
	inner  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	svc, ok := serviceOf(r.URL.Host)
	if !ok {
		return t.inner.RoundTrip(r)
	}
	tried := ""
	for {
		i, err := t.choose(r, svc, tried)
		if err != nil {
			closeBody(r.Body)
			return nil, fmt.Errorf("send to %s: %w", svc.Grouped(), err)
		}
		out := r.Clone(r.Context())
		out.URL.Host = net.JoinHostPort(i.IP, strconv.Itoa(i.Port))
		if out.Host == "" {
			out.Host = r.URL.Host
		}
		answer, err := t.inner.RoundTrip(out)
		if err == nil {
			answer.Request = r
			return answer, nil
		}
		if tried != "" || !again(r, err) {
			return nil, err
		}
		tried = out.URL.Host
		if r.GetBody != nil {
			body, bodyErr := r.GetBody()
			if bodyErr != nil {
				return nil, err
			}
			r = r.Clone(r.Context())
			r.Body = body
		}
	}
}

// choose selects an instance, another one than tried if there is one.
func (t *roundTripper) choose(r *http.Request, svc naming.ServiceKey, tried string) (*naming.Instance, error) {
	p, err := t.client.Picker(r.Context(), svc, "")
	if err != nil {
		return nil, err
	}
	if now := p.table(); now != nil && tried != "" {
		others := slices.DeleteFunc(slices.Clone(now.instances), func(i *naming.Instance) bool {
			return net.JoinHostPort(i.IP, strconv.Itoa(i.Port)) == tried
		})
		if i := newTable(others).pick(); i != nil {
			return i, nil
		}
	}
	return p.Pick()
}

// again tells whether a request may be sent once more: nothing of it was sent.
func again(r *http.Request, err error) bool {
	var op *net.OpError
	unsent := errors.As(err, &op) && op.Op == "dial"
	return unsent && r.Context().Err() == nil && (r.Body == nil || r.Body == http.NoBody || r.GetBody != nil)
}

func closeBody(b io.Closer) {
	if b != nil {
		_ = b.Close()
	}
}

// serviceOf returns the service that a URL's host names; false for other hosts.
func serviceOf(host string) (naming.ServiceKey, bool) {
	if host == "" || strings.Contains(host, ":") || net.ParseIP(host) != nil {
		return naming.ServiceKey{}, false
	}
	name, group, grouped := strings.Cut(host, ".")
	if !grouped {
		group = naming.DefaultGroup
	}
	return naming.ServiceKey{Group: group, Name: name}, true
}

// Health returns a handler for an application's health endpoint: 200 and UP while a
// server is reached, 503 and DOWN while not.
func (c *Client) Health() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		state := c.Status()
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if state != Up {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, string(state)+"\n")
	})
}
