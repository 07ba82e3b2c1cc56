package server

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// story records when what a client sees of one service changed, as lines such as
// "15s 10.0.0.1-"; times are rounded down to a tick of the timers and counted from
// the moment when the story began.
type story struct {
	f     *fixture
	svc   naming.ServiceKey
	start time.Time

	mu    sync.Mutex
	lines []string
	last  string
}

// tell begins a story; the registry must be started.
func tell(f *fixture, svc naming.ServiceKey) *story {
	s := &story{f: f, svc: svc, start: time.Now()}
	s.last = strings.Join(f.hosts(svc), " ")
	f.notify = func(k naming.ServiceKey) {
		if k != svc {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if now := strings.Join(f.hosts(svc), " "); now != s.last {
			s.last = now
			s.lines = append(s.lines, strings.TrimSpace(fmt.Sprint(time.Since(s.start).Truncate(tick), " ", now)))
		}
	}
	return s
}

// since returns the lines since it was called last.
func (s *story) since() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.lines
	s.lines = nil
	return out
}

func TestBeats_SilenceMakesUnhealthyThenRemoves(t *testing.T) {
	for name, c := range map[string]struct {
		instance *naming.Instance
		want     []string
	}{
		"protocol's times": {host("10.0.0.1"), []string{"0s 10.0.0.1", "15s 10.0.0.1-", "30s"}},
		"own times":        {host("10.0.0.1", beatTimes("2000", "6000")), []string{"0s 10.0.0.1", "2s 10.0.0.1-", "6s"}},
		"removal before unhealthy": {
			host("10.0.0.1", beatTimes("15000", "6000")), []string{"0s 10.0.0.1", "6s"},
		},
		"both at once": {host("10.0.0.1", beatTimes("3000", "3000")), []string{"0s 10.0.0.1", "3s"}},
		"seconds taken for milliseconds count as half a second": {
			host("10.0.0.1", beatTimes("15", "30")), []string{"0s 10.0.0.1", "500ms"},
		},
		"the shortest unhealthy time": {
			host("10.0.0.1", beatTimes("3", "30000")), []string{"0s 10.0.0.1", "500ms 10.0.0.1-", "30s"},
		},
		"registered as unhealthy": {
			host("10.0.0.1", func(i *naming.Instance) { i.Healthy = false }), []string{"0s 10.0.0.1-", "30s"},
		},
		"not checked": {host("10.0.0.1", meta(naming.MetaClientBeat, "true")), []string{"0s 10.0.0.1"}},
		"persistent":  {host("10.0.0.1", persistent), []string{"0s 10.0.0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				s := tell(f, service("a"))
				f.register(t, service("a"), c.instance)
				time.Sleep(10 * time.Minute)
				require.Equal(t, c.want, s.since())
			})
		})
	}
}

func TestBeats_KeepAnInstanceForEver(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		s := tell(f, service("a"))
		f.register(t, service("a"), host("10.0.0.1"))
		writes := f.ephemeral.Writes()
		for range 100 {
			pass(14900 * ms)
			require.True(t, f.beat(t, service("a"), "10.0.0.1"))
		}
		require.Equal(t, []string{"0s 10.0.0.1"}, s.since())
		require.Equal(t, writes, f.ephemeral.Writes(), "a heartbeat is no datum")
		require.Equal(t, 1, f.beats.clients())

		start := time.Since(s.start)
		time.Sleep(time.Minute)
		require.Equal(t, []string{
			fmt.Sprint((start + 15*time.Second).Truncate(tick), " 10.0.0.1-"), fmt.Sprint((start + 30*time.Second).Truncate(tick)),
		}, s.since())
		require.Zero(t, f.beats.clients())
		require.False(t, f.beat(t, service("a"), "10.0.0.1"))
	})
}

func TestBeats_Heal(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		s := tell(f, service("a"))
		f.register(t, service("a"), host("10.0.0.1"))
		pass(20 * time.Second)
		require.True(t, f.beat(t, service("a"), "10.0.0.1"))
		pass(time.Minute)
		require.Equal(t, []string{
			"0s 10.0.0.1", "15s 10.0.0.1-", "20s 10.0.0.1", "35s 10.0.0.1-", "50s",
		}, s.since())
	})
}

