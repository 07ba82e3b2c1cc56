package server_test

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Datagrams that are no acknowledgement do not stop the one that is.
func TestBadInput_UDP(t *testing.T) {
	n := startBadNode(t)
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = socket.Close() }()
	require.NoError(t, socket.SetDeadline(time.Now().Add(badWait)))
	node, err := net.ResolveUDPAddr("udp", n.http)
	require.NoError(t, err)
	for _, datagram := range []string{
		"", "x", "{}", "[]", "null", "1", `"push-ack"`, "\x00", "\xff\xfe", "\x1f\x8b\x08", badRepeat("a", 65_000), badDeep(),
		`{"type":"push-ack"}`, `{"type":"push-ack","lastRefTime":""}`, `{"type":"push-ack","lastRefTime":-1}`, `{"type":"push-ack","lastRefTime":1.5}`,
		`{"type":"push-ack","lastRefTime":1e400}`, `{"type":"push-ack","lastRefTime":"18446744073709551616"}`, `{"type":"push-ack","lastRefTime":{}}`,
		`{"type":"push-ack","lastRefTime":null}`, `{"type":{},"lastRefTime":"1"}`, `{"type":"other","lastRefTime":"1"}`, `{"type":"push-ack","lastRefTime":"1"}`,
	} {
		_, err := socket.WriteTo([]byte(datagram), node)
		require.NoError(t, err)
	}
	address, ok := socket.LocalAddr().(*net.UDPAddr)
	require.True(t, ok)
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+n.http+"/nacos/v1/ns/instance/list?serviceName=pushed&clientIP=127.0.0.1&udpPort="+strconv.Itoa(address.Port), http.NoBody)
	require.NoError(t, err)
	request.Header.Set("User-Agent", "Nacos-Go-Client:v1.1.4")
	response, err := n.client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 200, n.form(t, "POST", "/nacos/v1/ns/instance", "serviceName=pushed&ip=10.0.0.1&port=80", "").status)
	buffer := make([]byte, 64<<10)
	for acknowledged := false; !acknowledged; {
		size, from, err := socket.ReadFrom(buffer)
		require.NoError(t, err)
		var push struct {
			LastRefTime json.Number
			Data        string
		}
		require.NoError(t, json.Unmarshal(buffer[:size], &push))
		for _, text := range []string{`{"type":"push-ack","lastRefTime":`, `{"type":"push-ack","lastRefTime":"` + push.LastRefTime.String() + `9"}`} {
			_, err = socket.WriteTo([]byte(text), from)
			require.NoError(t, err)
		}
		require.NotContains(t, n.do(t, "GET", "/metrics", "", "", nil).body, `rollcall_push_acked_total{transport="udp"}`)
		_, err = socket.WriteTo([]byte(`{"type":"push-ack","lastRefTime":"`+push.LastRefTime.String()+`","data":""}`), from)
		require.NoError(t, err)
		acknowledged = true
	}
	require.Eventually(t, func() bool {
		return strings.Contains(n.do(t, "GET", "/metrics", "", "", nil).body, `rollcall_push_acked_total{transport="udp"} 1`)
	}, badWait, 5*time.Millisecond)
}
