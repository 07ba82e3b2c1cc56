package httpapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/push"
)

func TestPushable(t *testing.T) {
	for agent, want := range map[string]bool{
		"Nacos-Java-Client:v1.4.2":                  true,
		"Nacos-Java-Client:v0.1.0":                  true,
		"Nacos-Java-Client:v0.0.9":                  false,
		"Nacos-Java-Client:v0.1":                    true, // what is missing is 0
		"Nacos-Java-Client:v1":                      true,
		"Nacos-Java-Client:v1.4.2-SNAPSHOT":         true,
		"Nacos-Java-Client:v10.0.0":                 true,
		"Nacos-Java-Client":                         false,
		"Nacos-Java-Client:1.4.2":                   false,
		"Nacos-Java-Client:v":                       false,
		"Nacos-Java-Client:vX":                      false,
		"nacos-java-client:v1.4.2":                  false,
		"Nacos-DNS:v0.4.3":                          true,
		"Nacos-DNS:v0.4.2":                          false,
		"Nacos-DNS:v0.10.0":                         true, // by numbers, not as text
		"Nacos-C-Client:v1.0.12":                    true,
		"Nacos-C-Client:v1.0.11":                    false,
		"Nacos-C-Client:v1.0.9":                     false,
		"vip-client4cpp:v1.0.12":                    true,
		"vip-client4cpp:v1.0.1":                     false,
		"Nacos-Go-Client:v1.1.4":                    true,
		"Nacos-Go-Client:v0.0.1":                    false,
		"Nacos-CSharp-Client:v0.9.0":                true,
		"Nacos-CSharp-Client:v0.8.9":                false,
		"Nacos-Python-Client:v1.0.0":                false,
		"Go-http-client/1.1":                        false,
		"":                                          false,
		":v1.0.0":                                   false,
		"Nacos-Java-Client:v99999999999999999999.0": true,
	} {
		require.Equal(t, want, pushable(agent, naming.DefaultSwitches()), agent)
	}
}

// listener is a client's socket.
type listener struct {
	*net.UDPConn
	n *node
}

func listen(t *testing.T, n *node) *listener {
	t.Helper()
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	return &listener{socket.(*net.UDPConn), n}
}

func (l *listener) port() string {
	return fmt.Sprint(l.LocalAddr().(*net.UDPAddr).Port)
}

const javaClient = "Nacos-Java-Client:v1.4.2"

// ask asks for a list and with it subscribes.
func (l *listener) ask(t *testing.T, params string) {
	t.Helper()
	r := l.n.do(t, "GET /nacos/v1/ns/instance/list?serviceName=g@@s&clientIP=127.0.0.1&udpPort="+l.port()+params, http.Header{"User-Agent": {javaClient}}, nil)
	require.Equal(t, 200, r.status, r.body)
}

// datagram is a push as it came.
type datagram struct {
	raw  []byte
	from net.Addr
	Type string `json:"type"`
	Data string `json:"data"`
	Seq  uint64 `json:"lastRefTime"`
}

// receive returns the next datagram.
func (l *listener) receive(t *testing.T) datagram {
	t.Helper()
	require.NoError(t, l.SetReadDeadline(time.Now().Add(wait)))
	buffer := make([]byte, 64<<10)
	size, from, err := l.ReadFrom(buffer)
	require.NoError(t, err)
	d := datagram{raw: buffer[:size], from: from}
	text := d.raw
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		r, err := gzip.NewReader(bytes.NewReader(text))
		require.NoError(t, err)
		text, err = io.ReadAll(r)
		require.NoError(t, err)
	}
	require.NoError(t, json.Unmarshal(text, &d))
	require.Equal(t, "dom", d.Type)
	return d
}

// ack answers a datagram from a socket.
func (d datagram) ack(t *testing.T, socket net.PacketConn, format string) {
	t.Helper()
	_, err := socket.WriteTo(fmt.Appendf(nil, format, d.Seq), d.from)
	require.NoError(t, err)
}

// counter returns the value of a metric of UDP.
func counter(t *testing.T, reg prometheus.Gatherer, name string) int {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return 0
}

func quick(c *push.Config) {
	c.First, c.Quiet, c.Max = time.Millisecond, time.Millisecond, time.Millisecond
}

