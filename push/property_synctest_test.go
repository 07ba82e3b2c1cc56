package push

import (
	"flag"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0: by the clock") //nolint:gochecknoglobals // a flag

// puller is a subscriber whose pushes the test takes when it likes.
type puller struct {
	*Subscriber
	udp      bool
	wanted   map[subscriptionKey]bool
	last     map[subscriptionKey]*naming.ServiceInfo // that was delivered
	refTime  map[subscriptionKey]int64
	inFlight []Push
	seqs     map[uint64]*naming.ServiceInfo
	lastSeq  uint64
}

// pull takes one push and checks it against what came before.
func (p *puller) pull(t *testing.T) bool {
	t.Helper()
	push, ok := p.Next()
	if !ok {
		return false
	}
	k := subscriptionKey{push.Service, clusters(push.Info.Clusters)}
	require.True(t, p.wanted[k], "a push for what is not subscribed: %v", k)
	require.GreaterOrEqual(t, push.Info.LastRefTimeMs, p.refTime[k], "a push of an older state")
	p.refTime[k] = push.Info.LastRefTimeMs
	if was := p.seqs[push.Seq]; was != nil {
		require.True(t, p.udp, "a number twice")
		require.Same(t, was, push.Info, "another state under the same number")
	} else {
		require.Greater(t, push.Seq, p.lastSeq)
		p.lastSeq = push.Seq
	}
	p.seqs[push.Seq] = push.Info
	p.inFlight = append(p.inFlight, push)
	if p.udp { // repeats end, so what was sent last counts
		p.last[k] = push.Info
	}
	return true
}

// answer acknowledges or refuses a push in flight.
func (p *puller) answer(n int, ok bool) {
	push := p.inFlight[n]
	p.inFlight = append(p.inFlight[:n:n], p.inFlight[n+1:]...)
	// An acknowledgement only counts if it is of the newest push of the view.
	k := subscriptionKey{push.Service, clusters(push.Info.Clusters)}
	if ok && push.Info.LastRefTimeMs == p.refTime[k] {
		p.last[k] = push.Info
	}
	p.Ack(push.Seq, ok)
}

// Whatever happens in between, in the end each subscriber has seen the newest
// state of each of its views, and never an older one after a newer one.
func TestEngine_EverySubscriberEndsWithTheNewestState(t *testing.T) {
	first := *seed
	runs := uint64(1)
	if first == 0 {
		first, runs = uint64(time.Now().UnixNano()), 60
	}
	for n := range runs {
		seed := first + n
		ok := t.Run("", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { interleave(t, rand.New(rand.NewPCG(seed, 0))) })
		})
		if !ok {
			t.Fatalf("repeat with -seed %d", seed)
		}
	}
}

func interleave(t *testing.T, random *rand.Rand) {
	t.Helper()
	r := newRegistry()
	e, reg := start(t, r)
	services := []naming.ServiceKey{service("a"), service("b"), service("c")}
	filters := []naming.Filter{{}, clusters("c1"), clusters("c2")}
	pullers := make([]*puller, 4)
	for n := range pullers {
		p := &puller{
			udp:    n == 3,
			wanted: make(map[subscriptionKey]bool), last: make(map[subscriptionKey]*naming.ServiceInfo),
			refTime: make(map[subscriptionKey]int64), seqs: make(map[uint64]*naming.ServiceInfo),
		}
		policy := e.GRPC()
		if p.udp {
			policy = e.UDP()
		}
		p.Subscriber = e.NewSubscriber(Peer{}, policy, func() {})
		pullers[n] = p
	}
	pick := func() *puller { return pullers[random.IntN(len(pullers))] }
	for range 400 {
		p := pick()
		switch k := (subscriptionKey{services[random.IntN(3)], filters[random.IntN(3)]}); random.IntN(12) {
		case 0, 1, 2, 3:
			r.set(k.service, []string{"c1", "c2"}[random.IntN(2)])
			e.Notify(k.service)
		case 4:
			p.Subscribe(k.service, k.filter)
			p.wanted[k] = true
		case 5:
			p.Unsubscribe(k.service, k.filter)
			delete(p.last, k)
			delete(p.wanted, k)
		case 6, 7, 8:
			p.pull(t)
		case 9:
			if len(p.inFlight) > 0 {
				p.answer(random.IntN(len(p.inFlight)), random.IntN(3) > 0)
			}
		default:
			pass(time.Duration(random.IntN(200)) * ms)
			if random.IntN(20) == 0 {
				pass(time.Duration(random.IntN(12)) * time.Second)
			}
		}
		synctest.Wait()
		require.LessOrEqual(t, queued(p.Subscriber), len(p.wanted), "one entry for each subscription")
	}
	for range 10 { // the end is calm
		pass(2 * time.Second)
		for _, p := range pullers {
			for p.pull(t) {
				p.answer(len(p.inFlight)-1, true)
			}
		}
	}
	for n, p := range pullers {
		for k := range p.wanted {
			require.Same(t, r.ServiceInfo(k.service, k.filter), p.last[k], "subscriber %d, %v", n, k)
		}
		require.Zero(t, awaited(p.Subscriber))
		p.Close()
	}
	require.Zero(t, e.Subscriptions())
	sent, acked, failed := counters(t, reg, "rollcall_push_sent_total"), counters(t, reg, "rollcall_push_acked_total"), counters(t, reg, "rollcall_push_failed_total")
	require.GreaterOrEqual(t, sent["grpc"], acked["grpc"]+failed["grpc"])
}
