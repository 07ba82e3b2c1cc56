package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"rollcall/naming"
	"rollcall/server/wire"
)

// pair is two nodes with one table, as if replication took no time: clients come to
// n1, and n2 owns them until something else is said.
type pair struct {
	n1, n2 *fixture
	owner  atomic.Int32 // 1 or 2
	calm   atomic.Bool
	broken atomic.Bool // n2 does not answer n1

	mu    sync.Mutex
	calls map[string]int
}

// asked returns how often n2 was asked something.
func (p *pair) asked(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// paired runs a test on the two, started, in a bubble.
func paired(t *testing.T, run func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pair{n1: newFixture(t), calls: make(map[string]int)}
		p.n2 = &fixture{
			ephemeral: p.n1.ephemeral, persistent: p.n1.persistent, metrics: prometheus.NewRegistry(),
			watches: make(map[naming.ServiceKey]bool),
		}
		p.n2.open(t)
		p.owner.Store(2)
		p.calm.Store(true)
		p.begin(t)
		run(t, p)
	})
}

// begin links the two and starts them.
func (p *pair) begin(t *testing.T) {
	t.Helper()
	service := &peerService{registry: p.n2.Registry, mark: func() *wire.ChangeReply { return &wire.ChangeReply{Node: "n2"} }}
	for n, f := range []*fixture{p.n1, p.n2} {
		self := int32(n + 1)
		*f.nodes = ownership{
			owner: func(string) (string, bool) {
				if p.owner.Load() == 1 {
					return "n1", self == 1
				}
				return "n2", self == 2
			},
			mayExpire: p.calm.Load,
			await:     func(context.Context, *wire.ChangeReply) error { return nil },
			ask: func(ctx context.Context, node, method string, request, reply proto.Message) error {
				p.mu.Lock()
				p.calls[method]++
				p.mu.Unlock()
				require.Equal(t, "n2", node)
				if p.broken.Load() {
					<-ctx.Done()
					return ctx.Err()
				}
				return answer(ctx, service, method, request, reply)
			},
		}
		f.renewals = newRenewals(f.nodes, f.beats.renew)
		f.begin(t)
	}
}

// answer makes a call as the network does, its error included.
func answer(ctx context.Context, s *peerService, method string, request, reply proto.Message) error {
	var got proto.Message
	var err error
	switch q := request.(type) {
	case *wire.RegisterRequest:
		got, err = s.register(ctx, q)
	case *wire.DeregisterRequest:
		got, err = s.deregister(ctx, q)
	case *wire.BeatRequest:
		got, err = s.beat(ctx, q)
	case *wire.RenewRequest:
		got, err = s.renew(ctx, q)
	default:
		err = errors.New(method)
	}
	if err != nil {
		return peerError("n2", status.Convert(peerStatus(err)).Err())
	}
	proto.Merge(reply, got)
	return nil
}

// beatFor sends heartbeats to n1 for a time, each 5 s.
func (p *pair) beatFor(t *testing.T, d time.Duration) {
	t.Helper()
	for range d / (5 * time.Second) {
		time.Sleep(5 * time.Second)
		require.True(t, p.n1.beat(t, service("a"), "10.0.0.1"))
	}
}

func TestOwner_HeartbeatsElsewhereCount(t *testing.T) {
	paired(t, func(t *testing.T, p *pair) {
		p.n1.register(t, service("a"), host("10.0.0.1"))
		require.Equal(t, 1, p.asked("Register"))
		p.beatFor(t, time.Minute)
		require.Equal(t, []string{"10.0.0.1"}, p.n1.hosts(service("a")))
		require.Zero(t, p.asked("Beat"), "n1 answers by itself")
		require.InDelta(t, 12, p.asked("Renew"), 1)

		time.Sleep(14900 * ms)
		require.Equal(t, []string{"10.0.0.1"}, p.n1.hosts(service("a")))
		time.Sleep(400 * ms)
		i, err := p.n1.Instance(service("a"), host("10.0.0.1").Key())
		require.NoError(t, err)
		require.False(t, i.Healthy)
		require.True(t, p.n1.beat(t, service("a"), "10.0.0.1"))
		require.Equal(t, 1, p.asked("Beat"), "what is to heal goes to the owner at once")
		require.Equal(t, []string{"10.0.0.1"}, p.n1.hosts(service("a")))
		time.Sleep(30300 * ms)
		require.Empty(t, p.n1.hosts(service("a")))
	})
}

