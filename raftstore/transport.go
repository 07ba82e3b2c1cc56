package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// greetingMagic begins each connection, then come the id of the server that is
	// meant and the name of the cluster, zeros when it has none: see stream.
	greetingMagic = "rollcall raft 1\n"
	greetingBytes = len(greetingMagic) + 2*uuidBytes
	uuidBytes     = 36
	greetingWait  = 10 * time.Second
	dialTimeout   = 3 * time.Second
	// commitDelay is how long the next entry may take to tell a follower how far the
	// log is committed, before that is told without an entry; commitRetry is when it is
	// told again to one that has not got the entries yet. The library tells it too, in
	// commitRepeat to twice that, and sends again then what a broken connection lost.
	commitDelay  = time.Millisecond
	commitRetry  = 10 * time.Millisecond
	commitRepeat = 250 * time.Millisecond
)

// readdressed is a transport that finds a server by its id. It sends nothing while
// the node hangs; see Store.stalled. And it holds entries for a server back until
// that answers heartbeats: the library would wait longer and longer between its
// tries, up to ten seconds, and so would a server that comes back.
type readdressed struct {
	raft.Transport
	s     *Store
	greet bool // addresses say which server is meant

	mu     sync.Mutex
	silent map[raft.ServerID]chan struct{} // servers that answered no heartbeat; closed when one does
}

func (t *readdressed) address(id raft.ServerID, stored raft.ServerAddress) raft.ServerAddress {
	at := t.s.address(id, stored)
	if t.greet {
		return meant(id, at)
	}
	return at
}

func (t *readdressed) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if err := t.s.stalled(); err != nil {
		return nil, err
	}
	in, err := t.Transport.AppendEntriesPipeline(id, t.address(id, to))
	if err != nil {
		return nil, err
	}
	p := &pipeline{AppendPipeline: in, s: t.s, answerCh: make(chan raft.AppendFuture), closedCh: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(t.s.ctx)
	t.s.wg.Go(p.relay)
	t.s.wg.Go(func() {
		p.tellCommits(func(args *raft.AppendEntriesRequest) bool {
			resp := new(raft.AppendEntriesResponse)
			err := t.Transport.AppendEntries(id, t.address(id, to), args, resp)
			return err != nil || resp.Success || resp.Term > args.Term
		})
	})
	return p, nil
}

// pipeline sends nothing while the node hangs. And it tells the follower soon how
// far the log is committed when no entry follows that would say so: the library says
// it 50 to 100 ms later, and whoever wrote through the follower would wait for that.
//
// It also ends with the first refusal. The library takes no further answer then, and
// its sender would wait for ever to hand over an entry behind that one: it would never
// send to this follower again, and hold up the end of the store.
type pipeline struct {
	raft.AppendPipeline
	s        *Store
	sent     atomic.Pointer[raft.AppendEntriesRequest] // the last one, as if it had no entries
	answerCh chan raft.AppendFuture
	closedCh chan struct{}
	closing  sync.Once
	ctx      context.Context // until Close, or the store's
	cancel   context.CancelFunc
}

// Consumer returns the answers; the last one is the first refusal.
func (p *pipeline) Consumer() <-chan raft.AppendFuture { return p.answerCh }

// relay hands the answers on until the first refusal, or Close.
func (p *pipeline) relay() {
	for {
		select {
		case future := <-p.AppendPipeline.Consumer():
			select {
			case p.answerCh <- future:
			case <-p.closedCh:
				return
			}
			if !future.Response().Success { // or no answer came
				_ = p.AppendPipeline.Close()
				return
			}
		case <-p.closedCh:
			return
		}
	}
}

func (p *pipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.s.stalled(); err != nil {
		return nil, err
	}
	future, err := p.AppendPipeline.AppendEntries(args, resp)
	if err == nil {
		next := *args
		if n := len(args.Entries); n > 0 {
			next.PrevLogEntry, next.PrevLogTerm, next.Entries = args.Entries[n-1].Index, args.Entries[n-1].Term, nil
		}
		p.sent.Store(&next)
	}
	return future, err
}

// Close ends the pipeline.
func (p *pipeline) Close() error {
	p.cancel()
	p.closing.Do(func() { close(p.closedCh) })
	return p.AppendPipeline.Close()
}

