package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/server/wire"
)

// questions is the network of a roster with the nodes n2 and n3.
type questions struct {
	*roster
	mu     sync.Mutex
	asks   map[string][]time.Time
	silent map[string]bool
}

func startRoster(t *testing.T) *questions {
	t.Helper()
	q := &questions{asks: make(map[string][]time.Time), silent: make(map[string]bool)}
	q.roster = newRoster(func() []string { return []string{"n2", "n3"} }, func(ctx context.Context, node string) (*wire.StateReply, error) {
		q.mu.Lock()
		q.asks[node] = append(q.asks[node], time.Now())
		silent := q.silent[node]
		q.mu.Unlock()
		if silent {
			<-ctx.Done()
			return nil, errors.New("no answer")
		}
		return &wire.StateReply{Node: node}, nil
	}, slog.New(slog.DiscardHandler))
	require.NoError(t, q.start())
	t.Cleanup(func() { require.NoError(t, q.close()) })
	synctest.Wait()
	return q
}

func (q *questions) count(node string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.asks[node])
}

// age tells how old the last answer of a node is.
func (q *questions) age(node string) time.Duration {
	q.roster.mu.Lock()
	defer q.roster.mu.Unlock()
	return time.Since(q.at[node])
}

func (q *questions) silence(nodes map[string]bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.silent = maps.Clone(nodes)
}

func TestRoster_AsksSeldomAndSoonWhenItMatters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := startRoster(t)
		require.Equal(t, 1, q.count("n2"), "at once")
		pass(10 * rosterEvery)
		require.InDelta(t, 11, q.count("n2"), 1)
		before := q.count("n3")
		lost := time.Now()
		for range 1000 { // a thousand clients lose their connections
			q.wake()
			pass(time.Millisecond)
		}
		require.False(t, lost.After(q.asks["n3"][before]))
		require.LessOrEqual(t, q.asks["n3"][before].Sub(lost), rosterGap)
		require.True(t, q.heardSince(lost))
		require.LessOrEqual(t, q.count("n3")-before, 12)
	})
}

func TestRoster_ANodeThatDoesNotAnswerMakesTheOthersNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := startRoster(t)
		q.silence(map[string]bool{"n2": true})
		silent := time.Now()
		for time.Since(silent) < 20*time.Second {
			pass(10 * ms)
			require.NotNil(t, q.fresh("n3"), "after %s", time.Since(silent))
			require.LessOrEqual(t, q.age("n3"), rosterEvery, "after %s", time.Since(silent))
		}
		require.Nil(t, q.fresh("n2"))
		require.NotNil(t, q.get("n2"), "what it said last")
		require.False(t, q.reached())
		require.False(t, q.heardSince(silent.Add(time.Nanosecond)))
		q.silence(nil)
		pass(rosterTimeout + rosterEvery)
		require.True(t, q.reached())
		require.True(t, q.heardSince(silent.Add(time.Nanosecond)))
	})
}

func TestRoster_OneLostAnswerIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := startRoster(t)
		pass(rosterEvery - 10*ms)
		q.silence(map[string]bool{"n2": true})
		pass(20 * ms)
		q.silence(nil)
		for range 500 {
			pass(10 * ms)
			require.True(t, q.reached())
		}
	})
}
