package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	autopilot "github.com/hashicorp/raft-autopilot"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"rollcall/consistency"
	"rollcall/naming"
)

const (
	// maxOperationBytes bounds one write. Raft sends heartbeats and entries over the
	// same connections.
	maxOperationBytes = 1 << 20

	maxAppendEntries = 256
	retryDelay       = 10 * time.Millisecond // after a write that the leader did not accept
	transportTimeout = 10 * time.Second
	transportPool    = 3
)

const (
	// keyServerID is where the stable store keeps the server's id: an id must not
	// outlive the data, or a node with an empty disk could vote twice in one term.
	keyServerID = "RollcallServerID"
	keyCluster  = "RollcallCluster" // the name of the nodes that share the data
)

// Store is the replicated table of persistent datums. It implements
// [consistency.Store]; all methods are safe for concurrent use.
type Store struct {
	cfg       Config
	log       *slog.Logger
	table     *consistency.DataStore
	fsm       *fsm
	logs      *logStore
	snapshots raft.SnapshotStore
	blank     bool     // there were no data at the start
	streams   *streams // nil when the configuration has a transport
	transport *readdressed
	id        raft.ServerID
	batcher   *batcher
	metrics   *metrics

	ctx          context.Context // canceled when Close begins
	stopCh       <-chan struct{} // the same as a channel
	cancel       context.CancelFunc
	flownCh      chan struct{} // closed when no entry is in flight any more
	managedCh    chan struct{} // closed when manage is done
	verifiedCh   chan struct{} // closed when verify is done
	peersCh      chan struct{} // of capacity 1: the membership has changed
	viewedCh     chan struct{} // of capacity 1: there is a new view, for watchLeader
	configuredCh chan struct{} // of capacity 1: Raft's configuration has changed, for watchLeader
	manageCh     chan struct{} // of capacity 1: there is something to do for manage
	queryCh      chan *query
	wg           sync.WaitGroup

	peers         atomic.Pointer[view]
	health        atomic.Pointer[autopilot.State] // nil unless this node leads
	storedCluster atomic.Pointer[string]          // as in the stable store
	refusal       atomic.Pointer[error]           // nil, or to nil, when the data belongs here
	established   atomic.Uint64                   // the term of our leadership before which all is applied
	ready         atomic.Int32

	mu              sync.Mutex
	raft            *raft.Raft // nil until started
	closing         bool
	closedCh        chan struct{} // closed when Close is done
	closeErr        error
	leader          leader
	leaderlessSince time.Time
	changedCh       chan struct{}   // closed and replaced when leader changes
	led             context.Context // ends when another leader is known, or none
	unled           context.CancelFunc
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
		cfg:          cfg,
		log:          cfg.Logger.With("component", "raftstore"),
		table:        consistency.NewDataStore(),
		batcher:      newBatcher(),
		flownCh:      make(chan struct{}),
		managedCh:    make(chan struct{}),
		verifiedCh:   make(chan struct{}),
		peersCh:      make(chan struct{}, 1),
		viewedCh:     make(chan struct{}, 1),
		configuredCh: make(chan struct{}, 1),
		manageCh:     make(chan struct{}, 1),
		queryCh:      make(chan *query, maxWaiting),
		closedCh:     make(chan struct{}),
		changedCh:    make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.stopCh = s.ctx.Done()
	s.led, s.unled = context.WithCancel(s.ctx)
	s.peers.Store(&view{known: readKnown(cfg.Dir)})
	s.storedCluster.Store(new(string))
	s.metrics = newMetrics(s)
	s.fsm = newFSM(s.table, cfg.SnapshotBytes)
	s.fsm.watch, s.fsm.metrics, s.fsm.noticed = &stopwatch{log: s.log}, s.metrics, s.notice
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("raftstore: %w", err), s.release())
	}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(s.metrics); err != nil {
			return nil, errors.Join(fmt.Errorf("raftstore: %w", err), s.release())
		}
	}
	return s, nil
}

