package distro

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"rollcall/consistency"
	"rollcall/naming"
)

// simClient is one application.
type simClient struct {
	id        int
	svc       naming.ServiceKey
	ip        string
	http      bool
	alive     bool
	wanted    bool // it wants to be registered
	gen       int  // raised with each registration after a deregistration
	content   int
	home      *simNode // of a connection
	last      *simNode // the home before
	lastRun   int
	apart     bool // over HTTP: what it said last it said while nodes were apart
	said      time.Duration
	homeRun   int
	conn      string
	moves     int
	since     time.Duration // it is with its home
	connected bool
}

// simInstance is what a client publishes.
func (c *simClient) instance() *naming.Instance {
	i := naming.NewInstance(c.ip, 80)
	i.Metadata = map[string]string{"gen": strconv.Itoa(c.gen), "content": strconv.Itoa(c.content)}
	return &i
}

// addClient adds an application that wants to be registered.
func (s *sim) addClient(http bool) {
	n := len(s.clients)
	c := &simClient{
		id: n, svc: service("s" + strconv.Itoa(n%4)), ip: fmt.Sprintf("10.0.%d.%d", n>>8, n&0xff),
		http: http, alive: true, wanted: true, gen: 1,
	}
	s.clients = append(s.clients, c)
	s.byAddr[c.ip] = c
	if http {
		s.at(s.between(0, 5*time.Second), func() { s.beat(c) })
	} else {
		s.at(s.between(0, time.Second), func() { s.connect(c) })
	}
}

// pick returns a node that serves.
func (s *sim) pick() *simNode {
	var ready []*simNode
	for _, n := range s.nodes {
		if n.working() && !n.leaving && n.core.loaded {
			ready = append(ready, n)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return ready[s.random.IntN(len(ready))]
}

// lost makes a client connect again after a while.
func (c *simClient) lost(after time.Duration) {
	s := c.home.sim
	c.connected, c.home, c.last, c.lastRun = false, nil, c.home, c.homeRun
	c.moves++
	if c.alive {
		s.at(after, func() { s.connect(c) })
	}
}

func (s *sim) connect(c *simClient) {
	if !c.alive || c.connected {
		return
	}
	n := s.pick()
	if n == nil {
		s.at(200*time.Millisecond, func() { s.connect(c) })
		return
	}
	c.goTo(n)
}

// goTo gives a client a connection to a node.
func (c *simClient) goTo(n *simNode) {
	s := n.sim
	s.conns++
	c.home, c.homeRun, c.connected = n, n.run, true
	c.conn = fmt.Sprintf("%d_%s_%d", s.conns, c.ip, s.conns)
	c.moves++
	c.since = s.now
	s.log("%s connects to %s as %s", c.ip, n.name, c.conn)
	if c.wanted {
		c.publish()
	}
}

// publish sends what the client wants over its connection.
func (c *simClient) publish() {
	n, run, conn := c.home, c.homeRun, c.conn
	p := consistency.Publication{Service: c.svc, Publisher: conn}
	if c.wanted {
		p.Instances = []*naming.Instance{c.instance()}
	}
	n.do(run, func() { n.write(p, false) })
}

// parted tells whether some node does not know what another one does.
func (s *sim) parted() bool {
	if s.now-s.lossy < 10*time.Second {
		return true
	}
	for _, at := range s.healed {
		if s.now-at < 10*time.Second {
			return true
		}
	}
	return len(s.cuts) > 0 || slices.ContainsFunc(s.nodes, func(n *simNode) bool {
		return n.paused || n.resumed > 0 && s.now-n.resumed < 10*time.Second
	})
}

// beat is one heartbeat of a client over HTTP, to any node.
func (s *sim) beat(c *simClient) {
	if !c.alive {
		return
	}
	again := 5 * time.Second
	defer func() { s.at(again, func() { s.beat(c) }) }()
	if !c.wanted {
		return
	}
	n := s.pick()
	if n == nil {
		again = 200 * time.Millisecond
		return
	}
	key := beatOf{c.svc, naming.Address(c.ip, 80)}
	n.heard[key] = s.now
	if len(n.table.Published(key.svc, key.publisher)) == 0 {
		owner := n.forward(key)
		if owner == nil {
			again = 500 * time.Millisecond
			return
		}
		owner.beats[key], owner.heard[key], c.apart, c.said = s.now, s.now, s.parted() || s.now-c.said < time.Second, s.now
		owner.write(consistency.Publication{Service: c.svc, Publisher: key.publisher, Instances: []*naming.Instance{c.instance()}}, false)
		return
	}
	if owner := n.forward(key); owner != nil {
		s.log("%s beats at %s, which tells %s", key.publisher, n.name, owner.name)
		owner.beats[key], owner.heard[key] = s.now, s.now
	} else { // who cannot tell the owner tells everyone
		s.log("%s beats at %s, which cannot tell %s", key.publisher, n.name, ownerOf(n.core.sharers, key.publisher))
		n.write(consistency.Publication{Service: key.svc, Publisher: key.publisher, Instances: n.table.Published(key.svc, key.publisher)}, false)
	}
}

// act lets a client do something.
func (s *sim) act(c *simClient) {
	if !c.alive {
		return
	}
	if c.http {
		n := s.pick()
		if n == nil {
			return
		}
		key := beatOf{c.svc, naming.Address(c.ip, 80)}
		owner := n.forward(key)
		if owner == nil {
			return
		}
		p := consistency.Publication{Service: c.svc, Publisher: key.publisher}
		switch x := s.random.IntN(10); {
		case x < 4 && c.wanted: // other content
			c.content++
			p.Instances = []*naming.Instance{c.instance()}
		case x < 7:
			c.wanted = !c.wanted
			if c.wanted {
				c.gen++
				p.Instances = []*naming.Instance{c.instance()}
			}
		case x < 8:
			c.alive = false
			s.log("%s dies", c.ip)
			return
		default:
			return
		}
		owner.beats[key], owner.heard[key], c.apart, c.said = s.now, s.now, s.parted() || s.now-c.said < time.Second, s.now
		if !c.wanted {
			delete(owner.beats, key)
			for _, o := range s.nodes {
				if o.up {
					delete(o.heard, key)
				}
			}
		}
		owner.write(p, false)
		return
	}
	if !c.connected || !c.home.working() || c.home.run != c.homeRun {
		return
	}
	switch x := s.random.IntN(10); {
	case x < 3: // other content
		if c.wanted {
			c.content++
			c.publish()
		}
	case x < 6:
		c.wanted = !c.wanted
		if c.wanted {
			c.gen++
		}
		c.publish()
	case x < 8: // its connection breaks
		c.home.dropConn(c.homeRun, c.svc, c.conn)
		c.lost(s.between(time.Millisecond, 100*time.Millisecond))
	case x < 9:
		s.log("%s dies", c.ip)
		c.alive = false
		c.home.dropConn(c.homeRun, c.svc, c.conn)
	default: // it is asked to go to another node, and leaves this one when it is there
		n := s.pick()
		if n == nil || n == c.home {
			return
		}
		old, run, conn := c.home, c.homeRun, c.conn
		c.last, c.lastRun = old, run
		c.goTo(n)
		s.at(s.between(0, 3*time.Second), func() {
			old.do(run, func() { old.dropConn(run, c.svc, conn) })
		})
	}
}
