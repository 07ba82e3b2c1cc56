package consistency_test

import (
	"sync"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

func TestVersion_CompareIsATotalOrder(t *testing.T) {
	version := func(time uint8, node bool) consistency.Version {
		v := consistency.Version{Time: uint64(time % 4), Node: "a"}
		if node {
			v.Node = "b"
		}
		return v
	}
	require.NoError(t, quick.Check(func(t1, t2, t3 uint8, n1, n2, n3 bool) bool {
		a, b, c := version(t1, n1), version(t2, n2), version(t3, n3)
		if (a.Compare(b) == 0) != (a == b) || sign(a.Compare(b)) != -sign(b.Compare(a)) {
			return false
		}
		return a.Compare(b) > 0 || b.Compare(c) > 0 || a.Compare(c) <= 0
	}, quickConfig(t)))
	require.Positive(t, consistency.Version{Time: 2, Node: "a"}.Compare(consistency.Version{Time: 1, Node: "b"}), "time comes first")
	require.Positive(t, consistency.Version{Time: 1, Node: "b"}.Compare(consistency.Version{Time: 1, Node: "a"}))
}

func TestClock_IsMonotonicAmongGoroutines(t *testing.T) {
	c := consistency.NewClock("n1")
	const goroutines, each = 8, 5000
	seen := make([][]consistency.Version, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				seen[g] = append(seen[g], c.Next())
			}
		})
	}
	wg.Wait()
	all := make(map[uint64]bool)
	for _, versions := range seen {
		for n, v := range versions {
			require.Equal(t, "n1", v.Node)
			require.False(t, all[v.Time], "given out twice")
			all[v.Time] = true
			if n > 0 {
				require.Positive(t, v.Compare(versions[n-1]))
			}
		}
	}
}

func TestClock_FollowsTheWallClock(t *testing.T) {
	before := time.Now().UnixMilli()
	v := consistency.NewClock("n1").Next()
	require.InDelta(t, before, v.Time>>16, 10_000)
}

func TestClock_Observe(t *testing.T) {
	c := consistency.NewClock("n1")
	now := c.Next()
	c.Observe(consistency.Version{Time: now.Time - 1<<30, Node: "n2"})
	next := c.Next()
	require.Positive(t, next.Compare(now), "an old version changes nothing")
	require.Less(t, next.Time-now.Time, uint64(10_000<<16))

	ahead := consistency.Version{Time: now.Time + 1<<40, Node: "n2"}
	c.Observe(ahead)
	require.Equal(t, ahead.Time+1, c.Next().Time, "one far ahead is followed")
	require.Equal(t, ahead.Time+2, c.Next().Time)
}
