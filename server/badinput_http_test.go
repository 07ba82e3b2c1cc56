package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/server"
)

// A bad request is refused in the protocol's words, is never answered with a 5xx,
// and leaves nothing behind. The tables of this file say what is bad: one line for
// each endpoint, and one for each bad value of each kind of parameter. Texts are
// those of http.md 1.5 to 1.7 where they fix them.

// badWait bounds what happens in the background.
const badWait = 20 * time.Second

// badNode is a node with some services that bad requests are aimed at.
type badNode struct {
	http, grpc string
	client     *http.Client
	dials      atomic.Int64 // connections that client made
	closed     int          // answers after which the server ends the connection
	also       []string     // further lists that stored looks at
}

// startBadNode starts a node. When the test ends, the node must not have panicked.
func startBadNode(t *testing.T) *badNode {
	t.Helper()
	cfg := server.DefaultConfig()
	cfg.Node, cfg.DataDir, cfg.Bind, cfg.Port = "n1", t.TempDir(), "127.0.0.1", 0
	cfg.Idle, cfg.EmptyServiceExpiry = time.Hour, time.Hour // nothing changes by itself
	panics := new(badPanics)
	node, err := server.New(cfg, "test", slog.New(slog.NewTextHandler(panics, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, node.Close())
		require.Empty(t, panics.found())
	})
	require.NoError(t, node.Start())
	require.Eventually(t, func() bool { return node.Ready() == nil }, badWait, time.Millisecond)

	n := &badNode{http: node.HTTPAddr(), grpc: node.GRPCAddr()}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		n.dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	n.client = &http.Client{Transport: transport, Timeout: badWait}
	n.fill(t)
	return n
}

// fill makes the services that requests are aimed at, where they are not there.
func (n *badNode) fill(t *testing.T) {
	t.Helper()
	_, port, err := net.SplitHostPort(n.http)
	require.NoError(t, err)
	for _, c := range [...]struct{ path, form string }{
		{"instance", "serviceName=ephemeral&ip=10.0.0.1&port=80&weight=2&metadata=enableClientBeat=true,a=1"},
		{"service", "serviceName=persistent&protectThreshold=0.5&metadata=owner=me"},
		{"instance", "serviceName=persistent&ip=127.0.0.1&ephemeral=false&port=" + port},
		{"service", "serviceName=empty&protectThreshold=0.25"},
	} {
		a := n.form(t, "POST", "/nacos/v1/ns/"+c.path, "", "namespaceId=fixtures&"+c.form)
		require.True(t, a.status == 200 || strings.Contains(a.body, "already exists"), "%s: %s", c.form, a.body)
	}
}

// badPanics keeps what was logged about panics.
type badPanics struct {
	mu    sync.Mutex
	lines []string
}

func (p *badPanics) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("panic")) {
		p.mu.Lock()
		p.lines = append(p.lines, string(b))
		p.mu.Unlock()
	}
	return len(b), nil
}

func (p *badPanics) found() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines
}

// answered is what matters of an answer.
type answered struct {
	status            int
	contentType, body string
}

// do sends a request whose query is taken as it stands.
func (n *badNode) do(t *testing.T, method, path, query, contentType string, body io.Reader) answered {
	t.Helper()
	target := "http://" + n.http + path
	if query != "" {
		target += "?" + query
	}
	request, err := http.NewRequestWithContext(t.Context(), method, target, body)
	require.NoError(t, err)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := n.client.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	if response.Close {
		n.closed++
	}
	return answered{response.StatusCode, response.Header.Get("Content-Type"), string(text)}
}

// requireUsable requires that refused requests left their connections usable.
func (n *badNode) requireUsable(t *testing.T) {
	t.Helper()
	require.Zero(t, n.closed, "answers that say that the connection ends")
	// The client gives one up when its own side was not done within 50 ms: a busy machine.
	require.Less(t, n.dials.Load(), int64(10), "connections")
}

// form sends a form; without one there is no body.
func (n *badNode) form(t *testing.T, method, path, query, form string) answered {
	t.Helper()
	if form == "" {
		return n.do(t, method, path, query, "", nil)
	}
	return n.do(t, method, path, query, "application/x-www-form-urlencoded", strings.NewReader(form))
}

