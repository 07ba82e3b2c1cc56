//go:build unix

package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/server/wire"
)

// inUse returns the bytes of live objects and of goroutine stacks.
func inUse() (heap, stacks uint64) {
	runtime.GC()
	runtime.GC() // the second one frees what the first one only finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

// once runs fn in the first turn of the benchmark's loop only: memory is measured
// once.
func once(b *testing.B, fn func()) {
	b.Helper()
	done := false
	for b.Loop() {
		if !done {
			fn()
			done = true
		}
	}
	b.ReportMetric(0, "ns/op") // leaves it out
}

// grown runs fill and reports, for each of the n things that it made, by how much
// the heap and the stacks in use have grown.
func grown(b *testing.B, thing string, n int, fill func()) (each float64) {
	b.Helper()
	heap, stacks := inUse()
	fill()
	heapAfter, stacksAfter := inUse()
	perThing := func(before, after uint64) float64 { return (float64(after) - float64(before)) / float64(n) }
	h, s := perThing(heap, heapAfter), perThing(stacks, stacksAfter)
	b.ReportMetric(h, "heap-B/"+thing)
	b.ReportMetric(s, "stack-B/"+thing)
	b.ReportMetric(h+s, "B/"+thing)
	return h + s
}

// BenchmarkMemoryConnection reports what the server's side of an idle gRPC
// connection with its stream takes in memory.
func BenchmarkMemoryConnection(b *testing.B) {
	setup := encode(b, wire.TypeConnectionSetup, setupBody)
	answer := encode(b, "SetupAckResponse", `{"resultCode":200,"requestId":"1","success":true}`)
	measure := func(b *testing.B, address string) (each float64) {
		b.Helper()
		n := affordable(b, 2000)
		once(b, func() {
			each = grown(b, "conn", n, func() {
				for range n {
					conn, err := openIdle(b.Context(), address, setup, answer)
					require.NoError(b, err)
					b.Cleanup(func() { _ = conn.Close() })
				}
			})
		})
		return each
	}
	var node float64
	b.Run("rollcall", func(b *testing.B) { node = measure(b, startNode(b, nil).GRPCAddr()) })
	b.Run("bare", func(b *testing.B) {
		if bare := measure(b, startBare(b, nil).address); node > 0 {
			b.ReportMetric(node/bare, "ratio")
		}
	})
}

// openIdle opens a connection and its stream in the fewest bytes of HTTP/2 (RFC
// 9113, header fields of RFC 7541 without compression) and waits for the answer to
// the setup, which it answers: a gRPC client in this process would weigh more than what
// is measured.
func openIdle(ctx context.Context, address string, setup, answer []byte) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	const (
		typeData, typeHeaders, typeSettings = 0, 1, 4
		endHeaders                          = 4
		streamID                            = 1
	)
	out := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame := func(typ, flags byte, stream uint32, payload []byte) {
		n := len(payload)
		out = append(out, byte(n>>16), byte(n>>8), byte(n), typ, flags)
		out = binary.BigEndian.AppendUint32(out, stream)
		out = append(out, payload...)
	}
	var header []byte
	for _, field := range [...][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", streamMethod},
		{":authority", "bench"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		header = append(header, 0) // a literal field with a new name
		for _, text := range field {
			header = append(append(header, byte(len(text))), text...)
		}
	}
	message := func(body []byte) {
		prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
		frame(typeData, 0, streamID, append(prefix, body...))
	}
	frame(typeSettings, 0, 0, nil)
	frame(typeHeaders, endHeaders, streamID, header)
	message(setup)
	_, err = conn.Write(out)
	var got []byte
	for buf := make([]byte, 1024); err == nil && !bytes.Contains(got, []byte("Setup")); {
		var n int
		n, err = conn.Read(buf)
		got = append(got, buf[:n]...)
	}
	if err == nil {
		out = out[:0]
		message(answer)
		_, err = conn.Write(out)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("set up a connection: %w", err)
	}
	return conn, nil
}

// BenchmarkMemorySubscription reports what one more subscription of a service takes.
func BenchmarkMemorySubscription(b *testing.B) {
	const services, subscribers = 1000, 50
	a := newAudience(b, services, nil)
	a.subscribe(b, openAll(b, a.address, 1)) // brings what a service needs once
	more := &audience{services: services}
	sessions := openAll(b, a.address, subscribers)
	once(b, func() {
		grown(b, "subscription", services*subscribers, func() { more.subscribe(b, sessions) })
	})
}

// BenchmarkMemoryInstance reports what a registered instance takes, ten in a
// service, with the same metadata: of a gRPC connection, also with its part of the lists
// that queries have made, and of an HTTP client with heartbeats; and of a gRPC connection
// when no two instances have the same metadata.
func BenchmarkMemoryInstance(b *testing.B) {
	const services, perService = 5000, 10
	const instances = services * perService
	service := func(n int) string { return fmt.Sprintf("memory-%d", n) }
	overGRPC := func(b *testing.B, metadata func(n int) string) {
		b.Helper()
		node := startNode(b, nil)
		sessions, want := openAll(b, node.GRPCAddr(), perService), registered(b)
		register := func() {
			require.NoError(b, each(instances, func(n int) error {
				body := registration(service(n/perService), hostIP(n), metadata(n), 1)
				return call(b, sessions[n%perService].conn, want, encode(b, wire.TypeInstance, body))()
			}))
		}
		list := func() {
			c := newHTTPClient(b, node.HTTPAddr())
			for n := range services {
				require.NoError(b, c.do(httpRequest(http.MethodGet, instancePath+"/list", "serviceName="+service(n))))
			}
		}
		once(b, func() {
			grown(b, "instance", instances, register)
			grown(b, "listed-instance", instances, list)
		})
	}
	b.Run("grpc", func(b *testing.B) { overGRPC(b, func(int) string { return "1" }) })
	b.Run("grpc-unlike", func(b *testing.B) { overGRPC(b, strconv.Itoa) })
	b.Run("http", func(b *testing.B) {
		address := startNode(b, nil).HTTPAddr()
		clients := make([]*httpClient, 8)
		for k := range clients {
			clients[k] = newHTTPClient(b, address)
		}
		var next atomic.Int64
		register := func() {
			require.NoError(b, each(len(clients), func(k int) error {
				for n := int(next.Add(1)) - 1; n < instances; n = int(next.Add(1)) - 1 {
					if err := clients[k].do(httpRegistration(service(n/perService), hostIP(n), 1)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		once(b, func() { grown(b, "instance", instances, register) })
	})
}

// BenchmarkStart builds the command and reports the time from its start as a
// standalone node to its first answer that it is ready, and what it takes then in
// memory. One operation is one start and stop.
func BenchmarkStart(b *testing.B) {
	binary := filepath.Join(b.TempDir(), "rollcall")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "rollcall/cmd/rollcall")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		cmd := exec.CommandContext(b.Context(), binary, "server", "--bind", "127.0.0.1", "--port", "0", "--data-dir", b.TempDir(), "--log-format", "json")
		stderr, err := cmd.StderrPipe()
		require.NoError(b, err)
		require.NoError(b, cmd.Start())
		lines := bufio.NewScanner(stderr)
		require.NoError(b, untilReady(b, startedAt(b, lines)))
		took = append(took, time.Since(begin))
		if kB, ok := residentKB(cmd.Process.Pid); ok {
			b.ReportMetric(kB/1024, "RSS-MB")
		}
		require.NoError(b, cmd.Process.Signal(syscall.SIGTERM))
		for lines.Scan() { // the pipe must be read to its end before Wait
			continue
		}
		require.NoError(b, cmd.Wait())
	}
	b.ReportMetric(milliseconds(quantile(took, 0.5)), "start-ms")
}

// startedAt reads a node's log up to where it names its address.
func startedAt(b *testing.B, lines *bufio.Scanner) (address string) {
	b.Helper()
	for lines.Scan() {
		var line struct {
			Msg, HTTP string
		}
		require.NoError(b, json.Unmarshal(lines.Bytes(), &line), "%s", lines.Text())
		if line.Msg == "node started" {
			return line.HTTP
		}
	}
	require.Fail(b, "the node ended before it had started")
	return ""
}

// untilReady asks the node whether it is ready until it says so.
func untilReady(b *testing.B, address string) error {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for {
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode == http.StatusOK {
			return err
		}
		<-ticker.C
	}
}

// residentKB returns the resident set of a process, where the system tells it.
func residentKB(pid int) (kB float64, ok bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "VmRSS:"); found {
			kB, err = strconv.ParseFloat(strings.Fields(text)[0], 64)
			return kB, err == nil
		}
	}
	return 0, false
}
