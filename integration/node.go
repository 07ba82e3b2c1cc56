package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

const (
	readyTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	logTail      = 24 << 10 // bytes of a node's output that a failed test prints
)

// build is the server's binary, built once per process.
type build struct {
	once sync.Once
	dir  string // "" when nothing was built
	path string
	err  error
}

//nolint:gochecknoglobals // one build per test process
var binary build

func (b *build) get() (string, error) {
	b.once.Do(func() { b.err = b.make() })
	return b.path, b.err
}

func (b *build) make() error {
	if b.path = os.Getenv("ROLLCALL_BINARY"); b.path != "" {
		return nil
	}
	module, err := moduleDir()
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "rollcall-build-"); err != nil {
		return err
	}
	b.path = filepath.Join(b.dir, "rollcall")
	args, cgo := []string{"build", "-o", b.path}, "CGO_ENABLED=0"
	if raceDetector() {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1" // the race detector links C
	}
	cmd := exec.CommandContext(context.Background(), "go", append(args, "./cmd/rollcall")...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build rollcall: %w\n%s", err, out)
	}
	return nil
}

// raceDetector tells whether the binary is built with it.
func raceDetector() bool { return os.Getenv("ROLLCALL_RACE") == "1" }

// moduleDir finds the server's module: the first directory above the working
// directory that holds cmd/rollcall.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if info, err := os.Stat(filepath.Join(dir, "cmd", "rollcall")); err == nil && info.IsDir() {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no directory cmd/rollcall above the working directory")
		}
		dir = parent
	}
}

// RemoveBinary removes what a build left behind; call it after the last test.
func RemoveBinary() {
	if binary.dir != "" {
		_ = os.RemoveAll(binary.dir)
	}
}

// Option changes how a node is started.
type Option func(*Node)

// WithArgs adds flags to the command line, after those that the harness sets.
func WithArgs(args ...string) Option {
	return func(n *Node) { n.args = append(n.args, args...) }
}

// WithEnv adds KEY=VALUE pairs to the environment of the process.
func WithEnv(pairs ...string) Option {
	return func(n *Node) { n.env = append(n.env, pairs...) }
}

// WithProgram starts another binary than the one under test.
func WithProgram(path string) Option {
	return func(n *Node) { n.program = path }
}

// WithDataDir keeps the node's data in dir instead of a temporary folder.
func WithDataDir(dir string) Option {
	return func(n *Node) { n.dataDir = dir }
}

// Node is one server process, from the outside.
type Node struct {
	name    string // in a cluster
	host    string // its address
	port    int
	joins   string       // name or address where others look for it; empty: host
	netns   string       // the network namespace that it runs in; empty: that of the test
	prepare func() error // makes the namespace
	program string       // the server's binary; empty: the one under test
	dataDir string
	args    []string
	env     []string
	log     logBuffer
	http    *http.Client

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when the present process has ended
	paused bool
}

// StartNode starts a node and returns when it is ready. When the test ends the
// process is killed, and its output is printed if the test failed.
func StartNode(tb testing.TB, options ...Option) *Node {
	tb.Helper()
	n, err := NewNode(append([]Option{WithDataDir(filepath.Join(tb.TempDir(), "data"))}, options...)...)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		n.Close()
		if tb.Failed() {
			tb.Logf("output of the node on port %d:\n%s", n.port, n.log.tail())
		}
		if report := n.Trouble(); report != "" {
			tb.Errorf("node on port %d:\n%s", n.port, report)
		}
	})
	require.NoError(tb, n.start())
	return n
}

