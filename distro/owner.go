package distro

import (
	"slices"
	"strings"
)

// isAddress tells whether a publisher is a client that registers over HTTP, named
// by its ip:port, and not a connection.
func isAddress(publisher string) bool {
	n := strings.LastIndexByte(publisher, ':')
	if n < 0 || n == len(publisher)-1 {
		return false
	}
	for _, b := range []byte(publisher[n+1:]) {
		if b < '0' || b > '9' {
			return false
		}
	}
	return true
}

// candidate is a node that may own what belongs to no connection.
type candidate struct {
	name string
	hash uint64
}

// choose returns the candidate with the highest score for a key (rendezvous
// hashing: Thaler and Ravishankar, 1998): when one of n goes, its keys move to the
// others and no other key does.
func choose(candidates []candidate, key uint64) string {
	var best string
	var most uint64
	for _, x := range candidates {
		if score := mix(x.hash ^ key); best == "" || score > most {
			best, most = x.name, score
		}
	}
	return best
}

// candidates returns the nodes that share the publishers over HTTP, sorted by name:
// those that are alive and stay so, if there are any.
func (c *core) candidates() []candidate {
	all := []candidate{{c.self.node, c.self.hash}}
	wanted := all
	if c.unwanted {
		wanted = nil
	}
	for _, p := range c.alive {
		all = append(all, candidate{p.name, p.hash})
		if !p.unwanted {
			wanted = append(wanted, candidate{p.name, p.hash})
		}
	}
	if len(wanted) == 0 {
		wanted = all
	}
	slices.SortFunc(wanted, func(a, b candidate) int { return strings.Compare(a.name, b.name) })
	return wanted
}

// ownerOf returns the node that owns a publisher over HTTP.
func ownerOf(candidates []candidate, publisher string) string {
	return choose(candidates, hashText(0, publisher))
}

func (c *core) isOwner(publisher string) bool {
	return len(c.sharers) == 1 && c.sharers[0].name == c.self.node || ownerOf(c.sharers, publisher) == c.self.node
}

// heirs returns the nodes that share the work for owners that are gone: all that
// are alive.
func (c *core) heir(e *entry) bool {
	return choose(c.heirs, e.hash) == c.self.node
}

// handover looks for the publishers over HTTP that have become this node's.
type handover struct {
	from, to []candidate
	done     bool // it ends with the next tick: what was found is told meanwhile
	owners   []origin
	bucket   int
}

// share enters who owns the publishers over HTTP from now on.
func (c *core) share() {
	c.heirs = []candidate{{c.self.node, c.self.hash}}
	for _, p := range c.alive {
		c.heirs = append(c.heirs, candidate{p.name, p.hash})
	}
	now := c.candidates()
	if slices.Equal(now, c.sharers) {
		return
	}
	before := c.sharers
	c.sharers = now
	if n := len(c.handovers); n > 1 { // the last one has not begun
		c.handovers[n-1].to = now
		return
	}
	c.handovers = append(c.handovers, handover{from: before, to: now})
}

// stepsPerTick bounds how long a tick holds up everything else: so many buckets and
// datums are looked at.
const stepsPerTick = 20_000

// handOver goes on with the handover of publishers.
func (c *core) handOver() {
	if len(c.handovers) == 0 {
		return
	}
	h := &c.handovers[0]
	if h.done {
		c.handovers = c.handovers[1:]
		return
	}
	if h.owners == nil {
		for _, o := range c.ordered {
			h.owners = append(h.owners, o.origin)
		}
	}
	for steps := 0; steps < stepsPerTick; steps++ {
		if len(h.owners) == 0 {
			h.done = true
			return
		}
		o := c.owners[h.owners[0]]
		if o == nil || o.live == 0 {
			h.bucket, h.owners = 0, h.owners[1:]
			continue
		}
		for e := o.buckets[h.bucket].first; e != nil; e = e.down {
			steps++
			if isAddress(e.publisher) && ownerOf(h.to, e.publisher) == c.self.node && ownerOf(h.from, e.publisher) != c.self.node {
				c.took = append(c.took, e)
			}
		}
		if h.bucket++; h.bucket == bucketCount {
			h.bucket, h.owners = 0, h.owners[1:]
		}
	}
}
