package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"rollcall/naming"
)

// Client registers instances with a registry and finds those of others. Use [New]. Its
// methods are safe for concurrent use.
type Client struct {
	cfg      Config
	log      *slog.Logger
	metrics  *metrics
	web      *web
	auth     *auth
	deliver  *delivery
	cache    *cache
	keep     *keeper
	connect  *connector
	udp      *udpReceiver // nil: no pushes over UDP
	disk     *diskCache   // nil: no cache on the disk
	failover *failover    // nil: none
	pickers  pickers
	once     sync.Once
	wg       sync.WaitGroup  // of Close, which waits for a bounded time
	closing  context.Context // ends when Close begins
	end      context.CancelFunc
	closeErr error
}

// State is what a client says of its own health.
type State string

// The states of a client.
const (
	Up   State = "UP"   // a server is reached
	Down State = "DOWN" // no server is reached; lists are those of the last contact
)

// New returns a client that works until its Close, whatever becomes of the servers. It
// blocks until a server is reached, cfg.ConnectWait has passed, or ctx ends. A server
// that is not reached is no error: lists may come from the disk cache, registrations
// are made when there is a server, and Status tells. Errors are a configuration that
// cannot work, metrics that are registered already, and the end of ctx.
func New(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("component", "client", "namespace", cfg.Namespace)
	t, err := newTour(cfg)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	c := &Client{cfg: cfg, log: log, metrics: newMetrics(), deliver: newDelivery()}
	c.web = newWeb(cfg, c.broken)
	c.closing, c.end = context.WithCancel(context.Background())
	c.auth = newAuth(cfg, c.web)
	c.cache = newCache(cfg, c.deliver)
	c.keep = newKeeper(cfg, log, c.cache, c.metrics)
	c.connect = newConnector(cfg, log, t, c.auth, c.keep, c.metrics)
	if cfg.Mode == ModeHTTP {
		c.openHTTP()
	} else {
		c.connect.open = func(ctx context.Context, number uint64, to server) (connection, error) {
			return dial(ctx, number, to, cfg, log, c.auth, c)
		}
	}
	c.metrics.watch(c.keep)
	if cfg.CacheDir != "" {
		if err := c.openDisk(); err != nil {
			return nil, err
		}
	}
	if cfg.Mode == ModeHTTP && cfg.UDPPushes {
		if c.udp, err = newUDP(ctx, log); err != nil {
			return nil, err
		}
		c.udp.known, c.udp.dump = c.knownIn, c.dumped
		c.udp.take = func(s *Service) {
			c.metrics.pushes.Inc()
			if now := c.connect.current(); now != nil {
				c.take(now.state().number, s)
			}
		}
	}
	if err := c.metrics.register(cfg.Metrics); err != nil {
		if c.udp != nil {
			c.udp.close()
		}
		return nil, err
	}
	if c.udp != nil {
		c.udp.start()
	}
	if c.disk != nil {
		c.disk.start()
		c.failover.start()
	}
	c.deliver.start(cfg.Callbacks)
	c.keep.start()
	c.connect.start()
	timer := time.NewTimer(cfg.ConnectWait)
	defer timer.Stop()
	select {
	case <-c.connect.firstCh:
	case <-timer.C:
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), c.Close())
	}
	return c, nil
}

// openDisk prepares the disk cache and failover.
func (c *Client) openDisk() (err error) {
	if c.disk, err = newDiskCache(c.cfg, c.log); err != nil {
		return err
	}
	c.failover = newFailover(c.cfg, c.log)
	c.cache.changed = c.disk.changed
	c.cache.loaded = func(key naming.ServiceKey) *Service { return c.disk.loaded[key] }
	c.cache.failed = c.failover.get
	c.failover.show = func(old, lists map[naming.ServiceKey]*Service) {
		for key := range old {
			if e := c.cache.find(key); e != nil && lists[key] == nil {
				e.setFailover(nil)
			}
		}
		for key, s := range lists {
			if e := c.cache.find(key); e != nil {
				e.setFailover(s)
			}
		}
	}
	return nil
}

// Close deregisters what the client has registered, ends all subscriptions and the
// connection, and returns when its goroutines have ended, within cfg.CloseTimeout. An
// error tells what did not end in time: a deregistration, which the end of the
// connection makes up for, or a callback that does not return. Closing again returns
// the same.
func (c *Client) Close() error {
	c.once.Do(func() { c.closeErr = c.shut() })
	return c.closeErr
}

func (c *Client) shut() error {
	c.end()
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.cfg.CloseTimeout/2, fmt.Errorf("not done within %v", c.cfg.CloseTimeout/2))
	defer cancel()
	var errs []error
	if err := c.keep.withdrawAll(ctx); err != nil {
		errs = append(errs, fmt.Errorf("deregister: %w", err))
	}
	doneCh := make(chan struct{})
	c.wg.Go(func() {
		defer close(doneCh)
		c.connect.close()
		c.keep.close()
		if c.udp != nil {
			c.udp.close()
		}
		c.cache.close()
		if c.disk != nil {
			c.failover.close()
			c.disk.close()
		}
		c.deliver.close()
		c.web.close()
		c.metrics.unregister()
	})
	timer := time.NewTimer(c.cfg.CloseTimeout / 2)
	defer timer.Stop()
	select {
	case <-doneCh:
	case <-timer.C:
		errs = append(errs, fmt.Errorf("close: not all goroutines ended within %v; does a callback block?", c.cfg.CloseTimeout/2))
	}
	return errors.Join(errs...)
}

// Status returns Up while a server is reached, else Down.
func (c *Client) Status() State {
	if c.connect.current() != nil {
		return Up
	}
	return Down
}

// Server returns the server that the client is connected to, as host:port, followed by
// the address where the host is a name; empty if there is none.
func (c *Client) Server() string {
	if s := c.connect.current(); s != nil {
		return s.state().server.String()
	}
	return ""
}

// complete fills in what a key leaves out: the client's namespace, the default group.
func (c *Client) complete(svc naming.ServiceKey) naming.ServiceKey {
	if svc.Namespace == "" {
		svc.Namespace = c.cfg.Namespace
	}
	if svc.Group == "" {
		svc.Group = naming.DefaultGroup
	}
	return svc
}

// key completes and checks a service's key.
func (c *Client) key(svc naming.ServiceKey) (naming.ServiceKey, error) {
	svc = c.complete(svc)
	if svc.Namespace != c.cfg.Namespace {
		return svc, fmt.Errorf("namespace is %q, and the client works in %q: leave it empty, or make a client for each", svc.Namespace, c.cfg.Namespace)
	}
	return svc, naming.CheckKey(svc)
}

// pushed takes a list that a server pushed over a connection.
func (c *Client) pushed(number uint64, body []byte) error {
	c.metrics.pushes.Inc()
	m, err := decodeMessage(body, c.knownIn)
	switch {
	case err != nil:
		c.keep.doubtAll() // nobody knows which service it was about
		return err
	case m.service == nil:
		return errNoList
	}
	c.take(number, m.service)
	return nil
}

// knownIn returns the list that there is of a service of the client's namespace.
func (c *Client) knownIn(group, name string) *Service {
	return c.cache.known(naming.ServiceKey{Namespace: c.cfg.Namespace, Group: group, Name: name})
}

// take hands a pushed list to its entry; one that nobody wants any more is dropped.
func (c *Client) take(number uint64, s *Service) {
	s.Key.Namespace = c.cfg.Namespace
	if e := c.cache.find(s.Key); e != nil && e.push(s, number) == outdated {
		c.keep.doubt(e)
	}
}
