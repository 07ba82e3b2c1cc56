package push

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func TestConfig_Validate(t *testing.T) {
	require.NoError(t, DefaultConfig().Validate())
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"quiet":         {func(c *Config) { c.Quiet = 0 }, "push.quiet is 0s: it must be above zero"},
		"max":           {func(c *Config) { c.Max = -time.Second }, "push.max is -1s: it must be above zero"},
		"first":         {func(c *Config) { c.First = 0 }, "push.first is 0s"},
		"ack":           {func(c *Config) { c.Ack = 0 }, "push.ack is 0s"},
		"retry":         {func(c *Config) { c.Retry = 0 }, "push.retry is 0s"},
		"udp-ack":       {func(c *Config) { c.UDPAck = 0 }, "push.udp-ack is 0s"},
		"udp-lease":     {func(c *Config) { c.UDPLease = 0 }, "push.udp-lease is 0s"},
		"max and quiet": {func(c *Config) { c.Max = c.Quiet - 1 }, "below push.quiet"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultConfig()
			c.change(&cfg)
			require.ErrorContains(t, cfg.Validate(), c.says)
			_, err := New(cfg, newRegistry(), nil)
			require.ErrorContains(t, err, c.says)
		})
	}
	cfg := DefaultConfig()
	cfg.Max = cfg.Quiet
	require.NoError(t, cfg.Validate())
}

func TestNew_MetricsGoToTheGivenRegisterer(t *testing.T) {
	for range 2 { // two engines in one process
		_, err := New(DefaultConfig(), newRegistry(), prometheus.NewRegistry())
		require.NoError(t, err)
	}
}

// Subscribing against closing, unsubscribing and changes: nothing may be left.
func TestSubscriber_SubscribeConcurrentWithClose(t *testing.T) {
	r := newRegistry()
	e, _ := start(t, r)
	for range 500 {
		s := e.NewSubscriber(Peer{}, e.GRPC(), func() {})
		var wg sync.WaitGroup
		for _, f := range []naming.Filter{{}, clusters("c")} {
			wg.Go(func() { s.Subscribe(service("a"), f) })
			wg.Go(func() { s.Unsubscribe(service("a"), f) })
		}
		wg.Go(func() { e.Notify(service("a")); s.Next() })
		wg.Go(s.Close)
		wg.Wait()
		_, ok := s.Next()
		require.False(t, ok)
		require.Zero(t, e.Subscriptions())
		require.False(t, e.Watched(service("a")))
	}
	require.Empty(t, e.topics)

	s := e.NewSubscriber(Peer{}, e.GRPC(), func() {})
	s.Close()
	s.Subscribe(service("a"), naming.Filter{})
	require.Empty(t, e.topics, "what is closed subscribes to nothing")
}

// Every Idle belongs to a moment in which nobody subscribed, so what follows the
// last end of all is always known.
func TestEngine_IdleFollowsTheLastEnd(t *testing.T) {
	r := newRegistry()
	e, _ := start(t, r)
	for range 300 {
		before := len(r.idled())
		var wg sync.WaitGroup
		for range 4 {
			s := e.NewSubscriber(Peer{}, e.GRPC(), func() {})
			s.Subscribe(service("a"), naming.Filter{})
			wg.Go(s.Close)
		}
		wg.Wait()
		require.Greater(t, len(r.idled()), before)
		require.False(t, e.Watched(service("a")))
	}
}
