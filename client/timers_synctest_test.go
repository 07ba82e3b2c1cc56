package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func TestEntry_HoldsAfterAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEntry(func(c *Config) { c.Hold = time.Second })
		var asked atomic.Int32
		e.cache.doubt = func(*entry) { asked.Add(1) }
		shown := func() []int { return ports(e.shown.Load().service.Instances) }
		e.push(list(1, 1, 2, 3), 1)
		e.push(list(2, 1, 2), 1)
		require.Equal(t, []int{1, 2}, shown(), "without a reconnect removals count at once")
		e.push(list(1), 2)
		require.Equal(t, []int{1, 2}, shown())
		e.push(list(2, 2, 4), 2)
		require.Equal(t, []int{1, 2, 4}, shown(), "additions count at once")
		time.Sleep(900 * time.Millisecond)
		e.push(list(3, 4), 2)
		require.Equal(t, []int{1, 2, 4}, shown())
		time.Sleep(101 * time.Millisecond)
		require.Equal(t, []int{1, 2, 4}, shown(), "a push may have got lost")
		require.EqualValues(t, 1, asked.Load())
		e.answer(list(3, 4), 2, e.mark())
		require.Equal(t, []int{4}, shown(), "the hold is over")
		e.push(list(4), 2)
		require.Empty(t, shown())

		// The server that is asked when the hold is over does not answer, the next one does.
		e.push(list(1, 5), 3)
		e.push(list(1), 4)
		time.Sleep(1001 * time.Millisecond)
		require.EqualValues(t, 2, asked.Load())
		e.push(list(1), 5)
		require.Equal(t, []int{5}, shown(), "there it is held again")
		e.push(list(2, 5), 5)
		time.Sleep(1001 * time.Millisecond)
		require.Equal(t, []int{5}, shown())
		require.EqualValues(t, 2, asked.Load(), "nothing is missing")
		e.push(list(3), 5)
		require.Empty(t, shown())

		e.push(list(1, 6), 6)
		e.push(list(1), 7) // a hold that is cut off
		e.cache.close()
	})
}

func TestSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSchedule()
		s.start(2)
		var fast, slow, once atomic.Int32
		s.add(time.Second, func(context.Context) time.Duration { fast.Add(1); return time.Second })
		stopped := s.add(2*time.Second, func(context.Context) time.Duration { slow.Add(1); return 2 * time.Second })
		s.add(time.Minute, func(ctx context.Context) time.Duration {
			once.Add(1)
			<-ctx.Done()
			return time.Hour
		})
		time.Sleep(10*time.Second + time.Millisecond)
		require.EqualValues(t, 10, fast.Load())
		require.EqualValues(t, 5, slow.Load())
		s.stop(stopped)
		s.stop(stopped)
		time.Sleep(time.Minute)
		require.EqualValues(t, 70, fast.Load())
		require.EqualValues(t, 5, slow.Load())
		require.EqualValues(t, 1, once.Load(), "one that blocks keeps its worker alone")
		s.close()
	})
}

func TestPattern_HoldsAfterAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Hold = time.Second
		p := newPattern(patternKey{"public", "*", "*"}, cfg, newDelivery())
		keys := func(names ...string) (out []naming.ServiceKey) {
			for _, n := range names {
				out = append(out, naming.ServiceKey{Namespace: "public", Group: "g", Name: n})
			}
			return out
		}
		shown := func() []naming.ServiceKey { list, _ := p.list(); return list }
		p.begin(1)
		p.take(1, keys("a", "b", "c"), nil, false)
		_, ready := p.list()
		require.False(t, ready)
		p.take(1, nil, keys("c"), true)
		_, ready = p.list()
		require.True(t, ready)
		require.Equal(t, keys("a", "b"), shown())
		p.begin(2)
		p.take(1, keys("z"), nil, false) // of the connection before
		p.take(2, keys("d"), keys("a", "b", "y"), false)
		require.Equal(t, keys("a", "b", "d"), shown())
		told, _ := p.keys()
		require.Equal(t, []string{"public@@g@@d"}, told, "the server is told what it has")
		p.take(2, keys("b"), nil, false)
		time.Sleep(time.Second + time.Millisecond)
		require.Equal(t, keys("b", "d"), shown())
		p.close()
	})
}
