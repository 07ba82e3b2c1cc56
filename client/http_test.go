package client_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/naming"
)

// oldServer is a server of 1.x as far as these tests need one: it says what it is told
// to and notes what it is asked.
type oldServer struct {
	*httptest.Server
	t      *testing.T
	socket net.PacketConn

	mu       sync.Mutex
	requests []string // method and path
	beats    []url.Values
	posts    []url.Values
	lists    []url.Values
	list     string
	beat     string
	status   int // of everything but the health; 0: 200
}

func newOldServer(t *testing.T) *oldServer {
	t.Helper()
	s := &oldServer{t: t, beat: `{"clientBeatInterval":100,"code":10200,"lightBeatEnabled":true}`}
	s.list = s.hosts(1)
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	var err error
	s.socket, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.socket.Close() })
	return s
}

// hosts is the body of a list in the shape of 1.x.
func (s *oldServer) hosts(at int64, ports ...int) string {
	var list []string
	for _, p := range ports {
		list = append(list, fmt.Sprintf(`{"ip":"10.0.0.1","port":%d,"valid":true,"healthy":true,"marked":false,"instanceId":"10.0.0.1#%d#DEFAULT#DEFAULT_GROUP@@s","metadata":{},"enabled":true,"weight":1.0,"clusterName":"DEFAULT","serviceName":"s","ephemeral":true}`, p, p))
	}
	return fmt.Sprintf(`{"hosts":[%s],"dom":"s","name":"DEFAULT_GROUP@@s","cacheMillis":10000,"lastRefTime":%d,"checksum":null,"useSpecifiedURL":false,"clusters":"","env":"","metadata":{}}`, strings.Join(list, ","), at)
}

func (s *oldServer) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	if r.URL.Path == "/nacos/v1/ns/operator/metrics" {
		_, _ = w.Write([]byte(`{"status":"UP"}`))
		return
	}
	if s.status != 0 {
		w.WriteHeader(s.status)
		return
	}
	body := "ok"
	switch {
	case r.URL.Path == "/nacos/v1/ns/instance/list":
		s.lists = append(s.lists, r.Form)
		body = s.list
	case r.URL.Path == "/nacos/v1/ns/instance/beat":
		s.beats = append(s.beats, r.Form)
		body = s.beat
	case r.Method == http.MethodPost:
		s.posts = append(s.posts, r.Form)
	}
	_, _ = w.Write([]byte(body))
}

func (s *oldServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *oldServer) beatCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.beats)
}

func (s *oldServer) config() client.Config {
	cfg := config(s.t)
	cfg.Servers, cfg.Mode = []string{s.URL}, client.ModeHTTP
	return cfg
}

func TestHTTP_Heartbeats(t *testing.T) {
	s := newOldServer(t)
	cfg := s.config()
	cfg.BeatInterval = 50 * time.Millisecond
	c := dial(t, cfg)
	i := host(1)
	i.Metadata = map[string]string{"zone": "east"}
	require.NoError(t, c.Register(bounded(t), svc("s"), i))
	require.Eventually(t, func() bool { return s.beatCount() >= 3 }, soon, time.Millisecond)
	s.set(func() {
		require.Len(t, s.posts, 1)
		require.Equal(t, "10.0.0.2", s.posts[0].Get("ip"))
		require.Equal(t, "true", s.posts[0].Get("enable"))
		require.JSONEq(t, `{"zone":"east"}`, s.posts[0].Get("metadata"))
		require.JSONEq(t, `{"ip":"10.0.0.2","port":80,"cluster":"DEFAULT","weight":1,"metadata":{"zone":"east"},"serviceName":"DEFAULT_GROUP@@s","scheduled":false,"stopped":false,"period":50}`, s.beats[0].Get("beat"))
		require.Empty(t, s.beats[1].Get("beat"), "light, since the server said so")
		require.Equal(t, "10.0.0.2", s.beats[1].Get("ip"))
		require.Equal(t, "DEFAULT_GROUP@@s", s.beats[1].Get("serviceName"))

		s.beat = `{"clientBeatInterval":100,"code":20404}`
	})
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.posts) >= 2
	}, soon, time.Millisecond, "registered again")
	s.set(func() { s.beat = `{"clientBeatInterval":3600000,"code":10200}` })
	n := s.beatCount()
	require.Eventually(t, func() bool { return s.beatCount() > n }, soon, time.Millisecond)
	n = s.beatCount()
	require.NoError(t, c.Deregister(bounded(t), svc("s"), i))
	require.LessOrEqual(t, s.beatCount(), n+1, "the interval of the answer counts")
}

