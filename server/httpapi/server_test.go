package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func TestServer_CloseTwiceAndWithoutStart(t *testing.T) {
	n := start(t)
	address := n.listener.Addr().String()
	require.NoError(t, n.Close())
	require.NoError(t, n.Close())
	_, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	require.Error(t, err)

	n = open(t, Config{ShutdownTimeout: wait, Metrics: http.NotFoundHandler()})
	require.NoError(t, n.Close())
	_, err = n.udp.socket.WriteTo([]byte("x"), n.udp.socket.LocalAddr())
	require.ErrorIs(t, err, net.ErrClosed)
}

func TestServer_CloseLetsRequestsFinishForABoundedTime(t *testing.T) {
	for name, c := range map[string]struct {
		timeout    time.Duration
		ends, deaf bool
	}{
		"it ends":       {wait, true, false},
		"it gives up":   {50 * time.Millisecond, false, false},
		"it is cut off": {50 * time.Millisecond, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			began, release := make(chan struct{}), make(chan struct{})
			n := open(t, Config{ShutdownTimeout: c.timeout, Metrics: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(began)
				over := r.Context().Done()
				if c.deaf {
					over = nil
				}
				select {
				case <-release:
				case <-over:
				}
				text("late").write(w)
			})})
			require.NoError(t, n.Start())
			answered := make(chan error, 1)
			go func() { answered <- get(n) }()
			<-began
			closed := make(chan error, 1)
			go func() { closed <- n.Close() }()
			if !c.ends {
				require.NoError(t, <-closed)
				err := <-answered
				require.Equal(t, c.deaf, err != nil, err)
				close(release)
				return
			}
			select {
			case err := <-closed:
				t.Errorf("it did not wait: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			close(release)
			require.NoError(t, <-answered)
			require.NoError(t, <-closed)
		})
	}
}

// get asks for the metrics and reads the answer to its end.
func get(n *node) error {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+n.listener.Addr().String()+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return err
}

func TestServer_NotReady(t *testing.T) {
	n := start(t)
	n.registry.mu.Lock()
	n.registry.notReady = errors.New("loading")
	n.registry.mu.Unlock()
	for _, request := range []string{"GET /nacos/v1/ns/instance/list?serviceName=s", "POST /nacos/v2/ns/instance", "GET /nacos/nope", "GET /nacos/"} {
		r := n.do(t, request, nil, nil)
		require.Equal(t, 503, r.status, request)
		require.Equal(t, "server is STARTINGnow, please try again later!", r.body)
	}
	r := n.do(t, "GET /readyz", nil, nil)
	require.Equal(t, 503, r.status)
	require.Equal(t, "loading\n", r.body)
	r = n.do(t, "GET /livez", nil, nil)
	require.Equal(t, 200, r.status)
	require.Empty(t, n.registry.told())
}