// NewNode returns a node that has not been started, for callers without a test;
// they call Start and Close themselves.
func NewNode(options ...Option) (*Node, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	n := &Node{host: "127.0.0.1", port: port, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	for _, o := range options {
		o(n)
	}
	if n.dataDir == "" {
		return nil, errors.New("a node needs a data folder")
	}
	if n.prepare != nil {
		if err := n.prepare(); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// NodeAt returns a node that somebody else runs, with gRPC at the port plus 1000. Its
// process cannot be reached, only its ports.
func NodeAt(host string, port int) *Node {
	return &Node{host: host, port: port, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// Ready tells whether the node says that it may be used.
func (n *Node) Ready() bool {
	return n.statusOf(context.Background(), "http://"+n.Addr()+"/readyz") == http.StatusOK
}

// Start starts the process and waits until it is ready.
func (n *Node) Start() error { return n.start() }

// Addr is the HTTP address, host:port.
func (n *Node) Addr() string { return net.JoinHostPort(n.host, strconv.Itoa(n.port)) }

// GRPCAddr is the address of the gRPC port for SDKs.
func (n *Node) GRPCAddr() string { return net.JoinHostPort(n.host, strconv.Itoa(n.GRPCPort())) }

// HTTPPort is the main port.
func (n *Node) HTTPPort() int { return n.port }

// GRPCPort is the port for SDKs that speak gRPC.
func (n *Node) GRPCPort() int { return n.port + 1000 }

// DataDir is the folder given to --data-dir.
func (n *Node) DataDir() string { return n.dataDir }

// Logs returns what the process wrote to standard output and standard error, of
// all its runs.
func (n *Node) Logs() string { return n.log.String() }

// Trouble returns the part of the output that reports a data race or a crash, or
// "".
func (n *Node) Trouble() string {
	out := n.log.String()
	for _, mark := range []string{"WARNING: DATA RACE", "\npanic: ", "\nfatal error: "} {
		if at := strings.Index("\n"+out, mark); at >= 0 {
			part := ("\n" + out)[at:]
			return part[:min(len(part), logTail)]
		}
	}
	return ""
}

// Running tells whether the process is alive.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runningLocked()
}

func (n *Node) runningLocked() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// Stop sends SIGTERM and requires that the process ends by itself with exit code
// 0. It returns how long that took.
func (n *Node) Stop(tb testing.TB) time.Duration {
	tb.Helper()
	began := time.Now()
	code, err := n.Terminate()
	require.NoError(tb, err)
	require.Zero(tb, code, "exit code after SIGTERM\n%s", n.log.tail())
	return time.Since(began)
}

// Terminate sends SIGTERM, waits for the end and returns the exit code. A process
// that has not ended within 30 s is killed and reported as an error.
func (n *Node) Terminate() (int, error) {
	cmd, exited, err := n.process()
	if err != nil {
		return 0, err
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("terminate the node: %w", err)
	}
	select {
	case <-exited:
		return cmd.ProcessState.ExitCode(), nil
	case <-time.After(stopTimeout):
		n.Close()
		return 0, fmt.Errorf("the node did not end within %s of SIGTERM", stopTimeout)
	}
}

// Kill sends SIGKILL and waits for the end.
func (n *Node) Kill(tb testing.TB) {
	tb.Helper()
	_, exited, err := n.process()
	require.NoError(tb, err)
	n.signal(tb, syscall.SIGKILL)
	<-exited
}

// Restart starts the node again on the same ports and data folder, and returns
// when it is ready. A process that still runs is stopped first, gracefully.
func (n *Node) Restart(tb testing.TB) {
	tb.Helper()
	if n.Running() {
		n.Stop(tb)
	}
	require.NoError(tb, n.start())
}

// Pause stops the process with SIGSTOP: its sockets stay open and answer nothing.
func (n *Node) Pause(tb testing.TB) {
	tb.Helper()
	n.signal(tb, syscall.SIGSTOP)
	n.mu.Lock()
	n.paused = true
	n.mu.Unlock()
}

// Resume lets a paused process go on.
func (n *Node) Resume(tb testing.TB) {
	tb.Helper()
	n.signal(tb, syscall.SIGCONT)
	n.mu.Lock()
	n.paused = false
	n.mu.Unlock()
}

// Close kills the process if it runs. It may be called at any time.
func (n *Node) Close() {
	n.mu.Lock()
	cmd, exited, running, paused := n.cmd, n.exited, n.runningLocked(), n.paused
	n.mu.Unlock()
	if !running {
		return
	}
	_ = cmd.Process.Kill()
	if paused {
		_ = cmd.Process.Signal(syscall.SIGCONT)
	}
	<-exited
}

func (n *Node) process() (*exec.Cmd, <-chan struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.runningLocked() {
		return nil, nil, errors.New("the node is not running")
	}
	return n.cmd, n.exited, nil
}

func (n *Node) signal(tb testing.TB, sig syscall.Signal) {
	tb.Helper()
	cmd, _, err := n.process()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Process.Signal(sig))
}

func (n *Node) start() error {
	exited, err := n.launch()
	if err != nil {
		return err
	}
	return n.waitReady(exited)
}

// Launch starts the process and does not wait until it is ready.
func (n *Node) Launch() error {
	_, err := n.launch()
	return err
}

func (n *Node) launch() (exited chan struct{}, err error) {
	path, err := n.program, error(nil)
	if path == "" {
		path, err = binary.get()
	}
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"server", "--port", strconv.Itoa(n.port), "--data-dir", n.dataDir, "--bind", n.host,
	}, n.args...)
	if n.netns != "" { // ip becomes the process that it starts
		path, args = "ip", append([]string{"netns", "exec", n.netns, path}, args...)
	}
	cmd := exec.CommandContext(context.Background(), path, args...)
	cmd.Env = append(cleanEnv(), n.env...)
	cmd.Stdout, cmd.Stderr = &n.log, &n.log
	cmd.SysProcAttr = childAttr()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the node: %w", err)
	}
	exited = make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	n.mu.Lock()
	n.cmd, n.exited, n.paused = cmd, exited, false
	n.mu.Unlock()
	n.http.CloseIdleConnections() // those to the former process
	return exited, nil
}