func TestUDP_SubscribeAndAcknowledge(t *testing.T) {
	n := start(t, quick, func(c *push.Config) { c.UDPAck = time.Hour })
	l := listen(t, n)
	n.registry.set(host("10.0.0.1"), host("10.0.0.2", func(i *naming.Instance) { i.Healthy = false }))
	l.ask(t, "&healthyOnly=true&app=shop")
	peers := n.engine.Subscribers(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"})
	require.Len(t, peers, 1)
	require.Equal(t, "127.0.0.1", peers[0].IP)
	require.Equal(t, l.port(), fmt.Sprint(peers[0].Port))
	require.Equal(t, javaClient, peers[0].Agent)
	require.Equal(t, "shop", peers[0].App)
	require.Empty(t, peers[0].Clusters)

	first := l.receive(t)
	require.Equal(t, n.udp.socket.LocalAddr().String(), first.from.String())
	var info struct {
		Name  string
		Hosts []struct {
			IP      string
			Healthy bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(first.Data), &info))
	require.Equal(t, "g@@s", info.Name)
	require.Len(t, info.Hosts, 2, "unhealthy hosts are pushed, whatever was asked for")

	other := listen(t, n)
	first.ack(t, other, `{"type":"push-ack","lastRefTime":"%d","data":""}`) // of somebody else
	first.ack(t, l, `{"type":"dump-ack","lastRefTime":"%d"}`)
	first.ack(t, l, `{"type":"push-ack","lastRefTime":"%dx"}`)
	first.ack(t, l, `x%d`)
	first.ack(t, l, `{"type":"push-ack","lastRefTime":%d,"data":""}`) // a number, as Node sends it
	require.Eventually(t, func() bool { return counter(t, n.metrics, "rollcall_push_acked_total") == 1 }, wait, time.Millisecond)

	n.registry.set(host("10.0.0.3"))
	n.engine.Notify(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"})
	second := l.receive(t)
	require.Greater(t, second.Seq, first.Seq)
	require.Contains(t, second.Data, "10.0.0.3")
	second.ack(t, l, `{"type": "push-ack", "lastRefTime":"%d", "data":""}`) // a text, as Java and Go do
	require.Eventually(t, func() bool { return counter(t, n.metrics, "rollcall_push_acked_total") == 2 }, wait, time.Millisecond)
	require.Equal(t, 2, counter(t, n.metrics, "rollcall_push_sent_total"))
}

func TestUDP_RepeatsByteForByte(t *testing.T) {
	n := start(t, quick, func(c *push.Config) { c.UDPAck = 30 * time.Millisecond })
	l := listen(t, n)
	l.ask(t, "")
	first, second := l.receive(t), l.receive(t)
	require.Equal(t, first.raw, second.raw)
	require.Eventually(t, func() bool { return counter(t, n.metrics, "rollcall_push_failed_total") == 1 }, wait, time.Millisecond)
	require.Equal(t, 2, counter(t, n.metrics, "rollcall_push_sent_total"))
	require.Equal(t, 1, n.udp.clients(), "a failed push ends nothing")
	n.registry.set(host("10.0.0.1"))
	n.engine.Notify(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"})
	require.Greater(t, l.receive(t).Seq, first.Seq)
}

func TestUDP_LargeDatagramsAreCompressed(t *testing.T) {
	n := start(t, quick)
	l := listen(t, n)
	n.registry.set(host("10.0.0.1"))
	l.ask(t, "")
	small := l.receive(t)
	require.Equal(t, byte('{'), small.raw[0])
	require.Less(t, len(small.raw), gzipFrom)

	var hosts []*naming.Instance
	for k := range 50 {
		hosts = append(hosts, host(fmt.Sprint("10.0.0.", k)))
	}
	n.registry.set(hosts...)
	n.engine.Notify(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"})
	large := l.receive(t)
	require.Equal(t, []byte{0x1f, 0x8b}, large.raw[:2])
	require.Greater(t, len(large.Data), gzipFrom)
	require.Less(t, len(large.raw), gzipFrom)
	require.Contains(t, large.Data, "10.0.0.49")
}

func TestUDP_TooLargeForADatagram(t *testing.T) {
	n := start(t, quick, func(c *push.Config) { c.UDPAck = time.Hour })
	l := listen(t, n)
	l.ask(t, "")
	l.receive(t)
	var hosts []*naming.Instance
	for k := range 6000 {
		hosts = append(hosts, host(fmt.Sprintf("%x.%d", k*k*7919+k*104729, k*k*31), func(i *naming.Instance) {
			i.Metadata = map[string]string{fmt.Sprintf("%x", k*7919*k): fmt.Sprintf("%x", k*k*k*104729)}
		}))
	}
	n.registry.set(hosts...)
	n.engine.Notify(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"})
	require.Eventually(t, func() bool { return counter(t, n.metrics, "rollcall_push_sent_total") == 2 }, wait, time.Millisecond)
	n.registry.set(host("10.0.0.1")) // the next one that fits comes, as the next
	n.engine.Notify(naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"})
	require.Contains(t, l.receive(t).Data, "10.0.0.1")
}

func TestUDP_LapsesWithoutAsking(t *testing.T) {
	n := start(t, quick, func(c *push.Config) { c.UDPLease = 50 * time.Millisecond })
	l := listen(t, n)
	l.ask(t, "")
	l.receive(t)
	require.Eventually(t, func() bool { return n.udp.clients() == 0 && n.engine.Subscriptions() == 0 }, wait, time.Millisecond)
	l.ask(t, "") // is a new subscription
	l.receive(t)
}

func TestUDP_AskingRenewsTheLease(t *testing.T) {
	n := start(t, quick)
	l := listen(t, n)
	l.ask(t, "")
	lease := n.engine.UDPLease()
	require.Empty(t, n.udp.lapsed(time.Now().Add(lease-time.Second)))
	asked := time.Now()
	l.ask(t, "&clusters=c") // any list that it asks for
	require.Empty(t, n.udp.lapsed(asked.Add(lease)))
	require.Equal(t, 1, n.udp.clients())
	require.Equal(t, 2, n.engine.Subscriptions(), "each filter for itself")
	gone := n.udp.lapsed(time.Now().Add(lease + time.Second))
	require.Len(t, gone, 1)
	gone[0].subscriber.Close()
	require.Zero(t, n.engine.Subscriptions())
}

func TestUDP_WhoIsNotPushedTo(t *testing.T) {
	n := start(t, quick)
	for name, c := range map[string]struct{ agent, params string }{
		"no agent":          {"", "&clientIP=127.0.0.1&udpPort=5555"},
		"another agent":     {"curl/8", "&clientIP=127.0.0.1&udpPort=5555"},
		"no port":           {javaClient, "&clientIP=127.0.0.1"},
		"port 0":            {javaClient, "&clientIP=127.0.0.1&udpPort=0"},
		"negative port":     {javaClient, "&clientIP=127.0.0.1&udpPort=-1"},
		"too large a port":  {javaClient, "&clientIP=127.0.0.1&udpPort=70000"},
		"no address":        {javaClient, "&udpPort=5555"},
		"no such address":   {javaClient, "&clientIP=not-a-host&udpPort=5555"},
		"any address":       {javaClient, "&clientIP=0.0.0.0&udpPort=5555"},
		"multicast":         {javaClient, "&clientIP=224.0.0.1&udpPort=5555"},
		"refused otherwise": {javaClient, "&clientIP=127.0.0.1&udpPort=5555&namespaceId=a.b"},
	} {
		t.Run(name, func(t *testing.T) {
			r := n.do(t, "GET /nacos/v1/ns/instance/list?serviceName=g@@s"+c.params, http.Header{"User-Agent": {c.agent}}, nil)
			if name == "refused otherwise" {
				require.Equal(t, 400, r.status)
			} else {
				require.Equal(t, 200, r.status, "the list is answered all the same: %s", r.body)
			}
			require.Zero(t, n.udp.clients())
		})
	}
	r := n.do(t, "GET /nacos/v1/ns/instance/list?serviceName=s&clientIP=::1&udpPort=5555", http.Header{"User-Agent": nil, "Client-Version": {javaClient}}, nil)
	require.Equal(t, 200, r.status)
	require.Equal(t, 1, n.udp.clients(), "the client's version will do without a user agent")
}

func TestUDP_V2(t *testing.T) {
	n := start(t, quick)
	l := listen(t, n)
	r := n.do(t, "GET /nacos/v2/ns/instance/list?serviceName=s&groupName=g&ip=127.0.0.1&port="+l.port(), http.Header{"User-Agent": {javaClient}}, nil)
	require.Equal(t, 200, r.status, r.body)
	require.Contains(t, l.receive(t).Data, `"name":"g@@s"`)
}

func TestUDP_ManyClientsAndServices(t *testing.T) {
	n := start(t, quick, func(c *push.Config) { c.UDPAck = time.Hour })
	var all []*listener
	for range 5 {
		l := listen(t, n)
		for k := range 3 {
			r := n.do(t, fmt.Sprintf("GET /nacos/v1/ns/instance/list?serviceName=s%d&clientIP=127.0.0.1&udpPort=%s", k, l.port()), http.Header{"User-Agent": {javaClient}}, nil)
			require.Equal(t, 200, r.status)
		}
		all = append(all, l)
	}
	require.Equal(t, 5, n.udp.clients())
	require.Equal(t, 15, n.engine.Subscriptions())
	for _, l := range all {
		names := make(map[string]bool)
		for range 3 {
			d := l.receive(t)
			_, name, _ := strings.Cut(d.Data, `"name":"`)
			name, _, _ = strings.Cut(name, `"`)
			names[name] = true
		}
		require.Len(t, names, 3)
	}
	r := n.do(t, "GET /nacos/v1/ns/service/subscribers?"+url.Values{"serviceName": {"s0"}, "pageNo": {"2"}, "pageSize": {"2"}}.Encode(), nil, nil)
	require.Contains(t, r.body, `"count":5`)
	require.Equal(t, 2, strings.Count(r.body, "addrStr"))

	require.NoError(t, n.Close())
	require.Zero(t, n.udp.clients())
	require.Zero(t, n.engine.Subscriptions())
	n.udp.subscribe(naming.ServiceKey{Name: "late"}, naming.Filter{}, "127.0.0.1", 5555, javaClient, "")
	require.Zero(t, n.udp.clients())
}