// stored is everything that a bad request could change: all counts, the switches,
// and the services that requests are aimed at, with the times of their last change.
func (n *badNode) stored(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, target := range append([]string{
		"operator/metrics?onlyStatus=false",
		"operator/switches?",
		"instance/list?namespaceId=fixtures&serviceName=ephemeral",
		"instance/list?namespaceId=fixtures&serviceName=persistent",
		"service?namespaceId=fixtures&serviceName=persistent",
		"service?namespaceId=fixtures&serviceName=empty",
	}, n.also...) {
		path, query, _ := strings.Cut(target, "?")
		a := n.do(t, "GET", "/nacos/v1/ns/"+path, query, "", nil)
		require.Equal(t, 200, a.status, "%s: %s", target, a.body)
		text, _, _ := strings.Cut(a.body, `,"cpu":`)
		b.WriteString(text + "\n")
	}
	return b.String()
}

// The forms of answers.
const (
	badV1 = "v1" // text
	badV2 = "v2" // a result
)

// badEndpoint is one method of one path, with a request that would be served. Its
// parameters are written name!:kind, where ! marks a required one, and the kind is
// left out where it is the name.
type badEndpoint struct {
	method, path, form, lacks string // lacks: the text for a missing parameter
	request                   string
	params                    string
}

// Texts for a missing parameter.
const (
	lacksParam  = "Param '%s' is required."
	lacksSpring = "Parameter '%s' is missing"
	lacksForm   = "Required parameter '%s' type %s is not present"
	lacksSingle = "Required request parameter '%s' for method parameter type %s is not present"
	lacksField  = "required parameter '%s' is missing"
)

// The served requests that rows change in one value each.
const (
	badCreated = "namespaceId=bad&serviceName=new&ip=10.0.0.1&port=80"
	badAimed   = "namespaceId=fixtures&serviceName=ephemeral&ip=10.0.0.1&port=80"
	badGrouped = "namespaceId=fixtures&serviceName=DEFAULT_GROUP@@ephemeral&ip=10.0.0.1&port=80"
	badOf      = "namespaceId=fixtures&serviceName=ephemeral"
	badTo      = "namespaceId=fixtures&serviceName=persistent&protectThreshold=0.75"
	badBeatV1  = `namespaceId=bad&serviceName=new&beat={"ip":"10.0.0.1","port":80}`
	badBeatV2  = `namespaceId=bad&serviceName=G1@@new&beat={"ip":"10.0.0.1","port":80}`
	badFlag    = "entry=lightBeatEnabled&value=false"
	badNumber  = "entry=clientBeatInterval&value=6000"
	badCluster = `&clusterName=DEFAULT&checkPort=81&useInstancePort4Check=true&healthChecker={"type":"NONE"}`
	badClient  = "clientId=10.0.0.1:80%23true"
	badStatus  = "entry=overriddenServerStatus&value=UP"
)

func badEndpoints() []badEndpoint {
	return slices.Concat(badEndpointsV1(), badEndpointsV2(), badEndpointsV3(), badEndpointsCore(), badEndpointsConsole())
}

// badParam is one parameter of an endpoint.
type badParam struct {
	name, kind string
	required   bool
}

func (e badEndpoint) parameters() (out []badParam) {
	for word := range strings.FieldsSeq(e.params) {
		name, kind, ok := strings.Cut(word, ":")
		name, required := strings.CutSuffix(name, "!")
		if !ok {
			kind = name
		}
		out = append(out, badParam{name, kind, required})
	}
	return out
}

// with returns the served request with one parameter changed, encoded; a nil value
// leaves it out.
func (e badEndpoint) with(t *testing.T, name string, value *string) string {
	t.Helper()
	p := url.Values{}
	for pair := range strings.SplitSeq(e.request, "&") {
		k, v, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(v)
		require.NoError(t, err)
		p.Set(k, plain)
	}
	p.Del("")
	if p.Del(name); value != nil {
		p.Set(name, *value)
	}
	return p.Encode()
}

