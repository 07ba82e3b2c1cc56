package server

import (
	"context"
	"sync"
	"time"
)

// spread has clients over gRPC go to other nodes: all of them while this node is
// drained, and some when it has notably more than its share, because another node has
// come or come back.
type spread struct {
	clients  clients
	places   func() []place // the other nodes that clients may go to, as they are now
	draining func() bool
	rate     int // clients asked in a second; 0: only those of a drained node

	done chan struct{}
	once sync.Once
	wg   sync.WaitGroup

	uneven int // looks in a row that found this node to have too many
	most   int // clients of all nodes, the most since these looks began
	moving bool
	last   attempt
	nodes  int       // places at the last look
	calm   time.Time // nobody is asked before
}

// attempt is what came of asking clients to go.
type attempt struct {
	began time.Time
	own   int // clients when it began
	asked int
}

// clients is the part of the gRPC front end that knows them.
type clients interface {
	Present() int
	Staying() int
	Move(n int, to func() (ip string, port int)) int
	Expel(ago time.Duration) int
}

// place is a node that clients may go to.
type place struct {
	ip          string
	port        int // of HTTP, by which clients know it
	connections int
}

const (
	spreadEvery = time.Second
	drainEvery  = 100 * time.Millisecond
	drainRate   = 100 // clients that a drained node asks in a second at least
	// goTime is how long a client may take to open its connection elsewhere. One that
	// does not know the request is thrown out then.
	goTime = 3 * time.Second
	// A node has too many clients when they are more than its share by this factor and
	// number, or when another node's are less than its share by as much, for so many looks
	// in a row. It goes on until it has its share. Those on their way are counted by no node,
	// so the share is that of the most clients seen since the first of these looks.
	unevenFactor = 1.2
	unevenMost   = 10
	unevenLooks  = 5
	// Clients may come back, because they know no other node. When after so long less than
	// half of those that were asked are gone, or when the same number is back within so
	// long, nobody is asked for a while, or until there are other nodes.
	goneTime   = 10 * time.Second
	backTime   = 2 * time.Minute
	futileTime = 10 * time.Minute
)

func newSpread(c clients, places func() []place, draining func() bool, rate int) *spread {
	return &spread{clients: c, places: places, draining: draining, rate: rate, done: make(chan struct{})}
}

func (s *spread) start() error {
	s.wg.Go(s.run)
	return nil
}

// stop ends the goroutine.
func (s *spread) stop() {
	s.once.Do(func() { close(s.done) })
	s.wg.Wait()
}

// run is the goroutine of spread.
func (s *spread) run() {
	timer := time.NewTimer(spreadEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-timer.C:
		}
		if s.draining() {
			s.drain(max(s.rate, drainRate) / int(time.Second/drainEvery))
			timer.Reset(drainEvery)
			continue
		}
		if s.rate > 0 {
			places := s.places()
			s.last.asked += s.clients.Move(s.surplus(places, time.Now()), toFewest(places))
		}
		timer.Reset(spreadEvery)
	}
}

// surplus returns how many clients are to be asked to go in this second.
func (s *spread) surplus(places []place, now time.Time) int {
	own := s.clients.Staying()
	all, fewest := own, own
	for _, p := range places {
		all += p.connections
		fewest = min(fewest, p.connections)
	}
	if len(places) != s.nodes {
		s.nodes, s.calm, s.last = len(places), time.Time{}, attempt{}
	}
	s.most = max(s.most, all)
	share := float64(s.most) / float64(len(places)+1)
	over := int(float64(own) - share)
	if len(places) == 0 || over <= 0 || now.Before(s.calm) {
		s.uneven, s.most, s.moving = 0, 0, false
		return 0
	}
	if !s.moving {
		if float64(own) <= share*unevenFactor+unevenMost && float64(fewest)*unevenFactor+unevenMost >= share {
			s.uneven, s.most = 0, 0
			return 0
		}
		if s.uneven++; s.uneven < unevenLooks {
			return 0
		}
	}
	// Who was asked does not count as staying until he is back or has not gone for long.
	age := now.Sub(s.last.began)
	futile := s.last.asked > 0 && own > s.last.own-s.last.asked/2
	if futile && (s.moving && age >= goneTime || !s.moving && age < backTime) {
		s.calm, s.last, s.moving = now.Add(futileTime), attempt{}, false
		return 0
	}
	if !s.moving || age >= goneTime {
		s.moving, s.last = true, attempt{began: now, own: own}
	}
	return min(over, s.rate)
}

// drain asks up to n clients to go, throws out those that were asked and have not gone,
// and tells whether none is left or no node could take them.
func (s *spread) drain(n int) (over bool) {
	places := s.places()
	if len(places) == 0 {
		return true
	}
	s.clients.Move(n, toFewest(places))
	s.clients.Expel(goTime)
	return s.clients.Present() == 0
}

// empty has all clients go. It asks them one part after the other, in the time given,
// and returns when they are gone, when no node could take them, or when ctx ends.
func (s *spread) empty(ctx context.Context, within time.Duration) {
	slice := max(drainRate/10, s.clients.Present()/max(1, int(within/drainEvery)))
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for !s.drain(slice) {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// toFewest returns a function that names the place with the fewest clients, those that it
// has named before included.
func toFewest(places []place) func() (ip string, port int) {
	return func() (string, int) {
		if len(places) == 0 {
			return "", 0
		}
		fewest := &places[0]
		for k := range places {
			if places[k].connections < fewest.connections {
				fewest = &places[k]
			}
		}
		fewest.connections++
		return fewest.ip, fewest.port
	}
}
