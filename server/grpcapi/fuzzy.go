package grpcapi

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"rollcall/naming"
	"rollcall/server/wire"
)

// A fuzzy watch tells a client which services match a pattern, and then which of them
// appear and disappear: a service is there while it has an instance (grpc.md 3.11).
// What is sent is read when it is sent, like pushes; what is not acknowledged is sent
// again, as it then is.

const (
	fuzzyBatch = 10              // services in one message
	fuzzyAck   = 5 * time.Second // time to acknowledge a message
	// fuzzyFirst is when the first message follows the answer to the request, so that
	// it cannot overtake the answer within the client.
	fuzzyFirst = 30 * time.Millisecond
)

// patterns counts the watchers of each pattern over the whole server.
type patterns struct {
	mu       sync.Mutex
	watchers map[string]map[*conn]struct{}
}

// join adds a watcher unless that would make one pattern too many.
func (p *patterns) join(pattern string, c *conn, limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers[pattern] == nil {
		if len(p.watchers) >= limit {
			return false
		}
		p.watchers[pattern] = make(map[*conn]struct{})
	}
	p.watchers[pattern][c] = struct{}{}
	return true
}

func (p *patterns) leave(pattern string, c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.watchers[pattern], c); len(p.watchers[pattern]) == 0 {
		delete(p.watchers, pattern)
	}
}

// watching returns the connections with a pattern that a service matches.
func (p *patterns) watching(svc naming.ServiceKey) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*conn
	for pattern, conns := range p.watchers {
		if parsed, ok := parsePattern(pattern); ok && parsed.matches(svc) {
			for c := range conns {
				out = append(out, c)
			}
		}
	}
	return out
}

// pattern selects services: namespace, group pattern and name pattern.
type pattern struct{ namespace, group, name string }

// parsePattern reads "namespace>>group>>name".
func parsePattern(s string) (p pattern, ok bool) {
	parts := strings.Split(s, ">>")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return p, false
	}
	return pattern{parts[0], parts[1], parts[2]}, true
}

func (p pattern) matches(svc naming.ServiceKey) bool {
	return p.namespace == svc.Namespace && matchesItem(p.group, svc.Group) && matchesItem(p.name, svc.Name)
}

// matchesItem matches a text with * for any text. ".*", which a client sends where it
// means all, is all.
func matchesItem(item, s string) bool {
	if item == ".*" {
		return true
	}
	parts := strings.Split(item, "*")
	if len(parts) == 1 {
		return item == s
	}
	s, ok := strings.CutPrefix(s, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		n := strings.Index(s, part)
		if n < 0 {
			return false
		}
		s = s[n+len(part):]
	}
	return strings.HasSuffix(s, parts[len(parts)-1])
}

// watch is what one connection watches.
type watch struct {
	conn *conn

	mu       sync.Mutex
	patterns map[string]*watched
	told     map[naming.ServiceKey]bool // what the client was told last: there, or gone
	queue    []*notice
	inFlight map[uint64]*notice
	timer    *time.Timer // resends; nil: nothing is in flight
	closed   bool
}

// watched is one pattern of a connection.
type watched struct {
	pattern
	text    string
	initial bool // FINISH is to come once all notices are acknowledged
	open    int  // notices of the first round that are not
}

// notice is one message, made when it is sent.
type notice struct {
	of       *watched // nil: of one service alone
	sync     string
	services []naming.ServiceKey
	total    int
	current  int
	repeat   bool
	due      time.Time // for its acknowledgement
}

func newWatch(c *conn) *watch {
	return &watch{conn: c, patterns: make(map[string]*watched), told: make(map[naming.ServiceKey]bool), inFlight: make(map[uint64]*notice)}
}

func (s *Server) fuzzyWatch(_ context.Context, c *conn, body []byte) *wire.Payload {
	var q wire.FuzzyWatchRequest
	if answer := s.decode(c, body, &q); answer != nil {
		return answer
	}
	w, err := c.watch()
	if err != nil {
		return s.refuse(c, wire.TypeFuzzyAnswer, err, nil)
	}
	text := string(q.Pattern)
	if q.WatchType != wire.WatchFuzzy && q.WatchType != wire.CancelWatchFuzzy {
		return unsupported(q.WatchType)
	}
	p, ok := parsePattern(text)
	if !ok {
		return wire.ErrorAnswer(400, 400, "Param 'groupKeyPattern' is illegal, it should be namespace>>group>>service with * for any text.")
	}
	if q.WatchType == wire.CancelWatchFuzzy {
		w.cancel(text)
		return wire.FuzzyAnswer()
	}
	if !s.patterns.join(text, c, s.cfg.FuzzyPatterns) {
		return wire.FuzzyRefused(wire.CodeTooManyPatterns)
	}
	received := make(map[naming.ServiceKey]bool, len(q.Received))
	if !q.Initializing.Value {
		for _, key := range q.Received {
			if svc, ok := wire.ParseServiceKey(string(key)); ok && p.matches(svc) {
				received[svc] = true
			}
		}
	}
	if !w.add(p, text, q.Initializing.Value, received) {
		s.patterns.leave(text, c)
		return s.refuse(c, wire.TypeFuzzyAnswer, errGone, nil)
	}
	if len(s.matches(p)) > s.cfg.FuzzyMatches {
		return wire.FuzzyRefused(wire.CodeTooManyMatches)
	}
	return wire.FuzzyAnswer()
}

