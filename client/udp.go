package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"rollcall/server/wire"
)

// maxDatagram and maxPush bound a datagram and what it holds uncompressed, in bytes.
const (
	maxDatagram = 64 << 10
	maxPush     = 64 << 20
)

// udpReceiver takes pushes of the 1.x protocol (http.md 7).
type udpReceiver struct {
	socket net.PacketConn
	log    *slog.Logger
	take   func(*Service)               // a pushed list
	known  func(g, n string) *Service   // see decodeService
	dump   func() map[string]dumpedList // the cache, for a server that asks
	wg     sync.WaitGroup
}

// dumpedList is a list as a dump shows it.
type dumpedList struct {
	Name        string         `json:"name"`
	LastRefTime int64          `json:"lastRefTime"`
	Hosts       []instanceJSON `json:"hosts"`
}

func newUDP(ctx context.Context, log *slog.Logger) (*udpReceiver, error) {
	socket, err := new(net.ListenConfig).ListenPacket(ctx, "udp", ":0")
	if err != nil {
		return nil, fmt.Errorf("listen for pushes: %w; set UDPPushes to false to do without", err)
	}
	return &udpReceiver{socket: socket, log: log.With("socket", socket.LocalAddr().String())}, nil
}

func (u *udpReceiver) port() int { return u.socket.LocalAddr().(*net.UDPAddr).Port }

func (u *udpReceiver) start() { u.wg.Go(u.read) }

func (u *udpReceiver) close() {
	_ = u.socket.Close()
	u.wg.Wait()
}

func (u *udpReceiver) read() {
	buffer := make([]byte, maxDatagram)
	for {
		n, from, err := u.socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			u.log.Debug("a datagram could not be read", "err", err) // an ICMP error of an earlier answer
			continue
		}
		answer, err := u.datagram(buffer[:n])
		if err != nil { // not acknowledged: the server sends it once more
			u.log.Debug("unreadable datagram", "from", from.String(), "err", err)
			continue
		}
		if _, err := u.socket.WriteTo(answer, from); err != nil {
			u.log.Debug("a push could not be acknowledged", "to", from.String(), "err", err)
		}
	}
}

// datagram handles one datagram and returns its acknowledgement.
func (u *udpReceiver) datagram(b []byte) (answer []byte, err error) {
	if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
		if b, err = unzip(b); err != nil {
			return nil, err
		}
	}
	var push struct {
		Type wire.Str `json:"type"`
		Data wire.Str `json:"data"`
		Seq  wire.Str `json:"lastRefTime"`
	}
	if err := wire.Unmarshal(b, &push); err != nil {
		return nil, err
	}
	ack := map[string]string{"type": "unknown-ack", "lastRefTime": string(push.Seq), "data": ""}
	switch push.Type {
	case "dom", "service":
		list, err := decodeService([]byte(push.Data), u.known)
		if err != nil {
			return nil, err
		}
		u.take(list)
		ack["type"] = "push-ack"
	case "dump":
		cache, err := json.Marshal(u.dump())
		if err != nil {
			return nil, err
		}
		ack["type"], ack["data"] = "dump-ack", string(cache)
	}
	if answer, err = json.Marshal(ack); err == nil && len(answer) > maxDatagram-1024 {
		ack["data"] = "" // more than a datagram holds
		answer, err = json.Marshal(ack)
	}
	return answer, err
}

func unzip(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, maxPush+1))
	if err != nil {
		return nil, err
	}
	if len(out) > maxPush {
		return nil, fmt.Errorf("more than %d bytes", maxPush)
	}
	return out, nil
}

// dumped returns all lists that servers may ask for.
func (c *Client) dumped() map[string]dumpedList {
	out := make(map[string]dumpedList)
	for _, e := range c.cache.all() {
		if now := e.shown.Load(); now != nil {
			d := dumpedList{Name: e.key.Grouped(), LastRefTime: now.service.LastRefTimeMs, Hosts: []instanceJSON{}}
			for _, i := range now.service.Instances {
				d.Hosts = append(d.Hosts, toJSON(*i))
			}
			out[d.Name] = d
		}
	}
	return out
}
