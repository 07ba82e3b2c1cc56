package server

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// pass lets time pass and everything happen that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// runTimers returns timers that run until the end of the test, begun a while after
// they were made.
func runTimers(t *testing.T, after time.Duration, gap func(time.Duration)) *timers {
	t.Helper()
	x := newTimers(gap)
	time.Sleep(after)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { x.run(done) })
	t.Cleanup(func() {
		close(done)
		wg.Wait()
	})
	return x
}

func noGap(t *testing.T) func(time.Duration) {
	t.Helper()
	return func(d time.Duration) { t.Errorf("a pause of %v that was none", d) }
}

func TestTimers_NeverEarlyAndATickLateAtMost(t *testing.T) {
	for n, after := range []time.Duration{0, 1 * ms, 37 * ms, 99 * ms, 250 * ms} {
		synctest.Test(t, func(t *testing.T) {
			x := runTimers(t, after, noGap(t))
			random := rand.New(rand.NewPCG(1, 2))
			planned, ran := 0, 0
			pause := []time.Duration{50 * ms, 2 * time.Second}[n%2] // something is always due soon, or seldom
			for range 500 {
				when := time.Now().Add(time.Duration(random.Int64N(int64(20 * time.Second))))
				planned++
				x.at(when, taskFunc(func(now time.Time) {
					ran++
					require.Equal(t, time.Now(), now)
					require.False(t, now.Before(when), "early by %v", when.Sub(now))
					require.Less(t, now.Sub(when), tick)
				}))
				pass(time.Duration(random.Int64N(int64(pause))))
			}
			pass(21 * time.Second)
			require.Equal(t, planned, ran)
			require.Empty(t, x.slots, "nothing is kept")
		})
	}
}

func TestTimers_WhatIsDueAlreadyRunsWithTheNextTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := runTimers(t, 0, noGap(t))
		pass(10*time.Second + 30*ms)
		start := time.Now()
		var order []int
		var at []time.Duration
		run := func(n int) taskFunc {
			return func(now time.Time) { order, at = append(order, n), append(at, now.Sub(start)) }
		}
		x.at(start.Add(-time.Hour), run(1))
		x.at(start, run(2))
		x.at(start.Add(70*ms), taskFunc(func(now time.Time) {
			run(3)(now)
			x.at(now, run(4)) // planned by a task for now: the tick after
		}))
		pass(time.Second)
		require.Equal(t, []int{1, 2, 3, 4}, order, "in the order of planning")
		require.Equal(t, []time.Duration{70 * ms, 70 * ms, 70 * ms, 170 * ms}, at)
	})
}

func TestTimers_TellOfAPauseBeforeTasksRun(t *testing.T) {
	for name, c := range map[string]struct {
		blocked time.Duration
		told    bool
	}{
		"busy":   {time.Second, false},
		"paused": {20 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var paused time.Duration
				x := runTimers(t, 0, func(d time.Duration) { paused = d })
				ran := false
				x.at(time.Now().Add(time.Second), taskFunc(func(time.Time) { time.Sleep(c.blocked) }))
				x.at(time.Now().Add(1100*ms), taskFunc(func(now time.Time) {
					ran = true
					require.Equal(t, c.told, paused > 0)
				}))
				pass(time.Second + c.blocked)
				require.True(t, ran || c.blocked < tick)
				pass(time.Minute)
				if c.told {
					require.InDelta(t, c.blocked, paused, float64(tick))
				} else {
					require.Zero(t, paused)
				}
			})
		})
	}
}
