package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of the kernel's queue of packets for programs (linux/netfilter/nfnetlink.h,
// nfnetlink_queue.h).
const (
	netfilter      = 12 // of the netlink families; package unix names it on Linux only
	subsystemQueue = 3
	queuePacket    = subsystemQueue << 8
	queueVerdict   = subsystemQueue<<8 | 1
	queueConfig    = subsystemQueue<<8 | 2

	configCommand, configParams, configLength = 1, 2, 3
	commandBind, copyHeader                   = 1, 1

	packetHeader, verdictHeader = 1, 2
	accept                      = 1
)

// delayer lets each packet that a host sends wait in the kernel's queue for a while.
type delayer struct {
	conn *netlink.Conn
	wg   sync.WaitGroup
}

// startDelayer takes the packets of the queue 0 of a network namespace.
func startDelayer(netns string, delay, jitter time.Duration) (*delayer, error) {
	ns, err := os.Open("/run/netns/" + netns)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	conn, err := netlink.Dial(netfilter, &netlink.Config{NetNS: int(ns.Fd())})
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	d := &delayer{conn: conn}
	queueLength := []byte{0, 1, 0, 0} // packets that wait in the kernel: 65,536
	for _, attribute := range []netlink.Attribute{
		{Type: configCommand, Data: []byte{commandBind, 0, 0, unix.AF_INET}},
		{Type: configParams, Data: []byte{0, 0, 0, 0, copyHeader}},
		{Type: configLength, Data: queueLength},
	} {
		if err := d.send(queueConfig, attribute, netlink.Acknowledge); err != nil {
			return nil, errors.Join(fmt.Errorf("packet queue: %w", err), conn.Close())
		}
	}
	_ = conn.SetReadBuffer(8 << 20) // packets that do not fit are lost, as on a slow line
	d.wg.Go(func() { d.run(delay, jitter) })
	return d, nil
}

// send sends one attribute about queue 0, and waits for its acknowledgement if flags ask
// for one.
func (d *delayer) send(kind netlink.HeaderType, attribute netlink.Attribute, flags netlink.HeaderFlags) error {
	payload, err := netlink.MarshalAttributes([]netlink.Attribute{attribute})
	if err != nil {
		return err
	}
	m := netlink.Message{
		Header: netlink.Header{Type: kind, Flags: netlink.Request | flags},
		Data:   append([]byte{unix.AF_UNSPEC, 0, 0, 0}, payload...), // family, version, queue
	}
	if flags == 0 {
		_, err = d.conn.Send(m)
		return err
	}
	_, err = d.conn.Execute(m)
	return err
}

// run holds each packet back and lets it go; it ends with the connection.
func (d *delayer) run(delay, jitter time.Duration) {
	for {
		messages, err := d.conn.Receive()
		if errors.Is(err, unix.ENOBUFS) {
			continue
		}
		if err != nil {
			return
		}
		for _, m := range messages {
			if m.Header.Type != queuePacket || len(m.Data) < 4 {
				continue
			}
			attributes, err := netlink.UnmarshalAttributes(m.Data[4:])
			if err != nil {
				continue
			}
			for _, a := range attributes {
				if a.Type != packetHeader || len(a.Data) < 4 {
					continue
				}
				verdict := append([]byte{0, 0, 0, accept}, a.Data[:4]...)
				time.AfterFunc(delay+rand.N(jitter), func() {
					_ = d.send(queueVerdict, netlink.Attribute{Type: verdictHeader, Data: verdict}, 0)
				})
			}
		}
	}
}

func (d *delayer) close() {
	_ = d.conn.Close()
	d.wg.Wait()
}

// Delay holds back every packet that a node sends, by the delay and up to the jitter more,
// until all cables are mended. Where the kernel cannot, the test is skipped.
func (n *Network) Delay(tb testing.TB, node *Node, delay, jitter time.Duration) {
	tb.Helper()
	d, err := startDelayer(node.netns, delay, jitter)
	if err != nil {
		tb.Skipf("SKIP: packets cannot be delayed here: %v", err)
	}
	n.mu.Lock()
	n.delayers = append(n.delayers, d)
	n.mu.Unlock()
	n.rule(tb, node, "-A OUTPUT -o eth0 -j NFQUEUE --queue-num 0")
}
