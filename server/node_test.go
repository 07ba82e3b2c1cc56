package server

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

const nodeWait = 30 * time.Second

// nodeConfig returns a configuration for a node on free ports.
func nodeConfig(t *testing.T) Config {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Node, cfg.DataDir, cfg.Bind, cfg.Port = "n1", t.TempDir(), "127.0.0.1", 0
	return cfg
}

func newNode(cfg Config) (*Node, error) { return New(cfg, "test", slog.New(slog.DiscardHandler)) }

// runNode returns a node that serves.
func runNode(t *testing.T, cfg Config) *Node {
	t.Helper()
	n, err := newNode(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	require.NoError(t, n.Start())
	require.Eventually(t, func() bool { return n.Ready() == nil }, nodeWait, time.Millisecond)
	return n
}

// request calls a node over HTTP on a connection of its own.
func request(t *testing.T, n *Node, method, path string, params url.Values) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: nodeWait}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+n.HTTPAddr()+path+"?"+params.Encode(), nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b)
}

func TestNode_Serves(t *testing.T) {
	cfg := nodeConfig(t)
	n := runNode(t, cfg)
	require.Equal(t, "127.0.0.1", n.IP())
	status, body := request(t, n, "GET", "/readyz", nil)
	require.Equal(t, 200, status, body)
	for _, ephemeral := range []string{"true", "false"} {
		status, body = request(t, n, "POST", "/nacos/v1/ns/instance", url.Values{
			"serviceName": {"kept-" + ephemeral}, "ip": {"10.0.0.1"}, "port": {"80"}, "ephemeral": {ephemeral},
		})
		require.Equal(t, "200 ok", strconv.Itoa(status)+" "+body)
	}
	status, body = request(t, n, "GET", "/metrics", nil)
	require.Equal(t, 200, status)
	for _, name := range []string{
		"rollcall_services 2", "rollcall_instances 2", "rollcall_subscriptions 0", "rollcall_connections 0",
		"rollcall_connections_ejected_total 0", "go_goroutines", "process_resident_memory_bytes",
	} {
		require.Contains(t, body, name)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", n.GRPCAddr())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NoError(t, n.Close())
	require.NoError(t, n.Close(), "twice")

	again := runNode(t, cfg) // the same folder
	hosts := func(name string) int {
		return len(again.registry.ServiceInfo(naming.ServiceKey{Namespace: "public", Group: "DEFAULT_GROUP", Name: name}, naming.Filter{}).Hosts)
	}
	require.Equal(t, 1, hosts("kept-false"), "persistent data is kept")
	require.Zero(t, hosts("kept-true"), "ephemeral data is not")
}

func TestNode_CloseFreesEverything(t *testing.T) {
	n := runNode(t, nodeConfig(t))
	addresses := []string{n.HTTPAddr(), n.GRPCAddr()}
	require.NoError(t, n.Close())
	for _, a := range addresses {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", a)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", addresses[0])
	require.NoError(t, err)
	require.NoError(t, socket.Close())
	require.Error(t, n.Ready())
}

func TestNode_CloseWithoutStart(t *testing.T) {
	cfg := nodeConfig(t)
	n, err := newNode(cfg)
	require.NoError(t, err)
	require.Error(t, n.Ready(), "it does not serve yet")
	require.NoError(t, n.Close())
	require.NoError(t, n.Close())
	runNode(t, cfg) // the folder is free
}

func TestNode_AnotherOnTheSameFolder(t *testing.T) {
	cfg := nodeConfig(t)
	first := runNode(t, cfg)
	_, err := newNode(cfg)
	require.ErrorContains(t, err, cfg.DataDir)
	require.ErrorContains(t, err, "in use")
	require.NoError(t, first.Ready(), "the first one goes on")
}

func TestNew_PortInUseNamesTheFlag(t *testing.T) {
	for flag, set := range map[string]func(*Config, int){
		"--port":      func(c *Config, p int) { c.Port, c.GRPCPort, c.RaftPort = p, freePort(t), freePort(t) },
		"--grpc-port": func(c *Config, p int) { c.GRPCPort = p },
		"--raft-port": func(c *Config, p int) { c.RaftPort = p },
	} {
		t.Run(flag, func(t *testing.T) {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			port := l.Addr().(*net.TCPAddr).Port
			cfg := nodeConfig(t)
			set(&cfg, port)
			n, err := newNode(cfg)
			require.ErrorContains(t, err, flag)
			require.ErrorContains(t, err, strconv.Itoa(port))
			require.Nil(t, n)
		})
	}
	t.Run("UDP", func(t *testing.T) {
		var err error
		for range 20 { // until the port is free for TCP, which others choose too
			socket, errSocket := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
			require.NoError(t, errSocket)
			cfg := nodeConfig(t)
			cfg.Port, cfg.GRPCPort, cfg.RaftPort = socket.LocalAddr().(*net.UDPAddr).Port, freePort(t), freePort(t)
			_, err = newNode(cfg)
			require.NoError(t, socket.Close())
			if strings.Contains(err.Error(), "UDP") {
				break
			}
		}
		require.ErrorContains(t, err, "UDP")
		require.ErrorContains(t, err, "--port")
	})
}

// freePort returns a port that was free a moment ago.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().(*net.TCPAddr).Port
}

