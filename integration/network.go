package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Network is a network of hosts of its own: each node in a network namespace with
// an address, all on one bridge, which the test reaches too. Cables between two of
// them can be cut. It needs root, ip and iptables.
type Network struct {
	tag   string // in all names
	third int    // of the addresses 10.213.third.n

	mu    sync.Mutex
	name  string           // of all nodes together; empty: there is none
	hosts map[*Node]string // namespace
	next  int

	delayers []*delayer
}

//nolint:gochecknoglobals // the networks of one process have different addresses
var networks atomic.Int32

// networkMissing tells why there can be no network of namespaces here; empty: there can.
func networkMissing() string {
	if os.Getuid() != 0 {
		return "network namespaces need root"
	}
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool + " is not installed (iproute2, iptables)"
		}
	}
	return ""
}

// StartNetwork makes a network that ends with the test. Where it cannot, the test
// is skipped.
func StartNetwork(tb testing.TB) *Network {
	tb.Helper()
	if missing := networkMissing(); missing != "" {
		tb.Skip("SKIP: " + missing)
	}
	n := &Network{third: int(networks.Add(1)) + os.Getpid()%50*4, hosts: make(map[*Node]string)}
	n.tag = fmt.Sprintf("rc%x-%d", os.Getpid(), n.third)
	hub := n.tag + "-hub"
	tb.Cleanup(func() {
		n.endDelays()
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, ns := range n.hosts {
			_ = run("ip", "netns", "del", ns)
			_ = os.RemoveAll(filepath.Join("/etc/netns", ns))
		}
		_ = run("ip", "netns", "del", hub)
	})
	cable := "rc" + strconv.Itoa(n.third) + "x" // names of interfaces are short
	for _, command := range []string{
		"ip netns add " + hub,
		"ip netns exec " + hub + " ip link add br0 type bridge",
		"ip netns exec " + hub + " ip link set br0 up",
		"ip link add " + cable + " type veth peer name root netns " + hub,
		"ip netns exec " + hub + " ip link set root master br0",
		"ip netns exec " + hub + " ip link set root up",
		"ip addr add " + n.address(testHost) + "/24 dev " + cable,
		"ip link set " + cable + " up",
	} {
		if err := run(strings.Fields(command)...); err != nil {
			tb.Skipf("SKIP: no network namespaces here: %v", err)
		}
	}
	return n
}

// testHost is the number of the test's own host in the network.
const testHost = 254

func run(command ...string) error {
	out, err := exec.CommandContext(context.Background(), command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
	}
	return nil
}

func (n *Network) address(host int) string { return fmt.Sprintf("10.213.%d.%d", n.third, host) }

// On gives a node a host of this network.
func (n *Network) On() Option {
	return func(node *Node) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.next++
		ns := fmt.Sprintf("%s-%d", n.tag, n.next)
		n.hosts[node] = ns
		node.netns, node.host = ns, n.address(n.next)
		cable := fmt.Sprintf("rc%dx%d", n.third, n.next)
		node.prepare = func() error {
			for _, command := range []string{
				"ip netns add " + ns,
				"ip link add eth0 netns " + ns + " type veth peer name " + cable + " netns " + n.tag + "-hub",
				"ip netns exec " + n.tag + "-hub ip link set " + cable + " master br0",
				"ip netns exec " + n.tag + "-hub ip link set " + cable + " up",
				"ip netns exec " + ns + " ip addr add " + node.host + "/24 dev eth0",
				"ip netns exec " + ns + " ip link set eth0 up",
				"ip netns exec " + ns + " ip link set lo up",
			} {
				if err := run(strings.Fields(command)...); err != nil {
					return err
				}
			}
			return nil
		}
	}
}

// Named lets all nodes of the network find each other by one name, in place of their
// addresses: it stands for all of them, as that of a headless service does.
func (n *Network) Named(name string) Option {
	return func(node *Node) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.name, node.joins = name, name
		node.port = 8848 // one for all: the name has none of its own
		ns := node.netns
		prepare := node.prepare
		node.prepare = func() error {
			// What is in that folder is laid over /etc in the namespace.
			if err := os.MkdirAll(filepath.Join("/etc/netns", ns), 0o755); err != nil {
				return err
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			if err := n.writeHostsLocked(); err != nil {
				return err
			}
			return prepare()
		}
	}
}

