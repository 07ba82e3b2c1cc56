package push

import (
	"container/heap"
	"slices"
	"testing"
	"testing/quick"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCoalescer(t *testing.T) {
	cfg := DefaultConfig()
	at := func(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }
	var c coalescer
	for _, step := range []struct {
		ms              int
		atOnce, planned bool
		flushAt         int // 0: not looked at
	}{
		{0, true, false, 0},
		{50, false, true, 150},
		{149, false, false, 249},
		{200, false, false, 300},
		{520, false, false, 550}, // the maximum, from the first that waited
		{549, false, false, 550},
	} {
		atOnce, planned := c.changed(cfg, at(step.ms))
		require.Equal(t, step.atOnce, atOnce, step.ms)
		require.Equal(t, step.planned, planned, step.ms)
		if step.flushAt != 0 {
			require.Equal(t, at(step.flushAt), c.flushAt(cfg), step.ms)
		}
	}
	require.Equal(t, at(150), c.due, "where the heap has it does not move with each change")
}

// model flushes on the same rules, told as a loop over time.
func model(cfg Config, changes []time.Duration) (flushes []time.Duration) {
	var last, first time.Duration = -time.Hour, -1
	end := changes[len(changes)-1] + time.Second
	for now := time.Duration(0); now < end; now += time.Millisecond {
		if first >= 0 && (now-last >= cfg.Quiet || now-first >= cfg.Max) {
			flushes = append(flushes, now)
			last, first = now, -1
		}
		for len(changes) > 0 && changes[0] == now {
			changes = changes[1:]
			switch {
			case first >= 0:
			case now-last >= cfg.Quiet:
				flushes = append(flushes, now)
			default:
				first = now
			}
			last = now
		}
	}
	return flushes
}

func TestAgenda_FlushesLikeTheModel(t *testing.T) {
	cfg := DefaultConfig()
	start := time.UnixMilli(1_000_000)
	require.NoError(t, quick.Check(func(pauses []uint8) bool {
		if len(pauses) == 0 {
			return true
		}
		var changes []time.Duration
		now := time.Duration(0)
		for _, p := range pauses {
			now += time.Duration(p) * time.Millisecond
			changes = append(changes, now)
		}
		a := agenda{signal: make(chan struct{}, 1)}
		topic := &topic{key: service("a")}
		var flushes []time.Duration
		todo := slices.Clone(changes)
		for now := time.Duration(0); now < changes[len(changes)-1]+time.Second; now += time.Millisecond {
			look := func() {
				for range a.take(cfg, start.Add(now)).flush {
					flushes = append(flushes, now)
				}
			}
			look()
			for len(todo) > 0 && todo[0] == now {
				todo = todo[1:]
				a.changed(topic, cfg, start.Add(now))
				look()
			}
		}
		return slices.Equal(flushes, model(cfg, changes)) && len(a.merge) == 0
	}, nil))
}

func TestMergeHeap_OrdersByDue(t *testing.T) {
	require.NoError(t, quick.Check(func(dues []int16) bool {
		var h mergeHeap
		for _, d := range dues {
			x := &topic{}
			x.coalesce.due = time.UnixMilli(int64(d))
			heap.Push(&h, x)
		}
		var got []int16
		for h.Len() > 0 {
			got = append(got, int16(heap.Pop(&h).(*topic).coalesce.due.UnixMilli()))
		}
		return slices.Equal(got, slices.Sorted(slices.Values(dues)))
	}, nil))
}

// fifo against a slice, with many entries that come and go.
func TestFifo_AgreesWithASlice(t *testing.T) {
	require.NoError(t, quick.Check(func(steps []uint16) bool {
		var q fifo
		var plain []uint64
		seq, now := uint64(0), time.UnixMilli(0)
		for _, step := range steps {
			for range step % 700 {
				seq++
				if first := q.push(entry{at: now.Add(10 * time.Millisecond), seq: seq}); first != (len(plain) == 0) {
					return false
				}
				plain = append(plain, seq)
			}
			if step%3 == 0 {
				continue
			}
			now = now.Add(time.Duration(step%20) * time.Millisecond)
			var next time.Time
			for _, e := range q.take(now, &next) {
				if len(plain) == 0 || e.seq != plain[0] || e.at.After(now) {
					return false
				}
				plain = plain[1:]
			}
			if (len(plain) > 0) == next.IsZero() || len(plain) > 0 && !next.After(now) {
				return false
			}
		}
		return true
	}, &quick.Config{MaxCount: 50}))
}

func TestFifo_KeepsTheEarlierNext(t *testing.T) {
	var q fifo
	q.push(entry{at: time.UnixMilli(20)})
	next := time.UnixMilli(10)
	require.Empty(t, q.take(time.UnixMilli(5), &next))
	require.Equal(t, time.UnixMilli(10), next)
	next = time.UnixMilli(30)
	require.Empty(t, q.take(time.UnixMilli(5), &next))
	require.Equal(t, time.UnixMilli(20), next)
	require.Len(t, q.take(time.UnixMilli(20), &next), 1, "due at its time")
}