func TestNew_RefusesWhatCannotWork(t *testing.T) {
	cfg := nodeConfig(t)
	cfg.Idle = 0
	_, err := newNode(cfg)
	require.ErrorContains(t, err, "configuration: idle is 0s")

	cfg = nodeConfig(t)
	cfg.DataDir = filepath.Join(cfg.DataDir, "file", "below")
	require.NoError(t, os.WriteFile(filepath.Dir(cfg.DataDir), nil, 0o600))
	_, err = newNode(cfg)
	require.ErrorContains(t, err, filepath.Dir(cfg.DataDir))
}

func TestNew_NodeNameDefaultsToTheHost(t *testing.T) {
	cfg := nodeConfig(t)
	cfg.Node = ""
	n, err := newNode(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, host, n.cfg.Node)
}

func TestNode_IP(t *testing.T) {
	for _, c := range []struct{ bind, advertise, want string }{
		{"127.0.0.1", "", "127.0.0.1"},
		{"127.0.0.1", "10.1.2.3", "10.1.2.3"},
		{"0.0.0.0", "10.1.2.3", "10.1.2.3"},
		{"::1", "", "::1"},
	} {
		n := &Node{cfg: Config{Bind: c.bind, Advertise: c.advertise}}
		require.Equal(t, c.want, n.IP())
	}
	n := &Node{cfg: Config{Bind: "0.0.0.0"}}
	ip := net.ParseIP(n.IP())
	require.NotNil(t, ip)
	require.False(t, ip.IsUnspecified())
}

// A node of parts that tell what happens to them.
func TestNode_PartsStartInOrderAndCloseInReverse(t *testing.T) {
	for name, c := range map[string]struct {
		failing string
		want    string
		says    []string
	}{
		"all well":          {"", "start a, start b, start c, close c, close b, close l, close a", nil},
		"a start fails":     {"start b", "start a, start b, close c, close b, close l, close a", []string{"start b: oops"}},
		"two do not close":  {"close a close c", "start a, start b, start c, close c, close b, close l, close a", []string{"close a: oops", "close c: oops"}},
		"one does not stop": {"close b", "start a, start b, start c, close c, close b, close l, close a", []string{"close b: oops"}},
	} {
		t.Run(name, func(t *testing.T) {
			var story []string
			step := func(what string) func() error {
				return func() error {
					story = append(story, what)
					if strings.Contains(c.failing, what) {
						return errors.New("oops")
					}
					return nil
				}
			}
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, l.Close()) })
			n := &Node{log: slog.New(slog.DiscardHandler), http: l, grpc: l}
			n.add("a", step("start a"), step("close a"))
			n.add("l", nil, step("close l"))
			n.add("b", step("start b"), step("close b"))
			n.add("c", step("start c"), step("close c"))
			err = errors.Join(n.Start(), n.Close())
			require.NoError(t, n.Close())
			require.Equal(t, c.want, strings.Join(story, ", "))
			if c.says == nil {
				require.NoError(t, err)
			}
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}