func TestServer_Paths(t *testing.T) {
	n := start(t)
	for request, want := range map[string]struct {
		status   int
		contains string
		header   string // "Name: value"
	}{
		"GET /livez":                                       {200, "ok\n", "Content-Type: text/plain;charset=UTF-8"},
		"GET /readyz":                                      {200, "ok\n", ""},
		"GET /metrics":                                     {200, "metrics here", ""},
		"GET /nacos":                                       {302, "", "Location: http://" + n.listener.Addr().String() + "/nacos/"},
		"GET /nacos/":                                      {200, "Rollcall 1.2.3", "Content-Type: text/html;charset=UTF-8"},
		"GET /nacos/index.html":                            {200, "Rollcall 1.2.3", ""},
		"GET /":                                            {404, "Not found", "Content-Type: text/html;charset=utf-8"},
		"GET /nope":                                        {404, "Not found", ""},
		"GET /nacos/nope":                                  {404, `"message":"No message available","path":"/nacos/nope"}`, "Content-Type: application/json"},
		"GET /nacos/v1/ns/instance/list/":                  {404, "No message", ""},
		"GET /nacos//v1/ns/instance/list":                  {404, "No message", ""},
		"GET /nacos/v1/ns/../ns/instance/list":             {404, "No message", ""},
		"GET /nacos/v1/ns/instance/list;x=1":               {404, "No message", ""},
		"GET /nacos/V1/ns/instance/list":                   {404, "No message", ""},
		"POST /nacos/v1/ns/instance/list":                  {405, `"status":405,"error":"Method Not Allowed","message":"Method 'POST' is not supported."`, "Allow: GET,HEAD,OPTIONS"},
		"OPTIONS /nacos/v1/ns/instance":                    {405, "", "Allow: PATCH,POST,DELETE,PUT,GET,HEAD,OPTIONS"},
		"OPTIONS /nacos/v2/ns/instance":                    {200, "", "Allow: PATCH,POST,DELETE,PUT,GET,HEAD,OPTIONS"},
		"OPTIONS /nacos/v2/ns/instance/beat":               {200, "", "Allow: PUT,OPTIONS"},
		"NONSENSE /nacos/v2/ns/instance":                   {405, "'NONSENSE'", ""},
		"HEAD /nacos/v1/ns/instance/list?serviceName=s":    {200, "", "Content-Type: application/json"},
		"GET /nacos/v2/ns/instance/statuses/g@@s":          {200, `{"ips":[]}`, ""},
		"GET /nacos/v2/ns/instance/statuses/dev%23%23g@@s": {200, `{"ips":[]}`, ""},
		"GET /nacos/v2/ns/instance/statuses/g%40%40s":      {200, `{"ips":[]}`, ""},
	} {
		t.Run(request, func(t *testing.T) {
			r := n.do(t, request, nil, nil)
			require.Equal(t, want.status, r.status, r.body)
			require.Contains(t, r.body, want.contains)
			if want.header != "" {
				name, value, _ := strings.Cut(want.header, ": ")
				require.Equal(t, value, r.header.Get(name))
			}
		})
	}
}

func TestFilterError(t *testing.T) {
	before := time.Now()
	a := (&filterError{404, `no "such"`}).answer(`/a"b`)
	require.Equal(t, 404, a.status)
	var body struct {
		Timestamp            string
		Status               int
		Error, Message, Path string
	}
	require.NoError(t, json.Unmarshal(a.body, &body))
	at, err := time.Parse("2006-01-02T15:04:05.000-07:00", body.Timestamp)
	require.NoError(t, err)
	require.WithinDuration(t, before, at, time.Minute)
	require.Equal(t, 404, body.Status)
	require.Equal(t, "Not Found", body.Error)
	require.Equal(t, `no "such"`, body.Message)
	require.Equal(t, `/a"b`, body.Path)
	require.EqualError(t, &filterError{400, "text"}, "text")
}

func TestRefusals(t *testing.T) {
	invalid := func(f naming.Fault) error { return &naming.InvalidError{Fault: f, Text: "why"} }
	for name, c := range map[string]struct {
		err    error
		v1, v2 string // content type, status and body
	}{
		"parameter": {invalid(naming.FaultParam), "[] 400 why\r\n", "[] 400 why\r\n"},
		"value":     {invalid(naming.FaultValue), "[text/plain;charset=UTF-8] 400 why", `[application/json] 400 {"code":12345,"message":"","data":"why"}`},
		"kind":      {invalid(naming.FaultKind), "[text/plain;charset=UTF-8] 400 wrapped why", `[application/json] 400 {"code":12345,"message":"","data":"wrapped why"}`},
		"unknown":   {invalid(naming.FaultResourceUnknown), "[text/plain;charset=UTF-8] 404 why", `[application/json] 404 {"code":12345,"message":"","data":"why"}`},
		"another":   {errors.New("oops"), "[text/plain;charset=UTF-8] 500 caused: oops;", `[application/json] 500 {"code":12345,"message":"","data":"oops"}`},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.registry.fault = c.err
			instance := url.Values{"serviceName": {"s"}, "ip": {"10.0.0.1"}, "port": {"80"}}
			for path, want := range map[string]string{"/nacos/v1/ns/instance": c.v1, "/nacos/v2/ns/instance": c.v2} {
				for _, method := range []string{"POST", "DELETE"} {
					r := n.do(t, method+" "+path, nil, instance)
					require.Equal(t, want, fmt.Sprint(r.header["Content-Type"], " ", r.status, " ", r.body))
				}
			}
		})
	}
}
