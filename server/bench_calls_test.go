//go:build unix

package server_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"rollcall/server/wire"
)

// streamWorkers is how many workers serve calls on a node (see node.go).
func streamWorkers() uint32 { return uint32(4 * runtime.GOMAXPROCS(0)) }

// registration is the body of a registration over gRPC as SDKs send it.
func registration(service, ip, n string, weight int) string {
	return fmt.Sprintf(`{"headers":{},"namespace":"public","serviceName":%q,"groupName":"DEFAULT_GROUP","type":"registerInstance",`+
		`"instance":{"ip":%q,"port":8080,"weight":%d.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{"n":%q}},"module":"naming"}`,
		service, ip, weight, n)
}

func hostIP(n int) string { return fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255) }

// call returns an op that sends one of the requests, the next one each time, and
// wants an answer that starts as given.
func call(b *testing.B, conn *grpc.ClientConn, want []byte, requests ...[]byte) op {
	b.Helper()
	var answer []byte
	n := 0
	return func() error {
		n++
		if err := conn.Invoke(b.Context(), unaryMethod, requests[n%len(requests)], &answer); err != nil {
			return err
		}
		if !bytes.HasPrefix(answer, want) {
			return fmt.Errorf("unexpected answer %q", answer)
		}
		return nil
	}
}

func registered(b *testing.B) []byte {
	b.Helper()
	data, err := wire.Codec{}.Marshal(wire.InstanceAnswer(wire.TypeInstanceAnswer, wire.RegisterInstance))
	require.NoError(b, err)
	return data.Materialize()
}

// BenchmarkGRPCRegister registers instances over gRPC, each call a change: the
// weight goes up and down, or the service is a new one.
func BenchmarkGRPCRegister(b *testing.B) {
	for _, load := range []struct{ conns, calls int }{{200, 1}, {8, 32}} {
		b.Run(fmt.Sprintf("conns=%d/calls=%d", load.conns, load.conns*load.calls), func(b *testing.B) {
			node, bare := startNode(b, nil), startBare(b, registered(b))
			sessions := openAll(b, node.GRPCAddr(), load.conns)
			echoes := dial(b, bare.address, load.conns)
			var ours, limit []op
			for k := range load.conns {
				for c := range load.calls {
					service, ip := fmt.Sprintf("bench-%d-%d", c, k/10), hostIP(k)
					up := encode(b, wire.TypeInstance, registration(service, ip, "1", 2))
					down := encode(b, wire.TypeInstance, registration(service, ip, "1", 1))
					ours = append(ours, call(b, sessions[k].conn, bare.answer, up, down))
					limit = append(limit, call(b, echoes[k], bare.answer, up, down))
				}
			}
			compare(b, ours, limit)
		})
	}
	b.Run("conns=200/distinct", func(b *testing.B) {
		const conns = 200
		node, bare := startNode(b, nil), startBare(b, registered(b))
		sessions := openAll(b, node.GRPCAddr(), conns)
		echoes := dial(b, bare.address, conns)
		var services atomic.Int64
		var ours, limit []op
		for k := range conns {
			ours = append(ours, callNew(b, sessions[k].conn, bare.answer, &services, hostIP(k)))
			limit = append(limit, callNew(b, echoes[k], bare.answer, new(atomic.Int64), hostIP(k)))
		}
		compare(b, ours, limit)
	})
}

// callNew returns an op that registers in a service of a new name each time.
func callNew(b *testing.B, conn *grpc.ClientConn, want []byte, services *atomic.Int64, ip string) op {
	b.Helper()
	const name = "00000000"
	request := encode(b, wire.TypeInstance, registration(name, ip, "1", 1))
	digits := request[bytes.Index(request, []byte(name)):][:len(name)]
	send := call(b, conn, want, request)
	return func() error {
		putNumber(digits, int(services.Add(1)))
		return send()
	}
}

// putNumber writes n with leading zeros over the digits.
func putNumber(digits []byte, n int) {
	for k := len(digits) - 1; k >= 0; k-- {
		digits[k] = byte('0' + n%10)
		n /= 10
	}
}

