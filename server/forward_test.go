package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/server/wire"
)

// scripted is a persistent store whose writes answer what the script says, one line
// for each try, wherever it is made.
type scripted struct {
	consistency.Store
	script []answered
	tries  []string // "here" or the name of the node, and the id of the request
}

// answered is what becomes of one try.
type answered struct {
	index uint64
	err   error
}

func (s *scripted) try(where, id string) (uint64, error) {
	s.tries = append(s.tries, where+" "+id)
	now := s.script[0]
	s.script = s.script[1:]
	return now.index, now.err
}

func (s *scripted) Delete(ctx context.Context, _ consistency.Key) error {
	index, err := s.try("here", consistency.RequestOf(ctx).ID())
	if err == nil {
		consistency.RequestOf(ctx).Wrote(index)
	}
	return err
}

func (s *scripted) forwarding(applied *uint64) *forwarding {
	return &forwarding{
		Store:       s,
		waitApplied: func(_ context.Context, index uint64) error { *applied = index; return nil },
		encode:      encoders{delete: func(consistency.Key) ([]byte, error) { return []byte("op"), nil }},
		send: func(_ context.Context, node string, q *wire.WriteRequest) (uint64, error) {
			return s.try(node, q.GetRequest())
		},
		timeout: time.Minute,
	}
}

func TestForwarding_EveryTryIsOneRequest(t *testing.T) {
	to := func(node string) error { return &consistency.RedirectError{Node: node} }
	lost := errors.New("connection reset")
	unreached := fmt.Errorf("%w: node n2: refused", errUnsent)
	for name, c := range map[string]struct {
		script []answered
		where  []string
		index  uint64
		fails  []error // the error is all of these
		sure   bool    // it is not ErrUnknownOutcome
	}{
		"the leader":           {script: []answered{{index: 7}}, where: []string{"here"}, index: 7},
		"another node leads":   {script: []answered{{err: to("n2")}, {index: 7}}, where: []string{"here", "n2"}, index: 7},
		"unknown here":         {script: []answered{{err: consistency.ErrUnknownOutcome}, {index: 7}}, where: []string{"here", "here"}, index: 7},
		"unknown, then moved":  {script: []answered{{err: consistency.ErrUnknownOutcome}, {err: to("n3")}, {index: 7}}, where: []string{"here", "here", "n3"}, index: 7},
		"the answer was lost":  {script: []answered{{err: to("n2")}, {err: lost}, {err: to("n3")}, {index: 7}}, where: []string{"here", "n2", "here", "n3"}, index: 7},
		"it does not lead":     {script: []answered{{err: to("n2")}, {err: consistency.ErrNoLeader}, {index: 7}}, where: []string{"here", "n2", "here"}, index: 7},
		"nobody leads":         {script: []answered{{err: consistency.ErrNoLeader}}, where: []string{"here"}, fails: []error{consistency.ErrNoLeader}, sure: true},
		"dead, nobody leads":   {script: []answered{{err: to("n2")}, {err: unreached}, {err: consistency.ErrNoLeader}}, where: []string{"here", "n2", "here"}, fails: []error{consistency.ErrNoLeader}, sure: true},
		"lost, nobody leads":   {script: []answered{{err: to("n2")}, {err: lost}, {err: consistency.ErrNoLeader}}, where: []string{"here", "n2", "here"}, fails: []error{consistency.ErrNoLeader, consistency.ErrUnknownOutcome}},
		"unknown, none leads":  {script: []answered{{err: consistency.ErrUnknownOutcome}, {err: consistency.ErrNoLeader}}, where: []string{"here", "here"}, fails: []error{consistency.ErrNoLeader, consistency.ErrUnknownOutcome}},
		"full disk":            {script: []answered{{err: consistency.ErrReadOnly}}, where: []string{"here"}, fails: []error{consistency.ErrReadOnly}, sure: true},
		"full disk there":      {script: []answered{{err: to("n2")}, {err: consistency.ErrReadOnly}}, where: []string{"here", "n2"}, fails: []error{consistency.ErrReadOnly}, sure: true},
		"unknown, then full":   {script: []answered{{err: consistency.ErrUnknownOutcome}, {err: consistency.ErrReadOnly}}, where: []string{"here", "here"}, fails: []error{consistency.ErrReadOnly, consistency.ErrUnknownOutcome}},
		"closed":               {script: []answered{{err: consistency.ErrClosed}}, where: []string{"here"}, fails: []error{consistency.ErrClosed}, sure: true},
		"a fault of the write": {script: []answered{{err: lost}}, where: []string{"here"}, fails: []error{lost}, sure: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, applied := &scripted{script: c.script}, uint64(0)
			ctx, request := consistency.WithRequest(t.Context(), "")
			err := s.forwarding(&applied).Delete(ctx, consistency.Key{})
			for _, want := range c.fails {
				require.ErrorIs(t, err, want)
			}
			if c.fails == nil {
				require.NoError(t, err)
			}
			if c.sure {
				require.NotErrorIs(t, err, consistency.ErrUnknownOutcome)
			}
			require.Equal(t, c.index, request.Index())
			require.Empty(t, s.script)
			id := s.tries[0][len("here "):]
			require.NotEmpty(t, id)
			for n, where := range c.where {
				require.Equal(t, where+" "+id, s.tries[n])
			}
			if where := c.where[len(c.where)-1]; where != "here" {
				require.Equal(t, c.index, applied, "it waits until this node shows the write")
			}
		})
	}
}