func TestOwner_DeregistrationAndUnknownGoToTheOwner(t *testing.T) {
	paired(t, func(t *testing.T, p *pair) {
		require.False(t, p.n1.beat(t, service("a"), "10.0.0.1"))
		require.Equal(t, 1, p.asked("Beat"))
		require.NoError(t, p.n1.Deregister(t.Context(), service("a"), "10.0.0.1:80", true, naming.InstanceKey{IP: "10.0.0.1", Port: 80}))
		require.Equal(t, 1, p.asked("Deregister"), "it may be there and not yet here")
		a, err := p.n1.Beat(t.Context(), service("a"), "10.0.0.1", 80, host("10.0.0.1"))
		require.NoError(t, err)
		require.True(t, a.Known)
		require.Equal(t, []string{"10.0.0.1"}, p.n1.hosts(service("a")))
	})
}

func TestOwner_FaultsOfRequestsPassTheBorder(t *testing.T) {
	paired(t, func(t *testing.T, p *pair) {
		require.NoError(t, p.n2.Register(t.Context(), service("a"), "10.0.0.9:80", host("10.0.0.9", persistent)))
		err := p.n1.Register(t.Context(), service("a"), "10.0.0.1:80", host("10.0.0.1"))
		require.Equal(t, "Current service g@@a is persistent service, can't register ephemeral instance.", fault(t, naming.FaultKind, err))
	})
}

func TestOwner_WhoDoesNotAnswerIsPassedOver(t *testing.T) {
	paired(t, func(t *testing.T, p *pair) {
		p.broken.Store(true)
		began := time.Now()
		p.n1.register(t, service("a"), host("10.0.0.1"))
		require.Equal(t, ownerTimeout, time.Since(began))
		require.Equal(t, []string{"10.0.0.1"}, p.n1.hosts(service("a")))
		p.n2.beats.took(service("a"), "10.0.0.1:80", host("10.0.0.1")) // it comes by replication
		p.beatFor(t, 10*time.Second)
		p.broken.Store(false) // what has not gone through goes now, with the time of its coming
		p.beatFor(t, time.Minute)
		require.Equal(t, []string{"10.0.0.1"}, p.n1.hosts(service("a")))
		time.Sleep(30300 * ms)
		require.Empty(t, p.n1.hosts(service("a")))
	})
}

func TestOwner_NewOwnerWaitsAFullPeriod(t *testing.T) {
	paired(t, func(t *testing.T, p *pair) {
		p.n1.register(t, service("a"), host("10.0.0.1"))
		time.Sleep(14 * time.Second)
		p.owner.Store(1)
		p.n1.beats.took(service("a"), "10.0.0.1:80", host("10.0.0.1"))
		time.Sleep(14900 * ms)
		require.Equal(t, []string{"10.0.0.1"}, p.n1.hosts(service("a")))
		time.Sleep(400 * ms)
		i, err := p.n1.Instance(service("a"), host("10.0.0.1").Key())
		require.NoError(t, err)
		require.False(t, i.Healthy)
		time.Sleep(15 * time.Second)
		require.Empty(t, p.n1.hosts(service("a")))
	})
}

func TestOwner_NothingExpiresWhileNobodyCanTell(t *testing.T) {
	paired(t, func(t *testing.T, p *pair) {
		p.n1.register(t, service("a"), host("10.0.0.1"))
		p.calm.Store(false)
		time.Sleep(5 * time.Minute)
		require.Equal(t, []string{"10.0.0.1"}, p.n1.hosts(service("a")))
		p.calm.Store(true)
		time.Sleep(14 * time.Second)
		i, err := p.n1.Instance(service("a"), host("10.0.0.1").Key())
		require.NoError(t, err)
		require.True(t, i.Healthy)
		time.Sleep(17 * time.Second)
		require.Empty(t, p.n1.hosts(service("a")))
	})
}

func TestOwner_LiveIsWhoWasHeardLately(t *testing.T) {
	paired(t, func(t *testing.T, p *pair) {
		p.n1.register(t, service("a"), host("10.0.0.1"))
		require.True(t, p.n2.beats.live(service("a"), "10.0.0.1:80"))
		require.False(t, p.n1.beats.live(service("a"), "10.0.0.1:80"), "it has heard no heartbeat")
		require.True(t, p.n1.beat(t, service("a"), "10.0.0.1"))
		require.True(t, p.n1.beats.live(service("a"), "10.0.0.1:80"))
		time.Sleep(15 * time.Second)
		require.False(t, p.n1.beats.live(service("a"), "10.0.0.1:80"))
	})
}
