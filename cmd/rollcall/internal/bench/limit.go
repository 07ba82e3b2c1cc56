package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	"rollcall/raftstore"
	"rollcall/server/wire"
)

// LimitCommand is the hidden subcommand of the program that serves the bare limit; its
// argument is a kind. See [ServeLimit].
const LimitCommand = "bench-limit"

// limit is a process that answers all calls with the same bytes.
type limit struct {
	addr string
	cmd  *exec.Cmd
	in   io.Closer
}

// startLimit starts the process of the bare limit.
func startLimit(ctx context.Context, kind string, answer []byte) (*limit, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, LimitCommand, kind)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the bare server: %w", err)
	}
	l := &limit{cmd: cmd, in: in}
	if _, err := fmt.Fprintln(in, base64.StdEncoding.EncodeToString(answer)); err != nil {
		l.stop()
		return nil, fmt.Errorf("tell the bare server its answer: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		l.stop()
		return nil, fmt.Errorf("start the bare server: %w", err)
	}
	l.addr = strings.TrimSpace(line)
	return l, nil
}

// stop ends the process: it ends with its input.
func (l *limit) stop() {
	_ = l.in.Close()
	_ = l.cmd.Wait()
}

// The kinds of bare servers: two protocols, and the same with each request put into a log
// of hashicorp/raft before it is answered.
const (
	bareGRPC     = "grpc"
	bareHTTP     = "http"
	bareGRPCRaft = "grpc-raft"
	bareHTTPRaft = "http-raft"
)

// ServeLimit is the process of the bare limit, of kind grpc, http, grpc-raft or http-raft:
// it reads the answer, in base64, from the
// first line of in, writes its address to out, and serves until in ends.
func ServeLimit(kind string, in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadString('\n')
	if err != nil {
		return err
	}
	answer, err := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	take := func([]byte) error { return nil }
	if kind == bareGRPCRaft || kind == bareHTTPRaft {
		dir, err := os.MkdirTemp("", "rollcall-bench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bare, err := raftstore.NewBare(dir)
		if err != nil {
			return err
		}
		defer func() { _ = bare.Close() }()
		take = bare.Apply
	}
	var serve func() error
	var stop func()
	switch kind {
	case bareGRPC, bareGRPCRaft:
		s := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec{}), grpc.UnknownServiceHandler(echo(answer, take)))
		serve, stop = func() error { return s.Serve(l) }, s.Stop
	case bareHTTP, bareHTTPRaft:
		s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: page(answer, take)}
		serve, stop = func() error { return s.Serve(l) }, func() { _ = s.Close() }
	default:
		return fmt.Errorf("kind is %q: it must be grpc, http, grpc-raft or http-raft", kind)
	}
	go func() { // ends with in
		_, _ = io.Copy(io.Discard, lines)
		stop()
	}()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// echo answers every call over gRPC once its request has been taken.
func echo(answer []byte, take func([]byte) error) grpc.StreamHandler {
	p := &wire.Payload{Type: "Response", Body: [][]byte{answer}}
	return func(_ any, stream grpc.ServerStream) error {
		q := new(wire.Payload)
		if err := stream.RecvMsg(q); err != nil {
			return err
		}
		if err := take(q.JSON()); err != nil {
			return err
		}
		return stream.SendMsg(p)
	}
}

// page answers every request over HTTP once its body has been taken.
func page(answer []byte, take func([]byte) error) http.Handler {
	length := []string{strconv.Itoa(len(answer))}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = take(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header()["Content-Length"] = length
		_, _ = w.Write(answer)
	})
}

// bareLoad makes the same calls at a bare server, without anything before them.
func bareLoad(kind string) preparation {
	if kind == bareHTTP || kind == bareHTTPRaft {
		params := url.Values{"serviceName": {"bench-limit"}, "ip": {"10.1.0.1"}, "port": {"8080"}, "metadata": {`{"v":"1"}`}}
		return func(ctx context.Context, cfg Config) (*load, error) {
			return webLoad(ctx, cfg, http.MethodPost, instancePath, func(int) func(int) url.Values {
				return func(int) url.Values { return params }
			})
		}
	}
	return func(_ context.Context, cfg Config) (*load, error) {
		l := &load{kind: kind}
		var all []*grpc.ClientConn
		l.close = func() {
			for _, cc := range all {
				_ = cc.Close()
			}
		}
		request := instanceRequest("registerInstance", "bench-limit", 1, 1)
		for range cfg.Connections {
			cc, err := dial(cfg.Servers[0], 0)
			if err != nil {
				l.close()
				return nil, err
			}
			all = append(all, cc)
			for range cfg.Workers {
				l.add(func(ctx context.Context) error {
					answer := new(wire.Payload)
					return cc.Invoke(ctx, unaryMethod, request, answer)
				})
			}
		}
		return l, nil
	}
}

// processUsage returns the time of processors that a process has used, and its memory in
// bytes, from /proc of Linux. Zeroes where that cannot be known.
func processUsage(pid int) (cpu time.Duration, rss int64) {
	if pid == 0 {
		return 0, 0
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	// The name is in brackets and may hold anything; the fields after it count from 3.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	field := func(n int) int64 {
		if n-3 >= len(fields) {
			return 0
		}
		v, _ := strconv.ParseInt(fields[n-3], 10, 64)
		return v
	}
	const ticks = 100 // in a second, on every Linux of today
	return time.Duration(field(14)+field(15)) * time.Second / ticks, field(24) * int64(os.Getpagesize())
}

// syncRate returns how often in a second this machine makes 4 KB safe on the disk of
// the folder for temporary files: no node alone commits more log entries.
func syncRate() (float64, error) {
	f, err := os.CreateTemp("", "rollcall-bench-")
	if err != nil {
		return 0, err
	}
	defer func() { _, _ = f.Close(), os.Remove(f.Name()) }()
	page := make([]byte, 4<<10)
	n, began := 0, time.Now()
	for ; time.Since(began) < time.Second; n++ {
		if _, err := f.WriteAt(page, 0); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