func TestForwarding_KeepsTheRequestOfItsCaller(t *testing.T) {
	s, applied := &scripted{script: []answered{{index: 7}, {index: 9}}}, uint64(0)
	f := s.forwarding(&applied)
	ctx, request := consistency.WithRequest(t.Context(), "mine")
	require.NoError(t, f.Delete(ctx, consistency.Key{}))
	require.NoError(t, f.Delete(ctx, consistency.Key{}))
	require.Equal(t, []string{"here mine", "here mine"}, s.tries)
	require.EqualValues(t, 9, request.Index())
}

func TestForwarding_EndsInTime(t *testing.T) {
	s, applied := &scripted{}, uint64(0)
	for range 10 {
		s.script = append(s.script, answered{err: consistency.ErrUnknownOutcome})
	}
	f := s.forwarding(&applied)
	f.timeout = 3 * forwardRetry
	require.ErrorIs(t, f.Delete(t.Context(), consistency.Key{}), consistency.ErrUnknownOutcome)
	require.Less(t, len(s.tries), 6)
}

// A leader that everybody believes in and nobody reaches is none.
func TestForwarding_LeaderThatIsNotReached(t *testing.T) {
	s, applied := &scripted{}, uint64(0)
	for range 20 {
		s.script = append(s.script, answered{err: &consistency.RedirectError{Node: "n2"}}, answered{err: fmt.Errorf("%w: node n2: refused", errUnsent)})
	}
	f := s.forwarding(&applied)
	f.timeout = 3 * forwardRetry
	err := f.Delete(t.Context(), consistency.Key{})
	require.ErrorIs(t, err, consistency.ErrNoLeader)
	require.NotErrorIs(t, err, consistency.ErrUnknownOutcome)
	require.ErrorContains(t, err, "node n2")
}

// A node that was away for long is reached as soon as it is back.
func TestPeers_ANodeThatComesBackIsReachedSoon(t *testing.T) {
	l, err := listen("127.0.0.1", 0, "peer-port")
	require.NoError(t, err)
	address := l.Addr().String()
	require.NoError(t, l.Close())
	p := newPeers(func(string) (string, bool) { return address, true })
	defer func() { require.NoError(t, p.close()) }()
	stats := func() error { return p.ask(t.Context(), "n2", "Stats", &wire.StatsRequest{}, new(wire.StatsReply)) }
	for begin := time.Now(); time.Since(begin) < 4*time.Second; {
		require.ErrorIs(t, stats(), errUnsent)
		<-time.After(5 * time.Millisecond)
	}
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	l, err = listen("127.0.0.1", number, "peer-port")
	require.NoError(t, err)
	service := newPeerService(l, nil, nil, nil, nil, slog.New(slog.DiscardHandler))
	service.store = steady{}
	require.NoError(t, service.start())
	defer func() { require.NoError(t, service.close()) }()
	begin := time.Now()
	require.Eventually(t, func() bool { return stats() == nil }, 10*time.Second, 5*time.Millisecond)
	require.Less(t, time.Since(begin), time.Second)
}

// steady is a store that tells how far it is.
type steady struct{ leading }

func (steady) Stats() (term, lastIndex uint64, sinceContact time.Duration) { return 1, 2, 3 }
