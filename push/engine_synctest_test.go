package push

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

const ms = time.Millisecond

// pass lets time pass and everything happen that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// bubble runs a test on an engine with the default times, in a bubble.
func bubble(t *testing.T, run func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		e, reg := start(t, r)
		run(t, e, r, reg)
	})
}

// subscribed returns a client whose first push has come and which starts to count
// time now.
func subscribed(t *testing.T, e *Engine, policy Policy, svc naming.ServiceKey, answer func(*client, Push)) *client {
	t.Helper()
	c := connect(t, e, policy, func(c *client, p Push) {
		if c.started.IsZero() {
			c.Ack(p.Seq, true)
		} else if answer != nil {
			answer(c, p)
		}
	})
	c.started = time.Time{}
	c.Subscribe(svc, naming.Filter{})
	pass(time.Second)
	require.Len(t, c.take(), 1)
	c.started = time.Now()
	return c
}

func TestEngine_FirstChangeOfAQuietServiceIsPushedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), accept)
		for range 3 {
			w := r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(0)
			got := c.take()
			require.Len(t, got, 1)
			require.Equal(t, w, weight(got[0].Push))
			require.Equal(t, service("a"), got[0].Service)
			require.Equal(t, time.Since(c.started), got[0].at)
			pass(100 * ms)
		}
	})
}

func TestEngine_ChangesThatFollowAreMergedUntilQuiet(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), accept)
		last := 0
		for _, pause := range []time.Duration{10 * ms, 80 * ms, 99 * ms, 0} { // at 0, 10, 90, 189
			last = r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(pause)
		}
		pass(10 * time.Second)
		got := c.take()
		require.Equal(t, []time.Duration{0, 289 * ms}, times(got))
		require.Equal(t, 1, weight(got[0].Push))
		require.Equal(t, last, weight(got[1].Push))
	})
}

func TestEngine_AFlushIsFollowedByAnotherQuietTime(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), accept)
		change := func() { r.set(service("a"), "c"); e.Notify(service("a")) }
		change()
		pass(50 * ms)
		change() // flushed at 150
		pass(150 * ms)
		change() // at 200, 50 after a flush: waits
		pass(time.Second)
		change() // quiet again
		pass(time.Second)
		require.Equal(t, []time.Duration{0, 150 * ms, 300 * ms, 1200 * ms}, times(c.take()))
	})
}

func TestEngine_ContinuousChangeIsPushedAtTheMaximum(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), accept)
		last := 0
		for range 100 { // one each 30 ms, the last one at 2970
			last = r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(30 * ms)
		}
		pass(10 * time.Second)
		got := c.take()
		// From the first change that waits, 500 ms each; the end is quiet.
		require.Equal(t, []time.Duration{0, 530 * ms, 1040 * ms, 1550 * ms, 2060 * ms, 2570 * ms, 3070 * ms}, times(got))
		require.Equal(t, last, weight(got[len(got)-1].Push))
	})
}

func TestEngine_ServicesAreMergedEachForItself(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		a := subscribed(t, e, e.GRPC(), service("a"), accept)
		b := subscribed(t, e, e.GRPC(), service("b"), accept)
		a.started = b.started
		for range 20 { // a changes all the time, b once
			r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(50 * ms)
		}
		r.set(service("b"), "c")
		e.Notify(service("b"))
		pass(time.Second)
		require.Equal(t, []time.Duration{1000 * ms}, times(b.take()))
		require.Equal(t, []time.Duration{0, 550 * ms, 1050 * ms}, times(a.take()))
	})
}

func TestEngine_AFirstPushFollowsASubscription(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		r.set(service("a"), "c")
		c := connect(t, e, e.GRPC(), accept)
		c.Subscribe(service("a"), naming.Filter{})
		c.Subscribe(service("none"), naming.Filter{}) // also of a service that does not exist
		c.Subscribe(service("a"), naming.Filter{})
		pass(time.Minute)
		got := c.take()
		require.Equal(t, []time.Duration{30 * ms, 30 * ms}, times(got))
		require.ElementsMatch(t, []naming.ServiceKey{service("a"), service("none")}, []naming.ServiceKey{got[0].Service, got[1].Service})

		c.Subscribe(service("a"), naming.Filter{}) // changes nothing
		pass(time.Minute)
		require.Empty(t, c.take())

		c.Unsubscribe(service("a"), naming.Filter{})
		c.Subscribe(service("a"), naming.Filter{}) // is a new one
		pass(time.Minute)
		require.Len(t, c.take(), 1)
	})
}