// matches returns the services that a pattern selects now, sorted.
func (s *Server) matches(p pattern) []naming.ServiceKey {
	all := s.registry.Search(naming.Search{Namespace: p.namespace, NotEmpty: true})
	return slices.DeleteFunc(all, func(k naming.ServiceKey) bool { return !p.matches(k) })
}

// watch returns what the connection watches, made when it is first asked for.
func (c *conn) watch() (*watch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.naming {
		return nil, errGone
	}
	if c.fuzzy == nil {
		c.fuzzy = newWatch(c)
	}
	return c.fuzzy, nil
}

// add watches a pattern, anew if it is watched already. The first round follows in a
// moment; false: the connection has ended.
func (w *watch) add(p pattern, text string, initial bool, received map[naming.ServiceKey]bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	x := &watched{pattern: p, text: text, initial: initial}
	w.forgetLocked(text)
	w.patterns[text] = x
	time.AfterFunc(fuzzyFirst, func() { w.begin(x, received) })
	return true
}

// begin queues the first round: all services that match, or how they differ from what
// the client has.
func (w *watch) begin(x *watched, received map[naming.ServiceKey]bool) {
	services := w.conn.server.matches(x.pattern)
	if limit := w.conn.server.cfg.FuzzyMatches; len(services) > limit {
		services = services[:limit]
	}
	w.mu.Lock()
	if w.patterns[x.text] != x {
		w.mu.Unlock()
		return
	}
	kind := wire.FuzzyInit
	if !x.initial {
		kind = wire.FuzzyDiff
		there := make(map[naming.ServiceKey]bool, len(services))
		for _, svc := range services {
			there[svc] = true
		}
		services = slices.DeleteFunc(services, func(svc naming.ServiceKey) bool {
			if received[svc] {
				w.told[svc] = true
			}
			return received[svc]
		})
		for svc := range received {
			if !there[svc] {
				w.told[svc] = true
				services = append(services, svc)
			}
		}
		slices.SortFunc(services, naming.ServiceKey.Compare)
	}
	total := (len(services) + fuzzyBatch - 1) / fuzzyBatch
	current := 0
	for batch := range slices.Chunk(services, fuzzyBatch) {
		current++
		x.open++
		w.queue = append(w.queue, &notice{of: x, sync: kind, services: batch, total: total, current: current})
	}
	if total == 0 && x.initial {
		w.finishLocked(x)
	}
	w.mu.Unlock()
	w.conn.wake()
}

// finishLocked queues the end of the first round.
func (w *watch) finishLocked(x *watched) {
	x.initial = false
	w.queue = append(w.queue, &notice{of: x, sync: wire.FuzzyFinish, total: 1, current: 1})
}

func (w *watch) cancel(text string) {
	w.mu.Lock()
	known := w.patterns[text] != nil
	w.forgetLocked(text)
	w.mu.Unlock()
	if known {
		w.conn.server.patterns.leave(text, w.conn)
	}
}

// forgetLocked drops a pattern with its messages, and what the client was told of
// services that it alone selected.
func (w *watch) forgetLocked(text string) {
	x := w.patterns[text]
	if x == nil {
		return
	}
	delete(w.patterns, text)
	w.queue = slices.DeleteFunc(w.queue, func(n *notice) bool { return n.of == x })
	for seq, n := range w.inFlight {
		if n.of == x {
			delete(w.inFlight, seq)
		}
	}
	for svc := range w.told {
		if !w.selectedLocked(svc) {
			delete(w.told, svc)
		}
	}
}

func (w *watch) selectedLocked(svc naming.ServiceKey) bool {
	for _, x := range w.patterns {
		if x.matches(svc) {
			return true
		}
	}
	return false
}

