package distro

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// sim runs the cores of several nodes in virtual time, with a network that loses,
// repeats and overtakes, and with clients that come back as the real ones do.
type sim struct {
	seed   uint64
	random *rand.Rand
	trace  func(string) // nil: none
	now    time.Duration
	queue  simQueue
	order  int

	nodes   []*simNode
	clients []*simClient
	byAddr  map[string]*simClient
	cuts    map[[2]int]time.Duration // from, to: since when
	healed  map[[2]int]time.Duration // when a pair was last without a cut, after one
	loss    float64
	lossy   time.Duration // when the last message was lost
	leader  int           // -1: none
	voters  int
	boots   uint64
	conns   int
	broken  []string // what was seen that must not be
	quiet   bool     // no more faults
}

type simEvent struct {
	at    time.Duration
	order int
	do    func()
}

type simQueue []simEvent

func (q simQueue) Len() int { return len(q) }

func (q simQueue) Less(a, b int) bool {
	return q[a].at < q[b].at || q[a].at == q[b].at && q[a].order < q[b].order
}

func (q simQueue) Swap(a, b int) { q[a], q[b] = q[b], q[a] }

func (q *simQueue) Push(x any) { *q = append(*q, x.(simEvent)) }

func (q *simQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

const simStart = 1_700_000_000_000

func newSim(seed uint64, nodes int) *sim {
	s := &sim{
		seed: seed, random: rand.New(rand.NewPCG(seed, 77)), byAddr: make(map[string]*simClient),
		cuts: make(map[[2]int]time.Duration), healed: make(map[[2]int]time.Duration), leader: -1, voters: nodes, lossy: -time.Hour,
	}
	for range nodes {
		s.addNode()
	}
	return s
}

func (s *sim) addNode() *simNode {
	n := &simNode{sim: s, id: len(s.nodes), name: "n" + strconv.Itoa(len(s.nodes)+1), views: make(map[int]*simView)}
	for _, o := range s.nodes {
		o.views[n.id] = new(simView)
		n.views[o.id] = new(simView)
	}
	s.nodes = append(s.nodes, n)
	s.at(s.between(0, tickTime), n.tick)
	s.at(s.between(0, time.Second), n.watch)
	return n
}

func (s *sim) at(after time.Duration, do func()) {
	s.order++
	heap.Push(&s.queue, simEvent{s.now + after, s.order, do})
}

func (s *sim) between(a, b time.Duration) time.Duration {
	return a + time.Duration(s.random.Int64N(int64(b-a)+1))
}

func (s *sim) chance(p float64) bool { return s.random.Float64() < p }

func (s *sim) log(format string, args ...any) {
	if s.trace != nil {
		s.trace(fmt.Sprintf("%9.3f ", s.now.Seconds()) + fmt.Sprintf(format, args...))
	}
}

func (s *sim) fail(format string, args ...any) {
	text := fmt.Sprintf("%9.3f ", s.now.Seconds()) + fmt.Sprintf(format, args...)
	s.log("WRONG %s", text)
	if len(s.broken) < 20 {
		s.broken = append(s.broken, text)
	}
}

// runFor runs the events of the next d.
func (s *sim) runFor(d time.Duration) {
	end := s.now + d
	for len(s.queue) > 0 && s.queue[0].at <= end {
		e := heap.Pop(&s.queue).(simEvent)
		s.now = e.at
		e.do()
	}
	s.now = end
}

func (s *sim) linked(a, b *simNode) bool {
	_, there := s.cuts[[2]int{a.id, b.id}]
	_, back := s.cuts[[2]int{b.id, a.id}]
	return !there && !back
}

// reachable tells whether membership finds b from a, perhaps by way of another node.
func (s *sim) reachable(a, b *simNode) bool {
	if !a.working() || !b.working() {
		return false
	}
	if s.linked(a, b) {
		return true
	}
	return slices.ContainsFunc(s.nodes, func(c *simNode) bool {
		return c != a && c != b && c.working() && s.linked(a, c) && s.linked(c, b)
	})
}

// elect finds the node that leads persistent data.
func (s *sim) elect() {
	majority := func(n *simNode) bool {
		if !n.working() || n.id >= s.voters {
			return false
		}
		links := 0
		for _, o := range s.nodes[:s.voters] {
			if o.working() && s.linked(n, o) {
				links++
			}
		}
		return links > s.voters/2
	}
	if s.leader < 0 || !majority(s.nodes[s.leader]) {
		s.leader = slices.IndexFunc(s.nodes, majority)
	}
	s.at(500*time.Millisecond, s.elect)
}

// apart returns how long two nodes could not speak with each other, if that ended
// no longer than ten seconds ago.
func (s *sim) apart(a, b *simNode) (longest time.Duration) {
	for _, pair := range [][2]int{{a.id, b.id}, {b.id, a.id}} {
		if since, ok := s.cuts[pair]; ok {
			longest = max(longest, s.now-since)
		}
		if since, ok := s.healed[pair]; ok && s.now-since < 10*time.Second {
			longest = time.Hour
		}
	}
	return longest
}

func (s *sim) cut(a, b int) {
	if _, ok := s.cuts[[2]int{a, b}]; !ok {
		s.cuts[[2]int{a, b}] = s.now
	}
}

func (s *sim) mend(a, b int) {
	pair := [2]int{a, b}
	if _, ok := s.cuts[pair]; ok {
		delete(s.cuts, pair)
		s.healed[pair] = s.now
	}
}
