package client

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// connector owns the connection: one goroutine looks for a server, watches over the
// session with it, and looks for the next one when it ends.
type connector struct {
	cfg     Config
	log     *slog.Logger
	tour    *tour
	auth    *auth
	keep    *keeper
	open    func(ctx context.Context, number uint64, to server) (connection, error)
	metrics *metrics

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	firstCh chan struct{}              // closed with the first session
	now     atomic.Pointer[connection] // nil: no server is reached
	number  uint64
	pauses  backoff
}

func newConnector(cfg Config, log *slog.Logger, t *tour, a *auth, k *keeper, m *metrics) *connector {
	c := &connector{
		cfg: cfg, log: log, tour: t, auth: a, keep: k, metrics: m,
		firstCh: make(chan struct{}), pauses: backoff{min: cfg.BackoffMin, max: cfg.BackoffMax},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *connector) start() { c.wg.Go(c.run) }

// close ends the session and waits for the goroutine.
func (c *connector) close() {
	c.cancel()
	c.wg.Wait()
}

// current returns the connection, nil if no server is reached.
func (c *connector) current() connection {
	if now := c.now.Load(); now != nil {
		return *now
	}
	return nil
}

// next blocks until there is a connection other than old, or ctx ends; then it returns
// nil.
func (c *connector) next(ctx context.Context, old connection) connection {
	ticker := time.NewTicker(c.cfg.BackoffMin)
	defer ticker.Stop()
	for {
		if s := c.current(); s != nil && s != old {
			return s
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		case <-c.ctx.Done():
			return nil
		}
	}
}

func (c *connector) run() {
	for c.ctx.Err() == nil {
		s := c.connect()
		if s == nil {
			return
		}
		c.use(s)
		for s != nil {
			s = c.serve(s)
		}
	}
}

// connect tries one server after the other until one takes the connection. It returns
// nil when the client is closed.
func (c *connector) connect() connection {
	for c.ctx.Err() == nil {
		to, round, err := c.tour.next(c.ctx)
		if round && !c.pause() {
			return nil
		}
		var s connection
		if err == nil {
			s, err = c.dial(to)
		}
		if err == nil {
			return s
		}
		if c.ctx.Err() == nil {
			c.log.Warn("no connection", "err", err)
			c.metrics.failed.Inc()
		}
	}
	return nil
}

// pause waits for the back-off; false means that the client is closed.
func (c *connector) pause() bool {
	timer := time.NewTimer(c.pauses.next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

func (c *connector) dial(to server) (connection, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.cfg.ConnectTimeout, fmt.Errorf("no answer within %v", c.cfg.ConnectTimeout))
	defer cancel()
	if err := c.auth.login(ctx, to); err != nil {
		c.log.Warn("no login", "server", to.String(), "err", err) // the calls tell what that means
	}
	c.number++
	return c.open(ctx, c.number, to)
}

// use makes a session the one that everything goes over, and replays all wishes.
func (c *connector) use(s connection) {
	c.log.Info("connected", "server", s.state().server.String(), "conn", s.state().id)
	c.metrics.connects.Inc()
	c.now.Store(&s)
	c.keep.connected(s)
	select {
	case <-c.firstCh:
	default:
		close(c.firstCh)
	}
}

// serve uses a session until it ends, and returns the one that has taken its place, nil
// if none has.
func (c *connector) serve(s connection) (next connection) {
	next = c.watch(s)
	if next != nil {
		c.use(next)
		ctx, cancel := context.WithTimeout(c.ctx, c.cfg.CallTimeout)
		c.keep.settle(ctx) // what is here goes when it is there, so that nobody sees it missing
		cancel()
		s.close()
		return next
	}
	c.now.Store(nil)
	c.keep.disconnected()
	s.close()
	if c.ctx.Err() == nil {
		l := s.state()
		c.log.Warn("connection lost", "server", l.server.String(), "conn", l.id, "err", l.why())
		c.tour.after(c.ctx, l.server)
	}
	return nil
}

// watch blocks until the session ends or another one is to take its place.
func (c *connector) watch(s connection) (next connection) {
	l := s.state()
	timer := time.NewTimer(c.cfg.HealthInterval)
	defer timer.Stop()
	for {
		suspect := false
		select {
		case <-c.ctx.Done():
			l.end(ErrClosed)
			return nil
		case <-l.done():
			c.rest(l)
			return nil
		case r := <-l.resetCh:
			if next := c.move(s, r); next != nil {
				return next
			}
			continue
		case <-l.suspectCh:
			suspect = true
		case <-timer.C:
		}
		if l.age() > c.cfg.BackoffMax {
			c.pauses.reset()
		}
		if err := c.auth.login(c.ctx, l.server); err != nil {
			c.log.Warn("no new login", "server", l.server.String(), "err", err)
		}
		if suspect || l.quiet() >= c.cfg.HealthInterval {
			if err := s.health(c.ctx); err != nil && (!answered(err) || unknownConnection(err)) {
				l.end(fmt.Errorf("no sign of health: %w", err))
				continue
			}
		}
		timer.Reset(max(c.cfg.HealthInterval-l.quiet(), c.cfg.HealthInterval/10))
	}
}

// rest pauses after a session that ended soon after it began, so that a server that
// takes connections only to drop them is not asked without end.
func (c *connector) rest(l *life) {
	if c.ctx.Err() == nil && l.age() < c.cfg.BackoffMax {
		c.pause()
	}
}

// move follows a server's request to go to another one: the new session stands before
// the present one is left. It returns nil if the present one is to stay.
func (c *connector) move(s connection, r resetRequest) connection {
	l := s.state()
	to, ok := c.tour.find(c.ctx, r.ip, r.port)
	if !ok || to == l.server {
		c.tour.after(c.ctx, l.server)
		var err error
		if to, _, err = c.tour.next(c.ctx); err != nil || to == l.server {
			c.log.Info("the server asks to move, and there is no other", "server", l.server.String())
			return nil
		}
	}
	c.rest(l)
	next, err := c.dial(to)
	if err != nil {
		c.log.Warn("the server asks to move, and the other one does not take the connection", "server", l.server.String(), "err", err)
		return nil
	}
	c.log.Info("moved at the server's request", "server", l.server.String(), "to", to.String())
	c.tour.after(c.ctx, to)
	return next
}