func TestHTTP_DatagramsOfEveryKind(t *testing.T) {
	s := newOldServer(t)
	c := dial(t, s.config())
	w := subscribed(t, c, svc("s"), naming.Filter{})
	w.await()
	var to net.Addr
	s.set(func() {
		port, err := strconv.Atoi(s.lists[0].Get("udpPort"))
		require.NoError(t, err)
		require.Equal(t, "127.0.0.1", s.lists[0].Get("clientIP"))
		to = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}
	})
	push := func(typ, data string, seq int64) []byte {
		b, err := json.Marshal(map[string]any{"type": typ, "data": data, "lastRefTime": seq})
		require.NoError(t, err)
		return b
	}
	zip := func(b []byte) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, _ = z.Write(b)
		_ = z.Close()
		return out.Bytes()
	}
	answer := func(datagram []byte) map[string]string {
		_, err := s.socket.WriteTo(datagram, to)
		require.NoError(t, err)
		buffer := make([]byte, 64<<10)
		require.NoError(t, s.socket.SetReadDeadline(time.Now().Add(soon)))
		n, _, err := s.socket.ReadFrom(buffer)
		require.NoError(t, err)
		var ack map[string]string
		require.NoError(t, json.Unmarshal(buffer[:n], &ack))
		return ack
	}
	at := func(port int) naming.Instance { return naming.NewInstance("10.0.0.1", port) }

	// What cannot be read is not acknowledged, so the first answer is that to the last.
	whole := zip(push("dom", s.hosts(10, 1), 7))
	for _, broken := range [][]byte{
		{},
		[]byte("{"), whole[:len(whole)/2],
		{0x1f, 0x8b},
		push("dom", "{", 1), push("dom", `{"hosts":7}`, 2),
		push("dom", s.hosts(9, 1)[:100], 3), []byte(`{"type":{}}`), []byte("null null"),
	} {
		_, err := s.socket.WriteTo(broken, to)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]string{"type": "push-ack", "lastRefTime": "7", "data": ""}, answer(whole))
	w.await(at(1))
	require.Equal(t, "9007199254740991", answer(push("service", s.hosts(11, 1, 2), 1<<53-1))["lastRefTime"])
	w.await(at(1), at(2))
	require.Equal(t, "push-ack", answer(push("dom", strings.ReplaceAll(s.hosts(12, 5), "@@s", "@@other"), 8))["type"], "a service that nobody wants")
	require.Equal(t, map[string]string{"type": "unknown-ack", "lastRefTime": "9", "data": ""}, answer(push("hello", "", 9)))
	dump := answer(push("dump", "", 10))
	require.Equal(t, "dump-ack", dump["type"])
	require.Contains(t, dump["data"], `"DEFAULT_GROUP@@s"`)
	require.Contains(t, dump["data"], `"port":2`)

	// An older push is not taken; the client asks.
	n := 0
	s.set(func() { n = len(s.lists); s.list = s.hosts(13, 3) })
	answer(push("dom", s.hosts(5, 9), 11))
	w.await(at(3))
	s.set(func() { require.Greater(t, len(s.lists), n) })
}

func TestHTTP_PollsWithoutPushes(t *testing.T) {
	s := newOldServer(t)
	s.list = strings.ReplaceAll(s.hosts(1, 1), "10000", "50")
	cfg := s.config()
	cfg.UDPPushes, cfg.PollInterval = false, 20*time.Millisecond
	c := dial(t, cfg)
	w := subscribed(t, c, svc("s"), naming.Filter{})
	w.await(naming.NewInstance("10.0.0.1", 1))
	s.set(func() {
		require.Equal(t, "0", s.lists[0].Get("udpPort"))
		s.list = strings.ReplaceAll(s.hosts(2, 1, 2), "10000", "50")
	})
	w.await(naming.NewInstance("10.0.0.1", 1), naming.NewInstance("10.0.0.1", 2))
	s.set(func() { s.list = s.hosts(2)[:50] }) // cut off
	n := 0
	s.set(func() { n = len(s.lists) })
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.lists) > n+2
	}, soon, time.Millisecond)
	require.Len(t, w.last().Service.Instances, 2, "what cannot be read changes nothing")
	s.set(func() { s.list = s.hosts(1, 7) }) // and the clock went back
	w.await(naming.NewInstance("10.0.0.1", 7))
}

func TestHTTP_ServerThatFails(t *testing.T) {
	s := newOldServer(t)
	s.status = http.StatusInternalServerError
	c := dial(t, s.config())
	errCh := make(chan error, 1)
	go func() { errCh <- c.Register(bounded(t), svc("s"), host(1)) }()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Count(strings.Join(s.requests, "\n"), "POST /nacos/v1/ns/instance") >= 2
	}, soon, time.Millisecond)
	s.set(func() { s.status = 0 })
	require.NoError(t, <-errCh, "it is asked until it works")
	s.set(func() { s.status = http.StatusBadRequest })
	var refusal *client.ServerError
	require.ErrorAs(t, c.Register(bounded(t), svc("t"), host(1)), &refusal)
	require.Equal(t, 400, refusal.Code)
	s.set(func() { s.status = 0 })
}

func TestHTTP_Login(t *testing.T) {
	s := newOldServer(t)
	var mu sync.Mutex
	logins, token := 0, "t1"
	inner := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.URL.Path == "/nacos/v1/auth/users/login":
			w.WriteHeader(http.StatusGone)
		case r.URL.Path == "/nacos/v3/auth/user/login":
			if r.Form.Get("username") != "ops" || r.Form.Get("password") != "secret" {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			logins++
			_, _ = fmt.Fprintf(w, `{"accessToken":"%s","tokenTtl":18000}`, token)
		case r.Form.Get("accessToken") != token:
			w.WriteHeader(http.StatusForbidden)
		default:
			inner.ServeHTTP(w, r)
		}
	})
	cfg := s.config()
	cfg.Username, cfg.Password = "ops", "secret"
	c := dial(t, cfg)
	require.NoError(t, c.Register(bounded(t), svc("s"), host(1)))
	mu.Lock()
	require.Equal(t, 1, logins)
	token = "t2" // the old one counts no more
	mu.Unlock()
	var refusal *client.ServerError
	err := c.Register(bounded(t), svc("s"), host(1))
	require.ErrorAs(t, err, &refusal, "the last login was a moment ago")
	require.Equal(t, 403, refusal.Code)
	mu.Lock()
	token = "t1"
	mu.Unlock()
	require.NoError(t, c.Close())
}