func TestEngine_AChangeMeanwhileIsTheFirstPush(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		c := connect(t, e, e.GRPC(), accept)
		c.Subscribe(service("a"), naming.Filter{})
		pass(10 * ms)
		w := r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(time.Minute)
		got := c.take()
		require.Equal(t, []time.Duration{30 * ms}, times(got), "not before the answer to the subscription is in the client")
		require.Equal(t, w, weight(got[0].Push))
	})
}

func TestEngine_AnUnchangedViewIsNotPushed(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
		r.set(service("a"), "c")
		c := connect(t, e, e.GRPC(), accept)
		c.Subscribe(service("a"), clusters("c"))
		pass(time.Second)
		require.Len(t, c.take(), 1)

		for range 10 {
			e.Notify(service("a")) // nothing changed
			pass(30 * ms)
			r.set(service("a"), "other") // nothing that the filter shows
			e.Notify(service("a"))
			pass(time.Second)
		}
		e.Notify(service("nobody"))
		pass(time.Minute)
		require.Empty(t, c.take())
		require.Equal(t, map[string]int{"grpc": 1}, counters(t, reg, "rollcall_push_sent_total"))
	})
}

func TestEngine_ChangesThatUndoEachOtherAreNotPushed(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), accept)
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(0)
		before := r.content(service("a"))
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(50 * ms)
		r.restore(before)
		e.Notify(service("a"))
		pass(time.Minute)
		require.Equal(t, []time.Duration{0}, times(c.take()))
	})
}

// fixed is a Source whose views the test chooses.
type fixed struct {
	info atomic.Pointer[naming.ServiceInfo]
}

func (f *fixed) ServiceInfo(naming.ServiceKey, naming.Filter) *naming.ServiceInfo {
	return f.info.Load()
}

func (f *fixed) Idle(naming.ServiceKey) {}

func TestSubscriber_AViewThatChangedBackBeforeItWasTakenIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var source fixed
		before, after := new(naming.ServiceInfo), new(naming.ServiceInfo)
		source.info.Store(before)
		e, _ := start(t, &source)
		woken := 0
		s := e.NewSubscriber(Peer{}, e.GRPC(), func() { woken++ })
		s.Subscribe(service("a"), naming.Filter{})
		pass(time.Second)
		p, ok := s.Next()
		require.True(t, ok)
		s.Ack(p.Seq, true)
		require.Equal(t, 1, woken)

		source.info.Store(after)
		e.Notify(service("a"))
		pass(time.Second)
		require.Equal(t, 2, woken)
		source.info.Store(before)
		_, ok = s.Next()
		require.False(t, ok)
		e.Notify(service("a"))
		pass(time.Second)
		require.Equal(t, 2, woken, "nobody is woken for nothing")
		s.Close()
	})
}

func TestSubscriber_NewestWins(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		woken := 0
		slow := e.NewSubscriber(Peer{}, e.GRPC(), func() { woken++ })
		slow.Subscribe(service("a"), naming.Filter{})
		quick := connect(t, e, e.GRPC(), accept)
		quick.Subscribe(service("a"), naming.Filter{})
		pass(time.Second)
		last := 0
		for range 50 {
			last = r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(200 * ms)
			require.Equal(t, 1, queued(slow), "one entry for each subscription")
		}
		require.Equal(t, 1, woken, "not again for what stands in the queue")
		require.Len(t, quick.take(), 51, "nobody waits for the slow one")

		p, ok := slow.Next()
		require.True(t, ok)
		require.Equal(t, last, weight(p))
		_, ok = slow.Next()
		require.False(t, ok)
		slow.Ack(p.Seq, true)
		slow.Close()
	})
}