// notice is called by the FSM when the configuration or the name of the nodes has
// changed.
func (s *Store) notice() {
	for _, ch := range []chan struct{}{s.configuredCh, s.manageCh} {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// fail is called by the FSM when there is something that this program cannot apply.
// The store takes no part from then on.
func (s *Store) fail(err error) {
	s.log.Error("persistent data cannot be followed any further", "err", err)
	if s.cfg.Failed != nil {
		s.cfg.Failed(err)
	}
}

func (s *Store) open() error {
	if err := os.MkdirAll(s.cfg.Dir, 0o750); err != nil {
		return err
	}
	var err error
	if s.logs, err = openLogStore(s.cfg.Dir, s.log); err != nil {
		return err
	}
	files, err := raft.NewFileSnapshotStoreWithLogger(s.cfg.Dir, keptSnapshots, libraryLogger(s.log))
	if err != nil {
		return err
	}
	s.snapshots = tidySnapshots{files, s.cfg.Dir}
	s.logs.oldestKept = func() (uint64, error) { return oldestKept(s.snapshots) }
	s.logs.faults = s.cfg.faults
	if s.id, err = serverID(s.logs); err != nil {
		return err
	}
	cluster, err := s.logs.Get([]byte(keyCluster))
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	name := string(cluster)
	s.storedCluster.Store(&name)
	if s.cfg.Transport != nil {
		return nil
	}
	if s.streams, err = listen(s.cfg.Bind, s.cfg.Advertise); err != nil {
		return err
	}
	s.streams.id, s.streams.cluster, s.streams.log = s.id, s.clusterID, s.log
	return nil
}

// serverID returns the id in the stable store, making one for an empty folder.
func serverID(stable raft.StableStore) (raft.ServerID, error) {
	id, err := stable.Get([]byte(keyServerID))
	if err == nil && len(id) > 0 {
		return raft.ServerID(id), nil
	}
	uuid := newUUID()
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
	s.fsm.failed = s.fail
	if list, err := listSnapshots(s.cfg.Dir); err == nil && len(list) > 0 {
		s.metrics.snapshotTime.Set(float64(list[0].takenMs) / 1000)
	}
	if err := forgetInterruptedBootstrap(s.logs, s.logs, s.snapshots); err != nil {
		return err
	}
	if s.cfg.Expect == 1 {
		self := configured(raft.Voter, string(s.id))
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
	conf.MaxAppendEntries = maxAppendEntries
	conf.SnapshotThreshold = math.MaxUint64 // takeSnapshots does it
	conf.CommitTimeout = commitRepeat
	conf.TrailingLogs = s.cfg.TrailingLogs
	conf.ShutdownOnRemove = false
	conf.NoLegacyTelemetry = true
	conf.NoSnapshotRestoreOnStart = true // recovery has restored it

	transport := &readdressed{Transport: s.cfg.Transport, s: s, greet: s.streams != nil, silent: make(map[raft.ServerID]chan struct{})}
	if s.streams != nil {
		transport.Transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: s.streams, MaxPool: transportPool, Timeout: transportTimeout,
			Logger: logger, MsgpackUseNewTimeFormat: true,
		})
	}
	s.transport = transport
	s.logs.stopCh = s.stopCh
	node, err := raft.NewRaft(conf, s.fsm, s.logs, s.logs, s.snapshots, transport)
	if err != nil {
		return errors.Join(err, transport.Close())
	}
	s.raft, s.blank = node, node.LastIndex() == 0
	s.leaderlessSince = time.Now()
	s.batcher.apply = node.Apply
	s.log.Info("raft started", "id", s.id, "addr", s.Addr(), "index", s.fsm.index.load())

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
	s.wg.Go(func() {
		defer close(s.flownCh)
		s.batcher.run()
	})
	s.wg.Go(func() {
		defer close(s.managedCh)
		s.manage()
	})
	s.wg.Go(func() {
		defer close(s.verifiedCh)
		s.verify()
	})
	s.wg.Go(s.watchPeers)
	s.wg.Go(s.awaitReady)
	s.wg.Go(s.takeSnapshots)
	s.wg.Go(s.watchDisk)
	return nil
}

// takeSnapshots takes a snapshot when the FSM says that enough was written. The
// library would do so by the number of entries alone, however large they or the
// state are.
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

// Close stops the store. If this node leads, it hands leadership over first. Writes
// that wait fail with ErrClosed; those that are under way are finished first. It
// returns after at most three times the CloseTimeout, with an error when something
// did not end. It is idempotent.
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

	var err error
	if node != nil && !s.cfg.abruptShutdown {
		if err := s.StepDown(); err != nil {
			s.log.Warn("leadership was not handed over", "err", err)
		}
	}
	s.cancel()
	close(s.batcher.stopCh)
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
	within(s.cfg.CloseTimeout, func() { <-s.flownCh; <-s.managedCh; <-s.verifiedCh })
	stopped := node.Shutdown()
	if s.streams != nil { // Raft waits for answers, and a node that is frozen gives none
		s.streams.abort()
	}
	var err error
	if !within(s.cfg.CloseTimeout, func() { err = stopped.Error() }) {
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
	s.cancel()
	if s.cfg.Metrics != nil {
		s.cfg.Metrics.Unregister(s.metrics)
	}
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
	return s.write(ctx, func() ([]byte, error) { return EncodePublish(p) })
}

// Put implements [consistency.Store].
func (s *Store) Put(ctx context.Context, d consistency.Datum) error {
	return s.write(ctx, func() ([]byte, error) { return EncodePut(d) })
}

// Delete implements [consistency.Store].
func (s *Store) Delete(ctx context.Context, k consistency.Key) error {
	return s.write(ctx, func() ([]byte, error) { return EncodeDelete(k) })
}

// write writes an operation on this node if it leads, and tries again while the
// leader surely has not accepted it.
func (s *Store) write(ctx context.Context, encode func() ([]byte, error)) error {
	begin := time.Now()
	index, err := s.tryWrite(ctx, encode)
	var redirect *consistency.RedirectError
	outcome := "failed"
	switch {
	case err == nil:
		outcome = "ok"
		consistency.RequestOf(ctx).Wrote(index)
		s.metrics.write.Observe(time.Since(begin).Seconds())
	case errors.As(err, &redirect):
		outcome = "redirected"
	case errors.Is(err, consistency.ErrNoLeader):
		outcome = "no_leader"
	case errors.Is(err, consistency.ErrReadOnly):
		outcome = "read_only"
	case errors.Is(err, consistency.ErrUnknownOutcome):
		outcome = "unknown"
	}
	s.metrics.writes.WithLabelValues(outcome).Inc()
	return err
}

func (s *Store) tryWrite(ctx context.Context, encode func() ([]byte, error)) (index uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := s.refused(); err != nil {
		return 0, fmt.Errorf("%w: %w", consistency.ErrNotReady, err)
	}
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > s.cfg.WriteTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.cfg.WriteTimeout)
		defer cancel()
	}
	var operation []byte
	for {
		if err := s.awaitLeader(ctx, true); err != nil {
			return 0, err
		}
		if operation == nil {
			if operation, err = encode(); err != nil {
				return 0, err
			}
			operation = marked(operation, consistency.RequestOf(ctx).ID())
		}
		index, err := s.batcher.submit(ctx, operation)
		if !errors.Is(err, errNotAccepted) {
			return index, err
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", consistency.ErrNoLeader, err)
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

// Namespaces implements [consistency.Store].
func (s *Store) Namespaces() []naming.Namespace { return s.table.Namespaces() }

// Publications implements [consistency.Store].
func (s *Store) Publications(svc naming.ServiceKey) []consistency.Publication {
	return s.table.Publications(svc)
}

// Switches implements [consistency.Store].
func (s *Store) Switches() map[string]string { return s.table.Switches() }

// Listen implements [consistency.Store].
func (s *Store) Listen(fn func(consistency.ServiceChanged)) { s.table.Listen(fn) }

// Counts returns the number of services and of published instances.
func (s *Store) Counts() (services, instances int) { return s.table.Counts() }