// requireRefused compares an answer with what a fault calls for.
func requireRefused(t *testing.T, a answered, form, path string, want bad, name string) {
	t.Helper()
	text, open := strings.CutSuffix(want.text, "…")
	if utf8Text := strings.ToValidUTF8(text, "\ufffd"); !open {
		text = utf8Text
	}
	equal := func(got string) {
		if open {
			require.True(t, strings.HasPrefix(got, text), "%s: %s", name, got)
		} else {
			require.Equal(t, text, got, name)
		}
	}
	require.Equal(t, 400, a.status, "%s: %s", name, a.body)
	switch {
	case want.fault == asParam:
		require.Empty(t, a.contentType, name)
		require.Equal(t, text+"\r\n", a.body, name)
	case want.fault == asFilter:
		var got struct {
			Timestamp            string
			Status               int
			Error, Message, Path string
		}
		require.Equal(t, "application/json", a.contentType, name)
		require.NoError(t, json.Unmarshal([]byte(a.body), &got), name)
		_, err := time.Parse("2006-01-02T15:04:05.000-07:00", got.Timestamp)
		require.NoError(t, err, name)
		require.Equal(t, 400, got.Status, name)
		require.Equal(t, "Bad Request", got.Error, name)
		require.Equal(t, path, got.Path, name)
		equal(got.Message)
	case form == badV1:
		require.Equal(t, "text/plain;charset=UTF-8", a.contentType, name)
		equal(a.body)
	default:
		var got struct {
			Code    int
			Message string
			Data    *string
		}
		require.Equal(t, "application/json", a.contentType, name)
		require.NoError(t, json.Unmarshal([]byte(a.body), &got), "%s: %s", name, a.body)
		require.Equal(t, want.fault, got.Code, "%s: %s", name, a.body)
		require.Equal(t, badCode(want.fault), got.Message, name)
		require.NotNil(t, got.Data, name)
		equal(*got.Data)
	}
}

// badCode is the text that the protocol gives a code.
func badCode(code int) string {
	switch code {
	case 10000:
		return "parameter missing"
	case 20002:
		return "parameter validate error"
	case 21001:
		return "weight error"
	case 21002:
		return "instance metadata error"
	case 21004:
		return "instance error"
	case 21006:
		return "selector error"
	case 22000:
		return "illegal namespace"
	case 23000:
		return "illegal state"
	}
	return ""
}