// BenchmarkGRPCQuery queries one service with ten instances over gRPC.
func BenchmarkGRPCQuery(b *testing.B) {
	node := startNode(b, nil)
	registerTen(b, node.HTTPAddr(), "ten")
	query := encode(b, wire.TypeServiceQuery, `{"headers":{},"namespace":"public","serviceName":"ten","groupName":"DEFAULT_GROUP","cluster":"","healthyOnly":false,"udpPort":0,"module":"naming"}`)
	var answer []byte
	first := openAll(b, node.GRPCAddr(), 1)[0]
	require.NoError(b, first.conn.Invoke(b.Context(), unaryMethod, query, &answer))
	require.Equal(b, 10, bytes.Count(answer, []byte(`"ip":`)), "%s", answer)
	bare := startBare(b, answer)
	for _, load := range []struct{ conns, calls int }{{200, 1}, {8, 32}} {
		b.Run(fmt.Sprintf("conns=%d/calls=%d", load.conns, load.conns*load.calls), func(b *testing.B) {
			sessions := openAll(b, node.GRPCAddr(), load.conns)
			echoes := dial(b, bare.address, load.conns)
			var ours, limit []op
			for n := range load.conns * load.calls {
				ours = append(ours, call(b, sessions[n%load.conns].conn, bare.answer, query))
				limit = append(limit, call(b, echoes[n%load.conns], bare.answer, query))
			}
			compare(b, ours, limit)
		})
	}
}

// httpClient sends prepared requests over one connection.
type httpClient struct {
	conn net.Conn
	r    *bufio.Reader
	body []byte // of the last answer
}

func newHTTPClient(b *testing.B, address string) *httpClient {
	b.Helper()
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", address)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	return &httpClient{conn: conn, r: bufio.NewReader(conn)}
}

// do sends a request and reads the answer, which must be of status 200 and tell
// its length.
func (c *httpClient) do(request []byte) error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	size := -1
	for n := 0; ; n++ {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSuffix(line, []byte("\r\n"))
		if n == 0 && !bytes.Equal(line, []byte("HTTP/1.1 200 OK")) {
			return fmt.Errorf("unexpected answer %q", line)
		}
		if len(line) == 0 {
			break
		}
		if text, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if size, err = strconv.Atoi(string(text)); err != nil {
				return err
			}
		}
	}
	if size < 0 {
		return errors.New("an answer without a length")
	}
	if cap(c.body) < size {
		c.body = make([]byte, size)
	}
	c.body = c.body[:size]
	_, err := io.ReadFull(c.r, c.body)
	return err
}