// tellCommits sends what the library sends when nothing was written for a while: no
// entries, and how far the log is committed of what the follower has been sent. It
// goes beside the pipeline, so it waits behind nothing. When it comes before the entries
// the follower refuses it, and send returns false: it is sent again.
func (p *pipeline) tellCommits(send func(*raft.AppendEntriesRequest) (done bool)) {
	var told uint64
	delay := commitDelay
	for p.s.fsm.index.wait(p.ctx, told+1, p.s.stopCh) == nil {
		select {
		case <-time.After(delay):
		case <-p.ctx.Done():
			return
		}
		commit := p.s.raft.CommitIndex() // read before the check that it is of our term
		index := max(commit, p.s.fsm.index.load())
		next := p.sent.Load()
		leads := next != nil && p.s.raft.State() == raft.Leader && p.s.raft.CurrentTerm() == next.Term && p.s.stalled() == nil
		if leads && min(commit, next.PrevLogEntry) > next.LeaderCommitIndex {
			args := *next
			args.LeaderCommitIndex = min(commit, next.PrevLogEntry)
			if !send(&args) {
				delay = commitRetry
				continue
			}
		}
		told, delay = index, commitDelay
	}
}

func (t *readdressed) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := t.s.stalled()
	if err == nil {
		err = t.Transport.AppendEntries(id, t.address(id, to), args, resp)
	}
	if args.PrevLogEntry == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0 {
		t.noteHeartbeat(id, err)
	} else if err != nil {
		t.awaitHeartbeat(id)
	}
	return err
}

func (t *readdressed) noteHeartbeat(id raft.ServerID, err error) {
	t.mu.Lock()
	ch, was := t.silent[id]
	switch {
	case err != nil && !was:
		t.silent[id] = make(chan struct{})
	case err == nil && was:
		close(ch)
		delete(t.silent, id)
	}
	t.mu.Unlock()
	name := t.s.view().name(string(id))
	switch {
	case err != nil && !was:
		t.s.log.Warn("raft does not reach a node", "peer", name, "id", string(id), "err", err)
	case err == nil && was:
		t.s.log.Info("raft reaches a node again", "peer", name, "id", string(id))
	}
}

// awaitHeartbeat waits while a server answers no heartbeats and this node leads it.
func (t *readdressed) awaitHeartbeat(id raft.ServerID) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		t.mu.Lock()
		answersCh, silent := t.silent[id]
		t.mu.Unlock()
		l, changedCh := t.s.currentLeader()
		follows := slices.ContainsFunc(t.s.servers(), func(o raft.Server) bool { return o.ID == id })
		if !silent || !l.self || !follows {
			return
		}
		select {
		case <-answersCh:
		case <-changedCh:
		case <-ticker.C:
		case <-t.s.stopCh:
			return
		}
	}
}

// reached returns whether a server answered the last heartbeat, or none was sent.
func (t *readdressed) reached(id raft.ServerID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.silent[id] == nil
}

func (t *readdressed) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.Transport.RequestVote(id, t.address(id, to), args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (t *readdressed) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	p, ok := t.Transport.(raft.WithPreVote)
	if !ok {
		return errors.New("the transport knows no pre-vote")
	}
	return p.RequestPreVote(id, t.address(id, to), args, resp)
}

func (t *readdressed) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return t.Transport.InstallSnapshot(id, t.address(id, to), args, resp, data)
}

func (t *readdressed) TimeoutNow(id raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.Transport.TimeoutNow(id, t.address(id, to), args, resp)
}

// Close implements raft.WithClose.
func (t *readdressed) Close() error {
	if c, ok := t.Transport.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}

// streams listens and dials for Raft's network transport. The library's own
// stream layer can advertise nothing but an IP address, and leaves connections
// open when it is closed.
type streams struct {
	net.Listener
	advertise advertised
	id        raft.ServerID
	cluster   func() string
	log       *slog.Logger

	closing context.Context // ends with Close
	end     context.CancelFunc

	mu      sync.Mutex
	open    map[*stream]struct{}
	refused map[string]time.Time // when a refusal was logged, by its reason
}

// refusalQuiet is how long the same refusal is not logged again: the other side tries
// several times a second.
const refusalQuiet = time.Minute

type advertised string

func (a advertised) Network() string { return "tcp" }
func (a advertised) String() string  { return string(a) }

