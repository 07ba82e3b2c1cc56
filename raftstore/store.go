package raftstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/naming"
)

const (
	// maxOperationBytes bounds one write. Raft sends heartbeats and entries over the
	// same connections.
	maxOperationBytes = 1 << 20

	retryDelay       = 10 * time.Millisecond // after a write that the leader did not accept
	transportTimeout = 10 * time.Second
	transportPool    = 3
)

// keyServerID is where the stable store keeps the server's id: an id must not
// outlive the data, or a node with an empty disk could vote twice in one term.
const keyServerID = "RollcallServerID"

// Store is the replicated table of persistent datums. It implements
// [consistency.Store]; all methods are safe for concurrent use.
type Store struct {
	cfg       Config
	log       *slog.Logger
	table     *consistency.DataStore
	fsm       *fsm
	logs      *logStore
	snapshots *raft.FileSnapshotStore
	streams   *streams // nil when the configuration has a transport
	id        raft.ServerID
	batcher   *batcher

	stopCh    chan struct{} // closed when Close begins
	barrierCh chan struct{} // closed when the first barrier is done with
	flownCh   chan struct{} // closed when no entry is in flight any more
	wg        sync.WaitGroup
	ready     atomic.Bool

	mu        sync.Mutex
	raft      *raft.Raft // nil until started
	closing   bool
	closedCh  chan struct{} // closed when Close is done
	closeErr  error
	leader    leader
	changedCh chan struct{} // closed and replaced when leader changes
}

// leader says who leads. The zero value is nobody.
type leader struct {
	self bool
	id   raft.ServerID
}

var _ consistency.Store = (*Store)(nil)

// New opens the data folder and binds the address, so that a folder in use (see
// [ErrInUse]) and a port in use are found early. It starts nothing. Close must be
// called in any case.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		cfg:       cfg,
		log:       cfg.Logger.With("component", "raftstore"),
		table:     consistency.NewDataStore(),
		batcher:   newBatcher(),
		stopCh:    make(chan struct{}),
		barrierCh: make(chan struct{}),
		flownCh:   make(chan struct{}),
		closedCh:  make(chan struct{}),
		changedCh: make(chan struct{}),
	}
	s.fsm = newFSM(s.table, cfg.SnapshotBytes)
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("raftstore: %w", err), s.release())
	}
	return s, nil
}

func (s *Store) open() error {
	if err := os.MkdirAll(s.cfg.Dir, 0o750); err != nil {
		return err
	}
	var err error
	if s.logs, err = openLogStore(s.cfg.Dir, s.log); err != nil {
		return err
	}
	s.snapshots, err = raft.NewFileSnapshotStoreWithLogger(s.cfg.Dir, keptSnapshots, libraryLogger(s.log))
	if err != nil {
		return err
	}
	s.logs.oldestKept = func() (uint64, error) { return oldestKept(s.snapshots) }
	if s.id, err = serverID(s.logs); err != nil {
		return err
	}
	if s.cfg.Transport == nil {
		s.streams, err = listen(s.cfg.Bind, s.cfg.Advertise)
	}
	return err
}

// serverID returns the id in the stable store, making one for an empty folder.
func serverID(stable raft.StableStore) (raft.ServerID, error) {
	id, err := stable.Get([]byte(keyServerID))
	if err == nil && len(id) > 0 {
		return raft.ServerID(id), nil
	}
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	return raft.ServerID(uuid), stable.Set([]byte(keyServerID), []byte(uuid))
}

// Addr returns the address that other nodes dial.
func (s *Store) Addr() string {
	if s.streams == nil {
		return string(s.cfg.Transport.LocalAddr())
	}
	return s.streams.Addr().String()
}

// ID returns the server's id: a UUID that is kept in the data folder.
func (s *Store) ID() string { return string(s.id) }

