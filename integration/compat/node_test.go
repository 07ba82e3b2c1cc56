package compat

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nodeAddr returns the node to play against: ROLLCALL_TEST_ADDR (host:port of
// its HTTP front end) if that is set, else a child process of its own that
// lives as long as the test.
func nodeAddr(t *testing.T, binary func() string) Target {
	t.Helper()
	if addr := os.Getenv("ROLLCALL_TEST_ADDR"); addr != "" {
		host, port, err := net.SplitHostPort(addr)
		require.NoError(t, err, "ROLLCALL_TEST_ADDR")
		number, err := strconv.Atoi(port)
		require.NoError(t, err, "ROLLCALL_TEST_ADDR")
		return Target{Host: host, HTTPPort: number}
	}
	return startNode(t, binary())
}

// buildNode returns a function that gives the server's binary: the one named by
// ROLLCALL_TEST_BIN, or one that is built at its first call. It is not safe for
// concurrent use.
func buildNode(t *testing.T) func() string {
	t.Helper()
	dir := t.TempDir()
	binary := os.Getenv("ROLLCALL_TEST_BIN")
	return func() string {
		if binary != "" {
			return binary
		}
		out := filepath.Join(dir, "rollcall")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", out, "./cmd/rollcall")
		build.Dir = filepath.Join("..", "..")
		said, err := build.CombinedOutput()
		require.NoError(t, err, "build the server: %s", said)
		binary = out
		return binary
	}
}

// startNode starts a standalone node on free ports and waits until it is ready.
func startNode(t *testing.T, binary string) Target {
	t.Helper()
	target := Target{Host: "127.0.0.1", HTTPPort: freePort(t)}
	log := new(syncBuffer)
	// Not the test's context: the node is stopped with a signal, not killed.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "server",
		"--port", strconv.Itoa(target.HTTPPort), "--data-dir", t.TempDir())
	cmd.Env = slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, "ROLLCALL_") })
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(15 * time.Second):
			_ = cmd.Process.Kill()
			<-exited
			t.Errorf("the node did not stop within 15 s of SIGTERM")
		}
		if t.Failed() {
			t.Logf("the end of the node's log:\n%s", log.tail(8000))
		}
	})
	require.Eventually(t, func() bool {
		select {
		case <-exited:
			t.Fatalf("the node ended:\n%s", log.tail(8000))
		default:
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+target.http()+"/readyz", nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode == http.StatusOK
	}, 30*time.Second, 50*time.Millisecond, "the node is not ready")
	http.DefaultClient.CloseIdleConnections()
	return target
}

// freePort finds a port P such that P, P±1000 and P±1001 are free, for TCP and
// UDP.
func freePort(t *testing.T) int {
	t.Helper()
	for range 200 {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		port := ln.Addr().(*net.TCPAddr).Port
		_ = ln.Close()
		// Below the range from which clients' ports are taken, where it can be.
		port = 10000 + port%20000
		if portsFree(t.Context(), port) {
			return port
		}
	}
	t.Fatal("no five free ports")
	return 0
}

func portsFree(ctx context.Context, port int) bool {
	for _, p := range []int{port, port + 1000, port + 1001, port - 1000, port - 1001} {
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp4", fmt.Sprintf(":%d", p))
		if err != nil {
			return false
		}
		_ = ln.Close()
		pc, err := new(net.ListenConfig).ListenPacket(ctx, "udp4", fmt.Sprintf(":%d", p))
		if err != nil {
			return false
		}
		_ = pc.Close()
	}
	return true
}

// syncBuffer keeps the end of what a process writes.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf.Len() > 4<<20 {
		b.buf.Next(2 << 20)
	}
	return b.buf.Write(p)
}

func (b *syncBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.buf.Bytes()
	return string(text[max(0, len(text)-n):])
}