func TestSubscriber_QueueHoldsNoEndedSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, _ *registry, _ *prometheus.Registry) {
		s := e.NewSubscriber(Peer{}, e.GRPC(), func() {})
		for range 100 { // by a client that does not read
			s.Subscribe(service("a"), naming.Filter{})
			pass(100 * ms)
			require.Equal(t, 1, queued(s))
			s.Unsubscribe(service("a"), naming.Filter{})
		}
		require.Zero(t, queued(s))
		s.Subscribe(service("b"), naming.Filter{})
		pass(time.Second)
		p, ok := s.Next()
		require.True(t, ok)
		require.Equal(t, service("b"), p.Service)
		s.Close()
	})
}

func TestEngine_AnAcknowledgedPushIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), func(c *client, p Push) {
			time.Sleep(4999 * ms) // in time
			c.Ack(p.Seq, true)
			c.Ack(p.Seq, true)  // twice
			c.Ack(p.Seq, false) // and not
		})
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(time.Minute)
		require.Equal(t, []time.Duration{0}, times(c.take()))
		require.Zero(t, awaited(c.Subscriber))
		for name, n := range map[string]int{
			"rollcall_push_sent_total": 2, "rollcall_push_acked_total": 2, "rollcall_push_ack_seconds": 2,
		} {
			require.Equal(t, map[string]int{"grpc": n}, counters(t, reg, name), name)
		}
		require.Empty(t, counters(t, reg, "rollcall_push_failed_total"))
	})
}

func TestEngine_ARefusedPushIsRepeatedWithTheNewest(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), refuse)
		w := r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(2500 * ms)
		got := c.take()
		require.Equal(t, []time.Duration{0, 1000 * ms, 2000 * ms}, times(got), "without a limit")
		for _, p := range got {
			require.Equal(t, w, weight(p.Push))
		}
		require.Less(t, got[0].Seq, got[1].Seq)
		require.Less(t, got[1].Seq, got[2].Seq)

		w = r.set(service("a"), "c") // at 2500, no notice: the repeat reads it all the same
		pass(700 * ms)
		got = c.take()
		require.Equal(t, []time.Duration{3000 * ms}, times(got))
		require.Equal(t, w, weight(got[0].Push))
		require.Equal(t, map[string]int{"grpc": 4}, counters(t, reg, "rollcall_push_failed_total"))
		require.Equal(t, map[string]int{"grpc": 5}, counters(t, reg, "rollcall_push_sent_total"))
		require.Equal(t, map[string]int{"grpc": 1}, counters(t, reg, "rollcall_push_acked_total"))
	})
}

func TestEngine_APushWithoutAcknowledgementIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), nil)
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(7 * time.Second)
		got := c.take()
		require.Equal(t, []time.Duration{0, 6 * time.Second}, times(got))
		require.NotEqual(t, got[0].Seq, got[1].Seq)
		require.Equal(t, map[string]int{"grpc": 1}, counters(t, reg, "rollcall_push_failed_total"))

		c.Ack(got[0].Seq, true) // too late, and of the push before
		require.Equal(t, map[string]int{"grpc": 1}, counters(t, reg, "rollcall_push_acked_total"))
		c.Ack(got[1].Seq, true)
		require.Equal(t, map[string]int{"grpc": 2}, counters(t, reg, "rollcall_push_acked_total"))
		pass(time.Minute)
		require.Empty(t, c.take())
	})
}

func TestEngine_AFailureThatANewerPushFollowedIsNotRepeated(t *testing.T) {
	for name, fail := range map[string]func(*client, Push){"refused": refuse, "unanswered": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
				pushes := 0
				c := subscribed(t, e, e.GRPC(), service("a"), func(c *client, p Push) {
					if pushes++; pushes > 1 {
						c.Ack(p.Seq, true)
					} else if fail != nil {
						fail(c, p)
					}
				})
				r.set(service("a"), "c")
				e.Notify(service("a"))
				failed := time.Duration(0)
				if fail == nil {
					failed = 5 * time.Second
				}
				pass(failed + 500*ms)
				r.set(service("a"), "c") // pushed and acknowledged before the repeat is due
				e.Notify(service("a"))
				pass(time.Minute)
				require.Equal(t, []time.Duration{0, failed + 500*ms}, times(c.take()))
			})
		})
	}
}

func TestEngine_ANewerPushSupersedesOneInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
		c := subscribed(t, e, e.GRPC(), service("a"), nil)
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(time.Second)
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(time.Second)
		got := c.take()
		require.Len(t, got, 2)
		c.Ack(got[0].Seq, false) // says nothing any more
		c.Ack(got[1].Seq, true)
		pass(time.Minute)
		require.Empty(t, c.take())
		require.Empty(t, counters(t, reg, "rollcall_push_failed_total"))
	})
}

func TestEngine_UDPRepeatsTheSameDatagramOnce(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
		c := subscribed(t, e, e.UDP(), service("a"), nil)
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(time.Minute)
		got := c.take()
		require.Equal(t, []time.Duration{0, 10 * time.Second}, times(got))
		require.Equal(t, got[0].Seq, got[1].Seq)
		require.Same(t, got[0].Info, got[1].Info)
		require.Equal(t, map[string]int{"udp": 3}, counters(t, reg, "rollcall_push_sent_total"), "the first push is one of them")
		require.Equal(t, map[string]int{"udp": 1}, counters(t, reg, "rollcall_push_failed_total"))

		r.set(service("a"), "c") // a failed push does not end the subscription
		e.Notify(service("a"))
		pass(time.Minute)
		got = append(got, c.take()...)
		require.Equal(t, []time.Duration{60 * time.Second, 70 * time.Second}, times(got[2:]))
		require.Less(t, got[0].Seq, got[2].Seq)
		require.Equal(t, map[string]int{"udp": 2}, counters(t, reg, "rollcall_push_failed_total"))
	})
}

func TestEngine_UDPAcknowledgements(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // between the first datagram and its acknowledgement
		sends int
	}{
		"of the first datagram":  {9999 * ms, 1},
		"of the second datagram": {19999 * ms, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
				u := subscribed(t, e, e.UDP(), service("a"), nil)
				r.set(service("a"), "c")
				e.Notify(service("a"))
				pass(c.after)
				got := u.take()
				u.Ack(got[0].Seq, true)
				pass(time.Minute)
				require.Len(t, append(got, u.take()...), c.sends)
				require.Equal(t, map[string]int{"udp": 2}, counters(t, reg, "rollcall_push_acked_total"))
				require.Empty(t, counters(t, reg, "rollcall_push_failed_total"))
			})
		})
	}
}

func TestEngine_UDPRepeatWithNewDataIsANewPush(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
		c := subscribed(t, e, e.UDP(), service("a"), nil)
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(5 * time.Second)
		w := r.set(service("a"), "c") // without a notice: the repeat reads it
		pass(time.Minute)
		got := c.take()
		require.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second}, times(got))
		require.Less(t, got[0].Seq, got[1].Seq)
		require.Equal(t, got[1].Seq, got[2].Seq)
		require.Equal(t, w, weight(got[1].Push))
		require.Equal(t, map[string]int{"udp": 1}, counters(t, reg, "rollcall_push_failed_total"))
	})
}

func TestEngine_UDPChangeMeanwhileStartsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
		c := subscribed(t, e, e.UDP(), service("a"), nil)
		for range 2 {
			r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(5 * time.Second)
		}
		pass(time.Minute)
		require.Equal(t, []time.Duration{0, 5 * time.Second, 15 * time.Second}, times(c.take()))
		require.Equal(t, map[string]int{"udp": 1}, counters(t, reg, "rollcall_push_failed_total"))
	})
}

func TestEngine_UDPRepeatDoesNotWaitForOneOverGRPC(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		u := subscribed(t, e, e.UDP(), service("a"), nil)
		g := subscribed(t, e, e.GRPC(), service("b"), refuse)
		u.started = time.Now()
		r.set(service("a"), "c")
		e.Notify(service("a"))
		pass(9500 * ms)
		r.set(service("b"), "c") // its repeat is due at 10500
		e.Notify(service("b"))
		pass(5 * time.Second)
		require.Equal(t, []time.Duration{0, 10 * time.Second}, times(u.take()))
		require.NotEmpty(t, g.take())
	})
}

