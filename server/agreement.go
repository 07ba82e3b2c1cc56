package server

import (
	"context"
	"fmt"
	"sync"

	"rollcall/naming"
	"rollcall/server/wire"
)

// difference is in how much a node holds something else of others than they do
// themselves.
type difference struct {
	owners  int
	buckets int // of those of the owners that told theirs
}

// differing compares what nodes hold of each other, and returns by name which of them
// differ. What a node says of itself is right.
func differing(states []*wire.StateReply) map[string]difference {
	said := make(map[string]*wire.Holding)
	for _, s := range states {
		for _, h := range s.GetHoldings() {
			if h.GetNode() == s.GetNode() && h.GetGone() == "" {
				said[h.GetNode()] = h
			}
		}
	}
	out := make(map[string]difference)
	for _, s := range states {
		for node, right := range said {
			held := holding(s, node, right.GetBoot())
			if held.GetRoot() == right.GetRoot() && held.GetInstances() == right.GetInstances() {
				continue
			}
			d := out[s.GetNode()]
			d.owners++
			for k, digest := range right.GetBuckets() {
				if of := held.GetBuckets(); k >= len(of) && digest != 0 || k < len(of) && digest != of[k] {
					d.buckets++
				}
			}
			out[s.GetNode()] = d
		}
	}
	return out
}

// holding returns what a node holds of a run of a node, nil if that is nothing.
func holding(s *wire.StateReply, node string, boot uint64) *wire.Holding {
	for _, h := range s.GetHoldings() {
		if h.GetNode() == node && h.GetBoot() == boot {
			return h
		}
	}
	return nil
}

// compare enters into what is known of the nodes whether they agree about ephemeral
// instances. own tells this node's state. When the states at hand differ, all nodes are
// asked for their buckets, within ctx and rosterTimeout.
func (l *link) compare(ctx context.Context, nodes []naming.NodeState, own func(buckets bool) *wire.StateReply) {
	states := []*wire.StateReply{own(false)}
	if l.roster != nil {
		for _, node := range l.others() {
			if s := l.roster.get(node); s != nil {
				states = append(states, s)
			}
		}
	}
	differs := differing(states)
	if len(differs) > 0 {
		states = append(l.askBuckets(ctx), own(true))
		differs = differing(states)
	}
	of := make(map[string]*wire.StateReply)
	for _, s := range states {
		of[s.GetNode()] = s
	}
	for k := range nodes {
		n := &nodes[k]
		n.Differs, n.DifferingBuckets = differs[n.Name].owners, differs[n.Name].buckets
		for _, h := range of[n.Name].GetHoldings() {
			n.Holds = append(n.Holds, naming.Holding{
				Node: h.GetNode(), Instances: int(h.GetInstances()), Digest: fmt.Sprintf("%016x", h.GetRoot()), Gone: h.GetGone(),
			})
		}
	}
}

// askBuckets returns what the other nodes hold, with the digests of their buckets, of
// those that answer.
func (l *link) askBuckets(ctx context.Context) (states []*wire.StateReply) {
	ctx, cancel := context.WithTimeout(ctx, rosterTimeout)
	defer cancel()
	var mu sync.Mutex
	var asks sync.WaitGroup
	for _, node := range l.others() {
		asks.Go(func() {
			reply := new(wire.StateReply)
			if l.peers.ask(ctx, node, "State", &wire.StateRequest{Buckets: true}, reply) == nil {
				mu.Lock()
				defer mu.Unlock()
				states = append(states, reply)
			}
		})
	}
	asks.Wait()
	return states
}
