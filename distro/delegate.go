package distro

import (
	"bytes"
	"fmt"
	"net"
	"strconv"

	"github.com/hashicorp/memberlist"
)

// delegate is what the library calls. The methods about nodes run under its lock,
// so they only enter what they are told and wake the dispatcher.
type delegate struct{ m *Members }

// decode turns the library's node into a member.
func (d delegate) decode(n *memberlist.Node) (Member, error) {
	member, cluster, err := decodeMeta(n.Meta)
	if err != nil {
		return Member{}, fmt.Errorf("node %s at %s: %w", n.Name, n.Address(), err)
	}
	if cluster != d.m.cfg.Cluster {
		return Member{}, fmt.Errorf("node %s at %s belongs to the cluster %q, this one to %q", n.Name, n.Address(), cluster, d.m.cfg.Cluster)
	}
	member.Name, member.IP, member.GossipPort, member.Alive = n.Name, n.Addr.String(), int(n.Port), true
	return member, nil
}

// NotifyAlive refuses nodes of other clusters and of later formats.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	_, err := d.decode(n)
	return err
}

// NotifyMerge refuses to join nodes of another cluster, with an error for whoever
// tries, and notes where the other node believes this one to be. It is not called
// under the library's lock.
func (d delegate) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		member, err := d.decode(n)
		if n.State == memberlist.StateLeft || err != nil && n.State != memberlist.StateAlive {
			continue
		}
		if err != nil {
			return err
		}
		if n.Name == d.m.cfg.Self.Name {
			d.m.noteView(conflict{name: n.Name, other: address(n), boot: member.Boot})
		}
	}
	return nil
}

// NotifyJoin enters a node.
func (d delegate) NotifyJoin(n *memberlist.Node) {
	if n.Name == d.m.cfg.Self.Name {
		return
	}
	if member, err := d.decode(n); err == nil {
		d.m.seen(member)
	}
}

// NotifyUpdate enters what changed of a node.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.NotifyJoin(n) }

// NotifyLeave enters that a node left or died: the library does not say which.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	if n.Name != d.m.cfg.Self.Name {
		d.m.gone(n.Name)
	}
}

// NotifyConflict notes that two nodes have one name.
func (d delegate) NotifyConflict(have, other *memberlist.Node) {
	theirs, _, err := decodeMeta(other.Meta)
	if err != nil {
		return
	}
	d.m.noteConflict(conflict{name: have.Name, have: address(have), other: address(other), boot: theirs.Boot})
}

func address(n *memberlist.Node) string {
	return net.JoinHostPort(n.Addr.String(), strconv.Itoa(int(n.Port)))
}

// NodeMeta returns what the others are told of this node.
func (d delegate) NodeMeta(int) []byte { return encodeMeta(d.m.Self(), d.m.cfg.Cluster) }

// NotifyMsg passes a message on.
func (d delegate) NotifyMsg(b []byte) {
	e, err := decodeEnvelope(b)
	if err != nil {
		d.m.log.Debug("message dropped", "err", err)
		return
	}
	switch e.kind {
	case kindMessage:
		d.m.metrics.received(len(e.body))
		if d.m.receive != nil {
			body := bytes.Clone(e.body)
			d.m.callbacks.pass(func() { d.m.receive(e.from, body) })
		}
	case kindGoodbye:
		d.m.saidGoodbye(e.from, e.boot)
	default:
		d.m.log.Debug("message dropped", "peer", e.from, "kind", int(e.kind))
	}
}

// GetBroadcasts returns nothing: the library's broadcasts carry some 85 messages a
// second.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns what this node has to say in a push/pull.
func (d delegate) LocalState(join bool) []byte {
	e := envelope{kind: kindState, from: d.m.cfg.Self.Name, boot: d.m.Self().Boot}
	if d.m.state != nil {
		d.m.callbacks.pass(func() { e.body = d.m.state(join) })
	}
	return e.encode()
}

// MergeRemoteState takes what another node had to say in a push/pull.
func (d delegate) MergeRemoteState(b []byte, join bool) {
	e, err := decodeEnvelope(b)
	if err != nil || e.kind != kindState {
		d.m.log.Debug("state dropped", "err", err)
		return
	}
	if self := d.m.Self(); e.from == self.Name {
		if e.boot == self.Boot {
			d.m.noteMirror()
		}
		return
	}
	if d.m.merge == nil {
		return
	}
	body := bytes.Clone(e.body)
	d.m.callbacks.pass(func() { d.m.merge(e.from, body, join) })
}