// httpRequest returns the bytes of a request with the headers of the Go SDK; the
// parameters are a form unless the method is GET.
func httpRequest(method, path, parameters string) []byte {
	if method == http.MethodGet {
		path, parameters = path+"?"+parameters, ""
	}
	var w strings.Builder
	fmt.Fprintf(&w, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:8848\r\nUser-Agent: Nacos-Go-Client:v1.1.4\r\n", method, path)
	w.WriteString("Client-Version: Nacos-Go-Client:v1.1.4\r\nConnection: Keep-Alive\r\nRequestid: 8a2f4d8e-3e9b-4d0e-9c57-2f6f6c7e0a11\r\nRequest-Module: Naming\r\n")
	w.WriteString("Content-Type: application/x-www-form-urlencoded\r\nAccept-Encoding: gzip\r\n")
	if method != http.MethodGet {
		fmt.Fprintf(&w, "Content-Length: %d\r\n", len(parameters))
	}
	w.WriteString("\r\n")
	w.WriteString(parameters)
	return []byte(w.String())
}

const instancePath = "/nacos/v1/ns/instance"

func httpRegistration(service, ip string, weight int) []byte {
	return httpRequest(http.MethodPost, instancePath, url.Values{
		"namespaceId": {"public"}, "serviceName": {"DEFAULT_GROUP@@" + service}, "groupName": {"DEFAULT_GROUP"},
		"clusterName": {"DEFAULT"}, "ip": {ip}, "port": {"8080"}, "weight": {strconv.Itoa(weight)},
		"enable": {"true"}, "healthy": {"true"}, "ephemeral": {"true"}, "metadata": {`{"n":"1"}`},
	}.Encode())
}

// registerTen registers ten instances that need no heartbeat.
func registerTen(b *testing.B, address, service string) {
	b.Helper()
	c := newHTTPClient(b, address)
	for n := range 10 {
		require.NoError(b, c.do(httpRequest(http.MethodPost, instancePath, url.Values{
			"serviceName": {service}, "ip": {fmt.Sprintf("10.0.0.%d", n+1)}, "port": {"8080"},
			"metadata": {`{"enableClientBeat":"true","version":"1.0.0"}`},
		}.Encode())))
	}
}

// startBareHTTP starts a net/http server with the node's time limits, whose only
// handler writes prepared bytes.
func startBareHTTP(b *testing.B, contentType string, body []byte) (address string) {
	b.Helper()
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = []string{contentType}
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
		_, _ = w.Write(body)
	})
	l := listenLoopback(b)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(l) })
	b.Cleanup(func() {
		_ = s.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// httpConns is the number of connections of the loads over HTTP, each with one
// request at a time.
const httpConns = 64

// compareHTTP compares the node with a bare handler; requests gives what a
// connection sends in turns.
func compareHTTP(b *testing.B, address, contentType string, requests func(conn int) [][]byte) {
	b.Helper()
	probe := newHTTPClient(b, address)
	require.NoError(b, probe.do(requests(0)[0]))
	bare := startBareHTTP(b, contentType, bytes.Clone(probe.body))
	load := func(address string) (ops []op) {
		for k := range httpConns {
			c, send := newHTTPClient(b, address), requests(k)
			n := 0
			ops = append(ops, func() error {
				n++
				return c.do(send[n%len(send)])
			})
		}
		return ops
	}
	compare(b, load(address), load(bare))
}

// BenchmarkHTTPRegister registers instances over HTTP, each time with another
// weight.
func BenchmarkHTTPRegister(b *testing.B) {
	compareHTTP(b, startNode(b, nil).HTTPAddr(), "text/plain;charset=UTF-8", func(conn int) [][]byte {
		service, ip := fmt.Sprintf("bench-%d", conn/10), hostIP(conn)
		return [][]byte{httpRegistration(service, ip, 2), httpRegistration(service, ip, 1)}
	})
}

// BenchmarkHTTPQuery queries one service with ten instances over HTTP.
func BenchmarkHTTPQuery(b *testing.B) {
	node := startNode(b, nil)
	registerTen(b, node.HTTPAddr(), "ten")
	compareHTTP(b, node.HTTPAddr(), "application/json", func(int) [][]byte {
		return [][]byte{httpRequest(http.MethodGet, instancePath+"/list",
			"namespaceId=public&serviceName=DEFAULT_GROUP%40%40ten&groupName=DEFAULT_GROUP&clusters=&healthyOnly=false&udpPort=0&clientIP=10.0.0.7")}
	})
}

// BenchmarkHTTPBeat sends heartbeats, with the whole instance in them, of
// registered instances.
func BenchmarkHTTPBeat(b *testing.B) {
	node := startNode(b, nil)
	c := newHTTPClient(b, node.HTTPAddr())
	for conn := range httpConns {
		require.NoError(b, c.do(httpRegistration(fmt.Sprintf("bench-%d", conn/10), hostIP(conn), 1)))
	}
	compareHTTP(b, node.HTTPAddr(), "application/json", func(conn int) [][]byte {
		service := fmt.Sprintf("DEFAULT_GROUP@@bench-%d", conn/10)
		beat := fmt.Sprintf(`{"ip":%q,"port":8080,"weight":1,"serviceName":%q,"cluster":"DEFAULT","metadata":{"n":"1"},"scheduled":false}`, hostIP(conn), service)
		return [][]byte{httpRequest(http.MethodPut, instancePath+"/beat", "namespaceId=public&serviceName="+service+"&beat="+beat)}
	})
}