func TestBeats_RegisterAgain(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		again *naming.Instance
		want  []string
	}{
		"while healthy":        {10 * time.Second, host("10.0.0.1"), []string{"0s 10.0.0.1", "25s 10.0.0.1-", "40s"}},
		"while unhealthy":      {20 * time.Second, host("10.0.0.1"), []string{"0s 10.0.0.1", "15s 10.0.0.1-", "20s 10.0.0.1", "35s 10.0.0.1-", "50s"}},
		"with shorter times":   {10 * time.Second, host("10.0.0.1", beatTimes("1000", "2000")), []string{"0s 10.0.0.1", "11s 10.0.0.1-", "12s"}},
		"with longer times":    {10 * time.Second, host("10.0.0.1", beatTimes("60000", "90000")), []string{"0s 10.0.0.1", "1m10s 10.0.0.1-", "1m40s"}},
		"after it was removed": {40 * time.Second, host("10.0.0.1"), []string{"0s 10.0.0.1", "15s 10.0.0.1-", "30s", "40s 10.0.0.1", "55s 10.0.0.1-", "1m10s"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				s := tell(f, service("a"))
				f.register(t, service("a"), host("10.0.0.1"))
				pass(c.after)
				f.register(t, service("a"), c.again)
				pass(5 * time.Minute)
				require.Equal(t, c.want, s.since())
			})
		})
	}
}

func TestBeats_CheckSwitchedOffAndOn(t *testing.T) {
	t.Run("by the service", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fixture) {
			require.NoError(t, f.CreateService(t.Context(), service("a"), naming.Settings{
				Kind: naming.KindEphemeral, Metadata: map[string]string{naming.MetaClientBeat: "true"},
			}))
			s := tell(f, service("a"))
			f.register(t, service("a"), host("10.0.0.1"))
			pass(100 * time.Second)
			require.Equal(t, []string{"0s 10.0.0.1"}, s.since())
			require.NoError(t, f.UpdateService(t.Context(), service("a"), naming.Settings{}))
			pass(15100 * ms) // the next look
			require.Len(t, s.since(), 1)
			require.Empty(t, f.hosts(service("a")))
		})
	})
	t.Run("by the instance", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fixture) {
			s := tell(f, service("a"))
			f.register(t, service("a"), host("10.0.0.1", meta(naming.MetaClientBeat, "true")))
			pass(100 * time.Second)
			f.register(t, service("a"), host("10.0.0.1"))
			pass(time.Minute)
			require.Equal(t, []string{"0s 10.0.0.1", "1m55s 10.0.0.1-", "2m10s"}, s.since())
		})
	})
}

