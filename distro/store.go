package distro

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"rollcall/consistency"
	"rollcall/naming"
)

// Config of the ephemeral store.
type Config struct {
	Node string // this node's name, unique among the nodes
}

// Validate refuses an empty name.
func (c Config) Validate() error {
	if c.Node == "" {
		return errors.New("node is empty: a node needs a name")
	}
	return nil
}

// Store is the ephemeral store of one node; it implements [consistency.Store].
type Store struct {
	data  *consistency.DataStore
	clock *consistency.Clock
	state atomic.Int32 // created, started, closed

	mu sync.Mutex // orders writes: versions rise in the order of the changes
}

const (
	created int32 = iota
	started
	closed
)

// New returns a store that is not started.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Store{data: consistency.NewDataStore(), clock: consistency.NewClock(cfg.Node)}, nil
}

// Start makes the store ready.
func (s *Store) Start() error {
	s.state.CompareAndSwap(created, started)
	return nil
}

// Close makes every further write fail with ErrClosed. Reads go on.
func (s *Store) Close() error {
	s.state.Store(closed)
	return nil
}

// Ready returns nil between Start and Close.
func (s *Store) Ready() error {
	switch s.state.Load() {
	case created:
		return consistency.ErrNotReady
	case closed:
		return consistency.ErrClosed
	}
	return nil
}

// Publish implements [consistency.Store].
func (s *Store) Publish(ctx context.Context, p consistency.Publication) error {
	return s.write(ctx, func(v consistency.Version) { s.data.Publish(p, v) })
}

// Put implements [consistency.Store].
func (s *Store) Put(ctx context.Context, d consistency.Datum) error {
	return s.write(ctx, func(v consistency.Version) {
		d.Version = v
		s.data.Put(d)
	})
}

// Delete implements [consistency.Store].
func (s *Store) Delete(ctx context.Context, k consistency.Key) error {
	return s.write(ctx, func(consistency.Version) { s.data.Delete(k) })
}

func (s *Store) write(ctx context.Context, change func(consistency.Version)) error {
	if err := s.Ready(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.clock.Next())
	return nil
}

// Published implements [consistency.Store].
func (s *Store) Published(svc naming.ServiceKey, publisher string) []*naming.Instance {
	return s.data.Published(svc, publisher)
}

// Service implements [consistency.Store].
func (s *Store) Service(svc naming.ServiceKey) (naming.Service, bool) { return s.data.Service(svc) }

// Stat implements [consistency.Store].
func (s *Store) Stat(svc naming.ServiceKey) consistency.Stat { return s.data.Stat(svc) }

// Services implements [consistency.Store].
func (s *Store) Services(namespace string) []naming.ServiceKey { return s.data.Services(namespace) }

// Listen implements [consistency.Store].
func (s *Store) Listen(fn func(consistency.ServiceChanged)) { s.data.Listen(fn) }

// Switches implements [consistency.Store]: there are none among ephemeral data.
func (s *Store) Switches() map[string]string { return nil }

// Counts returns the number of services and of published instances.
func (s *Store) Counts() (services, instances int) { return s.data.Counts() }