func TestSubscriber_UnsubscribeAndCloseStopEverything(t *testing.T) {
	for name, end := range map[string]func(*client){
		"Unsubscribe": func(c *client) { c.Unsubscribe(service("a"), naming.Filter{}) },
		"Close":       func(c *client) { c.Close(); c.Close() },
	} {
		for state, c := range map[string]struct {
			policy func(*Engine) Policy
			answer func(*client, Push)
			after  time.Duration // from the push to the end
		}{
			"in flight over gRPC": {(*Engine).GRPC, nil, time.Second},
			"to be repeated":      {(*Engine).GRPC, refuse, 500 * ms},
			"in flight over UDP":  {(*Engine).UDP, nil, time.Second},
			"acknowledged":        {(*Engine).GRPC, accept, time.Second},
			"being merged":        {(*Engine).GRPC, accept, 0},
		} {
			t.Run(name+" "+state, func(t *testing.T) {
				bubble(t, func(t *testing.T, e *Engine, r *registry, reg *prometheus.Registry) {
					s := subscribed(t, e, c.policy(e), service("a"), c.answer)
					r.set(service("a"), "c")
					e.Notify(service("a"))
					pass(0)
					r.set(service("a"), "c")
					pass(c.after)
					failed := counters(t, reg, "rollcall_push_failed_total")
					require.Len(t, s.take(), 1)

					end(s)
					end(s)
					require.Equal(t, []naming.ServiceKey{service("a")}, r.idled())
					require.False(t, e.Watched(service("a")))
					r.set(service("a"), "c")
					e.Notify(service("a"))
					pass(time.Minute)
					require.Empty(t, s.take())
					require.Zero(t, awaited(s.Subscriber))
					require.Zero(t, queued(s.Subscriber))
					_, ok := s.Next()
					require.False(t, ok)
					require.Equal(t, failed, counters(t, reg, "rollcall_push_failed_total"))
				})
			})
		}
	}
}

func TestSubscriber_QueuedWhenItEnds(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, _ *registry, _ *prometheus.Registry) {
		s := e.NewSubscriber(Peer{}, e.GRPC(), func() {})
		s.Subscribe(service("a"), naming.Filter{})
		s.Subscribe(service("b"), naming.Filter{})
		pass(time.Second)
		s.Unsubscribe(service("a"), naming.Filter{})
		s.Unsubscribe(service("unknown"), naming.Filter{})
		p, ok := s.Next()
		require.True(t, ok)
		require.Equal(t, service("b"), p.Service)
		_, ok = s.Next()
		require.False(t, ok)
		s.Close()
		s.Subscribe(service("c"), naming.Filter{}) // ignored
		require.Zero(t, e.Subscriptions())
	})
}

func TestEngine_TwoFiltersOfOneSubscriberAreBothServed(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		c := connect(t, e, e.GRPC(), accept)
		r.set(service("a"), "c1")
		r.set(service("a"), "c2")
		c.Subscribe(service("a"), clusters("c1"))
		c.Subscribe(service("a"), clusters("c2"))
		c.Subscribe(service("a"), clusters("c1,c2"))
		require.Equal(t, 3, e.Subscriptions())
		pass(time.Second)
		require.Len(t, c.take(), 3)
		for cluster, want := range map[string][]string{"c1": {"c1", "c1,c2"}, "c2": {"c2", "c1,c2"}, "c3": nil} {
			r.set(service("a"), cluster)
			e.Notify(service("a"))
			pass(time.Second)
			var got []string
			for _, p := range c.take() {
				got = append(got, p.Info.Clusters)
			}
			require.ElementsMatch(t, want, got)
		}
		c.Unsubscribe(service("a"), clusters("c1"))
		r.set(service("a"), "c1")
		e.Notify(service("a"))
		pass(time.Second)
		got := c.take()
		require.Len(t, got, 1)
		require.Equal(t, "c1,c2", got[0].Info.Clusters)
		require.Empty(t, r.idled())
	})
}