// An operator's metadata takes precedence over what was registered.
func TestBeats_OverriddenTimes(t *testing.T) {
	override := func(t *testing.T, f *fixture, unhealthy, deleted string) {
		t.Helper()
		err := f.ChangeInstance(t.Context(), service("a"), host("10.0.0.1").Key(), naming.Change{Metadata: map[string]string{
			naming.MetaBeatInterval: "1", naming.MetaBeatTimeout: unhealthy, naming.MetaDeleteTimeout: deleted,
		}})
		require.NoError(t, err)
	}
	t.Run("longer", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fixture) {
			s := tell(f, service("a"))
			f.register(t, service("a"), host("10.0.0.1"))
			pass(time.Second)
			override(t, f, "40000", "80000")
			pass(5 * time.Minute)
			require.Equal(t, []string{"0s 10.0.0.1", "40s 10.0.0.1-", "1m20s"}, s.since())
		})
	})
	t.Run("shorter", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fixture) {
			s := tell(f, service("a"))
			f.register(t, service("a"), host("10.0.0.1"))
			pass(time.Second)
			override(t, f, "4000", "8000")
			pass(5 * time.Minute)
			require.Equal(t, []string{"0s 10.0.0.1", "4s 10.0.0.1-", "8s"}, s.since())
		})
	})
	t.Run("shorter, then beats", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fixture) {
			s := tell(f, service("a"))
			f.register(t, service("a"), host("10.0.0.1"))
			override(t, f, "4000", "8000")
			for range 10 {
				pass(3 * time.Second)
				require.True(t, f.beat(t, service("a"), "10.0.0.1"))
			}
			pass(5 * time.Minute)
			require.Equal(t, []string{"0s 10.0.0.1", "34s 10.0.0.1-", "38s"}, s.since())
		})
	})
	t.Run("longer, then shorter again", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fixture) {
			s := tell(f, service("a"))
			f.register(t, service("a"), host("10.0.0.1"))
			pass(time.Second)
			override(t, f, "40000", "80000")
			pass(19 * time.Second)
			override(t, f, "25000", "30000")
			pass(5 * time.Minute)
			require.Equal(t, []string{"0s 10.0.0.1", "25s 10.0.0.1-", "30s"}, s.since())
		})
	})
	t.Run("the interval is what the client is told", func(t *testing.T) {
		bubble(t, func(t *testing.T, f *fixture) {
			f.register(t, service("a"), host("10.0.0.1"))
			a, err := f.Beat(t.Context(), service("a"), "10.0.0.1", 80, nil)
			require.NoError(t, err)
			require.Equal(t, naming.BeatAnswer{Known: true, Interval: 5 * time.Second}, a)
			override(t, f, "40000", "80000")
			a, err = f.Beat(t.Context(), service("a"), "10.0.0.1", 80, nil)
			require.NoError(t, err)
			require.Equal(t, naming.BeatAnswer{Known: true, Interval: time.Millisecond}, a)
		})
	})
}

func TestBeats_APausedProcessGivesAFullPeriod(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		s := tell(f, service("a"))
		f.register(t, service("a"), host("10.0.0.1"))
		f.register(t, service("a"), host("10.0.0.2"))
		pass(10 * time.Second)
		f.timers.at(time.Now(), taskFunc(func(time.Time) { time.Sleep(time.Hour) })) // the sweeper stands still
		pass(time.Hour + time.Second)
		require.Equal(t, []string{"0s 10.0.0.1", "0s 10.0.0.1 10.0.0.2"}, s.since())

		pass(13 * time.Second) // 14 s after it goes on
		require.True(t, f.beat(t, service("a"), "10.0.0.1"))
		pass(time.Minute)
		require.Equal(t, []string{
			"1h0m25s 10.0.0.1 10.0.0.2-", "1h0m39s 10.0.0.1- 10.0.0.2-", "1h0m40s 10.0.0.1-", "1h0m54s",
		}, roundSeconds(t, s.since()))
	})
}

// roundSeconds rounds the times of a story down to seconds.
func roundSeconds(t *testing.T, lines []string) []string {
	t.Helper()
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		at, rest, _ := strings.Cut(l, " ")
		d, err := time.ParseDuration(at)
		require.NoError(t, err)
		out = append(out, strings.TrimSpace(d.Truncate(time.Second).String()+" "+rest))
	}
	return out
}

func TestBeats_AfterAPauseTheUnhealthyAreNotRemovedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		s := tell(f, service("a"))
		f.register(t, service("a"), host("10.0.0.1"))
		pass(20 * time.Second)
		f.timers.at(time.Now(), taskFunc(func(time.Time) { time.Sleep(time.Hour) }))
		pass(time.Hour + 10*time.Minute)
		require.Equal(t, []string{"0s 10.0.0.1", "15s 10.0.0.1-", "1h0m50s"}, roundSeconds(t, s.since()))
	})
}

