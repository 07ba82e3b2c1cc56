package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// crowd are clients that go when they are asked, but for the deaf ones.
type crowd struct {
	present, deaf, going int
	moved                map[string]int // by the place that they went to
	expelled             int
}

func (c *crowd) Present() int { return c.present + c.deaf + c.going }

func (c *crowd) Staying() int { return c.present + c.deaf }

func (c *crowd) Move(n int, to func() (string, int)) int {
	n = min(n, c.present)
	for range n {
		ip, _ := to()
		c.moved[ip]++
	}
	c.present -= n
	if c.present == 0 {
		c.going, c.deaf = c.going+c.deaf, 0
	}
	return n
}

func (c *crowd) Expel(time.Duration) int {
	c.expelled += c.going
	n := c.going
	c.going = 0
	return n
}

func spreadOver(c *crowd, connections ...int) *spread {
	c.moved = make(map[string]int)
	return newSpread(c, func() []place {
		var out []place
		for k, n := range connections {
			out = append(out, place{ip: string(rune('a' + k)), connections: n})
		}
		return out
	}, func() bool { return false }, 100)
}

func TestSpread_Surplus(t *testing.T) {
	for name, x := range map[string]struct {
		own    int
		others []int
		want   []int // of the looks, one after the other
	}{
		"even":                 {100, []int{100, 100}, []int{0, 0, 0, 0, 0, 0}},
		"a little more":        {110, []int{100, 100}, []int{0, 0, 0, 0, 0, 0}},
		"few":                  {10, []int{0, 0}, []int{0, 0, 0, 0, 0, 0}},
		"less":                 {0, []int{100, 100}, []int{0, 0, 0, 0, 0, 0}},
		"alone":                {1000, nil, []int{0, 0, 0, 0, 0, 0}},
		"notably more":         {300, []int{300, 0}, []int{0, 0, 0, 0, 100, 0, 0}},
		"far more than a rate": {3000, []int{0, 0}, []int{0, 0, 0, 0, 100, 100, 100}},
	} {
		c := &crowd{present: x.own}
		s := spreadOver(c, x.others...)
		began := time.Now()
		for look, want := range x.want {
			if n := s.surplus(s.places(), began.Add(time.Duration(look)*time.Second)); want == 0 {
				require.LessOrEqual(t, n, 1, "%s: look %d", name, look)
			} else {
				require.Equal(t, want, n, "%s: look %d", name, look)
				if x.others[0] == x.own { // the others get what goes
					x.others[1] += 2 * n
					x.others[0] -= n
				}
				c.present -= n
				x.own -= n
			}
		}
	}
}

// Clients that know no other node come back, and are left alone then.
func TestSpread_WhoComesBackIsLeftAlone(t *testing.T) {
	c := &crowd{present: 300}
	places := []int{0, 0}
	s := spreadOver(c, places...)
	asked := 0
	now := time.Now()
	for second := range 9 * 60 {
		now = now.Add(time.Second)
		n := c.Move(s.surplus(s.places(), now), toFewest(s.places()))
		s.last.asked += n
		asked += n
		if second%3 == 0 {
			c.present = 300
		}
	}
	require.Positive(t, asked)
	require.LessOrEqual(t, asked, 1100)
	places = append(places, 0) // another node is there
	s.places = func() []place { return make([]place, len(places)) }
	asked = 0
	for range 2 * unevenLooks {
		now = now.Add(time.Second)
		asked += s.surplus(s.places(), now)
	}
	require.Positive(t, asked)
}

// Clients on their way are counted by no node. They must not make the share look small:
// then too many would be asked, and some of them again.
func TestSpread_WhoIsOnTheWayIsNotMissed(t *testing.T) {
	const way = 3 // looks
	for name, x := range map[string]struct{ nodes, each int }{"third node": {3, 90}, "ninth node": {9, 1000}} {
		connections, arriving := make([]int, x.nodes), make([][way]int, x.nodes) // the last node has just come
		all := 0
		spreads := make([]*spread, x.nodes)
		for self := range spreads {
			spreads[self] = newSpread(nil, nil, nil, 100)
			if self < x.nodes-1 {
				connections[self] = x.each + self
				all += connections[self]
			}
		}
		asked := 0
		began := time.Now()
		for look := range 60 {
			for self, s := range spreads {
				var places []place
				for other, n := range connections {
					if other != self {
						places = append(places, place{port: other, connections: n})
					}
				}
				s.clients = &crowd{present: connections[self]}
				n := s.surplus(places, began.Add(time.Duration(look)*spreadEvery))
				s.last.asked += n
				asked += n
				connections[self] -= n
				for to := toFewest(places); n > 0; n-- {
					_, node := to()
					arriving[node][look%way]++
				}
			}
			for node := range arriving {
				at := &arriving[node][(look+1)%way] // who was asked the longest ago
				connections[node] += *at
				*at = 0
			}
		}
		share := all / x.nodes
		require.LessOrEqual(t, asked, share*11/10, "%s: %v", name, connections)
		for _, n := range connections {
			require.InDelta(t, share, n, float64(share)/5+unevenMost, "%s: %v", name, connections)
		}
	}
}

func TestSpread_ToWhoHasTheFewest(t *testing.T) {
	c := &crowd{present: 90}
	s := spreadOver(c, 40, 10)
	require.Equal(t, 90, c.Move(90, toFewest(s.places())))
	require.Equal(t, map[string]int{"a": 30, "b": 60}, c.moved)
}

func TestSpread_EmptiesInSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{present: 2000, deaf: 3}
		s := spreadOver(c, 0, 0)
		began := time.Now()
		s.empty(context.Background(), 2*time.Second)
		require.InDelta(t, 2*time.Second, time.Since(began), float64(200*ms))
		require.Zero(t, c.Present())
		require.Equal(t, 3, c.expelled)
		require.Equal(t, map[string]int{"a": 1000, "b": 1000}, c.moved)
	})
}

func TestSpread_NobodyTakesThem(t *testing.T) {
	c := &crowd{present: 2000}
	s := spreadOver(c)
	s.empty(t.Context(), 2*time.Second)
	require.Equal(t, 2000, c.Present())
}