func TestEngine_IdleWhenTheLastSubscriptionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		a := e.NewSubscriber(Peer{IP: "10.0.0.1", App: "shop"}, e.GRPC(), func() {})
		b := e.NewSubscriber(Peer{IP: "10.0.0.2", Port: 5555, Agent: "agent"}, e.UDP(), func() {})
		require.False(t, e.Watched(service("s")))
		a.Subscribe(service("s"), naming.Filter{})
		a.Subscribe(service("s"), clusters("c"))
		b.Subscribe(service("s"), naming.Filter{})
		a.Subscribe(service("other"), naming.Filter{})
		require.True(t, e.Watched(service("s")))
		require.Equal(t, 4, e.Subscriptions())
		require.ElementsMatch(t, []Subscription{{Peer: a.peer}, {a.peer, "c"}, {Peer: b.peer}}, e.Subscribers(service("s")))
		require.Empty(t, e.Subscribers(service("unknown")))

		b.Close()
		a.Unsubscribe(service("s"), naming.Filter{})
		require.Empty(t, r.idled())
		a.Unsubscribe(service("s"), clusters("c"))
		a.Unsubscribe(service("s"), clusters("c"))
		require.Equal(t, []naming.ServiceKey{service("s")}, r.idled())
		a.Close()
		require.Equal(t, []naming.ServiceKey{service("s"), service("other")}, r.idled())
		require.Zero(t, e.Subscriptions())

		a = e.NewSubscriber(Peer{}, e.GRPC(), func() {})
		a.Subscribe(service("s"), naming.Filter{})
		a.Close()
		require.Equal(t, []naming.ServiceKey{service("s"), service("other"), service("s")}, r.idled())
	})
}

func TestEngine_SequenceNumbers(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, r *registry, _ *prometheus.Registry) {
		started := uint64(time.Now().UnixMicro())
		var all []*client
		for range 5 {
			c := connect(t, e, e.GRPC(), refuse)
			c.Subscribe(service("a"), naming.Filter{})
			c.Subscribe(service("b"), naming.Filter{})
			all = append(all, c)
		}
		for range 20 {
			r.set(service("a"), "c")
			e.Notify(service("a"))
			pass(300 * ms)
		}
		seen := make(map[uint64]bool)
		for _, c := range all {
			last := uint64(0)
			for _, p := range c.take() {
				require.False(t, seen[p.Seq], "numbers are unique")
				seen[p.Seq] = true
				require.Greater(t, p.Seq, last)
				require.Greater(t, p.Seq, started, "numbers of a former process do not come back")
				require.Less(t, p.Seq, uint64(1)<<53)
				last = p.Seq
			}
			require.NotZero(t, last)
		}
	})
}

func TestEngine_CloseDropsWhatIsNotFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		e, err := New(DefaultConfig(), r, nil)
		require.NoError(t, err)
		require.NoError(t, e.Start())
		s := e.NewSubscriber(Peer{}, e.GRPC(), func() {})
		s.Subscribe(service("a"), naming.Filter{})
		require.NoError(t, e.Close())
		require.NoError(t, e.Close())
		e.Notify(service("a"))
		pass(time.Minute)
		_, ok := s.Next()
		require.False(t, ok)
		s.Close()

		e, err = New(DefaultConfig(), r, nil)
		require.NoError(t, err)
		require.NoError(t, e.Close(), "without a start")
	})
}

func TestEngine_UDPLease(t *testing.T) {
	bubble(t, func(t *testing.T, e *Engine, _ *registry, _ *prometheus.Registry) {
		require.Equal(t, 30*time.Second, e.UDPLease())
		require.Equal(t, Policy{Transport: "grpc", Ack: 5 * time.Second, Retry: time.Second}, e.GRPC())
		require.Equal(t, Policy{Transport: "udp", Ack: 10 * time.Second, Sends: 2, SameSeq: true}, e.UDP())
	})
}
