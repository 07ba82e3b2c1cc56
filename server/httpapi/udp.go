package httpapi

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

// gzipFrom is the size from which a datagram is compressed, in bytes.
const gzipFrom = 1024

// maxDatagram is the largest payload of a datagram over IPv4, in bytes.
const maxDatagram = 65507

// maxUDPClients bounds the UDP subscribers: their addresses come from parameters.
const maxUDPClients = 1 << 20

// udp pushes to subscribers of the 1.x protocol.
type udp struct {
	socket net.PacketConn
	engine *push.Engine
	log    *slog.Logger
	wg     sync.WaitGroup
	done   chan struct{}
	signal chan struct{} // capacity 1: the queue has entries

	mu        sync.Mutex
	byAddress map[netip.AddrPort]*udpClient
	queue     []*udpClient
}

// udpClient is one subscriber. Its fields are guarded by the mutex of udp.
type udpClient struct {
	address    netip.AddrPort
	subscriber *push.Subscriber
	seen       time.Time // when it last asked for a list
	queued     bool
}

func newUDP(socket net.PacketConn, engine *push.Engine, log *slog.Logger) *udp {
	return &udp{
		socket: socket, engine: engine, log: log,
		done: make(chan struct{}), signal: make(chan struct{}, 1),
		byAddress: make(map[netip.AddrPort]*udpClient),
	}
}

func (u *udp) start() {
	u.wg.Go(u.write)
	u.wg.Go(u.read)
	u.wg.Go(u.sweep)
}

func (u *udp) close() {
	close(u.done)
	_ = u.socket.Close()
	u.wg.Wait()
	u.mu.Lock()
	clients := u.byAddress
	u.byAddress = nil
	u.mu.Unlock()
	for _, c := range clients {
		c.subscriber.Close()
	}
}

// agent returns how a client calls itself.
func agent(r *http.Request) string {
	if a := r.Header.Get("User-Agent"); a != "" {
		return a
	}
	return r.Header.Get("Client-Version")
}

// pushable tells whether a client of that name and version understands pushes
// (http.md 7.1).
func pushable(agent string, now naming.Switches) bool {
	name, version, ok := strings.Cut(agent, ":v")
	if !ok {
		return false
	}
	lowest := ""
	switch name {
	case "Nacos-Java-Client":
		lowest = now.PushJava
	case "Nacos-DNS":
		lowest = now.PushDNS
	case "Nacos-C-Client", "vip-client4cpp":
		lowest = now.PushC
	case "Nacos-Go-Client":
		lowest = now.PushGo
	case "Nacos-CSharp-Client":
		lowest = now.PushCSharp
	default:
		return false
	}
	return atLeast(version, lowest)
}

// atLeast compares dotted versions by their numbers; text after a number, as in
// 1.4.2-SNAPSHOT, does not count.
func atLeast(version, lowest string) bool {
	for lowest != "" {
		var a, b string
		a, version, _ = strings.Cut(version, ".")
		b, lowest, _ = strings.Cut(lowest, ".")
		if n, m := leadingNumber(a), leadingNumber(b); n != m {
			return n > m
		}
	}
	return true
}

func leadingNumber(s string) int {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(s[:end])
	return n
}

// subscribe subscribes ip:port, or renews its lease. An address that cannot be
// pushed to is ignored: the list that was asked for is answered all the same.
func (u *udp) subscribe(svc naming.ServiceKey, f naming.Filter, ip string, port int64, agent, app string) {
	if port > 65535 {
		return
	}
	addr, err := netip.ParseAddr(ip)
	if err != nil || addr.IsUnspecified() || addr.IsMulticast() {
		return
	}
	address := netip.AddrPortFrom(addr.Unmap(), uint16(port))
	f.HealthyOnly = false // pushes hold unhealthy hosts, whatever was asked for
	u.mu.Lock()
	c := u.byAddress[address]
	if c == nil {
		if u.byAddress == nil || len(u.byAddress) >= maxUDPClients {
			u.mu.Unlock()
			return
		}
		c = &udpClient{address: address}
		c.subscriber = u.engine.NewSubscriber(push.Peer{ID: naming.Address(address.Addr().String(), int(port)) + "#true", IP: ip, Port: int(port), Agent: agent, App: app}, u.engine.UDP(), func() { u.wake(c) })
		u.byAddress[address] = c
	}
	c.seen = time.Now()
	u.mu.Unlock()
	c.subscriber.Subscribe(svc, f)
}