// close ends the watch with its connection.
func (w *watch) close() {
	w.mu.Lock()
	w.closed = true
	texts := make([]string, 0, len(w.patterns))
	for text := range w.patterns {
		texts = append(texts, text)
	}
	w.patterns, w.queue, w.inFlight = nil, nil, nil
	if w.timer != nil {
		w.timer.Stop()
	}
	w.mu.Unlock()
	for _, text := range texts {
		w.conn.server.patterns.leave(text, w.conn)
	}
}

// Populated tells that a service got its first instance, or lost its last one. It does
// not block.
func (s *Server) Populated(svc naming.ServiceKey) {
	for _, c := range s.patterns.watching(svc) {
		c.mu.Lock()
		w := c.fuzzy
		c.mu.Unlock()
		if w == nil {
			continue
		}
		w.mu.Lock()
		if !w.closed && !slices.ContainsFunc(w.queue, func(n *notice) bool { return n.of == nil && n.services[0] == svc }) {
			w.queue = append(w.queue, &notice{services: []naming.ServiceKey{svc}})
		}
		w.mu.Unlock()
		c.wake()
	}
}

// next returns the next message for the stream, nil when there is none.
func (w *watch) next() *wire.Payload {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) > 0 {
		n := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		seq := w.conn.server.seq.Add(1)
		p := w.encodeLocked(n, seq)
		if p == nil {
			continue
		}
		n.due, n.repeat = time.Now().Add(fuzzyAck), true
		w.inFlight[seq] = n
		if w.timer == nil {
			w.timer = time.AfterFunc(fuzzyAck, w.overdue)
		}
		return p
	}
	w.queue = nil
	return nil
}

// encodeLocked makes a message of how things are now; nil when there is nothing to
// tell.
func (w *watch) encodeLocked(n *notice, seq uint64) *wire.Payload {
	ip := w.conn.server.cfg.IP
	if n.of == nil {
		svc := n.services[0]
		there := w.conn.server.registry.Populated(svc)
		if there == w.told[svc] && !n.repeat || there && !w.told[svc] && w.fullLocked(svc) || !w.selectedLocked(svc) {
			return nil
		}
		w.told[svc] = there
		return wire.FuzzyChange(ip, seq, svc, there)
	}
	contexts := make([]wire.FuzzyContext, 0, len(n.services))
	for _, svc := range n.services {
		there := w.conn.server.registry.Populated(svc)
		if n.sync == wire.FuzzyInit && !there && !w.told[svc] {
			continue // it has gone before the client heard of it
		}
		w.told[svc] = there
		contexts = append(contexts, wire.FuzzyContext{Service: svc, There: there})
	}
	return wire.FuzzySync(ip, seq, n.sync, n.of.text, contexts, n.total, n.current)
}

// fullLocked tells whether every pattern that selects the service has as many as a
// pattern may have.
func (w *watch) fullLocked(svc naming.ServiceKey) bool {
	for _, x := range w.patterns {
		if !x.matches(svc) {
			continue
		}
		known := 0
		for k, there := range w.told {
			if there && x.matches(k) {
				known++
			}
		}
		if known < w.conn.server.cfg.FuzzyMatches {
			return false
		}
	}
	return true
}

// ack takes the answer to a message; false: it is no message of the watch.
func (w *watch) ack(seq uint64, ok bool) bool {
	w.mu.Lock()
	n := w.inFlight[seq]
	if n == nil || !ok { // a refused one is sent again when its time is over
		w.mu.Unlock()
		return n != nil
	}
	delete(w.inFlight, seq)
	finished := false
	if x := n.of; x != nil && n.sync == wire.FuzzyInit {
		if x.open--; x.open == 0 && x.initial {
			w.finishLocked(x)
			finished = true
		}
	}
	w.mu.Unlock()
	if finished {
		w.conn.wake()
	}
	return true
}

// overdue runs on the timer: it queues again what was not acknowledged in time.
func (w *watch) overdue() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	now := time.Now()
	var late []uint64
	next := time.Duration(0)
	for seq, n := range w.inFlight {
		if left := n.due.Sub(now); left <= 0 {
			late = append(late, seq)
		} else if next == 0 || left < next {
			next = left
		}
	}
	slices.Sort(late)
	for _, seq := range late {
		w.queue = append(w.queue, w.inFlight[seq])
		delete(w.inFlight, seq)
	}
	if next > 0 {
		w.timer.Reset(next)
	} else {
		w.timer = nil
	}
	w.mu.Unlock()
	if len(late) > 0 {
		w.conn.wake()
	}
}