func TestBeat_OfAnUnknownInstance(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		a, err := f.Beat(t.Context(), service("a"), "10.0.0.1", 80, nil)
		require.NoError(t, err)
		require.Equal(t, naming.BeatAnswer{Interval: 5 * time.Second}, a)
		_, ok := f.Service(service("a"))
		require.False(t, ok, "nothing comes of it")
		require.Zero(t, f.beats.clients())

		a, err = f.Beat(t.Context(), service("a"), "10.0.0.1", 80, host("10.0.0.1", meta(naming.MetaBeatInterval, "7000")))
		require.NoError(t, err)
		require.Equal(t, naming.BeatAnswer{Known: true, Interval: 7 * time.Second}, a)
		require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")))

		full := host("10.0.0.1", meta("changed", "yes")) // of a known one: a heartbeat is no registration
		_, err = f.Beat(t.Context(), service("a"), "10.0.0.1", 80, full)
		require.NoError(t, err)
		require.NotContains(t, f.ServiceInfo(service("a"), naming.Filter{}).Hosts[0].Metadata, "changed")

		require.True(t, f.beat(t, service("a"), "10.0.0.1"))
		require.False(t, f.beat(t, service("b"), "10.0.0.1"), "each service for itself")

		f.register(t, service("p"), host("10.0.0.1", persistent))
		require.False(t, f.beat(t, service("p"), "10.0.0.1"), "persistent instances do not beat")
		_, err = f.Beat(t.Context(), service("p"), "10.0.0.2", 80, host("10.0.0.2"))
		fault(t, naming.FaultKind, err)
		_, err = f.Beat(t.Context(), naming.ServiceKey{Namespace: "public", Group: "g"}, "10.0.0.1", 80, nil)
		fault(t, naming.FaultParam, err)
		_, err = f.Beat(t.Context(), service("a"), "10.0.0.1", 80, host("10.0.0.1", cluster("a_b")))
		fault(t, naming.FaultInstance, err)
	})
}

func TestBeats_CountPublishersNotServices(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		f.register(t, service("b"), host("10.0.0.1"))
		f.register(t, service("a"), host("10.0.0.2"))
		require.Equal(t, 2, f.beats.clients())
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		require.Equal(t, 2, f.beats.clients())
		require.NoError(t, f.Deregister(t.Context(), service("b"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		require.Equal(t, 1, f.beats.clients())
		pass(time.Minute)
		require.Zero(t, f.beats.clients())
		for n := range f.beats.shards {
			require.Empty(t, f.beats.shards[n].byKey)
		}
		require.Empty(t, f.beats.publishers)
	})
}

func TestBeats_ForgetWhatWasDeregistered(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		pass(10 * time.Second)
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		require.Zero(t, f.beats.clients())
		// The same address, registered by a connection now, does not beat.
		require.NoError(t, f.Register(t.Context(), service("a"), "conn", host("10.0.0.1")))
		pass(10 * time.Minute)
		require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")))
		require.False(t, f.beat(t, service("a"), "10.0.0.1"))
	})
}

func TestBeats_ALookThatComesLaterCountsForNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		f.register(t, service("b"), host("10.0.0.1", meta(naming.MetaClientBeat, "true")))
		require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		pass(time.Minute) // the look at what is gone was planned for meanwhile
		require.Equal(t, 1, f.beats.clients())
		require.Equal(t, map[string]int{"10.0.0.1:80": 1}, f.beats.publishers)
	})
}

func TestBeats_AStoreThatFailsForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.register(t, service("a"), host("10.0.0.1"))
		f.ephemeral.Fail(errors.New("not now"))
		pass(time.Minute)
		require.Equal(t, []string{"10.0.0.1"}, f.hosts(service("a")))
		_, err := f.Beat(t.Context(), service("b"), "10.0.0.2", 80, host("10.0.0.2"))
		require.ErrorContains(t, err, "not now")
		f.ephemeral.Fail(nil)
		pass(tick)
		require.Empty(t, f.hosts(service("a")), "removed as soon as that works")
		pass(time.Minute)
		require.Zero(t, f.beats.clients())
	})
}