// cleanEnv is the environment without what would configure the node, or the tests.
func cleanEnv() []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "ROLLCALL_") {
			env = append(env, pair)
		}
	}
	return env
}

func (n *Node) waitReady(exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if n.statusOf(ctx, "http://"+n.Addr()+"/readyz") == http.StatusOK {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("the node ended while it was starting\n%s", n.log.tail())
		case <-ctx.Done():
			return fmt.Errorf("the node was not ready within %s\n%s", readyTimeout, n.log.tail())
		case <-tick.C:
		}
	}
}

// statusOf returns the status of a GET, or 0 when there is no answer.
func (n *Node) statusOf(ctx context.Context, url string) int {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// given are the ports that freePort has given away. They may still be free, as the
// nodes that they are for may not run yet.
type given struct {
	mu    sync.Mutex
	ports map[int]bool
}

//nolint:gochecknoglobals // the ports of a machine are one
var givenPorts = given{ports: make(map[int]bool)}

// freePort finds a main port whose derived ports are free, too, and gives each away
// once. All of them lie below the range from which Linux takes the ports of outgoing
// connections.
func freePort() (int, error) {
	givenPorts.mu.Lock()
	defer givenPorts.mu.Unlock()
	for range 200 {
		main := 12000 + 5*rand.IntN(3500)
		all := []int{main, main + 1000, main + 1001, main - 1000, main - 1001}
		if slices.ContainsFunc(all, func(p int) bool { return givenPorts.ports[p] || !portFree(p) }) {
			continue
		}
		for _, p := range all {
			givenPorts.ports[p] = true
		}
		return main, nil
	}
	return 0, errors.New("no free port found")
}

func portFree(port int) bool {
	ctx := context.Background()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	var config net.ListenConfig
	tcp, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	_ = tcp.Close()
	udp, err := config.ListenPacket(ctx, "udp", addr)
	if err != nil {
		return false
	}
	_ = udp.Close()
	return true
}

// logBuffer collects the output of a process and of its later runs.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) tail() string {
	s := b.String()
	if len(s) > logTail {
		return "..." + s[len(s)-logTail:]
	}
	return s
}

// Tool runs the binary's command line against the node and returns what it printed on
// standard output and on standard error, and its exit code.
func (n *Node) Tool(tb testing.TB, args ...string) (stdout, stderr string, code int) {
	tb.Helper()
	path, err := binary.get()
	require.NoError(tb, err)
	cmd := exec.CommandContext(context.Background(), path, append(args, "--server", n.Addr())...)
	cmd.Env = cleanEnv()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		require.ErrorAs(tb, err, &exit)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// RequireTool is Tool for a command that must succeed; it returns its output.
func (n *Node) RequireTool(tb testing.TB, args ...string) string {
	tb.Helper()
	stdout, stderr, code := n.Tool(tb, args...)
	require.Zero(tb, code, "%v: %s%s", args, stdout, stderr)
	return stdout
}

// ExitCode returns the code that the last process ended with; it must have ended.
func (n *Node) ExitCode(tb testing.TB) int {
	tb.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	require.False(tb, n.runningLocked(), "the node runs")
	return n.cmd.ProcessState.ExitCode()
}