// Start restores what the data folder holds and joins Raft. It fails when the
// folder is damaged beyond what the log can mend. Reads are served when it
// returns; see Ready for when they are complete.
func (s *Store) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return consistency.ErrClosed
	}
	if s.raft != nil {
		return errors.New("raftstore: started twice")
	}
	if err := s.startLocked(); err != nil {
		return fmt.Errorf("raftstore: %w", err)
	}
	return nil
}

func (s *Store) startLocked() error {
	logger := libraryLogger(s.log)
	r := recovery{dir: s.cfg.Dir, snapshots: s.snapshots, logs: s.logs, fsm: s.fsm, log: s.log}
	if err := r.run(); err != nil {
		return err
	}
	if s.cfg.Bootstrap {
		self := raft.Server{Suffrage: raft.Voter, ID: s.id, Address: raft.ServerAddress(s.Addr())}
		if err := bootstrap(s.logs, s.logs, s.snapshots, self); err != nil {
			return fmt.Errorf("bootstrap: %w", err)
		}
	}
	conf := raft.DefaultConfig()
	conf.LocalID = s.id
	conf.Logger = logger
	conf.HeartbeatTimeout = s.cfg.HeartbeatTimeout
	conf.ElectionTimeout = s.cfg.ElectionTimeout
	conf.LeaderLeaseTimeout = s.cfg.LeaseTimeout
	conf.MaxAppendEntries = 256
	conf.SnapshotInterval = s.cfg.SnapshotInterval
	conf.SnapshotThreshold = s.cfg.SnapshotEntries
	conf.TrailingLogs = s.cfg.TrailingLogs
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	conf.NoSnapshotRestoreOnStart = true // recovery has restored it

	transport := s.cfg.Transport
	if transport == nil {
		transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: s.streams, MaxPool: transportPool, Timeout: transportTimeout,
			Logger: logger, MsgpackUseNewTimeFormat: true,
		})
	}
	node, err := raft.NewRaft(conf, s.fsm, s.logs, s.logs, s.snapshots, transport)
	if err != nil {
		if closer, ok := transport.(raft.WithClose); ok {
			err = errors.Join(err, closer.Close())
		}
		return err
	}
	s.raft = node
	s.batcher.apply = node.Apply
	s.log.Info("raft started", "node", s.cfg.Node, "id", s.id, "addr", s.Addr(), "index", s.fsm.index.Load())

	observationCh := make(chan raft.Observation, 16)
	observer := raft.NewObserver(observationCh, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation, raft.PeerObservation:
			return true
		}
		return false
	})
	node.RegisterObserver(observer)
	s.wg.Go(func() { s.watchLeader(observationCh) })
	s.wg.Go(s.batcher.dispatch)
	s.wg.Go(func() {
		defer close(s.flownCh)
		s.batcher.collect()
	})
	s.wg.Go(func() {
		defer close(s.barrierCh)
		s.awaitApplied()
	})
	s.wg.Go(s.takeSnapshots)
	return nil
}

// watchLeader keeps what is known of the leader, and the timings, up to date. It
// reads the state anew at each observation, so dropped ones do no harm.
func (s *Store) watchLeader(observationCh <-chan raft.Observation) {
	solo := false
	for {
		s.noteLeader()
		solo = s.adjustTimings(solo)
		select {
		case <-observationCh:
		case <-s.stopCh:
			return
		}
	}
}

func (s *Store) noteLeader() {
	var now leader
	if _, id := s.raft.LeaderWithID(); s.raft.State() == raft.Leader {
		now = leader{self: true, id: s.id}
	} else if id != s.id { // our own id stands there for a moment after we stepped down
		now.id = id
	}
	s.mu.Lock()
	changed := now != s.leader
	if changed {
		s.leader = now
		close(s.changedCh)
		s.changedCh = make(chan struct{})
	}
	s.mu.Unlock()
	if changed {
		s.log.Info("raft leader changed", "leader", string(now.id), "self", now.self, "term", s.raft.CurrentTerm())
	}
}