func (u *udp) clients() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.byAddress)
}

// list returns the clients, as operators see them, in no particular order.
func (u *udp) list() []naming.Client {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]naming.Client, 0, len(u.byAddress))
	for address, c := range u.byAddress {
		ip, port := address.Addr().String(), int(address.Port())
		out = append(out, naming.Client{ID: naming.Address(ip, port) + "#true", Ephemeral: true, Updated: c.seen, IP: ip, Port: port})
	}
	return out
}

func (u *udp) wake(c *udpClient) {
	u.mu.Lock()
	if !c.queued {
		c.queued = true
		u.queue = append(u.queue, c)
	}
	u.mu.Unlock()
	select {
	case u.signal <- struct{}{}:
	default:
	}
}

// write is the writer goroutine.
func (u *udp) write() {
	for {
		select {
		case <-u.done:
			return
		case <-u.signal:
		}
		u.mu.Lock()
		clients := u.queue
		u.queue = nil
		for _, c := range clients {
			c.queued = false
		}
		u.mu.Unlock()
		for _, c := range clients {
			for {
				p, ok := c.subscriber.Next()
				if !ok {
					break
				}
				u.send(c, p)
			}
		}
	}
}

func (u *udp) send(c *udpClient, p push.Push) {
	payload := wire.Datagram(p.Seq, p.Info)
	if len(payload) >= gzipFrom {
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(payload) // a buffer takes everything
		_ = w.Close()
		payload = zipped.Bytes()
	}
	if len(payload) > maxDatagram {
		u.log.Warn("service too large for a UDP push; its subscribers learn of changes when they ask", "service", p.Service.String(), "bytes", len(payload))
		return
	}
	if _, err := u.socket.WriteTo(payload, net.UDPAddrFromAddrPort(c.address)); err != nil {
		u.log.Debug("send datagram", "peer", c.address, "err", err)
	}
}

// read is the reader goroutine: it takes acknowledgements, which count only from
// the address that was pushed to.
func (u *udp) read() {
	buffer := make([]byte, 64<<10)
	for {
		n, from, err := u.socket.ReadFrom(buffer)
		if err != nil {
			select {
			case <-u.done:
				return
			default:
				continue // an ICMP error of a client that has gone
			}
		}
		seq, ok := wire.DatagramAck(buffer[:n])
		if !ok {
			continue
		}
		source, ok := from.(*net.UDPAddr)
		if !ok {
			continue
		}
		address := source.AddrPort()
		u.mu.Lock()
		c := u.byAddress[netip.AddrPortFrom(address.Addr().Unmap(), address.Port())]
		u.mu.Unlock()
		if c != nil {
			c.subscriber.Ack(seq, true)
		}
	}
}

// sweepEvery is how often subscribers are looked at that have stopped asking.
const sweepEvery = 5 * time.Second

// sweep is the sweeper goroutine.
func (u *udp) sweep() {
	ticker := time.NewTicker(min(sweepEvery, u.engine.UDPLease()))
	defer ticker.Stop()
	for {
		select {
		case <-u.done:
			return
		case now := <-ticker.C:
			for _, c := range u.lapsed(now) {
				c.subscriber.Close()
			}
		}
	}
}

// lapsed removes the clients that have not asked for longer than the lease.
func (u *udp) lapsed(now time.Time) (gone []*udpClient) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for address, c := range u.byAddress {
		if now.Sub(c.seen) > u.engine.UDPLease() {
			delete(u.byAddress, address)
			gone = append(gone, c)
		}
	}
	return gone
}
