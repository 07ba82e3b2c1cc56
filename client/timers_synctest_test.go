package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEntry_HoldsAfterAReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEntry(func(c *Config) { c.Hold = time.Second })
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
		require.Equal(t, []int{4}, shown(), "the hold is over")
		e.push(list(4), 2)
		require.Empty(t, shown())

		e.push(list(1, 5), 3) // a hold that is cut off
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