// writeHostsLocked tells all namespaces where the nodes are. The files stay the same
// ones, for they are mounted.
func (n *Network) writeHostsLocked() error {
	if n.name == "" {
		return nil
	}
	var text strings.Builder
	text.WriteString("127.0.0.1 localhost\n")
	for node := range n.hosts {
		text.WriteString(node.host + " " + n.name + "\n")
	}
	for _, ns := range n.hosts {
		if err := os.WriteFile(filepath.Join("/etc/netns", ns, "hosts"), []byte(text.String()), 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Move gives a node that does not run another address.
func (n *Network) Move(tb testing.TB, node *Node) {
	tb.Helper()
	n.mu.Lock()
	n.next++
	to := n.address(n.next)
	n.mu.Unlock()
	require.NoError(tb, run("ip", "netns", "exec", node.netns, "ip", "addr", "flush", "dev", "eth0"))
	require.NoError(tb, run("ip", "netns", "exec", node.netns, "ip", "addr", "add", to+"/24", "dev", "eth0"))
	n.mu.Lock()
	defer n.mu.Unlock()
	node.host = to
	require.NoError(tb, n.writeHostsLocked())
}

// Cut drops all packets between two nodes, both ways.
func (n *Network) Cut(tb testing.TB, a, b *Node) {
	tb.Helper()
	n.CutOneWay(tb, a, b)
	n.CutOneWay(tb, b, a)
}

// CutOneWay drops the packets from one node to another.
func (n *Network) CutOneWay(tb testing.TB, from, to *Node) {
	tb.Helper()
	n.rule(tb, to, "-A INPUT -s "+from.host+" -j DROP")
}

// ClosePort lets no packets of a protocol ("tcp", "udp") pass between a node's port and
// another node, both ways and in both directions of a connection, as a firewall does.
func (n *Network) ClosePort(tb testing.TB, protocol string, node *Node, port int, other *Node) {
	tb.Helper()
	for _, end := range []string{"--dport", "--sport"} {
		at, from := node, other
		if end == "--sport" {
			at, from = other, node
		}
		n.rule(tb, at, fmt.Sprintf("-A INPUT -s %s -p %s %s %d -j DROP", from.host, protocol, end, port))
	}
}

// Lose drops a share of the packets from one node to another.
func (n *Network) Lose(tb testing.TB, from, to *Node, share float64) {
	tb.Helper()
	n.rule(tb, to, fmt.Sprintf("-A INPUT -s %s -m statistic --mode random --probability %.2f -j DROP", from.host, share))
}

// Isolate cuts a node from all other nodes; the test still reaches it.
func (n *Network) Isolate(tb testing.TB, node *Node, others ...*Node) {
	tb.Helper()
	for _, o := range others {
		if o != node {
			n.Cut(tb, node, o)
		}
	}
}

// CutTest drops the packets from the test, clients included, to a node.
func (n *Network) CutTest(tb testing.TB, node *Node) {
	tb.Helper()
	n.rule(tb, node, "-A INPUT -s "+n.address(testHost)+" -j DROP")
}

// Heal mends all cables.
func (n *Network) Heal(tb testing.TB) {
	tb.Helper()
	n.mu.Lock()
	var nodes []*Node
	for node := range n.hosts {
		nodes = append(nodes, node)
	}
	n.mu.Unlock()
	for _, node := range nodes {
		n.rule(tb, node, "-F INPUT")
		n.rule(tb, node, "-F OUTPUT")
	}
	n.endDelays()
}

// endDelays follows the removal of the rules that bring packets to the delayers.
func (n *Network) endDelays() {
	n.mu.Lock()
	ended := n.delayers
	n.delayers = nil
	n.mu.Unlock()
	for _, d := range ended {
		d.close()
	}
}

func (n *Network) rule(tb testing.TB, at *Node, rule string) {
	tb.Helper()
	require.NoError(tb, run(append([]string{"ip", "netns", "exec", at.netns, "iptables", "-w"}, strings.Fields(rule)...)...))
}