// stream is one connection of streams. The side that dials says whom it means:
// addresses are given to other processes at times, and Raft itself does not notice
// that it talks to a server of another cluster.
type stream struct {
	net.Conn
	owner   *streams
	greeted bool // by the other side, or we dialed; used by the reader alone
}

// listen binds the address. An empty advertise stands for what was bound.
func listen(bind, advertise string) (*streams, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", bind)
	if err != nil {
		return nil, err
	}
	if advertise == "" {
		advertise = l.Addr().String()
	}
	s := &streams{Listener: l, advertise: advertised(advertise), open: make(map[*stream]struct{})}
	s.closing, s.end = context.WithCancel(context.Background())
	return s, nil
}

// meant returns an address for Dial that says which server is meant.
func meant(id raft.ServerID, at raft.ServerAddress) raft.ServerAddress {
	return raft.ServerAddress(id) + "/" + at
}

// Addr returns the advertised address.
func (s *streams) Addr() net.Addr { return s.advertise }

// Accept waits for another node to connect.
func (s *streams) Accept() (net.Conn, error) {
	for {
		c, err := s.Listener.Accept()
		tracked, err := s.track(c, err, false)
		if c != nil && errors.Is(err, net.ErrClosed) { // aborted: until Close nobody is served
			continue
		}
		return tracked, err
	}
}

// Dial connects to another node and says whom it means.
func (s *streams) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, address, ok := strings.Cut(string(to), "/")
	if !ok {
		id, address = "", id
	}
	ctx, cancel := context.WithTimeout(s.closing, min(timeout, dialTimeout))
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	c, err = s.track(c, err, true)
	if err != nil {
		return nil, err
	}
	if _, err := c.Write(greeting(id, s.cluster())); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func greeting(id, cluster string) []byte {
	b := make([]byte, greetingBytes)
	n := copy(b, greetingMagic)
	copy(b[n:n+uuidBytes], id)
	copy(b[n+uuidBytes:], cluster)
	return b
}

func (s *streams) track(c net.Conn, err error, greeted bool) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	closed := s.closing.Err() != nil
	tracked := &stream{Conn: c, owner: s, greeted: greeted}
	if !closed {
		s.open[tracked] = struct{}{}
	}
	s.mu.Unlock()
	if closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	return tracked, nil
}

// Close stops listening and dialing and closes every connection.
func (s *streams) Close() error {
	s.abort()
	return s.Listener.Close()
}

// abort closes every connection, also those that are still made.
func (s *streams) abort() {
	s.mu.Lock()
	s.end()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	for c := range open {
		_ = c.Conn.Close()
	}
}

// Read reads from the connection; on one that was accepted, behind a greeting that
// must be meant for this server.
func (c *stream) Read(p []byte) (int, error) {
	if !c.greeted {
		if err := c.readGreeting(); err != nil {
			c.owner.logRefusal(c.RemoteAddr(), err)
			return 0, err
		}
		c.greeted = true
	}
	return c.Conn.Read(p)
}

func (s *streams) logRefusal(from net.Addr, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.refused, func(_ string, at time.Time) bool { return time.Since(at) > refusalQuiet })
	if _, logged := s.refused[err.Error()]; logged {
		return
	}
	if s.refused == nil {
		s.refused = make(map[string]time.Time)
	}
	s.refused[err.Error()] = time.Now()
	s.log.Warn("refused a connection for raft", "addr", from.String(), "err", err)
}

func (c *stream) readGreeting() error {
	if err := c.SetReadDeadline(time.Now().Add(greetingWait)); err != nil {
		return err
	}
	b := make([]byte, greetingBytes)
	if _, err := io.ReadFull(c.Conn, b); err != nil {
		return fmt.Errorf("read its greeting: %w", err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	body, ok := bytes.CutPrefix(b, []byte(greetingMagic))
	if !ok {
		return errors.New("it does not speak raft as Rollcall does")
	}
	field := func(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }
	id, theirs, ours := field(body[:uuidBytes]), field(body[uuidBytes:]), c.owner.cluster()
	if id != "" && id != string(c.owner.id) {
		return fmt.Errorf("it is meant for server %s, this is %s", id, c.owner.id)
	}
	if theirs != "" && ours != "" && theirs != ours {
		return fmt.Errorf("it comes from cluster %s, this is %s", theirs, ours)
	}
	return nil
}

// Close closes the connection.
func (c *stream) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