// badClip shortens a value for the name of a case.
func badClip(s string) string {
	if len(s) > 60 {
		s = s[:60] + "... (" + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.QuoteToASCII(s)
}

// Every parameter of every endpoint with every bad value of its kind, in the query
// and, for methods with a body, in a form.
func TestBadInput_HTTP_EveryParameter(t *testing.T) {
	n := startBadNode(t)
	before := n.stored(t)
	cases := 0
	for _, e := range badEndpoints() {
		t.Run(e.method+" "+e.path, func(t *testing.T) {
			for _, p := range e.parameters() {
				for k, b := range badValues(p.kind) {
					t.Run(p.name+"="+badClip(b.value), func(t *testing.T) {
						defer func() {
							if t.Failed() { // the cases after it are not to blame
								n.fill(t)
								before = n.stored(t)
							}
						}()
						path, all := e.path, e.with(t, p.name, &b.value)
						if strings.Contains(path, "{"+p.name+"}") {
							path, all = strings.Replace(path, "{"+p.name+"}", url.PathEscape(b.value), 1), ""
						}
						var answers []answered
						if len(all) < 500_000 { // a longer query breaks the limit of the header
							answers = append(answers, n.form(t, e.method, path, all, ""))
						}
						if all != "" && e.method != "GET" && (k%5 == 0 || answers == nil) {
							answers = append(answers, n.form(t, e.method, path, "", all))
						}
						plain, err := url.PathUnescape(path)
						require.NoError(t, err)
						for _, a := range answers {
							cases++
							requireRefused(t, a, e.form, plain, b, e.request)
						}
						require.Equal(t, before, n.stored(t), "something was stored")
					})
				}
			}
		})
	}
	n.requireUsable(t)
	t.Logf("%d bad requests over %d connections", cases, n.dials.Load())
}

// A required parameter that is missing, empty or blank.
func TestBadInput_HTTP_Missing(t *testing.T) {
	n := startBadNode(t)
	before := n.stored(t)
	types := map[string]string{"port": "Integer", "weight": "Double", "enabled": "Boolean", "checkPort": "Integer", "useInstancePort4Check": "Boolean"}
	for _, e := range badEndpoints() {
		for _, p := range e.parameters() {
			if !p.required {
				continue
			}
			typ := types[p.name]
			if typ == "" {
				typ = "String"
			}
			text := strings.Replace(strings.Replace(e.lacks, "%s", p.name, 1), "%s", typ, 1)
			empty, blank := "", " \t\n"
			for _, value := range []*string{nil, &empty, &blank} {
				all := e.with(t, p.name, value)
				name := fmt.Sprintf("%s %s %s", e.method, e.path, all)
				want := bad{fault: 10000, text: text}
				if p.kind == "serviceName" && value == &blank {
					want = bad{fault: 20002, text: badName}
				}
				requireRefused(t, n.form(t, e.method, e.path, all, ""), e.form, e.path, want, name)
				if e.method != "GET" {
					requireRefused(t, n.form(t, e.method, e.path, "", all), e.form, e.path, want, name)
				}
				require.Equal(t, before, n.stored(t), "%s: something was stored", name)
			}
		}
	}
	n.requireUsable(t)
}

// An optional parameter that is blank counts as missing: the reading endpoints
// answer the same with it and without.
func TestBadInput_HTTP_BlankIsDefault(t *testing.T) {
	n := startBadNode(t)
	times := regexp.MustCompile(`"last(?:Ref|Refresh)Time":\d+`)
	for _, e := range badEndpoints() {
		if e.method != "GET" || strings.Contains(e.path, "{") {
			continue
		}
		for _, p := range e.parameters() {
			if p.required {
				continue
			}
			plain := n.form(t, "GET", e.path, e.with(t, p.name, nil), "")
			for _, value := range []string{"", " "} {
				if p.name == "clusters" || p.kind == "clusters" {
					value = "" // a list is echoed as it was sent
				}
				a := n.form(t, "GET", e.path, e.with(t, p.name, &value), "")
				plain.body, a.body = times.ReplaceAllString(plain.body, ""), times.ReplaceAllString(a.body, "")
				if !strings.HasSuffix(e.path, "/metrics") {
					require.Equal(t, plain, a, "%s %s=%q", e.path, p.name, value)
				}
			}
		}
	}
}

// The table above is complete: it has every path of the front end, and every
// method that a path allows.
func TestBadInput_HTTP_TableIsComplete(t *testing.T) {
	n := startBadNode(t)
	routed := map[string]bool{}
	for line := range strings.SplitSeq(n.do(t, "GET", "/openapi.yaml", "", "", nil).body, "\n") {
		if path, ok := strings.CutPrefix(line, `  "/`); ok {
			routed["/"+strings.TrimSuffix(path, `":`)] = true
		}
	}
	require.NotEmpty(t, routed)
	methods := map[string][]string{}
	for _, e := range badEndpoints() {
		require.True(t, routed[e.path], "%s is not served", e.path)
		if !slices.Contains(methods[e.path], e.method) {
			methods[e.path] = append(methods[e.path], e.method)
		}
	}
	for path := range routed {
		require.NotEmpty(t, methods[path], "%s has no line in the table of endpoints", path)
		for _, method := range [...]string{"GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "LINK", "x"} {
			if slices.Contains(methods[path], method) {
				continue
			}
			request, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.http+path, http.NoBody)
			require.NoError(t, err)
			response, err := n.client.Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, errors.Join(err, response.Body.Close()))
			require.Equal(t, 405, response.StatusCode, "%s %s", method, path)
			require.Contains(t, string(body), "Method '"+method+"' is not supported.")
			allowed := slices.DeleteFunc(strings.Split(strings.ReplaceAll(response.Header.Get("Allow"), " ", ""), ","), func(m string) bool { return m == "HEAD" || m == "OPTIONS" })
			require.ElementsMatch(t, methods[path], allowed, "methods of %s", path)
		}
	}
}