// adjustTimings gives the only voter its shorter timeouts and takes them away when
// there are others. A follower's shorter timeout takes effect at once: so the
// only voter of a fresh start leads within milliseconds rather than timeouts.
func (s *Store) adjustTimings(was bool) (solo bool) {
	voters := s.voters()
	if solo = len(voters) == 1 && voters[0] == s.id; solo == was {
		return solo
	}
	c := s.raft.ReloadableConfig()
	c.HeartbeatTimeout, c.ElectionTimeout = s.cfg.HeartbeatTimeout, s.cfg.ElectionTimeout
	if solo {
		c.HeartbeatTimeout, c.ElectionTimeout = s.cfg.SoloTimeout, s.cfg.SoloTimeout
	}
	if err := s.raft.ReloadConfig(c); err != nil {
		s.log.Error("raft refuses its timings", "err", err)
	}
	return solo
}

// voters returns the ids of the servers that vote, as far as known here.
func (s *Store) voters() []raft.ServerID {
	var ids []raft.ServerID
	for _, server := range s.raft.GetConfiguration().Configuration().Servers {
		if server.Suffrage == raft.Voter {
			ids = append(ids, server.ID)
		}
	}
	return ids
}

// awaitApplied makes the store ready once this node leads and everything that was
// committed before is applied here.
func (s *Store) awaitApplied() {
	for {
		l, changedCh := s.currentLeader()
		if l.self && s.raft.Barrier(enqueueTimeout).Error() == nil {
			s.ready.Store(true)
			services, instances := s.table.Counts()
			s.log.Info("raft is ready", "index", s.raft.AppliedIndex(), "services", services, "instances", instances)
			return
		}
		var retryCh <-chan time.Time
		if l.self {
			retryCh = time.After(retryDelay)
		}
		select {
		case <-changedCh:
		case <-retryCh:
		case <-s.stopCh:
			return
		}
	}
}

// takeSnapshots takes a snapshot when enough bytes were written; the library does
// so by the number of entries.
func (s *Store) takeSnapshots() {
	for {
		select {
		case <-s.fsm.fullCh:
		case <-s.stopCh:
			return
		}
		err := s.raft.Snapshot().Error()
		if err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) && !errors.Is(err, raft.ErrRaftShutdown) {
			s.log.Error("snapshot was not taken", "err", err)
		}
	}
}

func (s *Store) currentLeader() (leader, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader, s.changedCh
}

// Close stops the store. Writes that wait fail with ErrClosed; those that are
// under way are finished first. It returns after at most three times the
// CloseTimeout, with an error when something did not end. It is idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		<-s.closedCh
		return s.closeErr
	}
	s.closing = true
	node := s.raft
	s.mu.Unlock()

	close(s.stopCh)
	close(s.batcher.stopCh)
	var err error
	if node != nil {
		err = s.stop(node)
	}
	close(s.batcher.goneCh)
	if err == nil { // else something still uses the files
		err = s.release()
	}
	s.closeErr = err
	close(s.closedCh)
	return err
}

// stop ends Raft and the goroutines of the store.
func (s *Store) stop(node *raft.Raft) error {
	// A future may stay unanswered when Raft is shut down, so first let all of
	// them be answered.
	drained := within(s.cfg.CloseTimeout, func() { <-s.flownCh; <-s.barrierCh })
	if drained && node.State() == raft.Leader && len(s.voters()) > 1 {
		if err := node.LeadershipTransfer().Error(); err != nil {
			s.log.Warn("leadership was not handed over", "err", err)
		}
	}
	var err error
	if !within(s.cfg.CloseTimeout, func() { err = node.Shutdown().Error() }) {
		return fmt.Errorf("raftstore: raft did not stop within %s", s.cfg.CloseTimeout)
	}
	if err != nil || !within(s.cfg.CloseTimeout, s.wg.Wait) {
		return errors.Join(errors.New("raftstore: writes under way did not end"), err)
	}
	return nil
}