// At the very moment of expiry registrations and heartbeats arrive: an answer that
// says so is true, and what was answered stays for a whole period.
func TestBeats_RegistrationsAgainstExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		const n = 50
		ip := func(k int) string { return fmt.Sprintf("10.0.0.%d", k) }
		for round := range 20 {
			for k := range n {
				f.register(t, service("a"), host(ip(k), beatTimes("500", "500")))
			}
			known := make([]bool, n)
			var wg sync.WaitGroup
			for k := range n {
				wg.Go(func() {
					time.Sleep(500 * ms) // when the timers look
					if k%2 == 0 {
						f.register(t, service("a"), host(ip(k), beatTimes("500", "500"), cluster(fmt.Sprint("c", round))))
						known[k] = true
					} else {
						known[k] = f.beat(t, service("a"), ip(k))
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			s, _ := f.router.Service(service("a"))
			present := make(map[string]bool)
			for _, i := range s.Instances {
				present[i.IP] = true
			}
			for k := range n {
				require.Equal(t, known[k], present[ip(k)], "round %d, %s", round, ip(k))
			}
			pass(2 * time.Second)
			require.Empty(t, f.hosts(service("a")))
		}
		require.Zero(t, f.beats.clients())
	})
}

// The same by real clocks and many goroutines, on the decision itself.
func TestBeats_RegistrationIsNeverLost(t *testing.T) {
	f := newFixture(t)
	key := beatKey{service("a"), "10.0.0.1:80"}
	for n := range 2000 {
		f.register(t, service("a"), host("10.0.0.1"))
		x := f.beats.get(key)
		x.last.Add(int64(-time.Hour)) // silent for long
		armed := x.armed
		x.mu.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() { x.due(time.Now(), armed) })
		known := true
		if n%2 == 0 {
			wg.Go(func() { f.register(t, service("a"), host("10.0.0.1")) })
		} else {
			wg.Go(func() { known = f.beat(t, service("a"), "10.0.0.1") })
		}
		wg.Wait()
		require.Equal(t, known, f.beats.instance(key) != nil)
	}
}

// Deregistering against a change of health that is under way.
func TestBeats_DeregisteredDoesNotComeBack(t *testing.T) {
	f := newFixture(t)
	key := beatKey{service("a"), "10.0.0.1:80"}
	for n := range 2000 {
		f.register(t, service("a"), host("10.0.0.1", func(i *naming.Instance) { i.Healthy = n%2 == 0 }))
		x := f.beats.get(key)
		if n%2 == 0 { // is to become unhealthy, else healthy
			x.last.Add(int64(-20 * time.Second))
		}
		armed := x.armed
		x.mu.Unlock()
		var wg sync.WaitGroup
		wg.Go(func() { x.due(time.Now(), armed) })
		wg.Go(func() { _, _ = f.Beat(t.Context(), service("a"), "10.0.0.1", 80, nil) })
		wg.Go(func() {
			require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		})
		wg.Wait()
		require.Nil(t, f.beats.instance(key))
	}
	require.LessOrEqual(t, f.beats.clients(), 1)
}

// Whatever is published by an address has a heartbeat that can expire.
func TestBeats_WhatIsPublishedIsWatched(t *testing.T) {
	f := newFixture(t)
	key := beatKey{service("a"), "10.0.0.1:80"}
	for range 3000 {
		f.register(t, service("a"), host("10.0.0.1"))
		var wg sync.WaitGroup
		wg.Go(func() {
			require.NoError(t, f.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		})
		wg.Go(func() { f.register(t, service("a"), host("10.0.0.1", cluster("c"))) })
		wg.Go(func() { f.beats.review(key) })
		wg.Wait()
		if f.beats.instance(key) != nil {
			s := f.beats.shard(key)
			s.mu.Lock()
			x := s.byKey[key]
			s.mu.Unlock()
			require.NotNil(t, x)
			require.False(t, x.gone)
			require.Equal(t, 1, f.beats.clients())
		}
	}
}

func TestBeats_ConcurrentPublishersAndServices(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	for k := range 8 {
		wg.Go(func() {
			for n := range 200 {
				svc, i := service(fmt.Sprint(n%5)), host(fmt.Sprintf("10.0.0.%d", (n+k)%10))
				switch n % 3 {
				case 0, 1:
					f.register(t, svc, i)
				default:
					require.NoError(t, f.Deregister(t.Context(), svc, i.Key().Address(), true, naming.InstanceKey{IP: i.IP, Port: 80}))
				}
			}
		})
	}
	wg.Wait()
	want := make(map[string]int)
	for _, k := range f.router.Services("") {
		s, _ := f.router.Service(k)
		for _, i := range s.Instances {
			want[i.Key().Address()]++
		}
	}
	require.Equal(t, want, f.beats.publishers)
	require.NoError(t, f.router.Publish(t.Context(), true, consistency.Publication{Service: service("0"), Publisher: "nobody"}))
}
