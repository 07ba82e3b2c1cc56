package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// PushAgent is a User-Agent that the server pushes to over UDP.
const PushAgent = "Nacos-Java-Client:v1.4.2"

// Datagram is one UDP push.
type Datagram struct {
	Wire        []byte // as it came
	Gzip        bool
	Text        string // uncompressed
	Type        string
	LastRefTime int64 // the number to acknowledge
	Info        ServiceInfo
	From        *net.UDPAddr
	At          time.Time
}

// UDP receives the pushes that 1.x clients get. Datagrams wait in the socket's
// buffer until they are read. Those of services that it never asked for are passed over:
// they are meant for a socket that had the port before and was closed.
type UDP struct {
	conn  *net.UDPConn
	ack   bool
	asked map[string]bool // names of services, with their groups
}

// ListenUDP opens a socket on 127.0.0.1. With ack every datagram that is read is
// acknowledged as the Java client does.
func ListenUDP(tb testing.TB, ack bool) *UDP {
	tb.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return &UDP{conn: conn, ack: ack, asked: make(map[string]bool)}
}

// Port is the local port, for the parameter udpPort.
func (u *UDP) Port() string {
	return strconv.Itoa(u.conn.LocalAddr().(*net.UDPAddr).Port)
}

// Subscribe asks for a list the way a 1.x client does, which subscribes the
// socket, and returns the list.
func (u *UDP) Subscribe(tb testing.TB, n *Node, p Params, options ...HTTPOption) ServiceInfo {
	tb.Helper()
	options = append([]HTTPOption{WithHeader("User-Agent", PushAgent)}, options...)
	resp := n.Do(tb, "GET", "/nacos/v1/ns/instance/list",
		Params{"udpPort": u.Port(), "clientIP": "127.0.0.1"}.With(p), options...)
	require.Equal(tb, 200, resp.Status, resp.Body)
	var info ServiceInfo
	resp.JSON(tb, &info)
	u.asked[info.Name] = true
	return info
}

// Next returns the next datagram.
func (u *UDP) Next(tb testing.TB, timeout time.Duration) Datagram {
	tb.Helper()
	d, ok := u.next(tb, timeout)
	require.True(tb, ok, "no datagram within %s", timeout)
	return d
}

func (u *UDP) next(tb testing.TB, timeout time.Duration) (Datagram, bool) {
	tb.Helper()
	require.NoError(tb, u.conn.SetReadDeadline(time.Now().Add(timeout)))
	for {
		buf := make([]byte, 64<<10)
		size, from, err := u.conn.ReadFromUDP(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return Datagram{}, false
		}
		require.NoError(tb, err)
		d := read(tb, buf[:size])
		if !u.asked[d.Info.Name] {
			continue
		}
		d.From = from
		if u.ack {
			u.Ack(tb, d, `"`+strconv.FormatInt(d.LastRefTime, 10)+`"`)
		}
		return d, true
	}
}

// read takes a datagram apart that has just come.
func read(tb testing.TB, wire []byte) Datagram {
	tb.Helper()
	d := Datagram{Wire: wire, At: time.Now()}
	text := d.Wire
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		d.Gzip = true
		reader, err := gzip.NewReader(bytes.NewReader(text))
		require.NoError(tb, err)
		text, err = io.ReadAll(reader)
		require.NoError(tb, err)
	}
	d.Text = string(text)
	var outer struct {
		Type        string `json:"type"`
		Data        string `json:"data"`
		LastRefTime int64  `json:"lastRefTime"`
	}
	require.NoError(tb, json.Unmarshal(text, &outer), d.Text)
	d.Type, d.LastRefTime = outer.Type, outer.LastRefTime
	require.NoError(tb, json.Unmarshal([]byte(outer.Data), &d.Info), outer.Data)
	return d
}

// Ack acknowledges a datagram; number is the JSON text of the number, quoted (Java,
// Go) or plain (Node).
func (u *UDP) Ack(tb testing.TB, d Datagram, number string) {
	tb.Helper()
	u.Send(tb, d, `{"type":"push-ack","lastRefTime":`+number+`,"data":""}`)
}

// Send sends any text to where a datagram came from.
func (u *UDP) Send(tb testing.TB, d Datagram, text string) {
	tb.Helper()
	_, err := u.conn.WriteToUDP([]byte(text), d.From)
	require.NoError(tb, err)
}

// Until reads datagrams until the list of one satisfies the condition.
func (u *UDP) Until(tb testing.TB, timeout time.Duration, want func(ServiceInfo) bool) Datagram {
	tb.Helper()
	deadline := time.Now().Add(timeout)
	var last ServiceInfo
	for {
		d, ok := u.next(tb, time.Until(deadline))
		require.True(tb, ok, "no such datagram within %s; the last one had %v", timeout, last.Addrs())
		last = d.Info
		if want(last) {
			return d
		}
	}
}

// Quiet requires that no datagram arrives for the time given.
func (u *UDP) Quiet(tb testing.TB, d time.Duration) {
	tb.Helper()
	got, ok := u.next(tb, d)
	require.False(tb, ok, "an unexpected datagram: %s", got.Text)
}