// within runs fn and returns whether it ended in time. Otherwise its goroutine
// is left behind.
func within(limit time.Duration, fn func()) bool {
	doneCh := make(chan struct{})
	go func() {
		defer close(doneCh)
		fn()
	}()
	select {
	case <-doneCh:
		return true
	case <-time.After(limit):
		return false
	}
}

// release closes what New has opened.
func (s *Store) release() error {
	var errs []error
	if s.streams != nil {
		if err := s.streams.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.logs != nil {
		errs = append(errs, s.logs.Close())
	}
	return errors.Join(errs...)
}

// Publish implements [consistency.Store].
func (s *Store) Publish(ctx context.Context, p consistency.Publication) error {
	return s.write(ctx, publishOperation(p))
}

// Put implements [consistency.Store].
func (s *Store) Put(ctx context.Context, d consistency.Datum) error {
	op, err := putOperation(d)
	if err != nil {
		return err
	}
	return s.write(ctx, op)
}

// Delete implements [consistency.Store].
func (s *Store) Delete(ctx context.Context, k consistency.Key) error {
	op, err := deleteOperation(k)
	if err != nil {
		return err
	}
	return s.write(ctx, op)
}

// write writes an operation on this node if it leads, and tries again while the
// leader surely has not accepted it.
func (s *Store) write(ctx context.Context, op *Operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := proto.Marshal(op)
	if err != nil {
		return fmt.Errorf("encode operation: %w", err)
	}
	if len(b) > maxOperationBytes {
		return fmt.Errorf("a write of %d bytes is too large, %d are the limit", len(b), maxOperationBytes)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	for {
		if err := s.awaitLeader(ctx); err != nil {
			return err
		}
		err := s.batcher.submit(ctx, b)
		if !errors.Is(err, errNotAccepted) {
			return err
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", consistency.ErrNoLeader, err)
		}
	}
}

// awaitLeader returns nil once this node leads, a *consistency.RedirectError when
// another one does, and else an error when the wait is over.
func (s *Store) awaitLeader(ctx context.Context) error {
	var timeoutCh <-chan time.Time
	for {
		l, changedCh := s.currentLeader()
		select {
		case <-s.stopCh:
			return consistency.ErrClosed
		default:
		}
		switch {
		case l.self:
			return nil
		case l.id != "":
			return &consistency.RedirectError{Node: string(l.id)}
		}
		if timeoutCh == nil {
			timer := time.NewTimer(s.cfg.LeaderWait)
			defer timer.Stop()
			timeoutCh = timer.C
		}
		select {
		case <-changedCh:
		case <-s.stopCh:
		case <-timeoutCh:
			return consistency.ErrNoLeader
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", consistency.ErrNoLeader, ctx.Err())
		}
	}
}

// Published implements [consistency.Store].
func (s *Store) Published(svc naming.ServiceKey, publisher string) []*naming.Instance {
	return s.table.Published(svc, publisher)
}

// Service implements [consistency.Store].
func (s *Store) Service(svc naming.ServiceKey) (naming.Service, bool) { return s.table.Service(svc) }

// Stat implements [consistency.Store].
func (s *Store) Stat(svc naming.ServiceKey) consistency.Stat { return s.table.Stat(svc) }

// Services implements [consistency.Store].
func (s *Store) Services(namespace string) []naming.ServiceKey { return s.table.Services(namespace) }

// Switches implements [consistency.Store].
func (s *Store) Switches() map[string]string { return s.table.Switches() }

// Listen implements [consistency.Store].
func (s *Store) Listen(fn func(consistency.ServiceChanged)) { s.table.Listen(fn) }

// Counts returns the number of services and of published instances.
func (s *Store) Counts() (services, instances int) { return s.table.Counts() }

// Ready returns nil once this node has led and everything that was committed
// before is applied here.
func (s *Store) Ready() error {
	if s.ready.Load() {
		return nil
	}
	return fmt.Errorf("raft: %w", consistency.ErrNotReady)
}
